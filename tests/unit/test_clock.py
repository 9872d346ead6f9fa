"""Doubts about clocks: a machine's against this host's, a tool's own time against its command's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.fake_machine import FakeMachine, Reply
from tests.fake_testbed import SEVEN, Lab, bench
from vmtax.machine import MachineLost
from vmtax.meter import Work, clock
from vmtax.meter.clock import Clock, Reading, gap, own_time

WORK = Work("fio", ok=True, seconds=10.0)


def reading(counted: float, here: float, trip: float = 0.02) -> Reading:
    return Reading(counted, here - trip / 2, here + trip / 2)


def doubt(counted: float, here: float, trip: float = 0.02) -> str:
    """What is said of a clock that counted so much while so much went by."""
    return "".join(gap("host/vm", reading(500.0, 1000.0, trip), reading(500.0 + counted, 1000.0 + here, trip)))


def test_a_slow_clock_makes_rates_too_high_and_a_fast_one_too_low() -> None:
    assert doubt(9.6, 10.0).startswith("clock: host/vm counted 9.6 s where 10.0 s went by, so rates are 4 % too high")
    assert doubt(10.4, 10.0).startswith("clock: host/vm counted 10.4 s where 10.0 s went by, so rates are 4 % too low")
    assert "far too high" in doubt(0.0, 10.0)
    assert "far too high" in doubt(-300.0, 10.0), "it was rebooted"


def test_one_percent_and_the_readings_own_round_trips_are_no_gap() -> None:
    assert doubt(9.91, 10.0) == "" and doubt(10.09, 10.0) == ""
    assert doubt(9.86, 10.0) != "" and doubt(10.14, 10.0) != ""
    assert doubt(9.86, 10.0, trip=0.2) == "", "read somewhere within 0.2 s, twice"
    assert doubt(0.30, 0.31) == "", "it counts in hundredths"


def test_one_reading_between_two_trials_and_none_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([100.0, 100.02, 110.0, 110.02, 120.0, 120.02])
    monkeypatch.setattr("time.monotonic", lambda: next(times))
    machine = FakeMachine("host/vm", answers={clock.COMMAND: ["5.00 1.0\n", "15.00 1.0\n", "24.00 1.0\n"]})
    meter = Clock()
    meter.before(machine)
    assert meter.after(machine, [WORK]).warnings == ()
    meter.before(machine)
    assert meter.after(machine, [replace(WORK, ok=False)]).warnings == (), "there is no figure to doubt"
    assert "counted 9.0 s where 10.0 s went by" in meter.after(machine, [WORK]).warnings[0]
    assert machine.unused() == [], "three readings for two trials"


def test_what_a_guests_cpus_did_is_read_with_its_clock() -> None:
    """user nice system idle iowait irq softirq steal guest guest_nice, in hundredths of a second."""
    said = "{} 1.0\ncpu  {} 0 0\ncpu0 {} 0 0\n"
    counts = ("10 0 10 900 0 0 5 100", "110 20 60 1400 10 3 45 350")
    answers = [said.format(clock, count, count) for clock, count in zip((5.0, 15.0), counts, strict=True)]
    rows = {}
    for path in ("host/vm", "host"):
        meter, machine = Clock(), FakeMachine(path, answers={clock.COMMAND: [*answers]})
        meter.before(machine)
        rows[path] = dict(meter.after(machine, [WORK]).rows)
    tasks = 4.9 - 0.03 - 0.4 - 2.5
    entries = {"user": tasks * 12 / 17, "kernel": tasks * 5 / 17, "hard_irq": 0.03, "soft_irq": 0.4, "steal": 2.5}
    sums = {"busy": 4.9, "seconds": 10.0, "error": 0.18, "steal_seconds": 2.5}
    assert rows["host/vm"] == pytest.approx(entries | sums | {"remainder": 0.0})
    assert rows["host"] == {"steal_seconds": 2.5}, "a host's ledger is read by itself"


@pytest.mark.parametrize("answer", [Reply(code=1), "nonsense", MachineLost("host/vm: gone")])
def test_a_machine_that_does_not_tell_is_not_doubted(answer: Reply | str | Exception) -> None:
    machine = FakeMachine("host/vm", answers={clock.COMMAND: answer})
    meter = Clock()
    meter.before(machine)
    assert meter.after(machine, [WORK]).warnings == ()


def test_a_tool_cannot_have_worked_for_longer_than_its_command() -> None:
    def told(own: float | None, seconds: float, *, emulated: bool = False) -> str:
        return "".join(own_time(Work("fio", True, seconds, own, emulated)))

    assert told(10.0, 10.4) == "" and told(None, 10.0) == ""
    assert told(10.0, 10.0) == "" and told(10.09, 10.0) == "", "rounded"
    assert "fio counted 10.40 s for itself where its whole command took 10.00 s, so rates are 4 % too low" in told(
        10.4, 10
    )
    assert "fio accounts for 10.0 s of the 20.0 s" in told(10.0, 20.0)
    assert told(10.0, 20.0, emulated=True) == "", "a start-up under emulation"
    assert "the rest is more than its start takes" in told(10.0, 60.0, emulated=True)


def test_a_guest_whose_clock_runs_wild_is_doubted_in_each_of_its_trials(tmp_path: Path) -> None:
    lab = Lab(SEVEN, lambda number, name: bench(), tmp_path)
    lab.uptime = ["0.00 0.0\n", "60.00 0.0\n", "120.00 0.0\n"]
    found = lab.run()
    doubted = [
        trial
        for trial in found.trials
        if any(text.startswith("clock: host/vm counted 60.0 s") for text in trial.warnings)
    ]
    guests = [trial for trial in found.trials if trial.treatment != "host"]
    assert doubted == guests and {trial.treatment for trial in guests} == {"vm", "vm again"}
