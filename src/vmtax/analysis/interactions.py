"""Two factors at a time: the cost of each pair of their levels, over all levels of the others. Pure."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vmtax import stats
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.comparisons import Numbers, as_overhead
from vmtax.analysis.rankings import Ranking
from vmtax.core.records import Treatment
from vmtax.design.topology import varying


@dataclass(frozen=True, slots=True)
class LevelPair:
    """One level of each of two factors."""

    treatments: int  # number of treatments with both levels and a value
    rounds: int  # in which all of them, and the best, have a value
    overhead: float  # median over the treatments, against the ranking's best: fraction, above 0 is a cost
    low: float | None  # of its interval; None if there are too few rounds
    high: float | None


@dataclass(frozen=True, slots=True)
class Grid:
    """One metric by two factors; rows are the factor with more levels."""

    ranking: Ranking
    rows: tuple[str, tuple[str, ...]]  # factor, its levels
    columns: tuple[str, tuple[str, ...]]
    cells: Mapping[tuple[str, str], LevelPair]  # (row's level, column's level); without pairs that were not measured
    emulated: bool


def grids(analysis: Analysis) -> tuple[Grid, ...]:
    """Every pair of varying factors of each primary ranking; overheads are against the ranking's best."""
    made = []
    for ranking in analysis.primary_rankings:
        ranked = {standing.treatment for standing in ranking.standings}
        members = [t for t in analysis.experiment.treatments if t.name in ranked]  # in the plan's order
        emulated = any(t.name in analysis.emulated for t in members)
        for first, second in itertools.combinations(varying(members), 2):
            (row, rows), (column, columns) = sorted(
                ((name, _levels(members, name)) for name in (first, second)), key=lambda entry: -len(entry[1])
            )
            cells = {}
            for pair in itertools.product(rows, columns):
                mine = [t for t in members if (t.levels.get(row), t.levels.get(column)) == pair]
                cell = _cell(mine, ranking, analysis.primary_numbers, analysis.criteria.alpha)
                if cell is not None:
                    cells[pair] = cell
            made.append(Grid(ranking, (row, rows), (column, columns), cells, emulated))
    return tuple(made)


def _levels(members: Sequence[Treatment], factor: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(treatment.levels.get(factor, "") for treatment in members))


def _cell(members: Sequence[Treatment], ranking: Ranking, numbers: Numbers, alpha: float) -> LevelPair | None:
    """None if no treatment has both levels, or no round has them all."""
    best = numbers[ranking.metric, ranking.standings[0].treatment]
    columns = [numbers[ranking.metric, treatment.name] for treatment in members]
    rounds = sorted(set(best).intersection(*columns)) if columns else []
    if not rounds:
        return None
    # Within each round first, so that drift of the machine affects both sides; then over rounds, because the boot is
    # the unit.
    logs = [statistics.median(math.log(column[number] / best[number]) for column in columns) for number in rounds]
    bounds = stats.interval(logs, alpha)
    low, high = (None, None) if bounds is None else map(math.exp, bounds)
    ratio = math.exp(stats.hodges_lehmann(logs))
    return LevelPair(len(members), len(rounds), *as_overhead(ranking.metric.better, ratio, low, high))
