"""The recommended network card, out of a run whose truth is planted, in every report and on the command line."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import jsonschema_rs
import pytest
from typer.testing import CliRunner, Result

from tests.sample_network import PATHS, network_experiment
from tests.sample_storage import storage_experiment
from tests.unit.test_report import check_golden, on_terminal, printed
from tests.unit.test_report_html import Page
from tools import reference
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.requirements import Requirements
from vmtax.analysis.weight_profiles import asked
from vmtax.cli import app
from vmtax.core.errors import CannotDo
from vmtax.core.records import Experiment, Measurement, Metric, Trial
from vmtax.design.card_features import PATHS as DOCUMENTED
from vmtax.design.features import CARD_FEATURES, SMALL, Feature
from vmtax.design.net import Path as NetPath
from vmtax.recommend import CARD, DISK, Advice
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
IOPS = Metric("disk.randwrite-4k-qd1.iops", "1/s", "higher")


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


def test_where_nothing_tells_two_cards_apart_the_usual_one_is_chosen() -> None:
    found = advised(network_experiment(rounds=1, paths=("tap", "vhost")))
    assert found.choice and found.choice.treatment == "vm net.path=vhost"


def test_where_nothing_meets_the_needs_every_choice_has_its_reason() -> None:
    found = of(SAMPLE, "migratable", "isolation")
    assert found.advice.notes[0].endswith("ask for less with --needs, or measure other choices.")
    reasons = dict(found.advice.refused)
    assert reasons["vm net.path=sriov"].startswith("migratable: no (QEMU refuses to migrate")
    assert reasons["vm"] == "isolation: no (a bridge of the host's kernel carries the packets of all guests)"
    with pytest.raises(CannotDo, match="No recommendation: no choice of this run is left") as refused:
        to_apply(found)
    assert "\n" not in str(refused.value)


def against_vhost(experiment: Experiment, ratio: float) -> Experiment:
    """The same run, in which the host's side of the function is that much of vhost's, but for the noise of both."""
    trials = []
    for trial in experiment.trials:
        values = {m.metric.measure: m for m in trial.measurements}
        if trial.treatment.endswith("sriov"):
            side, (cost, share), (of, its) = values["host_side_seconds"], PATHS["sriov"], PATHS["vhost"]
            scaled = side.value / (cost * share) * (of * its) * ratio
            values["host_side_seconds"] = Measurement(side.metric, scaled)
        trials.append(dataclasses.replace(trial, measurements=tuple(values.values())))
    return dataclasses.replace(experiment, trials=tuple(trials))


def answer(experiment: Experiment, path: str = "sriov") -> Feature:
    features = CARD.looked_at(Analysis(experiment))
    name = next(t.name for t in experiment.treatments if t.levels["net.path"] == path)
    (found,) = (feature for feature in features[name] if feature.name == "no-host-cpu")
    return found


@pytest.mark.parametrize(("ratio", "state"), [(0.04, "yes"), (0.49, "not shown"), (0.7, "no")])
def test_the_interval_of_the_hosts_side_decides_whether_it_is_small(ratio: float, state: str) -> None:
    """Near the half the interval contains it, and more rounds would decide."""
    experiment = against_vhost(SAMPLE, ratio)
    found = answer(experiment)
    assert found.state == state
    assert re.fullmatch(
        r"\d+(\.\d)? % \(\d+(\.\d)?–\d+(\.\d)?\) of the host's side of vm net\.path=vhost, (in|out)bound", found.words
    )
    assert (chosen(experiment, "no-host-cpu") is not None) == (state == "yes")


def test_a_card_that_the_host_carries_costs_its_cpu_whatever_was_measured() -> None:
    for path in ("tap", "vhost", "e1000e", "rtl8139"):
        assert (answer(SAMPLE, path).state, answer(SAMPLE, path).how) == ("no", "documented")


def test_what_a_function_saves_is_not_known_of_few_rounds_without_kvm_or_without_another_card() -> None:
    def why(experiment: Experiment) -> str:
        found = answer(experiment)
        assert found.state == "not shown"
        return found.words

    assert why(network_experiment(rounds=4)) == "so few rounds give no interval"
    assert why(network_experiment(paths=("sriov",))) == "no card that the host carries was measured beside it"
    alone = [
        dataclasses.replace(t, measurements=tuple(m for m in t.measurements if "side" not in m.metric.name))
        for t in SAMPLE.trials
    ]
    emulated = dataclasses.replace(SAMPLE, trials=tuple(alone))
    assert why(emulated) == "the host's side is measured only of guests on KVM"
    refused = dict(advised(emulated, "no-host-cpu").refused)
    assert refused["vm net.path=sriov"] == (
        "no-host-cpu: not shown (the host's side is measured only of guests on KVM)"
    )
    assert refused["vm"] == "no-host-cpu: no (the host itself carries its packets)"


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


def test_weights_rank_cards_and_no_sentence_calls_that_speed() -> None:
    names = ("net.tcp-in.host_cpu_seconds", "latency.udp-rr.p50_seconds")
    experiment = network_experiment(latency=True)
    analysis = Analysis(experiment, asked(experiment, "", ",".join(f"{name}=1" for name in names)))
    found = recommendation(analysis, CARD)
    assert found is not None and found.advice.choice and found.advice.choice.treatment == "vm net.path=sriov"
    assert found.advice.reasons[0] == "It is the best of 5 choices, by the score for the given weights."
    assert "weighted cost" in found.advice.runner_up_words and "fastest" not in str(on_terminal(*sections(found)))


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
    assert set(DOCUMENTED) == {path for path in NetPath if len(path.parts) == 1}
    for documented in DOCUMENTED.values():
        assert {feature.name for feature in documented.features} == CARD_FEATURES.keys() - {"no-host-cpu"}
        assert all(feature.words for feature in documented.features)


def test_the_docs_have_every_need_in_the_words_of_the_program() -> None:
    page = (reference.DIRECTORY.parent / "how-to" / "network.md").read_text()
    assert all(f"| `{name}` | {words.split(',')[0]}" in page for name, words in CARD_FEATURES.items())
    assert SMALL == 0.5, "the words say half"


def test_a_run_of_one_card_or_without_figures_recommends_none() -> None:
    assert not recommendations(Analysis(network_experiment(paths=("vhost",))))
    bare = dataclasses.replace(SAMPLE, trials=())
    assert not recommendations(Analysis(bare))
    assert "has no figures of the network that compare its cards" in why_not(Analysis(bare), CARD)
    assert not why_not(Analysis(SAMPLE), CARD)


def with_disks() -> Experiment:
    """A run of two paths, each with two cache modes, of which writeback is twice as fast."""
    base = network_experiment(paths=("tap", "vhost"))
    treatments, trials = [], []
    for one, cache in product(base.treatments, ("none", "writeback")):
        name = f"{one.name} disk.cache={cache}"
        treatments.append(dataclasses.replace(one, name=name, levels={**one.levels, "disk.cache": cache}))
        trials += [dataclasses.replace(trial, treatment=name) for trial in base.trials if trial.treatment == one.name]
        for number in range(1, 8):
            rate = Measurement(IOPS, (20_000 if cache == "writeback" else 10_000) + number)
            trials.append(Trial(number, 1, name, "disk", "randwrite-4k-qd1", 1, "ok", 0.0, 1.0, (rate,)))
    features = {one.name: [Feature("thin", "yes", "tried").to_json()] for one in treatments}
    host = {**base.facts["host"], "disk": {"features": features}}
    facts = {**base.facts, "host": host}
    return dataclasses.replace(base, treatments=tuple(treatments), trials=tuple(trials), boots=(), facts=facts)


def test_a_run_of_disks_and_cards_recommends_both_each_at_the_others_baseline() -> None:
    analysis = Analysis(with_disks(), requirements=Requirements(("durable", "migratable")))
    disk, card = recommendations(analysis)
    assert disk.advice.needs == ("durable",) and card.advice.needs == ("migratable",)
    assert disk.advice.choice and disk.advice.choice.treatment == "vm disk.cache=writeback"
    assert card.advice.choice and card.advice.choice.treatment == "vm net.path=vhost disk.cache=none"
    assert {why for _, why in disk.advice.refused} == {"measured under another condition than net.path=tap"}
    assert {why for _, why in card.advice.refused} == {"measured under another condition than disk.cache=none"}
    page = render_html(analysis)
    assert all(title in page for title in (DISK.title, DISK.gives_up, CARD.title, CARD.gives_up))
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len({*ids})


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


def test_the_published_orders_of_magnitude_stand_beside_the_hosts_side() -> None:
    text = render_markdown(Analysis(SAMPLE)).replace("\N{NO-BREAK SPACE}", " ")
    (row,) = [line for line in text.splitlines() if line.startswith("| virtual function, of virtio with vhost")]
    assert [cell.strip() for cell in row.strip("|").split("|")][1:4] == ["10²", "1–10 %", "–"]
    share = [cell.strip() for cell in row.strip("|").split("|")][-1]
    assert float(share.removesuffix(" %")) == pytest.approx(100 * 13 * 0.03 / (22 * 0.44), rel=0.05)
    assert "virtual function, of" not in render_markdown(Analysis(network_experiment(paths=("tap", "sriov"))))


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
    store.put(storage_experiment(2, few=True))
    assert "has fewer than 2 kinds of network card for a guest" in str(run("show --needs isolation").exception)


def test_json_answers_are_what_the_schema_allows(store: Store) -> None:
    store.put(SAMPLE)
    schema = json.loads((reference.DIRECTORY / "vmtax-1.schema.json").read_text())
    answer = json.loads(run("show --json --needs no-host-cpu").stdout)
    jsonschema_rs.Draft202012Validator(schema).validate(answer)
    found = answer["data"]["card_advice"]
    assert answer["data"]["advice"] is None and found["choice"]["treatment"] == "vm net.path=sriov"
    assert found["export"]["qemu"] == ["-device", "vfio-pci,host=0000:01:10.0"] and found["by_cpu"]
    assert all([one["name"] for one in row["features"]] == [*CARD_FEATURES] for row in found["give_ups"])
