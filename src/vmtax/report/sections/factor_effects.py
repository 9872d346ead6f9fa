"""Which factors decide: the share of each in the differences between treatments, for each primary metric. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.rankings import FactorEffect
from vmtax.core.records import Experiment, Metric
from vmtax.design.topology import groups, guest_count
from vmtax.report.document import Cell, Column, Detail, Row, Span, Table, name_cell
from vmtax.report.wording.cost import cost, cost_of
from vmtax.workload.words import spoken

MOST_NAMED = 4  # terms per sentence
LEAST = 0.005  # share from which a pair of factors gets a bar, if its effect is shown


@dataclass(frozen=True, slots=True)
class Level:
    """The cost of one level."""

    name: str  # "writethrough against none"
    amount: str  # overhead
    interval: str
    shown: bool  # its term is shown, and the interval excludes 0


@dataclass(frozen=True, slots=True)
class Term:
    """One factor, or the interaction of two."""

    name: str  # "disk.cache", "disk.cache with disk.bus"
    share: float  # of the variance within rounds, 0 to 1
    shown: bool  # its interval excludes "no effect"
    levels: tuple[Level, ...]

    @property
    def percent(self) -> str:
        """The share: "71 %", "0.4 %", "under 0.1 %"."""
        return share_text(self.share)


@dataclass(frozen=True, slots=True)
class Deciding:
    """One metric of one layer."""

    metric: Metric
    layer: str
    side: str
    count: int  # machines that work at once in each treatment
    sentence: str
    cost: str  # what the levels' overheads mean: "throughput lost"
    terms: tuple[Term, ...]  # largest share first
    emulated: bool
    together: int  # pairs of factors that are left out of `terms` because they add next to nothing


def deciding(analysis: Analysis) -> tuple[Deciding, ...]:
    """One for each metric and layer of the factor effects, in their order."""
    experiment = analysis.experiment
    firsts = _first_levels(experiment)
    grouped: dict[tuple[Metric, str, str, int], dict[tuple[str, ...], list[FactorEffect]]] = {}
    for effect in analysis.factor_effects:
        terms = grouped.setdefault((effect.metric, effect.layer, effect.side, effect.count), {})
        terms.setdefault(effect.factors, []).append(effect)
    return tuple(
        replace(found, sentence=found.sentence + _untold(experiment, found))
        for found in (
            _deciding(key, terms, firsts, key[1] in analysis.emulated_layers) for key, terms in grouped.items()
        )
    )


def shares_table(deciding: Deciding, title: str) -> Table:
    """A bar for each factor's share, and the costs of its levels."""
    columns = (
        Column("factor"),
        Column("share of what differs", words=True),
        Column(f"its levels: {deciding.cost}", words=True),
    )
    return Table(f"Shares: {title}", columns, tuple(map(_share_row, deciding.terms)), "shares", detail=Detail.PAGE)


def _share_row(term: Term) -> Row:
    share = f"{term.percent}{'' if term.shown else ', not distinguishable'}"
    levels: list[Span] = []
    for level in term.levels:
        levels += (Span(f"{level.name} "), Span(level.amount, "strong" if level.shown else "plain"))
        levels.append(Span(f"{level.interval}\n", "interval"))
    cells = (name_cell(term.name), Cell((Span(share),), bar=term.share), Cell(tuple(levels)))
    return Row(cells, Detail.PAGE, "" if term.shown else "doubtful")


def _untold(experiment: Experiment, found: Deciding) -> str:
    """Factors whose levels coincide with those of others, so that nothing can be said about them."""
    if not any(term.shown for term in found.terms):
        return ""
    levels: dict[str, set[str]] = {}
    for treatment in groups(experiment.treatments)[found.layer, found.side, found.count]:
        for name, level in treatment.levels.items():
            levels.setdefault(name, set()).add(level)
    named = {term.name for term in found.terms}
    names = [name for name, seen in levels.items() if len(seen) > 1 and name not in named]
    return f" Any of it may as well be {' or '.join(names)}: its levels go with those of the others." if names else ""


def share_text(share: float) -> str:
    """A share of the whole: "71 %", "2.4 %", "under 0.1 %"."""
    if share < 0.001:
        return "under 0.1 %"
    return f"{100 * share:.0f} %" if 0.0995 <= share < 0.995 or share >= 1 else f"{100 * share:.1f} %"


def _deciding(
    key: tuple[Metric, str, str, int],
    grouped: Mapping[tuple[str, ...], Sequence[FactorEffect]],
    firsts: Mapping[tuple[str, str, int, str], str],
    emulated: bool,
) -> Deciding:
    found = [_term(factors, effects, firsts) for factors, effects in grouped.items()]
    kept = [
        term
        for factors, term in zip(grouped, found, strict=True)
        if len(factors) == 1 or (term.shown and term.share >= LEAST)
    ]
    ordered = tuple(sorted(kept, key=lambda term: -term.share))
    return Deciding(*key, _sentence(key[0], ordered), cost(key[0]), ordered, emulated, len(found) - len(kept))


def _term(
    factors: tuple[str, ...], effects: Sequence[FactorEffect], firsts: Mapping[tuple[str, str, int, str], str]
) -> Term:
    shown = any(effect.shown for effect in effects)
    levels = []
    for effect in effects:
        name = " with ".join(effect.levels)
        if len(factors) == 1:
            first = firsts.get((effect.layer, effect.side, effect.count, factors[0]))
            name += f" against {first}" if first else ""
        levels.append(
            Level(
                name,
                *cost_of(effect.metric.better, effect.overhead, effect.low, effect.high),
                shown=shown and not effect.low <= 0 <= effect.high,
            )
        )
    return Term(" with ".join(factors), max(effect.share for effect in effects), shown, tuple(levels))


def _first_levels(experiment: Experiment) -> dict[tuple[str, str, int, str], str]:
    """(layer, side, machines at once, factor) -> its first level there, with which the others are compared."""
    found: dict[tuple[str, str, int, str], str] = {}
    for treatment in experiment.treatments:
        if treatment.repeats is None:
            for factor, level in treatment.levels.items():
                found.setdefault((treatment.layer, treatment.side, guest_count(treatment), factor), level)
    return found


def _sentence(metric: Metric, terms: Sequence[Term]) -> str:
    """ "disk.cache decides 71 % of ...; disk.filesystem 2 %, not distinguishable"."""
    what = spoken(metric)
    shown, rest = [term for term in terms if term.shown], [term for term in terms if not term.shown]
    if not shown:
        return f"No factor is shown to matter to {what}: " + "; ".join(_doubtful(rest)) + "."
    lead, *others = shown
    parts = [f"{lead.name} decides {lead.percent} of {what}"]
    parts += [f"{term.name} {term.percent}" for term in others[:MOST_NAMED]]
    if len(others) > MOST_NAMED:
        parts.append(f"and {len(others) - MOST_NAMED} more, below")
    return "; ".join([*parts, *_doubtful(rest)]) + "."


def _doubtful(terms: Sequence[Term]) -> Iterator[str]:
    """Terms without a shown effect, named whatever their share."""
    texts = [f"{term.name} {term.percent}" for term in terms[:MOST_NAMED]]
    more = f" and {len(terms) - MOST_NAMED} more" if len(terms) > MOST_NAMED else ""
    if texts:
        yield f"{', '.join(texts)}{more}, not distinguishable"
