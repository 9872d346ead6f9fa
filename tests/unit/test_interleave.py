"""Two hosts, or two QEMUs, in the same shuffled rounds: whole runs on fake machines."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.answers import experiment_data
from tests.fake_machine import Reply
from tests.fake_testbed import SEVEN, Lab, bench
from tests.sample import sample_experiment
from tests.unit.test_runner import identity
from vmtax.analysis import comparisons
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.by_workload import view
from vmtax.analysis.emulation import emulated_treatments
from vmtax.analysis.noise import noise_floor
from vmtax.cli.measuring import _alone
from vmtax.cli.work import RunWork
from vmtax.core.events import NoticeEvent, RunStarted
from vmtax.core.records import Experiment, Treatment
from vmtax.design.interleaved import both
from vmtax.experiment.resume import CannotResume
from vmtax.experiment.runner import Options
from vmtax.hypervisor import Qemu
from vmtax.machine import MachineLost
from vmtax.machine.hold import Turn
from vmtax.plan.schema import parse
from vmtax.report.render.html import render_html
from vmtax.report.render.markdown import render_markdown
from vmtax.report.render.rows import rows
from vmtax.report.sections.summary import findings
from vmtax.report.show import render
from vmtax.storage import Target
from vmtax.testbed.machines.interleave import why_not
from vmtax.testbed.session.exclusive import HostBusy
from vmtax.testbed.session.session import CannotMeasure, TestbedOptions

B = "ssh://b"
QEMU = "/opt/qemu/bin/qemu-system-x86_64"
FACTORS = "factors: {disk.cache: [none, writeback]}\n"


@pytest.fixture
def lab(tmp_path: Path) -> Callable[..., Lab]:
    def made(other: str, plan: str = SEVEN, answer: Callable[[int, str], Reply] | None = None) -> Lab:
        lab = Lab(plan, answer or (lambda number, name: bench(rate=10_000 + number)), tmp_path)
        lab.interleave_with = other
        if other == B:
            lab.other_facts = {"cpu_model": "Another CPU", "boot_id": "other"}
        return lab

    return made


def pairs(found: Experiment) -> set[tuple[str, str]]:
    return {(entry.baseline, entry.treatment) for entry in Analysis(found).comparisons}


def slower_there(number: int, name: str) -> Reply:
    """The other side does nine tenths; every round differs from every other."""
    rate = 10_000 + 37 * number
    return bench(rate=rate * 9 // 10 if B in name or QEMU in name else rate)


def test_two_hosts_run_every_treatment_in_every_round_and_are_compared_directly(lab: Callable[..., Lab]) -> None:
    made = lab(B, answer=slower_there)
    found = made.run()
    names = {"host", "vm", "vm again", f"host on {B}", f"vm on {B}", f"vm again on {B}"}
    for number in range(1, 8):
        assert {trial.treatment for trial in found.trials if trial.round == number} == names
    assert {treatment.side for treatment in found.treatments if B in treatment.name} == {B}
    assert pairs(found) == {
        ("host", f"host on {B}"),
        ("vm", f"vm on {B}"),
        ("host", "vm"),
        (f"host on {B}", f"vm on {B}"),
        ("vm", "vm again"),
        (f"vm on {B}", f"vm again on {B}"),
    }
    side = next(c for c in Analysis(found).comparisons if (c.baseline, c.treatment) == ("vm", f"vm on {B}"))
    assert side.ratio == pytest.approx(0.9, abs=0.001) and side.verdict == "worse" and side.rounds == 7
    assert made.watched.count("host") == made.watched.count(B) == 21, "each half was opened on its own host"
    assert found.facts["host"]["cpu_model"] == "Fake CPU" and found.facts[B]["cpu_model"] == "Another CPU"
    (note,) = [note for note in found.notes if "cpu_model" in note]
    assert note == f"cpu_model differs between the sides: Fake CPU; on {B} Another CPU"
    assert NoticeEvent(note) in made.events, "it is told while it runs, too"


def test_two_qemus_share_the_host_layer(lab: Callable[..., Lab]) -> None:
    made = lab(QEMU, answer=slower_there)
    found = made.run()
    other = f"vm with {QEMU}"
    again = "vm again", f"vm again with {QEMU}"
    assert [treatment.name for treatment in found.treatments] == ["host", "vm", again[0], other, again[1]]
    floors = {("vm", again[0]), (other, again[1])}
    assert pairs(found) == {("vm", other), ("host", "vm"), ("host", other)} | floors
    assert {(floor.treatment, floor.effect.comparison.rounds) for floor in noise_floor(Analysis(found))} == {
        ("vm", 7),
        (other, 7),
    }
    assert made.watched.count(f"host with {QEMU}") == 14
    assert found.facts["host"]["qemu"]["command"] == ["qemu-system-x86_64"]
    assert found.facts[f"host with {QEMU}"]["qemu"]["command"] == [QEMU]
    assert "cpu_model" not in found.facts[f"host with {QEMU}"]
    assert any("qemu.text differs between the sides" in note for note in found.notes)


@pytest.mark.variations
def test_factors_are_compared_within_each_side_and_level_by_level_across(lab: Callable[..., Lab]) -> None:
    found = lab(QEMU, SEVEN + FACTORS).run()
    names = ("vm", "vm disk.cache=writeback")
    theirs = tuple(f"{name} with {QEMU}" for name in names)
    assert pairs(found) == {
        *zip(names, theirs, strict=True),
        names,
        theirs,
        *(("host", name) for name in (*names, *theirs)),
        ("vm", "vm again"),
        (f"vm with {QEMU}", f"vm again with {QEMU}"),
    }


def test_what_the_second_qemu_cannot_give_is_left_out_on_both_sides(
    lab: Callable[..., Lab], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacks(qemu: Qemu, machine: object, model: str, accelerator: str) -> str | None:
        return "emulation (TCG) lacks pcid" if qemu.command == (QEMU,) else None

    monkeypatch.setattr(Qemu, "why_no_cpu", lacks)
    found = lab(QEMU, SEVEN + "factors: {cpu.model: [host, Nehalem]}\n").run()
    assert {each.levels.get("cpu.model", "host") for each in found.treatments} == {"host"}
    wanted = f"vm cpu.model=Nehalem: {QEMU}: cpu.model=Nehalem: emulation (TCG) lacks pcid"
    assert any(note.endswith(wanted) for note in found.notes), found.notes


def test_the_repeat_of_a_treatment_is_one_for_each_side() -> None:
    plain = (Treatment("vm", "vm"), Treatment("vm again", "vm", repeats="vm"))
    found = both(plain, B)
    assert [(t.name, t.repeats) for t in found[2:]] == [(f"vm on {B}", None), (f"vm again on {B}", f"vm on {B}")]
    assert comparisons.side_contrasts(found) == (("vm", f"vm on {B}"),)


def test_reports_tell_the_sides_first_and_each_thing_once(lab: Callable[..., Lab]) -> None:
    found = lab(B, SEVEN + FACTORS, answer=slower_there).run()
    told = {finding.resource: finding.sentence for finding in findings(Analysis(found))}
    assert re.match(
        rf"CPU throughput: the host on {B} takes 11[.\d]* % \(11.*\) more time than that on local", told["CPU"]
    )
    assert f"; the VM on {B} takes 11" in told["CPU"]
    own, other = view(Analysis(found)).workloads
    assert (own.title, other.title) == ("CPU on local", f"CPU on {B}")
    assert own.layers == other.layers == ("host", "vm"), "under its own title a treatment need not say whose it is"
    sides = [entry.treatment for entry in own.between if entry.metric.name == "chess.nodes_per_second"]
    assert sides == ["host", "vm", "vm disk.cache=writeback"] and other.between == ()
    for section in (own, other):
        settings = {(entry.treatment, entry.baseline) for case in section.cases for entry in case.settings}
        assert settings == {("vm disk.cache=writeback", "vm")}


def test_every_form_of_report_names_both_sides(lab: Callable[..., Lab]) -> None:
    found = lab(QEMU, answer=slower_there).run()
    screen = Console(file=io.StringIO(), width=80)
    screen.print(render(Analysis(found), full=True))
    texts = (
        screen.file.getvalue(),
        render_markdown(Analysis(found)),
        render_html(Analysis(found)),
    )
    for text in texts:
        assert "CPU with" in text and QEMU in text.replace("\\", "")
    assert f"CPU: {QEMU} against qemu-system-x86_64</h3>" in texts[2]
    data, _ = [entry for entry in experiment_data(Analysis(found))["treatments"] if entry["side"]]
    assert data["name"] == f"vm with {QEMU}" and data["side"] == QEMU
    table = rows(Analysis(found))
    side, treatment = (list(table.columns).index(name) for name in ("side", "treatment"))
    assert {("host", ""), ("vm", ""), (f"vm with {QEMU}", QEMU)} <= {(row[treatment], row[side]) for row in table}


@pytest.mark.variations
def test_a_ranking_is_of_one_side(lab: Callable[..., Lab]) -> None:
    plan = SEVEN + "factors: {disk.cache: [none, writeback, unsafe]}\n"
    found = Analysis(lab(B, plan, answer=slower_there).run()).rankings
    assert {(ranking.layer, ranking.side) for ranking in found} == {("vm", ""), ("vm", B)}
    assert all((B in standing.treatment) == (ranking.side == B) for ranking in found for standing in ranking.standings)


def test_how_long_it_took_interleaved_says_nothing_of_a_plain_run(lab: Callable[..., Lab]) -> None:
    made = lab(B)
    plan = made.run().plan
    with made.store as store:
        assert store.seconds_per_round(plan, "local") is None
        assert store.seconds_per_round(plan, "local", B) is not None


def test_a_run_on_the_second_host_keeps_others_off_it(lab: Callable[..., Lab]) -> None:
    made = lab(B)
    refused: list[str] = []

    def answer(number: int, name: str) -> Reply:
        for host in (B, "local", "ssh://c"):
            plan = made.plan.model_copy(update={"host": host})
            with contextlib.suppress(HostBusy), made.store as store:
                refused.append(host)
                _alone(store, RunWork(plan, Options("vmtax run")), Turn())
                refused.remove(host)
        return bench()

    made.answer = answer
    made.run()
    assert set(refused) == {B, "local"}


@pytest.mark.parametrize("other", [B, QEMU])
@pytest.mark.varied(1)
def test_an_interleaved_run_is_finished_in_the_order_that_was_drawn(lab: Callable[..., Lab], other: str) -> None:
    whole = [identity(trial) for trial in lab(other, SEVEN.replace("fake", "whole")).run().trials]
    ended: list[int] = []

    def answer(number: int, name: str) -> Reply:
        if (number, name) == (4, "vm") and not ended:
            ended.append(number)
            raise KeyboardInterrupt
        return bench()

    made = lab(other, answer=answer)
    with pytest.raises(KeyboardInterrupt):
        made.run()
    assert [identity(trial) for trial in made.resume().trials] == whole


@pytest.mark.variations
def test_another_second_host_is_no_place_to_go_on(lab: Callable[..., Lab]) -> None:
    def answer(number: int, name: str) -> Reply:
        if number == 3:
            raise KeyboardInterrupt
        return bench()

    made = lab(B, answer=answer)
    with pytest.raises(KeyboardInterrupt):
        made.run()
    made.other_facts["kernel_release"] = "7.0"
    with pytest.raises(CannotResume, match=rf"kernel_release was None, is 7\.0 \({B}\)"):
        made.resume()
    del made.other_facts["kernel_release"]
    made.other_facts["boot_id"] = "rebooted"
    made.answer = lambda number, name: bench()
    assert any("rebooted in between" in note for note in made.resume().notes)


def test_a_lost_second_host_ends_the_run(lab: Callable[..., Lab]) -> None:
    def answer(number: int, name: str) -> Reply:
        if (number, name) == (3, f"vm on {B}"):
            raise MachineLost(f"{B}: the connection is gone")
        return bench()

    made = lab(B, answer=answer)
    machine = made.machine

    def second_is_gone(path: str) -> object:
        made.host_answers = MachineLost("gone") if path == B else Reply()
        return machine(path)

    made.machine = second_is_gone
    with pytest.raises(MachineLost):
        made.run()
    assert made.experiment.state == "failed"


@pytest.mark.parametrize(
    ("other", "emulating", "words"),
    [
        (B, B, f"local runs guests on KVM, {B} emulates them"),
        (B, "host", f"{B} runs guests on KVM, local emulates them"),
        (QEMU, QEMU, f"qemu-system-x86_64 runs guests on KVM, {QEMU} emulates them"),
    ],
)
def test_emulated_is_not_compared_with_not_emulated(
    lab: Callable[..., Lab], other: str, emulating: str, words: str
) -> None:
    made = lab(other)
    made.emulating = {emulating}
    with pytest.raises(CannotMeasure, match=words) as failure:
        made.run()
    assert "\n" not in str(failure.value)
    with made.store as store:
        assert store.experiments() == [], "nothing was begun"


@pytest.mark.parametrize("layers", ["[host]", "[host, vm]"])
@pytest.mark.parametrize("real", ["local", B])
def test_an_emulated_host_is_not_interleaved_with_a_real_one(lab: Callable[..., Lab], layers: str, real: str) -> None:
    made = lab(B, SEVEN.replace("[host, vm]", layers))
    made.facts["emulated_cpu"] = real != "local"
    made.other_facts["emulated_cpu"] = real != B
    played = B if real == "local" else "local"
    with pytest.raises(CannotMeasure, match=re.escape(f"{played} is itself emulated (TCG) and {real} is not")):
        made.run()


def test_two_emulated_hosts_are_interleaved_and_every_figure_says_so(lab: Callable[..., Lab]) -> None:
    made = lab(B)
    made.facts["emulated_cpu"] = True
    found = made.run()
    assert emulated_treatments(found) == {treatment.name for treatment in found.treatments}
    (started,) = (event for event in made.events if isinstance(event, RunStarted))
    assert started.emulated, "the screen marks them from the first interval on"


def test_root_on_one_host_only_is_refused(lab: Callable[..., Lab]) -> None:
    made = lab(B)
    made.root_on = {"other"}
    with pytest.raises(CannotMeasure, match=f"root on {B} and a user on local: bridge and cold caches"):
        made.run()


def test_two_names_of_one_machine_are_refused(lab: Callable[..., Lab]) -> None:
    made = lab(B)
    made.other_facts = {}
    with pytest.raises(CannotMeasure, match=f"{B} is the machine that local is"):
        made.run()


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ("local", "is the plan's own host"),
        ("ssh://", "must be local, ssh://"),
        ("ssh:b", "must be local, ssh://"),
        ("lab:A b", "must be lab or lab:NAME"),
        ("qemu-system-x86_64", "is the QEMU that the plan is measured with"),
        ("", "must be local, ssh://"),
        ("--version", "must be local, ssh://"),
    ],
)
def test_what_cannot_be_interleaved_is_said_at_once(other: str, words: str) -> None:
    assert words in (why_not(parse(SEVEN), TestbedOptions(interleave_with=other)) or "")


def test_a_second_qemu_needs_guests() -> None:
    plan = parse("name: x\nlayers: [host]\nworkloads: [chess]")
    assert "no guests" in (why_not(plan, TestbedOptions(interleave_with=QEMU)) or "")
    assert why_not(plan, TestbedOptions(interleave_with=B)) is None


def test_what_may_be_erased_here_may_not_be_there() -> None:
    target = Target(devices=("/dev/sdb",), erase=frozenset({"/dev/sdb"}))
    assert "--erase would" in (why_not(parse(SEVEN), TestbedOptions(target=target, interleave_with=B)) or "")
    assert why_not(parse(SEVEN), TestbedOptions(target=target, interleave_with=QEMU)) is None


def test_the_first_configuration_of_each_layer_stands_for_it_on_both_sides() -> None:
    own = (Treatment("host", "host"), Treatment("vm", "vm"), Treatment("vm disk.cache=unsafe", "vm"))
    there = tuple(replace(one, name=f"{one.name} on {B}", side=B) for one in own)
    run = replace(sample_experiment(rounds=1), treatments=(*own, *there))
    assert list(Analysis(run).firsts) == ["host", "vm", f"host on {B}", f"vm on {B}"]
