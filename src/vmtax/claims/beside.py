"""Published figures beside those of a run. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from vmtax.analysis.analysis import Analysis
from vmtax.claims.schema import ClaimRow, ClaimTable, Derived, PublishedClaim
from vmtax.claims.words import Word
from vmtax.core.records import Metric, Treatment

RAW: tuple[Word, ...] = ("more", "less", "times")  # about the figures themselves; the other words are about the speed
SAME = 0.005  # share by which a ratio may miss 1 and still show no direction


@dataclass(frozen=True, slots=True)
class OwnFigure:
    """A published figure, and the one of a run's configuration that corresponds to it."""

    table: ClaimTable
    name: str  # the row
    metric: Metric  # of the run
    value: float  # of the run, in the metric's unit
    emulated: bool


@dataclass(frozen=True, slots=True)
class OwnRatio:
    """A published comparison of two figures, and the same of a run. Both ratios are of the speed, or of the figures if
    that is what was published.
    """

    table: ClaimTable
    derived: Derived
    metric: Metric  # of the run
    value: float  # of the run, of the row
    published: float  # ratio
    own: float  # ratio of the medians
    low: float | None  # lower end of the interval of the own ratio; None: too few rounds
    high: float | None  # upper end
    emulated: bool

    @property
    def same_direction(self) -> bool | None:
        """None: one of the two has none."""
        published, own = _direction(self.published), _direction(self.own)
        return None if 0 in (published, own) else published == own

    @property
    def is_inside(self) -> bool | None:
        """Whether the published ratio is inside the own interval; None: there is none."""
        return None if self.low is None or self.high is None else self.low <= self.published <= self.high


def _direction(ratio: float) -> int:
    return 0 if abs(math.log(ratio)) <= SAME else 1 if ratio > 1 else -1


def own_figures(claim: PublishedClaim, analysis: Analysis) -> tuple[OwnFigure, ...]:
    """Every published figure of which the run has the like."""
    return tuple(_own_figures(claim, analysis))


def _own_figures(claim: PublishedClaim, analysis: Analysis) -> Iterator[OwnFigure]:
    for table, metric in _alike(claim.tables, analysis):
        for name, row in table.rows.items():
            treatment = _nearest(_fitting(row, analysis), {})
            value = treatment and analysis.medians.get((metric, treatment.name))
            if treatment is not None and value:
                yield OwnFigure(table, name, metric, value, treatment.name in analysis.emulated)


def own_ratios(tables: Iterable[ClaimTable], analysis: Analysis) -> tuple[OwnRatio, ...]:
    """Every published comparison of which the run has both sides, each pair of rows once."""
    return tuple(_own_ratios(tables, analysis))


def _own_ratios(tables: Iterable[ClaimTable], analysis: Analysis) -> Iterator[OwnRatio]:
    for table, metric in _alike(tables, analysis):
        pairs: dict[tuple[str, str | None], Derived] = {}
        for one in table.derived:
            pairs.setdefault((one.of, one.base), one)
        for one in pairs.values():
            if (found := _own_ratio(table, one, metric, analysis)) is not None:
                yield found


def _alike(tables: Iterable[ClaimTable], analysis: Analysis) -> Iterator[tuple[ClaimTable, Metric]]:
    """(table, metric of the run) for every metric that a table names."""
    metrics = dict.fromkeys(metric for metric, _ in analysis.medians)
    for table in tables:
        for metric in metrics:
            if table.metric is not None and re.fullmatch(table.metric, metric.name):
                yield table, metric


def _own_ratio(table: ClaimTable, one: Derived, metric: Metric, analysis: Analysis) -> OwnRatio | None:
    if one.base is None or not table.has_ratio(one.of, one.base):
        return None
    of = _nearest(_fitting(table.rows[one.of], analysis), {})
    base = _nearest(_fitting(table.rows[one.base], analysis), of.levels) if of else None
    values = [each and analysis.medians.get((metric, each.name)) for each in (of, base)]
    if of is None or base is None or not all(values):
        return None
    value, basis = (float(each or 0) for each in values)
    is_speed = one.word not in RAW
    invert = is_speed and metric.better == "lower"
    low, high = _interval(analysis, metric, base.name, of.name)
    if invert:
        low, high = high and 1 / high, low and 1 / low
    published = table.rows[one.of].figure.value / table.rows[one.base].figure.value
    return OwnRatio(
        *(table, one, metric, value),
        published=1 / published if is_speed and table.is_time else published,
        own=basis / value if invert else value / basis,
        low=low,
        high=high,
        emulated=not analysis.emulated.isdisjoint((of.name, base.name)),
    )


def _interval(analysis: Analysis, metric: Metric, base: str, of: str) -> tuple[float | None, float | None]:
    found = analysis.contrasts.get((metric, base, of))
    if found is not None:
        return found.low, found.high
    turned = analysis.contrasts.get((metric, of, base))
    if turned is None:
        return None, None
    return turned.high and 1 / turned.high, turned.low and 1 / turned.low


def _fitting(row: ClaimRow, analysis: Analysis) -> list[Treatment]:
    """The configurations on the row's layer with the row's levels."""
    return [
        treatment
        for treatment in analysis.experiment.treatments
        if treatment.layer == row.layer
        and treatment.repeats is None
        and all(treatment.levels.get(name) == level for name, level in row.levels.items())
    ]


def _nearest(treatments: list[Treatment], levels: Mapping[str, str]) -> Treatment | None:
    """The first one with the most of these levels: "otherwise the same"."""
    return max(
        treatments,
        key=lambda one: sum(one.levels.get(name) == level for name, level in levels.items()),
        default=None,
    )
