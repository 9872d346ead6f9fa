"""How long rounds take, and so what is left of a run."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field

FIRST = (0.6, 1.2)  # how long a later round takes, as a part of the first


@dataclass
class Pace:
    """How long this run's rounds take; the first holds work done once, so it counts only while it is the only one."""

    setup_seconds: float = 0.0
    rounds: list[float] = field(default_factory=list)  # seconds of each
    _since: float = field(default_factory=time.monotonic)

    def lap(self) -> None:
        now = time.monotonic()
        self.rounds.append(now - self._since)
        self._since = now

    def shorten(self, seconds: float) -> None:
        """Later rounds are shorter than the earlier ones by `seconds`, which were spent on setting up."""
        # A resumed round may itself have taken less.
        shorter = [max(lap - seconds, lap / 10) for lap in self.rounds]
        self.setup_seconds += sum(self.rounds) - sum(shorter)
        self.rounds = shorter

    def left(self, rounds: int) -> tuple[float, float]:
        """Seconds that `rounds` more rounds take: a range after the first round, equal ends from the second on."""
        low, high = FIRST if len(self.rounds) < 2 else (1.0, 1.0)
        return rounds * self.seconds_per_round * low, rounds * self.seconds_per_round * high

    @property
    def seconds_per_round(self) -> float:
        return statistics.mean(self.rounds[1:] or self.rounds)
