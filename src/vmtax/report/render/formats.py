"""The formats of a report, in one table. What a format needs is imported when it is asked for."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vmtax.core.errors import BadInput

if TYPE_CHECKING:
    from vmtax.analysis.analysis import Analysis


@dataclass(frozen=True, slots=True)
class Format:
    """One way of writing an experiment down."""

    name: str
    suffix: str  # of the file
    render: Callable[[Analysis], bytes]
    text: bool = True  # UTF-8, so that a terminal can show it
    ranks: bool = True  # it has rankings; else measurements only


def _html(analysis: Analysis) -> bytes:
    from vmtax.report.render.html import render_html

    return render_html(analysis).encode()


def _markdown(analysis: Analysis) -> bytes:
    from vmtax.report.render.markdown import render_markdown

    return render_markdown(analysis).encode()


def _json(analysis: Analysis) -> bytes:
    from vmtax.report.answers.run import Experiment
    from vmtax.report.render.envelope import envelope

    return f"{envelope('experiment', Experiment.made(analysis))}\n".encode()


def _csv(analysis: Analysis) -> bytes:
    from vmtax.report.render.csv import render_csv

    return render_csv(analysis).encode()


def _parquet(analysis: Analysis) -> bytes:
    from vmtax.report.render.parquet import render_parquet

    return render_parquet(analysis)


FORMATS = {
    format.name: format
    for format in (
        Format("html", ".html", _html),
        Format("markdown", ".md", _markdown),
        Format("json", ".json", _json),
        Format("csv", ".csv", _csv, ranks=False),
        Format("parquet", ".parquet", _parquet, text=False, ranks=False),
    )
}


def find(name: str) -> Format:
    """The format of that name. Raises BadInput with what there is."""
    if name in FORMATS:
        return FORMATS[name]
    near = difflib.get_close_matches(name, FORMATS, n=1)
    meant = f"; did you mean {near[0]}?" if near else f"; there are: {', '.join(FORMATS)}"
    raise BadInput(f"unknown format {name!r}{meant}")
