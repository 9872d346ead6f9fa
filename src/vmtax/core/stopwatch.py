"""How long something takes on the machine that runs vmtax. Wall time says when something was, never how long it took.

CLOCK_MONOTONIC cannot be set and stops while the machine is suspended; CLOCK_BOOTTIME goes on meanwhile.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

SUSPENDED_SECONDS = 0.1  # difference of the two clocks from which the machine was suspended; reading both takes less
ATTEMPTS = 3  # to read them without an interruption in between
UPTIME_STEP = 0.01  # seconds: resolution of /proc/uptime


@dataclass(frozen=True, slots=True)
class Instant:
    """One reading of this machine's clocks, in seconds."""

    working: float  # CLOCK_MONOTONIC
    elapsed: float  # CLOCK_BOOTTIME

    @staticmethod
    def now() -> Instant:
        return min((_read() for _ in range(ATTEMPTS)), key=lambda read: read[0])[1]


def _read() -> tuple[float, Instant]:
    """The seconds that reading took, and what was read."""
    before, elapsed, after = time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME), time.monotonic()
    return after - before, Instant((before + after) / 2, elapsed)


def suspended(before: Instant, after: Instant) -> float:
    """Seconds for which this machine was suspended meanwhile; 0 if the difference is smaller than a suspend."""
    seconds = (after.elapsed - before.elapsed) - (after.working - before.working)
    return seconds if seconds > SUSPENDED_SECONDS else 0.0


def why_suspended(before: Instant, after: Instant) -> str:
    """Why what was timed meanwhile does not count, in one line; "" if this machine was not suspended."""
    seconds = suspended(before, after)
    if not seconds:
        return ""
    return (
        f"the machine that runs vmtax was suspended for {seconds:.1f} s meanwhile: its CLOCK_BOOTTIME went on, its"
        " CLOCK_MONOTONIC stood still"
    )


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Runs from when it is made."""

    started: float = field(default_factory=lambda: time.time())  # seconds since the epoch
    since: Instant = field(default_factory=lambda: Instant.now())

    @property
    def seconds(self) -> float:
        """Time that has passed, without that of a suspend."""
        return max(0.0, time.monotonic() - self.since.working)

    @property
    def elapsed(self) -> float:
        """Time that has passed, as other machines count it: with that of a suspend."""
        return Instant.now().elapsed - self.since.elapsed

    @property
    def now(self) -> float:
        """Seconds since the epoch, as if nobody had set the clock since the start."""
        return self.started + self.seconds

    @property
    def void(self) -> str:
        """Why its time does not count; "" if it does."""
        return why_suspended(self.since, Instant.now())


def refined(coarse: float, fine: float) -> float:
    """Seconds between two readings of /proc/uptime, to the digits of a clock that may have been set meanwhile.

    Never further from the former than its resolution, so a clock that was set makes no difference that matters.
    """
    return min(max(fine, coarse - UPTIME_STEP), coarse + UPTIME_STEP)
