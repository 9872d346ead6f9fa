"""Times on the machine that runs vmtax: no step of its wall clock, and no suspend, gets into an interval."""

from __future__ import annotations

import ast
import re
import time
from dataclasses import replace

import pytest

from tests.clocks import World
from tests.fake_machine import FakeMachine, Reply
from tests.sample import sample_experiment
from tests.sources import ROOT, modules, texts
from vmtax.core.stopwatch import Instant, Stopwatch, refined, suspended
from vmtax.experiment.at_once import Job, run_at_once
from vmtax.experiment.loop import why_void
from vmtax.experiment.trial import voided
from vmtax.workload import WORKLOADS

# Files that need to know when something is, was or is to be: for people, for another machine, or across boots.
SAYS_WHEN = {
    "core/stopwatch.py",
    "cli/lab.py",
    "cli/measuring.py",
    "experiment/archive.py",
    "experiment/loop.py",
    "experiment/reboots.py",
    "experiment/resume.py",
    "experiment/runner.py",
    "image/contents.py",
    "lab/end.py",
    "lab/start.py",
    "doctor/windows.py",
    "doctor/windows_try.py",
    "doctor/hyper_v.py",
}
DATE = re.compile(r"\bdate (?:-u )?\+")
SHELLS_DATE = {"meter/moment.py", "workload/build.py"}  # both believe it only as far as /proc/uptime allows


def test_wall_time_is_read_only_where_it_says_when() -> None:
    found = {
        file
        for file, module in modules(".time", ".now", ".today")
        for node in ast.walk(module)
        if isinstance(node, ast.Attribute)
        and node.attr in ("time", "time_ns", "now", "today")
        and isinstance(node.value, ast.Name)
        and node.value.id in ("time", "datetime", "date")
    }
    shells = {
        str(path.relative_to(ROOT)) for path, text in texts().items() if DATE.search(text) or "EPOCHREALTIME" in text
    }
    assert found == SAYS_WHEN, "intervals are a Stopwatch's, or those of a machine's own Moment"
    assert shells == SHELLS_DATE


@pytest.mark.parametrize("by", [-1e9, -30.0, -0.5, 0.5, 30.0, 1e9])
def test_a_step_of_the_wall_clock_changes_no_interval(monkeypatch: pytest.MonkeyPatch, by: float) -> None:
    watch, real = Stopwatch(), time.time
    monkeypatch.setattr(time, "time", lambda: real() + by)
    assert 0 <= watch.seconds < 5 and 0 <= watch.now - watch.started < 5 and 0 <= watch.elapsed < 5
    assert watch.void == ""


@pytest.mark.parametrize("by", [-30.0, 30.0])
def test_machines_at_once_are_compared_by_one_clock(monkeypatch: pytest.MonkeyPatch, by: float) -> None:
    """The wall clock is set while the first one works."""
    real, steps = time.time, iter([0.0])
    monkeypatch.setattr(time, "time", lambda: real() + next(steps, by))
    jobs = [Job(FakeMachine(f"host/vm-{n}", {("work",): Reply()}), ("work",), 10.0) for n in (1, 2)]
    first, second = run_at_once(jobs)
    assert abs(first.started - second.started) < 5 and 0 <= first.seconds < 5 and 0 <= second.seconds < 5


def test_a_suspend_is_no_time_and_voids_what_was_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.patch(monkeypatch)
    watch = Stopwatch()
    world.pass_by(5)
    assert watch.void == "" and suspended(watch.since, Instant.now()) == 0
    world.suspend_us(30)
    assert suspended(watch.since, Instant.now()) == pytest.approx(30) and watch.elapsed == pytest.approx(35)
    trial = sample_experiment().trials[0]
    failed = voided(trial, watch.void)
    assert failed.status == "failed" and "was suspended for 30.0 s" in (failed.error or "")
    assert failed.measurements == () and voided(trial, "") == trial
    before = replace(trial, status="failed", error="its own")
    assert voided(before, watch.void) == before


@pytest.mark.parametrize(
    "coarse, fine, seconds", [(10.0, 10.004, 10.004), (10.0, 40.0, 10.01), (10.0, -20.0, 9.99), (0.0, 0.0, 0.0)]
)
def test_a_fine_clock_only_adds_digits(coarse: float, fine: float, seconds: float) -> None:
    assert refined(coarse, fine) == pytest.approx(seconds)


def test_reading_both_clocks_is_no_suspend_even_if_it_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three seconds pass between two of its readings, once."""
    real, waits = time.clock_gettime, iter([3.0, 0.0, 0.0])
    late = [0.0]

    def boottime(clock: int) -> float:
        late[0] += next(waits, 0.0)
        return real(clock) + late[0]

    monotonic = time.monotonic
    monkeypatch.setattr(time, "clock_gettime", boottime)
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + late[0])
    before = Instant.now()
    assert suspended(before, Instant.now()) == 0


@pytest.mark.parametrize(
    ("name", "of_boot", "own", "void"),
    [
        ("boot", "asleep", "", "asleep"),
        ("boot", "", "late", "late"),
        ("migration", "asleep", "", ""),
        ("migration", "", "late", "late"),
        ("durability", "asleep", "late", ""),
        ("boot", "", "", ""),
    ],
)
def test_a_suspend_voids_the_times_that_it_is_in_and_no_others(name: str, of_boot: str, own: str, void: str) -> None:
    kind = WORKLOADS[name]
    assert why_void(kind(kind.parameters_type()), of_boot, own) == void
