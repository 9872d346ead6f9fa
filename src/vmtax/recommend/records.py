"""A recommendation as a record, and in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vmtax.analysis.comparisons import as_times
from vmtax.core.records import Better
from vmtax.core.units import format_cost
from vmtax.recommend.forms import Export

MOST_NAMED = 3  # treatments that a sentence names; the JSON has all


@dataclass(frozen=True, slots=True)
class Against:
    """One choice compared with another, in fractions; above 0 is worse. None: not measured, or too few rounds."""

    slower: float | None  # the share of the rate that is lost
    slower_low: float | None  # lower end of its interval
    slower_high: float | None  # upper end of its interval
    dearer: float | None  # how much more host CPU time one operation takes
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
    tie: bool  # its interval against the first option lies within what counts as the same


@dataclass(frozen=True, slots=True)
class Advice:
    """What to choose, and why; `choice` is None if nothing can be recommended, and the notes say why."""

    layer: str
    by: str  # what ranks them: a metric's name, or "mean of 6 primary metrics"
    by_cpu: bool  # they are ranked by the host's CPU time; otherwise by speed
    best: str  # what the first option is called: "fastest"
    speed: str  # a table's heading for a loss of speed: "time"
    needs: tuple[str, ...]
    accept_loss: bool
    choice: Option | None
    reasons: tuple[str, ...]
    runner_up: Option | None
    runner_up_words: str
    options: tuple[Option, ...]  # the best first
    refused: tuple[tuple[str, str], ...]  # (treatment, why it was not considered)
    notes: tuple[str, ...]  # doubts, and what is missing
    same_within: float  # fraction
    export: Export | None  # the choice in every form

    def refusals(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """(reason, treatments) for what was not considered; each reason once."""
        grouped: dict[str, list[str]] = {}
        for name, why in self.refused:
            grouped.setdefault(why, []).append(name)
        return tuple((why, tuple(names)) for why, names in grouped.items())


def amount(middle: float | None, low: float | None, high: float | None, what: str, better: Better) -> str:
    """A difference with its interval, which says if it may be nothing: "+4.1 % (2.0–6.2) time"."""
    if middle is None:
        return f"{what} not measured"
    unsure = ", not distinguishable" if low is not None and high is not None and low <= 0 <= high else ""
    return f"{format_cost(*as_times(better, middle, low, high))} {what}{unsure}"


def named(names: Sequence[str]) -> str:
    """The first few names, and the number of the others."""
    more = f", and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
