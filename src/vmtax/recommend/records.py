"""What is recommended, as a record and in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vmtax.analysis.comparisons import as_times
from vmtax.core.records import Better
from vmtax.core.units import format_cost
from vmtax.recommend.forms import Export

MOST_NAMED = 3  # treatments of one sentence; the JSON has all


@dataclass(frozen=True, slots=True)
class Against:
    """A choice against another, as fractions; above 0 is worse. None: not measured, or too few rounds."""

    slower: float | None  # of the rate lost
    slower_low: float | None  # lower end of its interval
    slower_high: float | None  # upper end of its interval
    dearer: float | None  # host CPU time more, for one operation
    dearer_low: float | None  # lower end of its interval
    dearer_high: float | None  # upper end of its interval


@dataclass(frozen=True, slots=True)
class Option:
    """A choice that meets all needs."""

    treatment: str
    features: tuple[str, ...]  # those that it is shown to have
    unusual: tuple[str, ...]  # "disk.cache=writeback": settings that are not the default; fewer are simpler
    best: Against  # against the first option
    in_pareto_set: bool
    tie: bool  # its interval against the first option lies within what does not matter


@dataclass(frozen=True, slots=True)
class Advice:
    """What to choose, and why; `choice` is None if nothing can be recommended, and the notes say why."""

    layer: str
    by: str  # what ranks them: a metric's name, or "mean of 6 primary metrics"
    by_cpu: bool  # that is the host's CPU time; else it is speed
    best: str  # what the first of the options is: "fastest"
    speed: str  # what a table calls a loss of speed: "time"
    needs: tuple[str, ...]
    accept_loss: bool
    choice: Option | None
    reasons: tuple[str, ...]
    runner_up: Option | None
    runner_up_words: str
    options: tuple[Option, ...]  # the best first
    refused: tuple[tuple[str, str], ...]  # (treatment, why it was not considered)
    notes: tuple[str, ...]  # doubts, and what is not there
    same_within: float  # fraction
    export: Export | None  # the choice in every form

    def refusals(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """(why, treatments) of what was not considered, each reason once."""
        grouped: dict[str, list[str]] = {}
        for name, why in self.refused:
            grouped.setdefault(why, []).append(name)
        return tuple((why, tuple(names)) for why, names in grouped.items())


def amount(middle: float | None, low: float | None, high: float | None, what: str, better: Better) -> str:
    """A difference with its interval, and said where it may be none: "+4.1 % (2.0–6.2) time"."""
    if middle is None:
        return f"{what} not measured"
    unsure = ", not distinguishable" if low is not None and high is not None and low <= 0 <= high else ""
    return f"{format_cost(*as_times(better, middle, low, high))} {what}{unsure}"


def named(names: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    more = f", and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
