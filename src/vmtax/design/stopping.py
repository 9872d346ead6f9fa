"""When a run is over: the plan's precision, decision and rounds, with the sentences about them. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from vmtax import stats
from vmtax.core.records import Better, Comparison, Json
from vmtax.core.units import count_of, format_percent

Answer = Literal["yes", "no", "undecided"]


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to the plan's question about one primary contrast."""

    comparison: Comparison
    answer: Answer  # whether the treatment is worse than the baseline by more than decide.worse_than of the plan


@dataclass(frozen=True, slots=True)
class Stopping:
    """A plan's stopping rules. Every interval of the run, including the final ones, is calculated at `alpha`."""

    rounds_min: int
    rounds_max: int
    precision: float | None  # half-width as a fraction: 0.02; None: any width
    worse_than: float | None  # margin as a fraction: 0.03; None: there is no question

    @staticmethod
    def of(plan: Json) -> Stopping:
        """From a validated, stored plan."""
        rounds, decide = plan["rounds"], plan.get("decide")
        return Stopping(rounds["min"], rounds["max"], plan["precision"], decide and decide["worse_than"])

    @property
    def fixed(self) -> bool:
        """Whether the number of rounds is fixed in advance."""
        return self.rounds_min == self.rounds_max

    @property
    def alpha(self) -> float:
        """The alpha of the intervals, such that checking them as often as the rules do keeps 95 % confidence."""
        if self.first_look is None:
            return stats.ALPHA
        return stats.look_alpha(self.looks, stats.ALPHA) if self.worse_than is not None else stats.PRECISION_ALPHA

    @property
    def looks(self) -> tuple[int, ...]:
        """Rounds after which a decision may end the run."""
        return (*(look for look in stats.LOOKS if self.rounds_min <= look < self.rounds_max), self.rounds_max)

    @property
    def first_look(self) -> int | None:
        """The first round after which results may end the run; None if they never do."""
        if self.fixed or (self.worse_than is None and self.precision is None):
            return None
        if self.worse_than is not None:
            return self.looks[0]
        rule = stats.PrecisionRule(1.0)
        return next(rounds for rounds in range(max(self.rounds_min, rule.first), 2**31) if rule.looks_at(rounds))

    def why_over(self, rounds: int, primary: Sequence[Comparison]) -> str | None:
        """Why the run may end after these rounds; None if it must continue. `primary`: the contrasts it is about."""
        if rounds >= self.rounds_max:
            most = "as planned" if self.fixed else "the most that the plan allows (rounds.max)"
            return f"after {count(rounds)}, {most}"
        bounds = [bounds for bounds in map(_log_bounds, primary) if bounds is not None]
        if self.fixed or rounds < self.rounds_min or not primary or len(bounds) < len(primary):
            return None
        if self.worse_than is not None and rounds in self.looks and self._decided(primary):
            question = f"whether it is worse by more than {format_percent(self.worse_than)}"
            return f"after {count(rounds)}, it is settled for every primary contrast {question}"
        if self.precision is not None and self._may_be_precise(rounds):
            rule = stats.PrecisionRule(math.log1p(self.precision), self.alpha)
            if all(rule.settled(low, high) for low, high in bounds):
                return f"after {count(rounds)}, every primary interval is within ±{format_percent(self.precision)}"
        return None

    def decisions(self, primary: Iterable[Comparison]) -> tuple[Decision, ...]:
        """The answers so far; empty if the plan has no question."""
        return tuple(Decision(comparison, self.answer(comparison)) for comparison in primary) if self.worse_than else ()

    def answer(self, comparison: Comparison) -> Answer:
        """Whether this contrast is worse by more than the plan's margin."""
        bounds, margin = _log_bounds(comparison), worse_by(self.worse_than or 0.0, comparison.metric.better)
        if bounds is None or bounds[0] <= margin <= bounds[1]:
            return "undecided"
        return "yes" if (bounds[0] > margin) == (comparison.metric.better == "lower") else "no"

    def _decided(self, primary: Iterable[Comparison]) -> bool:
        return all(self.answer(comparison) != "undecided" for comparison in primary)

    def _may_be_precise(self, rounds: int) -> bool:
        """With repeated confidence intervals any rule may stop at their looks; else those of PrecisionRule."""
        if self.worse_than is not None:
            return rounds in self.looks
        return stats.PrecisionRule(1.0, self.alpha, most=self.rounds_max).looks_at(rounds)


def worse_by(fraction: float, better: Better) -> float:
    """The log ratio of a metric that is worse by this overhead: 3 % less of a rate, 3 % more of a time (METHOD.md)."""
    return math.log1p(fraction) if better == "lower" else math.log1p(-fraction)


def count(rounds: int) -> str:
    return count_of(rounds, "round")


def _log_bounds(comparison: Comparison) -> tuple[float, float] | None:
    if comparison.low is None or comparison.high is None:
        return None
    return math.log(comparison.low), math.log(comparison.high)
