"""The clocks of a machine, read together with its counters; and whether an interval between two readings can be true.

/proc/uptime is CLOCK_BOOTTIME: nobody can set it, and it goes on while the machine is suspended. The timer ticks of
/proc/schedstat stand still meanwhile, as all counters do. The wall clock may be set at any moment; it is read for its
digits, and because tools take times from it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from vmtax.core.machines import Outcome, Reader
from vmtax.core.stopwatch import SUSPENDED_SECONDS, UPTIME_STEP, Instant, refined, why_suspended

# Begins the text of a shell that goes on to print /proc/uptime and /proc/stat. `read` is part of the shell; how much
# later uptime is printed again tells how exactly the two clocks were read at the same moment. Constant text.
LOOK = 'read -r since rest < /proc/uptime && echo "since $since"; date +"wall %s.%N"'
WORST = 0.01  # share of the elapsed time by which clocks of two machines may differ
WORST_SET = 0.01  # of the time between two readings: a smaller step does not matter
SET_SECONDS = 0.02  # by which a wall clock must have been set to be noticed, besides what reading it took
TICK_RATES = (100, 250, 300, 1000)  # ticks per second of the kernels that are in use (CONFIG_HZ)
TICKS_AT_BOOT = 2**32  # the kernel's counter of ticks reaches it 300 s after the boot
TICKS_AFTER = 300

_SINCE = re.compile(r"^since (\d{1,12}\.\d\d)$", re.MULTILINE | re.ASCII)
_WALL = re.compile(r"^wall (\d{1,12}\.\d{1,9})$", re.MULTILINE | re.ASCII)
_UPTIME = re.compile(r"^(?:/proc/uptime:)?(\d{1,12}\.\d\d) \d{1,15}\.\d{1,2}$", re.MULTILINE | re.ASCII)
_BOOTED = re.compile(r"^(?:/proc/stat:)?btime (\d{1,12})$", re.MULTILINE | re.ASCII)
_TICKS = re.compile(r"^/proc/schedstat:timestamp (\d{1,20})$", re.MULTILINE | re.ASCII)
_NEVER = Instant(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Moment:
    """What one reading of a machine says about time, in seconds."""

    uptime: float  # of /proc/uptime, right beside its counters
    since: float | None = None  # of /proc/uptime, right before the wall clock was read
    wall: float | None = None  # since the epoch; None: its `date` is not so exact
    booted: int | None = None  # whole seconds since the epoch at which the uptime was 0, by the present wall clock
    ticks: int | None = None  # of the kernel's timer; None: no schedstat
    asked: Instant = _NEVER  # on the machine that runs vmtax, before the request
    answered: Instant = _NEVER  # and after the answer

    @property
    def middle(self) -> float:
        return (self.asked.elapsed + self.answered.elapsed) / 2

    @property
    def error(self) -> float:
        """The machine was read at most this many seconds before or after `middle`."""
        return (self.answered.elapsed - self.asked.elapsed) / 2

    @property
    def apart(self) -> float:
        """Seconds between the readings of its two clocks, at most."""
        return UPTIME_STEP + max(0.0, self.uptime - (self.uptime if self.since is None else self.since))


def parse(text: str) -> Moment | None:
    """The clocks in what a shell with LOOK printed, or in any print of /proc/uptime; None if that is missing."""
    uptime = _UPTIME.search(text)
    if uptime is None:
        return None
    since, wall, booted, ticks = (pattern.search(text) for pattern in (_SINCE, _WALL, _BOOTED, _TICKS))
    return Moment(
        uptime=float(uptime[1]),
        since=float(since[1]) if since else None,
        wall=float(wall[1]) if wall else None,
        booted=int(booted[1]) if booted else None,
        ticks=int(ticks[1]) if ticks else None,
    )


def look(machine: Reader, command: tuple[str, ...]) -> tuple[Outcome, Moment | None]:
    """The outcome of a command that prints counters and clocks, and the moment of it; None if it did not print them.

    Raises only MachineLost.
    """
    asked = Instant.now()
    outcome = machine.try_run(*command)
    found = parse(outcome.stdout)
    return outcome, replace(found, asked=asked, answered=Instant.now()) if found else None


def elapsed(before: Moment, after: Moment) -> float:
    """Seconds between two readings of one machine, by its own clock."""
    coarse = after.uptime - before.uptime
    if before.wall is None or after.wall is None:
        return coarse
    return refined(coarse, after.wall - before.wall)


def disagreement(path: str, before: Moment, after: Moment) -> str:
    """Why the interval cannot be trusted, in one line; "" if all clocks agree about it."""
    return (
        why_suspended(before.asked, after.answered)
        or _asleep(path, before, after)
        or _against_ours(path, before, after)
    )


def _against_ours(path: str, before: Moment, after: Moment) -> str:
    """Whether its uptime and our clock differ by more than 1 % beyond what the readings' round trips explain."""
    counted, here = after.uptime - before.uptime, after.middle - before.middle
    tolerance = before.error + after.error + UPTIME_STEP
    if abs(counted - here) <= tolerance + WORST * here:
        return ""
    if counted < here:
        wrong = f"{100 * (here / counted - 1):.0f} % too high" if counted > WORST * here else "far too high"
    else:
        wrong = f"{100 * (1 - here / counted):.0f} % too low"
    return (
        f"the clock of {path} (/proc/uptime) counted {counted:.1f} s where {here:.1f} s went by on the machine that"
        f" runs vmtax, so rates would be {wrong}"
    )


def _asleep(path: str, before: Moment, after: Moment) -> str:
    """Whether the machine was suspended, by its own timer ticks."""
    counted, worked = after.uptime - before.uptime, ticked(before, after)
    if worked is None or counted <= 0 or counted - worked <= SUSPENDED_SECONDS + WORST * counted:
        return ""
    return (
        f"{path} was suspended for {counted - worked:.1f} s meanwhile: its uptime grew by {counted:.1f} s, the ticks of"
        f" its timer (/proc/schedstat) by {worked:.1f} s"
    )


def ticked(before: Moment, after: Moment) -> float | None:
    """Seconds between two readings by the ticks of the machine's timer; None if it does not report them."""
    if before.ticks is None or after.ticks is None:
        return None
    ticks = after.ticks - before.ticks
    return ticks / _tick_rate(before, ticks / max(UPTIME_STEP, after.uptime - before.uptime))


def _tick_rate(before: Moment, seen: float) -> float:
    """The lowest rate that explains how many ticks a second were `seen`, of those by which ticks and uptime agree.

    None agrees if the machine was suspended before: then of those by which it has not ticked longer than it is up.
    """
    assert before.ticks is not None
    late = {rate: before.uptime - (before.ticks - TICKS_AT_BOOT) / rate - TICKS_AFTER for rate in TICK_RATES}
    error = 1 + before.uptime / 1000
    rates = [rate for rate in TICK_RATES if abs(late[rate]) <= error] or [r for r in TICK_RATES if late[r] >= -error]
    return next((rate for rate in rates if rate * (1 + WORST) >= seen), seen)


def wall_clock_set(path: str, before: Moment, after: Moment) -> str:
    """Whether the machine's wall clock was set, in one line: many tools time themselves by it. "" if it was not."""
    counted = after.uptime - before.uptime
    error = max(SET_SECONDS, WORST_SET * counted) + before.apart + after.apart
    if before.wall is not None and after.wall is not None:
        by = (after.wall - before.wall) - counted
    elif before.booted is not None and after.booted is not None:
        by, error = float(after.booted - before.booted), 1.0  # seconds are whole
    else:
        return ""
    if abs(by) <= error:
        return ""
    return (
        f"the wall clock of {path} (CLOCK_REALTIME) was set {'ahead' if by > 0 else 'back'} by {abs(by):.2f} s"
        " meanwhile, and tools take times from it"
    )
