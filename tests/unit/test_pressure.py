"""Readings around a measurement, parsed from what this command really printed."""

from __future__ import annotations

from dataclasses import astuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fake_machine import FakeMachine, Reply
from vmtax.machine import CommandFailed
from vmtax.meter import pressure
from vmtax.meter.pressure import between, parse

# A two-CPU guest on Linux 6.18, 7 seconds apart, one CPU kept busy.
BEFORE = """\
/proc/uptime:1182.93 2107.26
/proc/stat:cpu  16788 0 7356 210726 603 0 229 22 0 0
/proc/stat:cpu0 7224 0 2628 107903 52 0 48 7 0 0
/proc/stat:cpu1 9564 0 4727 102823 550 0 180 14 0 0
/proc/pressure/cpu:some avg10=0.00 avg60=0.60 avg300=1.08 total=14417116
/proc/pressure/io:some avg10=0.00 avg60=0.05 avg300=0.21 total=5528456
/proc/pressure/memory:some avg10=0.00 avg60=0.00 avg300=0.00 total=0
/proc/cpuinfo:cpu MHz\t\t: 2596.096
/proc/cpuinfo:cpu MHz\t\t: 2596.096
/sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count:41
"""
AFTER = (
    BEFORE.replace("1182.93 2107.26", "1189.93 2114.06")
    .replace("cpu  16788 0 7356 210726 603 0 229 22", "cpu  17478 0 7361 211406 613 0 230 36")
    .replace("total=14417116", "total=15167116")
    .replace("throttle_count:41", "throttle_count:44")
)


def without_psi(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if "pressure" not in line)


def test_a_reading_is_in_seconds_and_hertz() -> None:
    machine = FakeMachine(answers={pressure.COMMAND: BEFORE})
    reading = pressure.read(machine)
    assert len(machine.calls) == 1
    assert (reading.at.uptime, reading.cpus) == (1182.93, 2)
    assert reading.idle_seconds == pytest.approx(2107.26 + 6.03)
    assert reading.steal_seconds == pytest.approx(0.22)
    assert reading.cpu_pressure_seconds == pytest.approx(14.417116)
    assert reading.frequency_hz == pytest.approx(2.596096e9)


def test_between_two_readings() -> None:
    before, after = parse(BEFORE), parse(AFTER)
    assert before and after
    found = between(before, after)
    assert found.wall_seconds == pytest.approx(7.0)
    assert found.busy_seconds == pytest.approx(2 * 7.0 - 6.90)
    assert found.steal_seconds == pytest.approx(0.14)
    assert found.cpu_pressure_seconds == pytest.approx(0.75)
    assert (found.io_pressure_seconds, found.memory_pressure_seconds) == (0.0, 0.0)
    assert found.mean_frequency_hz == pytest.approx(2.596096e9)
    assert found.throttles == 3


@pytest.mark.parametrize(
    ("before", "after", "grown"),
    [
        ({0: 4, 64: 1}, {0: 4, 64: 9}, 8),
        ({0: 4, 64: 1}, {0: 5, 64: 1}, 1),
        ({64: 1}, {64: 1}, 0),
        ({0: 4}, {}, None),
        ({}, {}, None),
        ({0: 9, 1: 9}, {0: 0, 1: 9}, 0),
    ],
)
def test_a_package_that_is_throttled_is_seen_wherever_it_is(
    before: dict[int, int], after: dict[int, int], grown: int | None
) -> None:
    def reading(counts: dict[int, int]) -> pressure.PressureReading:
        name = "/sys/devices/system/cpu/cpu{}/thermal_throttle/package_throttle_count:{}\n"
        others = "".join(line for line in BEFORE.splitlines(keepends=True) if "throttle" not in line)
        found = parse(others + "".join(name.format(*each) for each in counts.items()))
        assert found is not None
        return found

    assert between(reading(before), reading(after)).throttles == grown


def test_nothing_is_negative_when_ticks_lag_behind() -> None:
    reading = parse(BEFORE)
    later = parse(BEFORE.replace("210726", "210728"))
    assert reading and later
    assert between(reading, later).busy_seconds == 0.0


def test_without_psi_pressure_is_unknown_not_zero() -> None:
    machine = FakeMachine(answers={pressure.COMMAND: Reply(stdout=without_psi(BEFORE), code=2)})
    reading = pressure.read(machine)
    assert reading.cpu_pressure_seconds is None
    assert between(reading, reading).memory_pressure_seconds is None


def test_no_proc_is_an_error_that_says_so() -> None:
    machine = FakeMachine("host/vm", {pressure.COMMAND: Reply(code=2)})
    with pytest.raises(CommandFailed, match=r"host/vm: sh -c .*grep .*\n.*is /proc mounted"):
        pressure.read(machine)


# No deadline: a test machine is busy with emulated guests.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.text()
    | st.lists(st.sampled_from(BEFORE.splitlines())).map("\n".join)
    | st.text().map("/proc/uptime:1\n/proc/stat:cpu0\n/proc/stat:cpu  ".__add__)
)
def test_garbage_never_raises(text: str) -> None:
    reading = parse(text)
    if reading is not None:
        between(reading, reading)


@pytest.mark.parametrize(
    "name", ["/proc/uptime:", "/proc/stat:cpu  ", "total=", "cpu MHz\t\t: ", "package_throttle_count:"]
)
@pytest.mark.parametrize("instead", ["9" * 5000, "9" * 400, "-1", "nan", "1e999", "<not counted>", ""])
@pytest.mark.varied(8)
def test_a_counter_that_is_no_number_is_unknown(name: str, instead: str) -> None:
    start = BEFORE.index(name) + len(name)
    read = parse(BEFORE[:start] + instead + BEFORE[start:].lstrip("0123456789."))
    if read is not None:
        numbers = [value for value in astuple(read) if isinstance(value, int | float)]
        assert all(0 <= value < 1e18 for value in (*numbers, *read.throttles.values()))
        between(read, read)
