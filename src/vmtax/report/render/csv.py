"""CSV: one row for each measurement, for a spreadsheet or any other program."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator

from vmtax.analysis.analysis import Analysis
from vmtax.core.units import printable
from vmtax.report.render.rows import Cell, rows

AT_ONCE = 1000  # lines
FORMULA = ("=", "+", "-", "@")  # spreadsheets would treat text with these prefixes as a formula, and execute it


def csv_pieces(analysis: Analysis) -> Iterator[bytes]:
    """RFC 4180, except that lines end with only a newline, and no cell contains one. Numbers are exact when Python
    reads them.
    """
    found = rows(analysis)
    lines = itertools.chain([tuple(found.columns)], found)
    while part := list(itertools.islice(lines, AT_ONCE)):
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(map(cell, row) for row in part)
        yield text.getvalue().encode()


def cell(value: Cell) -> str:
    """A cell as text."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str():
            text = printable(value)
            return f"'{text}" if text.lstrip().startswith(FORMULA) else text
    return repr(value)
