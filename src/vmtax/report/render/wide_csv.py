"""Runs as CSV in the shape that programs for time series read, such as Apache Otava: one row for each run, one column
for each cost, which is a ratio of times for the same work, with columns for the ends of its interval.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence

from vmtax.analysis.many.costs import PROPERTIES, CostSubject, RunCosts
from vmtax.report.answers.part import written
from vmtax.report.render.csv import cell
from vmtax.report.render.rows import Cell, column_name

BEFORE = ("time", "run", "label", "plan", "host")  # followed by properties of the host, then by the costs


def wide_csv(runs: Sequence[RunCosts]) -> str:
    """As `csv_pieces` writes it, runs in their order; a cost that a run does not have is empty."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    subjects = [*dict.fromkeys(figure.subject for run in reversed(runs) for figure in run.figures)]
    columns = [f"{column(subject)}{end}" for subject in subjects for end in ("", "_low", "_high")]
    writer.writerow([*BEFORE, *map(str.lower, PROPERTIES), *columns])
    for run in runs:
        known = {figure.subject: figure for figure in run.figures}
        row: list[Cell] = [written(run.created), run.id, run.label, run.plan, run.host_name]
        row += [run.properties.get(name) for name in PROPERTIES]
        for subject in subjects:
            figure = known.get(subject)
            logs = (figure.log, figure.low, figure.high) if figure else (None, None, None)
            row += [None if log is None else math.exp(log) for log in logs]
        writer.writerow(map(cell, row))
    return text.getvalue()


def column(subject: CostSubject) -> str:
    """The name of the column of a cost: "chess_nodes_per_second_vm_against_host"."""
    return column_name(f"{subject.metric.name} {subject.treatment} against {subject.baseline}")
