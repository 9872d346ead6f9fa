"""Runs that compare how their host is booted, on a fake host that is rebooted as they ask for it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fake_machine import Reply
from tests.fake_testbed import SEVEN, Lab, bench
from tests.sample import sample_experiment
from vmtax import stats
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.comparisons import contrasts
from vmtax.core import events
from vmtax.core.records import Experiment, Json, State
from vmtax.design.host import in_words, is_booted, named, of_boot, others
from vmtax.design.interleaved import both
from vmtax.design.reboots import Block, boots_of, next_block, shuffled_blocks
from vmtax.design.treatments import shuffled_rounds
from vmtax.experiment import live, progress
from vmtax.experiment.reboots import RebootNeeded, Reboots, refuse_boot
from vmtax.experiment.resume import CannotResume
from vmtax.experiment.runner import was_interrupted
from vmtax.machine.local import LocalMachine
from vmtax.plan.schema import parse
from vmtax.report.document import Table
from vmtax.report.render.formats import FORMATS
from vmtax.report.sections import host_boots
from vmtax.testbed.machines.interleave import why_not
from vmtax.testbed.session.session import TestbedOptions

PLAN = SEVEN.replace("{min: 7, max: 7}", "{min: 3, max: 3}") + (
    "factors: {host.kernel_arguments: [mitigations=auto, mitigations=off]}\n"
)
LEVELS = ("mitigations=auto", "mitigations=off")
USUAL = "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro quiet"


class Host:
    """A host under test, and a user who reboots it."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.boots = lab, 0
        self.boot("")

    def boot(self, arguments: str, usual: str = USUAL) -> None:
        self.boots += 1
        words = " ".join(filter(None, (usual, arguments)))
        mitigations = {"spectre_v2": "Vulnerable" if "mitigations=off" in arguments else "Mitigation: Retpolines"}
        self.lab.facts |= {
            "boot_id": f"boot {self.boots}",
            "kernel_command_line": words,
            "mitigations": mitigations,
        }

    def finish(self, action: Callable[[], Experiment]) -> Experiment:
        """Carry it out and reboot as often as it asks for that."""
        for _ in range(20):
            try:
                return action()
            except RebootNeeded as needed:
                self.boot(needed.block.level)
                action = self.lab.resume
        raise AssertionError("it asks for reboots without end")


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(PLAN, lambda number, name: bench(), tmp_path)


def trials_of(found: Experiment) -> Counter[tuple[object, ...]]:
    return Counter((t.round, t.treatment, t.workload, t.case, t.iteration) for t in found.trials)


def test_every_round_takes_one_boot_of_the_host_for_each_level(lab: Lab) -> None:
    host = Host(lab)
    found = host.finish(lab.run)
    assert found.state == "complete" and host.boots == 7, "the first boot had neither level; then two for each round"
    assert set(trials_of(found).values()) == {1} and len(found.trials) == 3 * (4 * 2 + 1)
    boots = boots_of(found)
    assert len({boot["boot_id"] for boot in boots}) == 6
    blocks = [Block(boot["round"], boot["level"]) for boot in boots]
    assert blocks == list(islice(shuffled_blocks(found.treatments, 5), 6))
    for boot in boots:
        assert boot["kernel_command_line"] == f"{USUAL} {boot['level']}"
        assert (boot["mitigations"]["spectre_v2"] == "Vulnerable") == (boot["level"] == "mitigations=off")
    levels = {treatment.name: of_boot(treatment) for treatment in found.treatments}
    for boot, after in pairwise([*boots, {"began": float("inf")}]):
        during = [trial for trial in found.trials if boot["began"] <= trial.started < after["began"]]
        assert {(trial.round, levels[trial.treatment]) for trial in during} == {(boot["round"], boot["level"])}
        assert len({trial.treatment for trial in during}) >= 2


def test_the_report_shows_what_each_level_changed_in_the_host(lab: Lab) -> None:
    analysis = Analysis(Host(lab).finish(lab.run))
    found = host_boots.section(analysis)
    assert found is not None
    table = found.blocks[0]
    assert isinstance(table, Table) and [column.head for column in table.columns][1:] == list(LEVELS)
    assert [["".join(span.text for span in cell.pieces) for cell in row.cells] for row in table.rows] == [
        ["boots", "3", "3"],
        ["spectre_v2", "Mitigation: Retpolines", "Vulnerable"],
    ]
    page = FORMATS["html"].render(analysis).decode()
    assert "How the host was booted" in page and "boots.0" not in page


def test_a_host_that_is_booted_as_the_first_block_asks_is_measured_at_once(lab: Lab) -> None:
    host = Host(lab)
    host.boot(next(shuffled_blocks(lab.plan.treatments()[0], 5)).level)
    assert host.finish(lab.run).state == "complete" and host.boots == 2 + 5


def test_what_a_killed_session_left_is_measured_in_the_same_boot_or_another(lab: Lab) -> None:
    calls = 0

    def answer(number: int, name: str) -> Reply:
        nonlocal calls
        calls += 1
        if calls in (4, 8):
            raise KeyboardInterrupt
        return bench()

    lab.answer = answer
    host = Host(lab)
    with pytest.raises(KeyboardInterrupt):
        host.finish(lab.run)
    block = next_block(lab.experiment)
    refuse_boot(lab.experiment, lab.facts, rebooted=False)
    with pytest.raises(KeyboardInterrupt):
        host.finish(lab.resume)
    assert next_block(lab.experiment) != block
    host.boot(next_block(lab.experiment).level)
    refuse_boot(lab.experiment, lab.facts, rebooted=True)
    found = host.finish(lab.resume)
    assert found.state == "complete" and set(trials_of(found).values()) == {1}
    assert len(found.trials) == 3 * (4 * 2 + 1)
    newest = [(boot["round"], boot["level"]) for boot in boots_of(found)]
    assert max(Counter(newest).values()) == 2, "one block took two boots, and both are recorded"
    assert any("so what was left of a boot's work was done in another" in note for note in found.notes)


def test_a_boot_that_does_not_fit_is_refused_in_one_line(lab: Lab) -> None:
    host = Host(lab)
    with pytest.raises(RebootNeeded) as first:
        lab.run()
    wanted = first.value.block.level
    other = next(level for level in LEVELS if level != wanted)
    run = lab.experiment.id
    assert str(first.value) == f"for round 1, boot the host with {wanted}; then: vmtax run --after-reboot {run}"
    assert lab.experiment.state == "interrupted" and first.value.exit_code == 5

    def why(rebooted: bool | None) -> str:
        with pytest.raises((CannotResume, RebootNeeded)) as found:
            refuse_boot(lab.experiment, lab.facts, rebooted=rebooted)
        return str(found.value)

    assert why(True) == f"{run}: the host was not rebooted since the run stopped: reboot it with {wanted}"
    assert why(False) == str(first.value)
    host.boot(other)
    assert why(True) == (
        f"{run}: the host must be booted with {wanted}, and is booted with {other}: nothing was measured; reboot it, "
        f"then: vmtax run --after-reboot {run}"
    )
    assert why(False) == f"{run}: the host was rebooted since: vmtax run --after-reboot {run}"
    assert why(None) == str(first.value), "a lab is rebooted, whatever it was booted with"
    host.boot("")
    assert "is booted without mitigations: nothing was measured" in why(True)
    host.boot(wanted)
    refuse_boot(lab.experiment, lab.facts, rebooted=True)
    with pytest.raises(RebootNeeded):
        lab.resume()
    assert "the host was not rebooted since the run stopped: reboot it with" in why(True)


def test_another_kernel_or_other_arguments_are_refused(lab: Lab) -> None:
    host = Host(lab)
    host.boot(next(shuffled_blocks(lab.plan.treatments()[0], 5)).level)
    with pytest.raises(RebootNeeded) as needed:
        lab.run()
    level = needed.value.block.level
    host.boot(level, usual=USUAL.replace("quiet", "quiet nosmt"))
    with pytest.raises(CannotResume, match=r"the rest of its kernel's command line was .* ro quiet, is .* quiet nosmt"):
        lab.resume()
    host.boot(level)
    lab.facts["kernel_release"] = "6.99"
    with pytest.raises(CannotResume, match=r"kernel_release was None, is 6\.99"):
        lab.resume()
    del lab.facts["kernel_release"]
    measured = boots_of(lab.experiment)[0]["level"]
    host.boot(measured)
    lab.facts["mitigations"] = {"spectre_v2": "Mitigation: another"}
    with pytest.raises(CannotResume, match=r"mitigations was .*, is .*another"):
        lab.resume()
    assert lab.provisioned == 1 and len(boots_of(lab.experiment)) == 1, "nothing was set up or measured"


@pytest.mark.parametrize(
    ("line", "booted"),
    [
        ("quiet", None),
        ("quiet mitigations=auto", "mitigations=auto"),
        ("mitigations=off nosmt", "mitigations=off nosmt"),
        ("nosmt mitigations=off mitigations=off", "mitigations=off nosmt"),
        ("mitigations=auto mitigations=off", None),
        ("mitigations=off", None),
        ("mitigations=auto nosmt=force", None),
    ],
)
def test_a_command_line_has_just_the_arguments_of_one_level(line: str, booted: str | None) -> None:
    levels = ("mitigations=auto", "mitigations=off nosmt")
    assert [level for level in levels if is_booted(level, levels, line)] == ([booted] if booted else [])


def test_a_level_may_be_to_add_nothing() -> None:
    levels = ("none", "tsx_async_abort=off")
    assert is_booted("none", levels, "quiet") and not is_booted("none", levels, "tsx-async-abort=full")
    assert is_booted(levels[1], levels, "tsx-async-abort=off")
    assert in_words("none", levels) == "without tsx_async_abort"
    assert named("a=1 tsx-async-abort=full", levels) == ("tsx-async-abort=full",)
    assert others("a=1 tsx-async-abort=full", levels) == ("a=1",)


@given(st.integers(0, 2**32))
def test_the_configurations_of_a_boot_stand_together(seed: int) -> None:
    treatments = parse(PLAN).entries()
    for order in islice(shuffled_rounds(treatments, seed), 5):
        levels = [of_boot(treatment) for treatment in order]
        assert sum(before != after for before, after in pairwise(levels)) == 1
        assert {treatment.name for treatment in order} == {treatment.name for treatment in treatments}


def test_only_what_is_booted_alike_is_compared_across_layers() -> None:
    plan = parse(PLAN + "exclude: [{layers: host, host.kernel_arguments: mitigations=off}]\n")
    off = "host.kernel_arguments=mitigations=off"
    assert contrasts(plan.treatments()[0]) == (("host", "vm"), ("vm", f"vm {off}"))
    assert (f"host {off}", f"vm {off}") in contrasts(parse(PLAN).treatments()[0])


def test_a_second_host_is_refused() -> None:
    refused = why_not(parse(PLAN), TestbedOptions(interleave_with="ssh://b"))
    assert refused == "host.kernel_arguments reboots one host: measure ssh://b in a run of its own, or name a QEMU"
    assert why_not(parse(PLAN), TestbedOptions(interleave_with="qemu-b")) is None
    assert len(both(parse(PLAN).entries(), "qemu-b")) == 2 + 2 * 3


@pytest.mark.variations
def test_effects_take_the_boot_of_the_host_as_the_unit() -> None:
    """Without any effect: boots of the host differ by 3 %, and each serves four configurations."""
    levels = [{"host": h, "cache": c, "bus": b} for h in "ab" for c in "xy" for b in "uv"]
    source, claims = np.random.default_rng(1), Counter[bool]()
    for _ in range(60):
        hosts = np.repeat(source.normal(0, 0.03, (12, 2)), 4, axis=1)
        logs = hosts + source.normal(0, 0.01, (12, 8))
        for by_round in (False, True):
            found = stats.factor_effects(levels, logs, by_round=by_round)
            claims[by_round] += any(effect.factors == ("host",) and effect.term_p <= 0.05 for effect in found)
    assert claims[False] > 10 and claims[True] <= 6, claims


def test_what_was_said_before_a_reboot_is_not_said_again_and_can_be_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    local, said = LocalMachine(), list[str]()
    try:
        for _ in range(2):
            journal = live.Journal(local)
            with progress.open_screen(said) as journal.screen:
                journal.emit(events.NoticeEvent("of the host"))
                journal.emit(events.RunStarted("id", tuple(parse(PLAN).entries()), 1, 2))
        state = live.read("id")
        assert state is not None and state.planned == 2
    finally:
        local.close()
    assert capsys.readouterr().err.splitlines() == ["of the host", "run id"]


@pytest.mark.parametrize(("host", "reboots_count"), [("lab", True), ("local", False)])
@pytest.mark.varied(1)
def test_what_is_left_holds_the_reboots_that_a_lab_does_by_itself(
    host: str, reboots_count: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmtax.experiment.reboots.time", SimpleNamespace(time=lambda: time.time() - 1000))
    lab = Lab(f"{PLAN}host: {host}\n", lambda number, name: bench(), tmp_path)
    Host(lab).finish(lab.run)
    first = next(event for event in lab.events if isinstance(event, events.RoundFinished))
    assert (first.round, first.seconds_left[0] > 2000) == (1, reboots_count)


@pytest.mark.parametrize(("host", "state"), [("lab", "running"), ("local", "interrupted")])
@pytest.mark.varied(1)
def test_a_run_that_waits_for_a_boot_goes_on_only_where_the_lab_reboots_itself(
    host: str, state: str, tmp_path: Path
) -> None:
    lab = Lab(f"{PLAN}host: {host}\n", lambda number, name: bench(), tmp_path)
    user = Host(lab)
    with pytest.raises(RebootNeeded) as needed:
        lab.run()
    with lab.store as store:
        assert store.load("last").state == state and store.load("last").seconds is not None
    user.boot(needed.value.block.level)
    assert user.finish(lab.resume).state == "complete"


@pytest.mark.parametrize(
    ("state", "boots", "noted"),
    [
        ("interrupted", None, True),
        ("failed", [], False),
        ("interrupted", [{"over": True}], False),
        ("interrupted", [{"over": True}, {"over": False}], True),
        ("running", None, False),
        ("running", [{"over": True}], False),
        ("running", [{"over": False}], False),
    ],
)
def test_a_run_that_only_waited_for_its_reboot_was_not_interrupted(
    state: State, boots: list[Json] | None, noted: bool
) -> None:
    run = replace(sample_experiment(rounds=1), state=state)
    reboots = None if boots is None else Reboots(run.id, ("mitigations=off",), {}, boots)
    assert was_interrupted(run, reboots) is noted


def test_the_host_may_be_booted_otherwise_than_its_guests() -> None:
    levels = "{host.kernel_arguments: [mitigations=auto, mitigations=off], cpu.mitigations: [auto, off]}"
    kept, left_out = parse(SEVEN + f"factors: {levels}\n").treatments()
    assert len([treatment for treatment in kept if treatment.layer == "vm"]) == 4 and left_out == []
    assert len([treatment for treatment in kept if treatment.layer == "host"]) == 2
