"""Clocks that are made up: of the machine that runs vmtax, and of one that it reads."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.fake_machine import FakeMachine
from vmtax.core.machines import DEFAULT_TIMEOUT, Outcome
from vmtax.core.stopwatch import Instant
from vmtax.meter.moment import TICKS_AFTER, TICKS_AT_BOOT


@dataclass
class World:
    """What all clocks show. Times in seconds."""

    working: float = 5_000.0  # CLOCK_MONOTONIC of the machine that runs vmtax
    elapsed: float = 5_100.0  # its CLOCK_BOOTTIME
    uptime: float = 2_000.0  # of the machine that is read
    worked: float = 2_000.0  # by its timer's ticks
    wall: float = 1.8e9  # its wall clock
    rate: int = 250  # its ticks per second
    has_ticks: bool = True
    has_wall: bool = True
    trip: float = 0.01  # that a reading takes, half of it until the machine is read
    late: float = 0.0  # of that, between the wall clock and the counters

    def pass_by(self, seconds: float, *, speed: float = 1.0) -> None:
        """`speed`: of the clock of the machine that is read."""
        self.working += seconds
        self.elapsed += seconds
        self.uptime += seconds * speed
        self.worked += seconds * speed
        self.wall += seconds * speed

    def suspend(self, seconds: float) -> None:
        """Suspend the machine that is read; all others go on."""
        self.working += seconds
        self.elapsed += seconds
        self.uptime += seconds
        self.wall += seconds

    def suspend_us(self, seconds: float) -> None:
        """Suspend the machine that runs vmtax; the one that is read goes on."""
        self.pass_by(seconds)
        self.working -= seconds

    def printed(self, bare: bool = False) -> str:
        """What a shell with LOOK prints, and the line of uptime."""
        lines = [f"since {self.uptime:.2f}"]
        lines += [f"wall {self.wall:.9f}"] if self.has_wall else ["wall 1800000000.N"]
        self.pass_by(self.late)
        prefix = "" if bare else "/proc/{}:"
        lines.append(f"{prefix.format('uptime')}{int(self.uptime * 100) / 100:.2f} 1.00")
        lines.append(f"{prefix.format('stat')}btime {int(self.wall - self.uptime)}")
        if self.has_ticks:
            ticks = TICKS_AT_BOOT + (self.worked - TICKS_AFTER) * self.rate
            lines.append(f"/proc/schedstat:timestamp {int(ticks)}")
        return "\n".join(lines) + "\n"

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let vmtax read this world's clocks."""
        monkeypatch.setattr(Instant, "now", staticmethod(lambda: Instant(self.working, self.elapsed)))


class Clocked(FakeMachine):
    """Answers every command with the clocks of its world, followed by the same text."""

    def __init__(self, world: World, text: str = "", path: str = "host/vm", *, bare: bool = False) -> None:
        super().__init__(path)
        self.world, self.text, self.bare = world, text, bare

    def try_run(self, *argv: str, input: str | None = None, timeout: float = DEFAULT_TIMEOUT) -> Outcome:
        self.calls.append(argv)
        half = (self.world.trip - self.world.late) / 2
        self.world.pass_by(half)
        said = self.world.printed(self.bare)
        self.world.pass_by(half)
        return Outcome(self.path, argv, 0, said + self.text, "", self.world.trip)
