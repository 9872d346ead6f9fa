"""Heat maps of one factor against another; the reader chooses metric and factors."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from vmtax.analysis.interactions import Grid, LevelPair
from vmtax.analysis.rankings import Ranking
from vmtax.core.records import Metric
from vmtax.design.stopping import count
from vmtax.report.figures.base import that_fit, times_dearer
from vmtax.report.figures.dots import LINE, PIXELS
from vmtax.report.figures.svg import drawing, element, percent, text
from vmtax.report.picture import Key, Panel, PictureChoice
from vmtax.report.wording.cost import cost, cost_of
from vmtax.report.wording.rankings import Ranked
from vmtax.report.wording.treatment_labels import NOTHING

ROW_PIXELS, COLUMN_PIXELS = 44, 84  # of a cell: its height, and its least width
ROW_NAME, COLUMN_NAME = (20, 3), (12, 6)  # of a level: characters of a line, and lines at most
NOT_MEASURED = "not measured"
NO_INTERVAL = "too few rounds"
LEAST_SCALE = 0.02  # decades, 5 %: smaller costs are drawn pale
NO_GRID = "Not measured for this metric: its configurations do not differ in both factors. Choose another pair."


def crossed_picture(
    found: Sequence[Grid], rankings: Sequence[Ranked], shares: Mapping[str, float]
) -> PictureChoice | None:
    """All grids in one picture with selects; None if there are none.

    rankings: the rankings in words, including those of the grids; shares: what each factor explains, so that the
    strongest pair is shown first
    """
    if not found:
        return None
    headings = {_key(ranked): ranked.heading for ranked in rankings}
    metrics = list(dict.fromkeys(headings[_key(grid.ranking)] for grid in found))
    pairs: dict[frozenset[str], str] = {}
    for grid in sorted(found, key=lambda grid: -_strength(grid, shares)):
        pairs.setdefault(_pair(grid), f"{grid.rows[0]} by {grid.columns[0]}")
    grids = {(headings[_key(grid.ranking)], _pair(grid)): grid for grid in found}
    # Decades of the most expensive cell, so that a colour means the same cost in all pairs of a metric
    scales: dict[Ranking, float] = {}
    for grid in found:
        scales[grid.ranking] = max([scales.get(grid.ranking, LEAST_SCALE), *map(abs, _decades(grid))])

    def parts_of(place: int, pair: frozenset[str]) -> Iterator[Panel]:
        for number, metric in enumerate(metrics):
            title, grid = f"{metric}: {pairs[pair]}", grids.get((metric, pair))
            if grid is None:
                yield Panel((number, place), title, {}, None, NO_GRID)
            else:
                scale = scales[grid.ranking]
                drawn = _drawing(f"crossed-{number}-{place}", title, grid, scale)
                yield Panel((number, place), title, {None: _legend(grid, scale)}, drawn)

    kept = that_fit(tuple(parts_of(place, pair)) for place, pair in enumerate(pairs))
    few = (
        f" Of {len(pairs)} pairs, these are the {len(kept)} whose factors decide most."
        if len(kept) < len(pairs)
        else ""
    )
    return PictureChoice(
        id="crossed",
        title="Two factors at a time",
        caption="Each cell: the median over all configurations that have both levels, whatever their other levels are,"
        " against the best configuration of the ranking, and its interval. A stronger colour is a higher cost, on a"
        f" logarithmic scale that all pairs of one metric share.{few}",
        selects=(("metric", tuple(metrics)), ("factors", tuple(pairs.values())[: len(kept)])),
        parts=tuple(part for group in kept for part in group),
    )


def _key(one: Ranking | Ranked) -> tuple[Metric, str, str, int]:
    return one.metric, one.layer, one.side, one.count


def _pair(grid: Grid) -> frozenset[str]:
    return frozenset((grid.rows[0], grid.columns[0]))


def _strength(grid: Grid, shares: Mapping[str, float]) -> float:
    return shares.get(grid.rows[0], 0.0) + shares.get(grid.columns[0], 0.0)


def _decades(grid: Grid) -> list[float]:
    return [_decade(grid, cell) for cell in grid.cells.values()]


def _decade(grid: Grid, cell: LevelPair) -> float:
    return math.log10(times_dearer(grid.ranking.metric.better, cell.overhead))


def _legend(grid: Grid, scale: float) -> tuple[Key, ...]:
    highest, _ = cost_of("lower", 10**scale - 1, None, None)
    return (
        Key("square", "heat-low", "no cost"),
        Key("square", "heat-high", f"{highest} {cost(grid.ranking.metric)}{', emulated' if grid.emulated else ''}"),
    )


def _drawing(id: str, title: str, grid: Grid, scale: float) -> Markup:
    """The columns' names above the cells, and the rows' names to the left."""
    (row, rows), (column, columns) = grid.rows, grid.columns
    above = [_lines(name, *COLUMN_NAME) for name in columns]
    beside = [_lines(name, *ROW_NAME) for name in rows]
    head = LINE * (1 + max(map(len, above)))
    parts = [text(column, "0", f"{LINE - 4}", style="panel"), text(row, "-10", f"{head - 4}", "end", "panel")]
    for number, lines in enumerate(above):
        middle, first = percent((number + 0.5) / len(columns)), head - 4 - LINE * (len(lines) - 1)
        parts += (text(line, middle, f"{first + LINE * place}", "middle") for place, line in enumerate(lines))
    for number, (level, lines) in enumerate(zip(rows, beside, strict=True)):
        top = head + 4 + ROW_PIXELS * number
        start = top + (ROW_PIXELS - LINE * len(lines)) / 2 + LINE - 4
        parts += (text(line, "-10", f"{start + LINE * place:g}", "end") for place, line in enumerate(lines))
        cells = (_cell(grid, scale, level, name, place) for place, name in enumerate(columns))
        parts.append(element("svg", *cells, y=top, height=ROW_PIXELS))
    widest = max(len(line) for line in (row, *(line for lines in beside for line in lines)))
    size = f"--labels: {math.ceil(PIXELS * widest) + 18}px; --least: {COLUMN_PIXELS * len(columns)}px"
    height = head + 4 + ROW_PIXELS * len(rows)
    named = f"{title}{' (emulated)' if grid.emulated else ''}"
    drawn = drawing(id, named, _in_words(grid), parts, class_="chart crossed", height=height, style=size)
    return element("div", drawn, class_="scroll", role="region", aria_label=title, tabindex=0)  # for many columns


def _lines(level: str, characters: int, lines: int) -> list[str]:
    return textwrap.wrap(level, characters, max_lines=lines, placeholder="…") or [NOTHING]


def _in_words(grid: Grid) -> str:
    """The alternative text: what every cell says."""
    (row, rows), (column, columns) = grid.rows, grid.columns
    cells = ((one, other, grid.cells.get((one, other))) for one in rows for other in columns)
    words = (f"{one or NOTHING} with {other or NOTHING}: {_amounts(grid, cell)[0]}" for one, other, cell in cells)
    return f"Cost of each level of {row} with each level of {column}, {cost(grid.ranking.metric)}: {'; '.join(words)}."


def _cell(grid: Grid, scale: float, row: str, column: str, place: int) -> Markup:
    cell, wide = grid.cells.get((row, column)), len(grid.columns[1])
    tip = element("title", f"{row or NOTHING} with {column or NOTHING}: {', '.join(_tip(grid, cell))}")
    where = {"x": percent(place / wide), "width": percent(1 / wide)}
    amount, interval = _amounts(grid, cell)
    if cell is None:
        return element(
            "svg", tip, element("rect", class_="unmeasured"), text(amount, "50%", "26", style="tick"), **where
        )
    share = min(max(_decade(grid, cell) / scale, 0.0), 1.0)
    box = element("rect", style=f"--share: {100 * share:.0f}%")
    return element("svg", tip, box, text(amount, "50%", "20"), text(interval, "50%", "35", style="ends"), **where)


def _amounts(grid: Grid, cell: LevelPair | None) -> tuple[str, str]:
    """The cost of a cell and its interval, as a reader sees them."""
    if cell is None:
        return NOT_MEASURED, ""
    amount, interval = cost_of(grid.ranking.metric.better, cell.overhead, cell.low, cell.high)
    return amount, interval or NO_INTERVAL


def _tip(grid: Grid, cell: LevelPair | None) -> Iterator[str]:
    if cell is None:
        yield "no configuration has both, or none of them has a value"
        return
    yield f"median of {cell.treatments} configurations" if cell.treatments > 1 else "one configuration"
    yield f"{count(cell.rounds)}{', emulated' if grid.emulated else ''}"
