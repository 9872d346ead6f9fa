"""CSV: one row for each measurement, for a spreadsheet or any other program."""

from __future__ import annotations

import csv
import io

from vmtax.analysis.analysis import Analysis
from vmtax.core.units import printable
from vmtax.report.render.rows import Cell, rows

FORMULA = ("=", "+", "-", "@")  # spreadsheets would treat text with these prefixes as a formula, and execute it


def render_csv(analysis: Analysis) -> bytes:
    """RFC 4180, except that lines end with only a newline, and no cell contains one. Numbers are exact when Python
    reads them.
    """
    found = rows(analysis)
    target = io.BytesIO()
    text = io.TextIOWrapper(target, "utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_cell, found.columns))
    writer.writerows(map(_cell, row) for row in found)
    text.flush()
    return target.getvalue()


def _cell(value: Cell) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str():
            text = printable(value)
            return f"'{text}" if text.lstrip().startswith(FORMULA) else text
    return repr(value)
