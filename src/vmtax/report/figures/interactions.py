"""Heat maps of one factor against another; the reader chooses metric and factors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from vmtax.analysis.rankings import Ranking
from vmtax.core.records import Json, Metric
from vmtax.design.stopping import count
from vmtax.report.figures.base import AXIS, Choice, escape, frame, round_off, times_dearer
from vmtax.report.sections.interactions import Cell, Grid
from vmtax.report.sections.rankings import Ranked
from vmtax.report.view import cost, cost_of

ROW_PIXELS = 46
FOOT_PIXELS, HEAD_PIXELS = 12, 64
NOT_MEASURED = "not<br>measured"
LEAST_SCALE = 0.02  # decades, 5 %: smaller costs are drawn pale
SCALE = [[0, "var(--heat-low)"], [1, "var(--heat-high)"]]


def crossed_picture(found: Sequence[Grid], rankings: Sequence[Ranked], shares: Mapping[str, float]) -> Choice | None:
    """All grids in one picture with selects; None if there are none.

    rankings: the rankings in words, including those of the grids; shares: what each factor explains, so that the
    strongest pair is shown first
    """
    if not found:
        return None
    headings = {_key(ranked): ranked.heading for ranked in rankings}
    metrics = list(dict.fromkeys(headings[_key(grid.ranking)] for grid in found))
    pairs = list(dict.fromkeys(_pair(grid) for grid in sorted(found, key=lambda grid: -_strength(grid, shares))))
    # Decades of the most expensive cell, so that a colour means the same cost in all pairs of a metric
    scales: dict[Ranking, float] = {}
    for grid in found:
        scales[grid.ranking] = max([scales.get(grid.ranking, LEAST_SCALE), *map(abs, _decades(grid))])
    drawn: dict[tuple[int, ...], Json] = {}
    for grid in sorted(found, key=lambda grid: pairs.index(_pair(grid))):
        metric = metrics.index(headings[_key(grid.ranking)])
        drawn[metric, pairs.index(_pair(grid))] = _figure(grid, scales[grid.ranking])
    return Choice(
        id="crossed",
        title="Two factors at a time",
        caption="Each cell: the median over all configurations that have both levels, whatever their other levels are,"
        " against the best configuration of the ranking. A stronger colour is a higher cost, on a logarithmic scale"
        " that all pairs of one metric share.",
        alternative=f"Heat maps of what pairs of levels cost, for {len(metrics)} metrics and {len(pairs)} pairs of"
        " factors. The tables of effects above show what two factors do together.",
        selects=(("metric", tuple(metrics)), ("factors", tuple(pairs))),
        figures=drawn,
    )


def _key(one: Ranking | Ranked) -> tuple[Metric, str, str, int]:
    return one.metric, one.layer, one.side, one.count


def _pair(grid: Grid) -> str:
    return f"{grid.rows[0]} by {grid.columns[0]}"


def _strength(grid: Grid, shares: Mapping[str, float]) -> float:
    return shares.get(grid.rows[0], 0.0) + shares.get(grid.columns[0], 0.0)


def _decades(grid: Grid) -> list[float]:
    better = grid.ranking.metric.better
    return [math.log10(times_dearer(better, cell.overhead)) for cell in grid.cells.values()]


def _figure(grid: Grid, scale: float) -> Json:
    (row, rows), (column, columns) = grid.rows, grid.columns
    better = grid.ranking.metric.better
    cells = [[grid.cells.get((one, other)) for other in columns] for one in rows]
    z = [
        [None if cell is None else round_off(math.log10(times_dearer(better, cell.overhead))) for cell in line]
        for line in cells
    ]
    pairs = list(itertools.product(range(len(rows)), range(len(columns))))
    mark = ", emulated" if grid.emulated else ""
    axis = {**AXIS, "showgrid": False, "tickangle": 0, "automargin": True}
    return {
        "data": [
            {
                "type": "heatmap",
                "z": z,
                "zmin": 0.0,
                "zmax": round_off(scale),
                "colorscale": SCALE,
                "showscale": False,
                "xgap": 2,
                "ygap": 2,
                "hoverinfo": "skip",
            },
            {
                "type": "scatter",
                "mode": "text",
                "showlegend": False,
                "x": [x for _, x in pairs],
                "y": [y for y, _ in pairs],
                "text": [_text(grid, cells[y][x]) for y, x in pairs],
                "textfont": {
                    "color": ["var(--text)" if cells[y][x] else "var(--muted)" for y, x in pairs],
                    "size": [13 if cells[y][x] else 11 for y, x in pairs],
                },
                "hovertext": ["<br>".join(_hover(grid, rows[y], columns[x], cells[y][x])) for y, x in pairs],
                "hovertemplate": "%{hovertext}<extra></extra>",
            },
        ],
        "layout": {
            **frame(HEAD_PIXELS + FOOT_PIXELS + ROW_PIXELS * len(rows)),
            "margin": {"l": 8, "r": 8, "t": HEAD_PIXELS, "b": FOOT_PIXELS},
            "showlegend": False,
            "xaxis": {
                **axis,
                "side": "top",
                "title": {"text": f"{escape(column)}<br>{cost(grid.ranking.metric)}{mark}", "font": {"size": 13}},
                "tickvals": list(range(len(columns))),
                "ticktext": [escape(name or "–") for name in columns],
                "range": [-0.5, len(columns) - 0.5],
            },
            "yaxis": {
                **axis,
                "title": {"text": escape(row), "standoff": 12, "font": {"size": 13}},
                "tickvals": list(range(len(rows))),
                "ticktext": [escape(name or "–") for name in rows],
                "range": [len(rows) - 0.5, -0.5],
            },
        },
    }


def _text(grid: Grid, cell: Cell | None) -> str:
    return NOT_MEASURED if cell is None else cost_of(grid.ranking.metric.better, cell.overhead, cell.low, cell.high)[0]


def _hover(grid: Grid, row: str, column: str, cell: Cell | None) -> Iterator[str]:
    yield f"<b>{escape(f'{grid.rows[0]}={row}')}, {escape(f'{grid.columns[0]}={column}')}</b>"
    if cell is None:
        yield "not measured: no configuration has both, or none of them has a value"
        return
    amount, interval = cost_of(grid.ranking.metric.better, cell.overhead, cell.low, cell.high)
    yield f"{amount} {interval or '(too few rounds)'} {cost(grid.ranking.metric)}"
    many = f"median of {cell.treatments} configurations" if cell.treatments > 1 else "one configuration"
    yield f"{many}, {count(cell.rounds)}{', emulated' if grid.emulated else ''}"
