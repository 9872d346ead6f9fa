"""Which factors decide: the share of each in the differences between treatments, for each primary metric. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.rankings import FactorEffect
from vmtax.core.records import Experiment, Metric
from vmtax.design.topology import groups, guest_count

LEAST = 0.005  # share from which a pair of factors is a term, if its effect is shown

Field = tuple[Metric, str, str, int]  # metric, layer, side, machines at once
Firsts = Mapping[tuple[str, str, int, str], str]  # (layer, side, machines at once, factor) -> its first level there


@dataclass(frozen=True, slots=True)
class Level:
    """What one level of a factor, or one of each of two factors, costs."""

    effect: FactorEffect  # the cost, against the factor's first level
    first: str | None  # that level; None for two factors, whose effect is what they cost beyond each alone
    shown: bool  # its term is shown, and the interval excludes 0


@dataclass(frozen=True, slots=True)
class Term:
    """One factor, or the interaction of two."""

    factors: tuple[str, ...]  # dotted names of one or two
    share: float  # of the variance within rounds, 0 to 1
    shown: bool  # its interval excludes "no effect"
    levels: tuple[Level, ...]  # in the order of the effects

    @property
    def name(self) -> str:
        """ "disk.cache", "disk.cache with disk.bus"."""
        return " with ".join(self.factors)


@dataclass(frozen=True, slots=True)
class Deciding:
    """One metric of one layer."""

    metric: Metric  # a primary one
    layer: str  # of all treatments that it is about
    side: str  # Treatment.side of them all
    count: int  # machines that work at once in each treatment
    terms: tuple[Term, ...]  # largest share first
    emulated: bool  # whether any treatment of the layer is
    together: int  # pairs of factors that are left out of `terms` because they add next to nothing
    # Factors whose levels coincide with those of others, so that what is shown of these may be theirs; () if nothing is
    inseparable: tuple[str, ...]


def deciding(analysis: Analysis) -> tuple[Deciding, ...]:
    """One for each metric and layer of the factor effects, in their order."""
    experiment = analysis.experiment
    firsts = _first_levels(experiment)
    grouped: dict[Field, dict[tuple[str, ...], list[FactorEffect]]] = {}
    for effect in analysis.factor_effects:
        terms = grouped.setdefault((effect.metric, effect.layer, effect.side, effect.count), {})
        terms.setdefault(effect.factors, []).append(effect)
    found = []
    for field, effects in grouped.items():
        every = [_term(factors, members, firsts) for factors, members in effects.items()]
        kept = [term for term in every if len(term.factors) == 1 or (term.shown and term.share >= LEAST)]
        terms_of_it = tuple(sorted(kept, key=lambda term: -term.share))
        emulated, together = field[1] in analysis.emulated_layers, len(every) - len(kept)
        found.append(Deciding(*field, terms_of_it, emulated, together, _inseparable(experiment, field, terms_of_it)))
    return tuple(found)


def _term(factors: tuple[str, ...], effects: Sequence[FactorEffect], firsts: Firsts) -> Term:
    shown = any(effect.shown for effect in effects)
    levels = tuple(
        Level(effect, _first(effect, firsts), shown and not effect.low <= 0 <= effect.high) for effect in effects
    )
    return Term(factors, max(effect.share for effect in effects), shown, levels)


def _first(effect: FactorEffect, firsts: Firsts) -> str | None:
    if len(effect.factors) > 1:
        return None
    return firsts.get((effect.layer, effect.side, effect.count, effect.factors[0]))


def _first_levels(experiment: Experiment) -> Firsts:
    """Those with which the others are compared."""
    found: dict[tuple[str, str, int, str], str] = {}
    for treatment in experiment.treatments:
        if treatment.repeats is None:
            for factor, level in treatment.levels.items():
                found.setdefault((treatment.layer, treatment.side, guest_count(treatment), factor), level)
    return found


def _inseparable(experiment: Experiment, field: Field, terms: Sequence[Term]) -> tuple[str, ...]:
    """Factors that vary and have no term, if any term is shown."""
    if not any(term.shown for term in terms):
        return ()
    levels: dict[str, set[str]] = {}
    for treatment in groups(experiment.treatments)[field[1:]]:
        for name, level in treatment.levels.items():
            levels.setdefault(name, set()).add(level)
    named = {term.name for term in terms}
    return tuple(name for name, seen in levels.items() if len(seen) > 1 and name not in named)
