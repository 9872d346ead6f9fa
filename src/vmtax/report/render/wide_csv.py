"""A history as CSV in the shape that programs for time series read, such as Apache Otava: one row for each run, oldest
first, one column for each cost, which is a ratio of times for the same work, with columns for the ends of its interval.
"""

from __future__ import annotations

import csv
import io

from vmtax.analysis.many.costs import PROPERTIES
from vmtax.analysis.many.history import HistoryLine, HostHistory
from vmtax.report.answers.part import written
from vmtax.report.render.csv import cell
from vmtax.report.render.rows import Cell, column_name

BEFORE = ("time", "run", "label", "plan", "host")  # followed by properties of the host, then by the costs


def wide_csv(history: HostHistory) -> str:
    """As `csv_pieces` writes it; a cost that a run does not have is empty."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    names = [column(line) for line in history.lines]
    writer.writerow(
        [*BEFORE, *map(str.lower, PROPERTIES), *(f"{n}{end}" for n in names for end in ("", "_low", "_high"))]
    )
    points = [{point.run: point for point in line.points} for line in history.lines]
    for run in history.costs:
        row: list[Cell] = [written(run.created), run.id, run.label, run.plan, run.host_name]
        row += [run.properties.get(name) for name in PROPERTIES]
        for known in points:
            point = known.get(run.id)
            row += [point.ratio, point.low, point.high] if point else [None, None, None]
        writer.writerow(map(cell, row))
    return text.getvalue()


def column(line: HistoryLine) -> str:
    """The name of the column of a cost: "chess_nodes_per_second_vm_against_host"."""
    return column_name(f"{line.metric.name} {line.treatment} against {line.baseline}")
