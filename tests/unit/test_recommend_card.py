"""The recommended network card, out of a run whose truth is planted, in every report and on the command line."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner, Result

from tests.sample_network import PATHS, network_experiment
from tests.sample_storage import storage_experiment
from tests.unit.test_report import check_golden, on_terminal, printed
from tests.unit.test_report_html import Page
from tools import reference
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.requirements import Requirements
from vmtax.cli import app
from vmtax.core.errors import CannotDo
from vmtax.core.records import Experiment, Measurement, Metric
from vmtax.design.card_features import NOT_RECOMMENDED
from vmtax.design.card_features import PATHS as DOCUMENTED
from vmtax.design.features import CARD_FEATURES
from vmtax.design.net import Path as NetPath
from vmtax.recommend import CARD, Advice
from vmtax.report.render.html import render_html
from vmtax.report.render.markdown import render_markdown
from vmtax.report.sections.recommendation import (
    Recommendation,
    recommendation,
    recommendations,
    sections,
    to_apply,
    why_not,
)
from vmtax.report.show import render
from vmtax.store import Store

SAMPLE = network_experiment()


def of(experiment: Experiment, *needs: str) -> Recommendation:
    found = recommendation(Analysis(experiment, requirements=Requirements(needs)), CARD)
    assert found is not None
    return found


def advised(experiment: Experiment, *needs: str) -> Advice:
    return of(experiment, *needs).advice


def chosen(experiment: Experiment, *needs: str) -> str | None:
    choice = advised(experiment, *needs).choice
    return choice.treatment if choice else None


def test_whose_cpu_pays_ranks_them_at_the_same_load() -> None:
    found = advised(SAMPLE)
    assert [option.treatment.removeprefix("vm net.path=") for option in found.options] == [
        *("sriov", "vhost", "vm", "e1000e", "rtl8139")
    ]
    assert found.choice == found.options[0] and found.by_cpu
    assert found.by == "the host's CPU time per GB, inbound and outbound"
    vhost = found.options[1].best
    assert vhost.dearer == pytest.approx(22 / 13 - 1, abs=0.03) and vhost.dearer_low and vhost.slower is None
    assert found.runner_up and found.runner_up.treatment == "vm net.path=vhost"
    assert re.fullmatch(
        r"\+\d+ % \(\d+–\d+\) host CPU, but with migratable, without no-host-cpu, isolation", found.runner_up_words
    )


@pytest.mark.parametrize(
    ("needs", "choice"),
    [
        (("migratable",), "vm net.path=vhost"),
        (("no-host-cpu",), "vm net.path=sriov"),
        (("isolation",), "vm net.path=sriov"),
        (("no-host-cpu", "isolation"), "vm net.path=sriov"),
        (("migratable", "isolation"), None),
    ],
)
def test_what_is_needed_comes_before_the_cost(needs: tuple[str, ...], choice: str | None) -> None:
    assert chosen(SAMPLE, *needs) == choice


def test_where_nothing_meets_the_needs_every_choice_has_its_reason() -> None:
    found = of(SAMPLE, "migratable", "isolation")
    assert found.advice.notes[0].endswith("ask for less with --needs, or measure other choices.")
    reasons = dict(found.advice.refused)
    assert reasons["vm net.path=sriov"].startswith("migratable: no (QEMU refuses to migrate")
    assert reasons["vm"] == "isolation: no (a bridge of the host's kernel carries the packets of all guests)"
    with pytest.raises(CannotDo, match="No recommendation: no choice of this run is left") as refused:
        to_apply(found)
    assert "\n" not in str(refused.value)


def shared(experiment: Experiment, share: float, path: str = "sriov") -> Experiment:
    """The same run, in which the host's side has that share of the host's CPU time on one path."""
    trials = []
    for trial in experiment.trials:
        values = {m.metric.measure: m for m in trial.measurements}
        if trial.treatment.endswith(path):
            side, cpu = values["host_side_seconds"], values["host_cpu_seconds"]
            noise = side.value / cpu.value / PATHS[path][1]
            values["host_side_seconds"] = Measurement(side.metric, cpu.value * share * noise)
        trials.append(dataclasses.replace(trial, measurements=tuple(values.values())))
    return dataclasses.replace(experiment, trials=tuple(trials))


def state(experiment: Experiment, path: str = "sriov") -> tuple[str, str]:
    features = CARD.looked_at(Analysis(experiment))
    name = next(t.name for t in experiment.treatments if t.levels["net.path"] == path)
    (found,) = (feature for feature in features[name] if feature.name == "no-host-cpu")
    return found.state, found.words


@pytest.mark.parametrize(("share", "answer"), [(0.03, "yes"), (0.0999, "not tried"), (0.13, "no")])
def test_the_interval_of_the_hosts_share_decides_whether_it_is_small(share: float, answer: str) -> None:
    """At the limit the interval contains it, and more rounds would decide."""
    experiment = shared(SAMPLE, share)
    found, words = state(experiment)
    assert found == answer
    assert re.fullmatch(r"\d+(\.\d)? % \(\d+(\.\d)?–\d+(\.\d)?\) of the host's CPU time, (in|out)bound", words)
    assert (chosen(experiment, "no-host-cpu") is not None) == (answer == "yes")


def test_the_hosts_share_is_not_known_of_few_rounds_or_without_kvm() -> None:
    assert state(network_experiment(rounds=4)) == ("not tried", "so few rounds give no interval")
    alone = [
        dataclasses.replace(t, measurements=tuple(m for m in t.measurements if "side" not in m.metric.name))
        for t in SAMPLE.trials
    ]
    emulated = dataclasses.replace(SAMPLE, trials=tuple(alone))
    assert state(emulated) == ("not tried", "the host's side is measured only of guests on KVM")
    refused = dict(advised(emulated, "no-host-cpu").refused)
    assert refused["vm"] == "no-host-cpu: not tried (the host's side is measured only of guests on KVM)"


def test_a_path_that_does_not_carry_the_rate_is_left_out_with_both_rates() -> None:
    found = advised(network_experiment(failing="sriov"))
    assert found.choice and found.choice.treatment == "vm net.path=vhost"
    assert dict(found.refused)["vm net.path=sriov"] == (
        "complete results in only 0 of 7 rounds (tcp-in: 61 Mbit/s were reached of the 100 that were asked for, so this"
        " is full load)"
    )


def at_full_load(experiment: Experiment) -> Experiment:
    """The same run without a rate: it measured throughput, and the host's CPU at loads that differ."""
    trials = []
    for trial in experiment.trials:
        speed = {"sriov": 9.4e9, "vhost": 9.0e9}.get(trial.treatment.rpartition("=")[2], 1e9)
        rate = Measurement(Metric(f"net.{trial.case}.bits_per_second", "bit/s", "higher"), speed)
        trials.append(dataclasses.replace(trial, measurements=(*trial.measurements, rate)))
    return dataclasses.replace(experiment, trials=tuple(trials))


def test_at_full_load_speed_ranks_them_and_the_hosts_cpu_does_not_count() -> None:
    found = advised(at_full_load(SAMPLE))
    assert not found.by_cpu and found.by == "the mean of 2 figures of the network"
    assert found.choice and found.choice.treatment == "vm net.path=sriov" and found.choice.best.dearer is None
    assert found.options[1].best.slower == pytest.approx(1 - 9.0 / 9.4)
    assert any("compares only at the same load: give the plan's workload net a `rate`" in note for note in found.notes)


def test_latency_stands_beside_the_cost() -> None:
    found = advised(network_experiment(latency=True))
    assert found.by_cpu and found.options[1].best.slower == pytest.approx(0.5, abs=0.02)
    assert "time, +" in found.runner_up_words and "host CPU" in found.runner_up_words


def test_guests_whose_cards_differ_are_measured_and_not_recommended() -> None:
    """At the number of guests at which is chosen, and at another."""
    sriov = next(t for t in SAMPLE.treatments if t.levels["net.path"] == "sriov")
    for levels, why in (
        ({"net.path": "sriov+vhost"}, "net.path=sriov+vhost: its guests have different cards, so there is none to"),
        ({"net.path": "sriov+vhost", "guest.count": "4"}, "measured under another condition than guest.count=1"),
        ({"net.path": "carrier-pigeon"}, "net.path=carrier-pigeon is none of its levels: tap, vhost"),
    ):
        mixed = dataclasses.replace(sriov, levels=levels)
        treatments = tuple(mixed if t is sriov else t for t in SAMPLE.treatments)
        found = advised(dataclasses.replace(SAMPLE, treatments=treatments))
        assert found.choice and found.choice.treatment == "vm net.path=vhost"
        assert dict(found.refused)[sriov.name].startswith(why)


def test_every_path_of_one_card_is_documented() -> None:
    assert sorted([*DOCUMENTED, *NOT_RECOMMENDED]) == sorted(NetPath)
    for documented in DOCUMENTED.values():
        assert {feature.name for feature in documented.features} == CARD_FEATURES.keys() - {"no-host-cpu"}
        assert all(feature.words for feature in documented.features)


def test_a_run_of_one_card_or_without_figures_recommends_none() -> None:
    assert not recommendations(Analysis(network_experiment(paths=("vhost",))))
    bare = dataclasses.replace(SAMPLE, trials=())
    assert not recommendations(Analysis(bare))
    assert "has no figures of the network that compare its cards" in why_not(Analysis(bare), CARD)
    assert not why_not(Analysis(SAMPLE), CARD)


# --- what is reported


def test_the_sections_on_a_terminal() -> None:
    text = on_terminal(*sections(of(SAMPLE, "migratable")))
    assert max(map(len, text.splitlines())) <= 80
    check_golden("show-card-advice.txt", text)


def test_every_report_has_it() -> None:
    analysis = Analysis(SAMPLE)
    found = of(SAMPLE)
    terminal = printed(render(analysis, full=True), 300)
    page = Page(render_html(analysis)).prose()
    markdown = render_markdown(analysis).replace("\\", "").replace("*", "")
    for text in (" ".join(each.replace("\N{NO-BREAK SPACE}", " ").split()) for each in (terminal, page, markdown)):
        assert CARD.title in text and CARD.gives_up in text and found.second in text
        assert all(line in text for line in found.advice.reasons)
    assert "qm set VMID --machine q35 --hostpci0" in page and '<interface type="hostdev" managed="yes">' in page


# --- the command line


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    for place in ("DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{place}_HOME", str(tmp_path))
    with Store() as opened:
        yield opened


def run(command: str) -> Result:
    return CliRunner().invoke(app, shlex.split(command))


def test_what_is_recommended_is_what_is_applied(store: Store) -> None:
    store.put(SAMPLE)
    shown = run("show --needs migratable").stdout
    apply = re.search(r"Apply it +(vmtax show .*?) *\n", shown)
    assert apply and apply[1].endswith("--apply --needs migratable")
    text = run(apply[1].removeprefix("vmtax ")).stdout
    assert text.startswith("# vm net.path=vhost, which meets migratable: chosen by the host's CPU time per")
    for part in ("ip tuntap add dev vm1 mode tap", "vhost=on", '<driver name="vhost" />', "qm set VMID --net0 virtio="):
        assert part in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("needs", "why"),
    [
        ("--needs savevm", "--needs: run 20261121-0412-network-0001 has fewer than 2 ways to keep a guest's disk"),
        ("--accept-loss", "--accept-loss: run 20261121-0412-network-0001 has fewer than 2 ways to keep a guest's disk"),
        ("--needs migratble", "--needs: unknown need 'migratble'; did you mean migratable? legal: durable"),
        ("--apply --needs migratable,isolation", "No recommendation: no choice of this run is left"),
    ],
)
def test_needs_that_cannot_be_met_are_refused_in_one_line(needs: str, why: str, store: Store) -> None:
    store.put(SAMPLE)
    error = str(run(f"show {needs}").exception)
    assert error.startswith(why) and "\n" not in error


def test_a_disk_is_not_asked_for_what_a_card_is(store: Store) -> None:
    store.put(storage_experiment(2))
    assert "has fewer than 2 kinds of network card for a guest" in str(run("show --needs isolation").exception)


def test_json_answers_are_what_the_schema_allows(store: Store) -> None:
    store.put(SAMPLE)
    schema = json.loads((reference.DIRECTORY / "vmtax-1.schema.json").read_text())
    answer = json.loads(run("show --json --needs no-host-cpu").stdout)
    jsonschema.Draft202012Validator(schema).validate(answer)
    found = answer["data"]["card_advice"]
    assert answer["data"]["advice"] is None and found["choice"]["treatment"] == "vm net.path=sriov"
    assert found["export"]["qemu"] == ["-device", "vfio-pci,host=0000:01:10.0"] and found["by_cpu"]
    assert all([one["name"] for one in row["features"]] == [*CARD_FEATURES] for row in found["give_ups"])
