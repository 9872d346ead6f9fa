"""Warnings: their codes, what earlier versions stored of them, and how a report groups them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import get_args

import numpy as np
import pytest

from tests.sample import sample_experiment
from vmtax import stats
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.notices import Cause, of_ratio
from vmtax.core.notices import MEANINGS, Code, Notice, read, recorded
from vmtax.core.records import Boot, Experiment, Measurement, Metric
from vmtax.report.sections.warnings import sentence_of, warnings
from vmtax.report.wording.figures import about, briefly


def test_every_code_has_a_meaning() -> None:
    assert tuple(MEANINGS) == get_args(Code)


@pytest.mark.parametrize("code", [code for code in MEANINGS if code != "other"])
def test_what_is_recorded_is_read_again(code: Code) -> None:
    assert read(recorded(code, "QEMU of host/vm ended: with 1\nlater")) == Notice(
        code, "QEMU of host/vm ended: with 1\nlater"
    )


@pytest.mark.parametrize(
    ("text", "code", "cause"),
    [
        ("booted at the second attempt: QEMU ended with 134", "second-boot", "QEMU ended with 134"),
        (
            "booted at the second attempt: host/vm: not ready within 120 s; its console last said",
            "second-boot",
            "host/vm: not ready within 120 s",
        ),
        ("did not shut down within 30 s; it was powered off", "shutdown", None),
        ("QEMU crashed in the shutdown: it said nothing", "shutdown", None),
        (
            "the disk command took 5.98 s by our clock, 1.4 % more than by its own: run it again idle",
            "late-command",
            "the disk command took 5.98 s by our clock, 1.4 % more than by its own",
        ),
        (
            "clock: host/vm counted 9.6 s where 10.0 s went by: rates are 4 % too high; repeat while nothing else runs"
            " on the host, and see clocksource among that machine's facts",
            "clock",
            "host/vm counted 9.6 s where 10.0 s went by: rates are 4 % too high",
        ),
        (
            "clock: fio accounts for 1.0 s of the 9.0 s that its command took, and more than a start-up is missing: its"
            " clock stood still or it had to wait; repeat while nothing else runs on the host",
            "late-command",
            "fio accounts for 1.0 s of the 9.0 s that its command took, and more than a start-up is missing: its clock"
            " stood still or it had to wait",
        ),
        ("what nobody knows: 3", "other", None),
        ("", "other", None),
    ],
)
def test_what_earlier_versions_stored_has_a_code(text: str, code: Code, cause: str | None) -> None:
    assert read(text) == Notice(code, text if cause is None else cause)


def test_what_the_numbers_of_a_ratio_say() -> None:
    noise = np.exp(np.random.default_rng(2).normal(0, 0.02, 40))
    before = np.exp(np.random.default_rng(1).normal(0, 0.02, 40))
    first = np.arange(40) % 3 == 0

    def said(found: stats.PairedRatio | None, alpha: float = 0.05) -> list[tuple[str, str]]:
        return [(notice.code, notice.cause) for notice in of_ratio(found, alpha)]

    assert said(stats.paired_ratio(before, before * 1.1 * noise)) == []
    assert said(None) == [("few-rounds", "An interval needs 6 rounds or more, and none has a value on both sides")]
    ((code, cause),) = said(stats.paired_ratio([2.0], [3.0], 0.99), 0.01)
    assert (code, cause) == ("few-rounds", "An interval needs 8 rounds or more, and 1 has a value on both sides")
    ((code, cause),) = said(stats.paired_ratio([5.0] * 8, [5.5] * 8))
    assert code == "coarse" and cause.startswith("All 8 ratios are the same to the last digit")
    stalled = before * noise * np.where(np.arange(40) % 5 == 0, 4, 1)
    ((code, cause),) = said(stats.paired_ratio(before, stalled))
    assert code == "stalls" and cause.startswith("20 % of the values, and 0 % of the baseline's values")
    carried = stats.paired_ratio(before, before * noise * np.where(first, 1.05, 1.0), baseline_first=first.tolist())
    assert carried.carry_over is not None
    moved = 100 * abs(math.expm1(carried.carry_over.estimate))
    cause = f"The ratio differs by {moved:.1f} % depending on which of the two configurations ran first (p = 0.001)"
    assert said(carried) == [("carry-over", cause)]


def only(run: Experiment, code: Code) -> Cause:
    """The one cause of that code."""
    (found,) = [cause for cause in Analysis(run).causes if cause.code == code]
    return found


def with_boots(run: Experiment, boots: Sequence[Boot]) -> Experiment:
    return dataclasses.replace(run, boots=tuple(boots))


def test_each_cause_is_one_entry_and_the_gravest_comes_first() -> None:
    run = sample_experiment(treatments=4, failures=2)
    found = Analysis(run).causes
    codes = [cause.code for cause in found]
    assert codes == sorted(codes, key=list(MEANINGS).index)
    assert len(codes) == len(set(codes)), "one error, so one failure"
    assert "emulated" in codes and "emulated" not in [cause.code for cause in warnings(Analysis(run))]


def test_vcpus_that_were_not_sampled_concern_the_host_s_side_alone() -> None:
    run = sample_experiment(rounds=1)
    metric = Metric("net.tcp-in.host_side_seconds", "s/B", "lower")
    trials = tuple(
        dataclasses.replace(
            trial,
            measurements=(*trial.measurements, Measurement(metric, 1e-9)),
            warnings=(recorded("ticks", "host/vm: its vCPUs were not sampled: no answer"),),
        )
        for trial in run.trials
    )
    (cause,) = [one for one in Analysis(dataclasses.replace(run, trials=trials)).causes if one.code == "ticks"]
    assert {notice.metrics for notice in cause.notices} == {(metric.name,)}


def test_figures_are_named_in_words() -> None:
    run = sample_experiment(rounds=5)
    analysis = Analysis(run)
    few = only(run, "few-rounds")
    assert few.text == "An interval needs 6 rounds or more, and 5 have a value on both sides"
    assert about(few, analysis) == "all figures of the VM and the nested VM"
    whole = Cause("background-load", (Notice("background-load", "so it was"),))
    assert about(whole, analysis) == "all figures"
    metrics = tuple(dict.fromkeys(c.metric.name for c in analysis.comparisons if c.metric.workload == "disk"))
    disk = Notice("cached", "vm is faster", treatments=("nested", "vm"), metrics=metrics)
    assert about(Cause("cached", (disk,)), analysis) == "all disk figures of the VM and the nested VM"
    some = dataclasses.replace(disk, metrics=metrics[:3], rounds=(2, 5))
    assert (
        about(Cause("cached", (some,)), analysis)
        == "3 disk figures each of the VM and the nested VM, in rounds 2 and 5"
    )
    one = dataclasses.replace(disk, metrics=metrics[:1], treatments=("vm",), rounds=(3,))
    assert about(Cause("cached", (one,)), analysis) == "disk randread-4k-qd1 operations of the VM, in round 3"


def test_figures_of_a_run_that_compares_nothing_are_named_in_words() -> None:
    run = sample_experiment(rounds=5)
    alone = dataclasses.replace(
        run,
        treatments=tuple(one for one in run.treatments if one.name == "vm"),
        boots=tuple(one for one in run.boots if one.treatment == "vm"),
        trials=tuple(one for one in run.trials if one.treatment == "vm"),
    )
    analysis = Analysis(alone)
    assert not analysis.comparisons
    measured = tuple(metric.name for metric, _ in analysis.medians)
    disk = Notice("late-command", "so it was", treatments=("vm",), metrics=tuple(n for n in measured if "disk." in n))
    assert about(Cause("late-command", (disk,)), analysis) == "all disk figures of the VM"
    assert briefly(Cause("late-command", (disk,)), analysis) == "disk"
    everything = dataclasses.replace(disk, metrics=measured)
    assert about(Cause("late-command", (everything,)), analysis) == "all figures"
    assert briefly(Cause("late-command", (everything,)), analysis) == "all figures"


@pytest.mark.parametrize("everywhere", [False, True])
def test_a_failed_measurement_is_about_its_own_figures(everywhere: bool) -> None:
    run = sample_experiment(rounds=5)
    trials = tuple(
        dataclasses.replace(trial, status="failed", error="no answer", measurements=())
        if trial.workload == "disk" and (everywhere or (trial.treatment, trial.round) == ("vm", 2))
        else trial
        for trial in run.trials
    )
    found = dataclasses.replace(run, trials=trials)
    words = {about(cause, Analysis(found)) for cause in Analysis(found).causes if cause.code == "failed"}
    assert words and all("disk" in text and "all figures" not in text for text in words), words


def test_boots_that_took_two_attempts_are_one_entry() -> None:
    run = sample_experiment(treatments=3)
    boots = [
        dataclasses.replace(boot, warnings=(f"booted at the second attempt: {boot.round} s without an answer",))
        for boot in run.boots
        if boot.treatment == "nested"
    ]
    others = [dataclasses.replace(boot, warnings=()) for boot in run.boots if boot.treatment != "nested"]
    changed = with_boots(run, [*others, *boots])
    cause = only(changed, "second-boot")
    assert cause.text.startswith("nested booted at the second attempt in 7 of 7 rounds: 1 s without")
    assert "This is about all figures of the nested VM, in 7 rounds." in sentence_of(cause, Analysis(changed))


def test_a_crowded_host_is_one_entry_about_all_figures() -> None:
    experiment = sample_experiment(rounds=7)

    def crowded(share: float) -> list[str]:
        trials = tuple(
            dataclasses.replace(
                trial,
                disturbance=dataclasses.replace(
                    trial.disturbance, cpu_pressure_seconds=share * trial.disturbance.wall_seconds
                ),
            )
            for trial in experiment.trials
            if trial.disturbance is not None
        )
        analysis = Analysis(dataclasses.replace(experiment, trials=trials))
        return [sentence_of(cause, analysis) for cause in analysis.causes if cause.code == "background-load"]

    (text,) = crowded(0.9)
    assert text.startswith("During 90 % of the host's own measurements some task waited for a CPU")
    assert text.endswith("This is about all figures.")
    assert crowded(0.1) == []
