"""The formats of a report, in one table. What a format needs is imported when it is asked for."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from vmtax.core.errors import BadInput
from vmtax.core.records import Comparison, Experiment

if TYPE_CHECKING:
    from vmtax.analysis.requirements import Wish
    from vmtax.analysis.weight_profiles import Mix


class Render(Protocol):
    """Makes the file; `mix`: what the storage is also ranked by; `wish`: what is asked of a disk."""

    def __call__(
        self,
        experiment: Experiment,
        comparisons: Sequence[Comparison],
        mix: Mix | None = None,
        wish: Wish | None = None,
    ) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Format:
    """One way of writing an experiment down."""

    name: str
    suffix: str  # of the file
    render: Render
    text: bool = True  # UTF-8, so that a terminal can show it
    ranks: bool = True  # it has rankings; else measurements only


def _html(
    experiment: Experiment, comparisons: Sequence[Comparison], mix: Mix | None = None, wish: Wish | None = None
) -> bytes:
    from vmtax.report.render.html import render_html

    return render_html(experiment, comparisons, mix, wish).encode()


def _markdown(
    experiment: Experiment, comparisons: Sequence[Comparison], mix: Mix | None = None, wish: Wish | None = None
) -> bytes:
    from vmtax.report.render.markdown import render_markdown

    return render_markdown(experiment, comparisons, mix, wish).encode()


def _json(
    experiment: Experiment, comparisons: Sequence[Comparison], mix: Mix | None = None, wish: Wish | None = None
) -> bytes:
    from vmtax.report.render.envelope import envelope
    from vmtax.report.render.json import experiment_data

    return f"{envelope('experiment', experiment_data(experiment, comparisons, mix, wish))}\n".encode()


def _csv(
    experiment: Experiment, comparisons: Sequence[Comparison], mix: Mix | None = None, wish: Wish | None = None
) -> bytes:
    from vmtax.report.render.csv import render_csv

    return render_csv(experiment).encode()


def _parquet(
    experiment: Experiment, comparisons: Sequence[Comparison], mix: Mix | None = None, wish: Wish | None = None
) -> bytes:
    from vmtax.report.render.parquet import render_parquet

    return render_parquet(experiment)


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
