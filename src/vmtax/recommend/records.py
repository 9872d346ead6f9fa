"""A recommendation as a record, and in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
    """A disk or network card that meets the needs."""

    treatment: str  # name of the treatment
    features: tuple[str, ...]  # features that it is shown, or documented, to have
    unusual: tuple[str, ...]  # its settings that are not the default, such as disk.cache=writeback
    best: Against  # how it compares with the first of `options`
    in_pareto_set: bool  # whether it is in the Pareto set of speed, host CPU and features
    tie: bool  # whether its interval against the first of `options` lies within same_within; true for that one itself


class Refused(NamedTuple):
    """A choice that was not considered."""

    treatment: str  # name of the treatment
    why: str  # why it was not considered, for people


@dataclass(frozen=True, slots=True)
class Advice:
    """What to choose for the guests of the outermost layer, and why."""

    layer: str  # the layer of all choices
    by: str  # what the choices are ranked by, for people
    by_cpu: bool  # whether they are ranked by the host's CPU time; otherwise by speed
    best: str  # what the first option is called: "fastest"
    speed: str  # a table's heading for a loss of speed: "time"
    needs: tuple[str, ...]  # features that a choice must have
    accept_loss: bool  # whether choices that lose flushed data were considered
    choice: Option | None  # the recommended choice; None: nothing can be recommended, and the notes say why
    why: str  # what decided for the choice, for people; "" if there is none
    reasons: tuple[str, ...]  # all reasons for the choice, for people
    runner_up: Option | None  # the second choice; None: there is no other
    runner_up_words: str  # what the runner-up costs compared with the choice, and which features it adds or lacks, for
    # people
    options: tuple[Option, ...]  # all choices that meet the needs, the best first
    refused: tuple[Refused, ...]  # the choices that were not considered
    notes: tuple[str, ...]  # doubts, for people
    same_within: float  # differences within this fraction do not matter
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
