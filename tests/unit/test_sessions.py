"""Runs before a change against runs after it: verdicts, what is stored of a machine, what differs, what is refused."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.sample import on_emulated_host, sample_experiment
from vmtax.analysis.sessions import CALIBRATE, Change, MetricChange, Unlike, compared, fits
from vmtax.core.notices import Notice
from vmtax.core.records import Boot, Experiment, Measurement, Treatment, Trial

Changes = Callable[[Experiment], Experiment]


def session(number: int, shift: float = 0.0, *, sd: float = 0.005, rounds: int = 7, **more: Any) -> Experiment:
    """One run of `quick` whose host was booted for it; `shift`: of every log value, above 0 is better."""
    experiment = sample_experiment(rounds=rounds, seed=number, emulated=more.pop("emulated", False))
    move = random.Random(number).gauss(shift, sd)
    trials = tuple(
        dataclasses.replace(trial, measurements=tuple(moved(measurement, move) for measurement in trial.measurements))
        for trial in experiment.trials
    )
    booted = with_facts(experiment, boot_id=f"boot {number}")
    return dataclasses.replace(booted, trials=trials, **more)


def moved(measurement: Measurement, move: float) -> Measurement:
    sign = 1 if measurement.metric.better == "higher" else -1
    return dataclasses.replace(measurement, value=measurement.value * math.exp(sign * move))


def with_facts(experiment: Experiment, **facts: Any) -> Experiment:
    host = {**experiment.facts["host"], **facts}
    return dataclasses.replace(experiment, facts={**experiment.facts, "host": host})


def with_plan(experiment: Experiment, **keys: Any) -> Experiment:
    return dataclasses.replace(experiment, plan={**experiment.plan, **keys})


def with_treatments(experiment: Experiment, changes: Callable[[Treatment], dict[str, Any]]) -> Experiment:
    changed = tuple(dataclasses.replace(t, **changes(t)) for t in experiment.treatments)
    return dataclasses.replace(experiment, treatments=changed)


def only(experiment: Experiment, *names: str) -> Experiment:
    """Without the other treatments."""
    return dataclasses.replace(
        experiment,
        treatments=tuple(t for t in experiment.treatments if t.name in names),
        trials=tuple(t for t in experiment.trials if t.treatment in names),
        boots=tuple(b for b in experiment.boots if b.treatment in names),
    )


def calibrations(count: int, first: int = 100, **more: Any) -> list[Experiment]:
    return [only(session(first + i, name=CALIBRATE, **more), "vm") for i in range(count)]


def five(first: int, shift: float = 0.0, **more: Any) -> list[Experiment]:
    return [session(first + i, shift, **more) for i in range(5)]


def line(change: Change, metric: str = "chess.nodes_per_second", treatment: str = "vm") -> MetricChange:
    (found,) = (line for line in change.lines if (line.metric.name, line.treatment) == (metric, treatment))
    return found


@pytest.mark.parametrize(("shift", "verdict", "gate"), [(-0.1, "worse", "failed"), (0.1, "better", "passed")])
def test_a_change_is_found_with_several_sessions_a_side(shift: float, verdict: str, gate: str) -> None:
    change = compared(five(1), five(11, shift), limit=0.03)
    primary = [line for line in change.lines if line.primary]
    assert {line.metric.name for line in primary} == {"chess.nodes_per_second", "disk.randread-4k-qd1.iops"}
    assert {line.treatment for line in primary} == {"host", "vm", "nested"}
    assert {(line.verdict, line.gate, line.method, line.sessions) for line in primary} == {
        (verdict, gate, "welch", (5, 5))
    }
    assert line(change).low < math.exp(shift) < line(change).high
    slower = line(change, "disk.randread-4k-qd1.mean_seconds")  # more is worse there
    assert (slower.verdict, slower.gate, slower.primary) == (verdict, None, False)
    assert change.gate == gate


def test_no_change_is_the_same_within_what_was_asked() -> None:
    change = compared(five(1), five(11), same_within=0.03, limit=0.03)
    assert (line(change).verdict, line(change).gate, line(change).why) == ("same", "passed", None)
    assert line(compared(five(1), five(11), same_within=0.0001)).verdict == "undecided"


def test_the_tax_itself_is_compared_and_what_is_the_machines_own_has_cancelled_out() -> None:
    change = compared(five(1, sd=0.05), five(11, sd=0.05))
    tax, level = line(change, treatment="vm against host"), line(change)
    assert not tax.primary
    assert tax.high - tax.low < (level.high - level.low) / 3


@pytest.mark.parametrize("shift", [0.0, -0.5])
def test_one_a_side_is_undecided_with_the_cure(shift: float) -> None:
    change = compared([session(1)], [session(2, shift)], limit=0.03)
    assert {line.verdict for line in change.lines} == {"undecided"}
    assert {line.method for line in change.lines} == {"none"}
    assert change.gate == "undecided"
    for cure in ("vmtax run", "vmtax calibrate", "--interleave-with"):
        assert cure in (line(change).why or "")


def test_a_calibrated_machine_decides_with_one_a_side() -> None:
    change = compared([session(1)], [session(2, -0.2)], calibrations(5))
    assert (line(change).verdict, line(change).method) == ("worse", "stored")
    assert line(change, treatment="nested").verdict == "worse"
    assert any(
        text.startswith("borrowed-variance: For host, nested the variance between sessions is that of vm")
        for text in change.warnings
    )
    assert line(change, treatment="vm against host").verdict == "undecided"


@pytest.mark.variations
def test_a_machine_that_changes_much_by_itself_is_not_blamed() -> None:
    steady, moody = (compared([session(1)], [session(2, -0.06)], calibrations(6, sd=sd)) for sd in (0.002, 0.2))
    assert (line(steady).verdict, line(moody).verdict) == ("worse", "undecided")


@pytest.mark.variations
def test_sessions_before_and_after_an_upgrade_are_groups_of_their_own() -> None:
    old = calibrations(3)
    new = [with_facts(one, kernel_release="9.9") for one in calibrations(3, first=200, shift=-0.5)]
    assert line(compared([session(1)], [session(2, -0.2)], [*old, *new])).verdict == "worse"


@pytest.mark.parametrize(
    "change",
    [
        lambda e: dataclasses.replace(e, name="quick"),
        lambda e: dataclasses.replace(e, host="ssh://other"),
        lambda e: dataclasses.replace(e, state="interrupted"),
        lambda e: with_facts(e, cpu_model="another"),
        lambda e: with_plan(e, guest={"vcpus": 4, "memory": "1GiB"}),
        lambda e: with_plan(e, workloads=["memory", {"chess": {"depth": 9}}], primary=[]),
    ],
)
@pytest.mark.varied(2)
def test_calibrations_of_another_machine_or_work_do_not_count(change: Changes) -> None:
    others = [change(one) for one in calibrations(5)]
    assert not fits(others[0], session(1))
    assert line(compared([session(1)], [session(2, -0.2)], others)).method == "none"


@pytest.mark.parametrize(("rounds", "counts"), [(1, False), (2, True), (7, True)])
def test_a_calibration_has_two_rounds_or_more(rounds: int, counts: bool) -> None:
    assert fits(calibrations(1, rounds=rounds)[0], session(1)) is counts


def test_fewer_than_three_calibrations_do_not_count_and_neither_do_the_compared_ones() -> None:
    few = calibrations(2)
    assert line(compared([session(1)], [session(2)], few)).method == "none"
    assert line(compared([few[0]], [few[1]], few)).method == "none"


@pytest.mark.variations
def test_two_hosts_need_both_to_be_calibrated_and_the_less_known_one_counts() -> None:
    there = "ssh://there"
    ours, theirs = calibrations(6, sd=0.002), calibrations(3, first=200, sd=0.05, host=there)
    sides = ([session(1)], [session(2, host=there)])
    assert line(compared(*sides, ours)).method == "none"
    both = line(compared(*sides, [*ours, *theirs]))
    swapped = line(compared(sides[1], sides[0], [*ours, *theirs]))
    assert both.method == "stored"
    assert both.ratio == pytest.approx(1 / swapped.ratio) and both.low == pytest.approx(1 / swapped.high)
    assert math.log(both.high / both.low) > 0.2


def test_a_reboot_between_the_sides_makes_the_boot_the_unit() -> None:
    def in_boot(boot: str, sessions: list[Experiment]) -> list[Experiment]:
        return [with_facts(one, boot_id=boot) for one in sessions]

    change = compared(in_boot("a", five(1)), in_boot("b", five(11, -0.2)))
    assert (line(change).sessions, line(change).verdict) == ((1, 1), "undecided")
    assert [notice.code for notice in change.notices] == ["boots-as-sessions"] * 2
    same_boot = compared(in_boot("a", five(1)), in_boot("a", five(11, -0.2)))
    assert (line(same_boot).sessions, line(same_boot).verdict, same_boot.warnings) == ((5, 5), "worse", ())
    known = in_boot("c", calibrations(4))
    rebooted = compared([session(1)], [session(2)], known)
    assert line(rebooted).method == "none"
    assert any("4 calibrations are of 1 boot of the host" in warning for warning in rebooted.warnings)
    at_once = compared(in_boot("a", [session(1)]), in_boot("a", [session(2)]), known)
    assert line(at_once).method == "stored"


@pytest.mark.variations
def test_the_repeat_of_a_treatment_is_left_out() -> None:
    def repeated(experiment: Experiment) -> Experiment:
        again = tuple(dataclasses.replace(t, treatment="vm again") for t in experiment.trials if t.treatment == "vm")
        levels = experiment.treatments[1].levels
        more = Treatment("vm again", "vm", levels, repeats="vm")
        return dataclasses.replace(
            experiment, treatments=(*experiment.treatments, more), trials=(*experiment.trials, *again)
        )

    change = compared([repeated(one) for one in five(1)], [repeated(one) for one in five(11)])
    assert line(change) and not [one for one in change.lines if "vm again" in one.treatment.split(" against ")]


def test_values_without_a_logarithm_and_failures_leave_their_round_out() -> None:
    def broken(experiment: Experiment) -> Experiment:
        def spoilt(trial: Trial) -> Trial:
            bad = {1: 0.0, 2: -1.0, 3: math.nan, 4: math.inf}.get(trial.round)
            if trial.round == 5:
                return dataclasses.replace(trial, status="failed", measurements=())
            values = tuple(dataclasses.replace(m, value=m.value if bad is None else bad) for m in trial.measurements)
            return dataclasses.replace(trial, measurements=values)

        return dataclasses.replace(experiment, trials=tuple(map(spoilt, experiment.trials)))

    change = compared([broken(one) for one in five(1)], five(11, -0.1))
    assert line(change).verdict == "worse"


def test_facts_that_differ_come_with_their_path_and_without_what_always_differs() -> None:
    def upgraded(experiment: Experiment) -> Experiment:
        qemu = {**experiment.facts["host"]["qemu"], "version": "10.1.0"}
        new = with_facts(experiment, turbo=False, qemu=qemu, kernel_release="6.18", microcode="0x1", frequency_hz=1.0)
        guest = {**new.facts["host/vm"], "kernel_command_line": "quiet"}
        return dataclasses.replace(new, facts={**new.facts, "host/vm": guest})

    before, after = five(1), [upgraded(one) for one in five(11)]
    change = compared(before, after)
    assert [(fact.path, fact.name, fact.after) for fact in change.facts] == [
        ("host", "microcode", "0x1"),
        ("host", "kernel_release", "6.18"),
        ("host", "qemu.version", "10.1.0"),
        ("host", "turbo", "no"),
        ("host/vm", "kernel_command_line", "quiet"),
    ]
    assert change.warnings == ()
    mixed = compared([*before, after[0]], after[1:])
    assert any("The runs before differ from each other in microcode" in warning for warning in mixed.warnings)
    (release,) = (fact for fact in mixed.facts if fact.name == "kernel_release")
    assert release.before == "6.12.48+deb13-amd64 | 6.18"


OWN_FILES = {"src/a.c": "1", "b": "1", "gone": "1"}


def four_each(experiment: Experiment) -> tuple[Boot, ...]:
    return tuple(dataclasses.replace(b, path=f"{b.path}-{n}") for b in experiment.boots for n in range(4))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda e: with_plan(e, guest={"vcpus": 4, "memory": "1GiB"}),
            "guest.vcpus is 2 in the first, 4 in",
        ),
        (lambda e: with_plan(e, guest={"vcpus": 2, "memory": "2GiB"}), "guest.memory is 1073741824 in the first"),
        (lambda e: with_plan(e, iterations=5), "iterations is 1 in the first, 5 in"),
        (
            lambda e: with_plan(e, workloads=["chess", {"disk": {"size": "2GiB"}}]),
            "disk.size is 1GiB in the first, 2",
        ),
        (
            lambda e: with_plan(e, workloads=["chess", {"disk": {"seconds": 60}}]),
            "disk.seconds is 10.0 in the first",
        ),
        (lambda e: with_facts(e, image={"identity": "77aa"}), "image.identity is 5d1c00000000 in the first, 77aa"),
        (
            lambda e: with_facts(e, image={"identity": "77aa", "files": {"src/a.c": "2", "b": "1", "new": "1"}}),
            "your own files are not the same in both: gone is gone, new is new, src/a.c changed",
        ),
        (
            lambda e: with_facts(e, image={"identity": "77aa", "files": OWN_FILES}),
            "image.identity is 5d1c00000000 in the first, 77aa",
        ),
        (
            lambda e: with_facts(e, kernel_pack={"version": "6.12.60-1/gcc-14", "digest": "77aa"}),
            "kernel pack.version is 6.12.57-1/gcc-14 in the first, 6.12.60-1/gcc-14 in the second",
        ),
        (lambda e: dataclasses.replace(e, boots=four_each(e)), "vm.guests is 1 in the first, 4 in the second"),
        (
            lambda e: dataclasses.replace(e, boots=tuple(dataclasses.replace(b, emulated=True) for b in e.boots)),
            "emulated is no in the first, yes in the second",
        ),
        (
            lambda e: with_treatments(e, lambda t: {"levels": {**t.levels, "disk.bus": "nvme"}}),
            "host.disk.bus is virtio in the first, nvme in the second",
        ),
        (
            lambda e: with_treatments(e, lambda t: {"name": f"{t.name} x"}),
            "no configuration in common: host, vm, nested / host x, vm x, nested x",
        ),
        (lambda e: dataclasses.replace(e, state="running"), "is running: wait until it has ended, vmtax watch"),
        (lambda e: sample_experiment(rounds=1, seed=9), "has 1 round with a result: a session needs 2 or more"),
        (lambda e: dataclasses.replace(e, trials=()), "has 0 rounds with a result"),
        (
            lambda e: dataclasses.replace(sample_experiment(rounds=5, seed=9), state="interrupted"),
            "was stopped after 5 rounds, and needs 6 or more to be compared: vmtax run --resume",
        ),
        (lambda e: dataclasses.replace(e, host="ssh://other"), "are on one side, but of two machines: local (Intel"),
        (lambda e: with_facts(e, cpu_model="another"), "are on one side, but of two machines: local (Intel"),
        (lambda e: session(1), "is named twice: a run compared with itself shows nothing"),
    ],
)
def test_unlike_things_are_refused_with_the_difference(change: Changes, words: str) -> None:
    first, second = session(1), session(2)
    if "kernel pack" in words:
        first = with_facts(first, kernel_pack={"version": "6.12.57-1/gcc-14", "digest": "5d1c"})
    first = with_facts(first, image={**first.facts["host"]["image"], "files": OWN_FILES})
    altered = change(second)
    assert altered != second
    with pytest.raises(Unlike) as caught:
        compared([first], [session(3), altered] if altered.id != first.id else [altered])
    assert words in str(caught.value) and len(str(caught.value).splitlines()) == 1


def test_what_is_reported_of_the_same_work_may_differ() -> None:
    fewer = with_plan(session(2), workloads=["chess", {"disk": {"percentiles": ["p50"]}}])
    assert compared([with_plan(session(1), workloads=["chess", "disk"])], [fewer]).lines


def test_what_an_upgrade_broke_does_not_pass() -> None:
    def broken(experiment: Experiment) -> Experiment:
        trials = [t for t in experiment.trials if (t.treatment, t.workload) != ("nested", "chess")]
        return dataclasses.replace(experiment, trials=tuple(trials))

    change = compared(five(1), [broken(one) for one in five(11)], limit=0.03)
    lost = line(change, treatment="nested")
    assert (lost.verdict, lost.gate, lost.sessions, lost.low) == ("undecided", "undecided", (5, 0), None)
    assert math.isnan(lost.ratio) and "no session after has two rounds with a result" in (lost.why or "")
    assert change.gate == "undecided"
    fewer = compared(five(1), [only(one, "host", "vm") for one in five(11)])
    assert fewer.notices == (Notice("one-side", "nested was measured on one side only", treatments=("nested",)),)


def test_nothing_in_common_is_said() -> None:
    def of(experiment: Experiment, workload: str) -> Experiment:
        trials = tuple(trial for trial in experiment.trials if trial.workload == workload)
        return dataclasses.replace(experiment, trials=trials)

    with pytest.raises(Unlike, match="have no metric in common"):
        compared([of(session(1), "chess")], [of(session(2), "net")])
    with pytest.raises(Unlike, match="no primary metric is common to all runs"):
        compared([session(1)], [with_plan(session(2), primary=["chess.one-thread.nodes_per_second"])], limit=0.03)


def test_a_run_that_was_stopped_late_is_used_with_a_warning() -> None:
    change = compared([dataclasses.replace(session(1), state="interrupted")], [session(2)])
    (run,) = change.before
    cause, cure = f"{run} was stopped (interrupted) after 7 rounds", f"Finish it with vmtax run --resume {run}"
    assert change.notices == (Notice("stopped-early", cause, cure),)


def test_an_emulated_host_is_compared_with_its_like_and_the_host_is_called_emulated_too() -> None:
    one, other = (on_emulated_host(session(number)) for number in (1, 2))
    change = compared([one], [other])
    assert change.emulated == ("host", "vm", "nested") and all(line.emulated for line in change.lines)
    with pytest.raises(Unlike, match="emulated is yes, the host too in the first, no in the second"):
        compared([one], [session(2)])
    with pytest.raises(Unlike, match="emulated is yes in the first, yes, the host too in the second"):
        compared([session(1, emulated=True)], [other])
    boots = tuple(dataclasses.replace(boot, accelerator="tcg") for boot in other.boots)
    with pytest.raises(Unlike, match=r"vm\.accelerators is kvm in the first, tcg in the second"):
        compared([one], [dataclasses.replace(other, boots=boots)])


def test_only_what_ran_emulated_is_called_so() -> None:
    change = compared([session(1, emulated=True)], [session(2, emulated=True)])
    assert change.emulated == ("vm", "nested")
    assert {one.treatment for one in change.lines if not one.emulated} == {"host"}
