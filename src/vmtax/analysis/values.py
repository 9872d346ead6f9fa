"""The values of one metric of one treatment, as bare numbers: a run may have millions."""

from __future__ import annotations

from array import array
from collections import defaultdict
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Values:
    """In the order of the trials."""

    rounds: array[int] = field(default_factory=lambda: array("l"))  # number of the round of each value
    numbers: array[float] = field(default_factory=lambda: array("d"))

    def add(self, round: int, number: float) -> None:
        self.rounds.append(round)
        self.numbers.append(number)

    def by_round(self) -> dict[int, list[float]]:
        """Rounds in order of appearance."""
        found: dict[int, list[float]] = defaultdict(list)
        for round, number in zip(self.rounds, self.numbers, strict=True):
            found[round].append(number)
        return found
