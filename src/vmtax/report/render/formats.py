"""The formats of reports and of comparisons. What a format needs is imported only when it is used."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from vmtax.core.errors import BadInput

if TYPE_CHECKING:
    from vmtax.analysis.analysis import Analysis
    from vmtax.analysis.many.costs import RunCosts
    from vmtax.analysis.many.fleet import Fleet
    from vmtax.analysis.many.fleet_change import FleetChange
    from vmtax.analysis.many.history import HostHistory
    from vmtax.analysis.sessions import Change
    from vmtax.report.document import Detail, Document

FILE_WIDTH = 100  # columns of a comparison that is written to a file


@dataclass(frozen=True, slots=True)
class Format:
    """A format in which an experiment can be written."""

    name: str
    suffix: str  # of the file
    pieces: Callable[[Analysis], Iterator[bytes]]  # of the file, one after the other; of a text, whole characters
    text: bool = True  # UTF-8, so that a terminal can show it
    ranks: bool = True  # includes rankings; otherwise only measurements
    costs: bool = False  # has costs alone, and refuses a run that has none

    def render(self, analysis: Analysis) -> bytes:
        """The whole file."""
        return b"".join(self.pieces(analysis))


def _html(analysis: Analysis) -> Iterator[bytes]:
    from vmtax.report.render.html import render_html

    yield render_html(analysis).encode()


def _markdown(analysis: Analysis) -> Iterator[bytes]:
    from vmtax.report.render.markdown import render_markdown

    yield render_markdown(analysis).encode()


def _json(analysis: Analysis) -> Iterator[bytes]:
    from vmtax.report.answers.envelope import pieces
    from vmtax.report.answers.run import with_iterators

    for piece in pieces("experiment", with_iterators(analysis)):
        yield piece.encode()
    yield b"\n"


def _csv(analysis: Analysis) -> Iterator[bytes]:
    from vmtax.report.render.csv import csv_pieces

    return csv_pieces(analysis)


def _parquet(analysis: Analysis) -> Iterator[bytes]:
    from vmtax.report.render.parquet import parquet_pieces

    return parquet_pieces(analysis)


def _bencher(analysis: Analysis) -> Iterator[bytes]:
    from vmtax.report.render.exchange import bencher

    yield bencher(_costs(analysis)).encode()


def _github_action(analysis: Analysis) -> Iterator[bytes]:
    from vmtax.report.render.exchange import github_action

    yield github_action(_costs(analysis)).encode()


def _prometheus(analysis: Analysis) -> Iterator[bytes]:
    from vmtax.report.render.exchange import textfile

    yield textfile([_costs(analysis)]).encode()


def _costs(analysis: Analysis) -> RunCosts:
    from vmtax.analysis.many.costs import UNKNOWN_WORK, costs_of_work

    return costs_of_work(analysis.experiment, UNKNOWN_WORK)


FORMATS = {
    format.name: format
    for format in (
        Format("html", ".html", _html),
        Format("markdown", ".md", _markdown),
        Format("json", ".json", _json),
        Format("csv", ".csv", _csv, ranks=False),
        Format("parquet", ".parquet", _parquet, text=False, ranks=False),
        Format("bencher", ".bencher.json", _bencher, ranks=False, costs=True),
        Format("github-action", ".github-action.json", _github_action, ranks=False, costs=True),
        Format("prometheus", ".prom", _prometheus, ranks=False, costs=True),
    )
}


def find(name: str, *, printed: bool = False) -> Format:
    """The format of that name; `printed`: on a terminal. Raises BadInput with the formats that exist."""
    _check(name, FORMATS, [format.name for format in FORMATS.values() if format.text or not printed])
    return FORMATS[name]


def _check(name: str, known: Iterable[str], offered: Iterable[str]) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, offered, n=1)
        meant = f"; did you mean {near[0]}?" if near else f"; there are: {', '.join(offered)}"
        raise BadInput(f"unknown format {name!r}{meant}")


def _change_text(change: Change, full: bool) -> str:
    from vmtax.report.document import Detail
    from vmtax.report.sections.change import document

    return _plain(document(change, Detail.FULL if full else Detail.BRIEF), full)


def _plain(found: Document, full: bool) -> str:
    """A document as on a terminal, for a file."""
    import io

    from vmtax.report.document import Detail
    from vmtax.report.render.terminal import whole
    from vmtax.system.console import console

    file = io.StringIO()
    rendered = whole(found, Detail.FULL if full else Detail.BRIEF)
    console(file, width=FILE_WIDTH, color=False).print(rendered)
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


def _change_markdown(change: Change, full: bool) -> str:
    from vmtax.report.document import Detail
    from vmtax.report.render.markdown import whole
    from vmtax.report.sections.change import document

    return whole(document(change, Detail.FILE), comment=True)


def _change_junit(change: Change, full: bool) -> str:
    from vmtax.report.render.junit import render_junit

    return render_junit(change)


def _change_json(change: Change, full: bool) -> str:
    from vmtax.report.answers.change import CHANGE
    from vmtax.report.answers.envelope import envelope

    return f"{envelope('comparison', CHANGE.made(change))}\n"


CHANGE_FORMATS: dict[str, Callable[[Change, bool], str]] = {
    "terminal": _change_text,
    "markdown": _change_markdown,
    "junit": _change_junit,
    "json": _change_json,
}


Found = TypeVar("Found")


def _of_document(make: Callable[[Found, Detail], Document]) -> dict[str, Callable[[Found, bool], str]]:
    """The formats in which a document is written that `make` makes of what was found over many runs."""

    def text(found: Found, full: bool) -> str:
        from vmtax.report.document import Detail

        return _plain(make(found, Detail.FULL if full else Detail.BRIEF), full)

    def html(found: Found, full: bool) -> str:
        from vmtax.report.document import Detail
        from vmtax.report.render.html import page

        return page(make(found, Detail.PAGE))

    def markdown(found: Found, full: bool) -> str:
        from vmtax.report.document import Detail
        from vmtax.report.render.markdown import whole

        return whole(make(found, Detail.FILE))

    return {"terminal": text, "html": html, "markdown": markdown}


def _history_document(history: HostHistory, detail: Detail) -> Document:
    from vmtax.report.sections.history import document

    return document(history, detail)


def _history_json(history: HostHistory, full: bool) -> str:
    from vmtax.report.answers.envelope import envelope
    from vmtax.report.answers.history import HISTORY

    return f"{envelope('history', HISTORY.made(history))}\n"


def _history_csv(history: HostHistory, full: bool) -> str:
    from vmtax.report.render.wide_csv import wide_csv

    return wide_csv(history.costs)


HISTORY_FORMATS: dict[str, Callable[[HostHistory, bool], str]] = {
    **_of_document(_history_document),
    "json": _history_json,
    "csv": _history_csv,
}


def find_history(name: str) -> Callable[[HostHistory, bool], str]:
    """The function that writes a history in that format, `full` or not. Raises BadInput with the formats that
    exist.
    """
    _check(name, HISTORY_FORMATS, HISTORY_FORMATS)
    return HISTORY_FORMATS[name]


def _fleet_document(fleet: Fleet, detail: Detail) -> Document:
    from vmtax.report.sections.fleet import document

    return document(fleet, detail)


def _fleet_json(fleet: Fleet, full: bool) -> str:
    from vmtax.report.answers.envelope import envelope
    from vmtax.report.answers.fleet import FLEET

    return f"{envelope('fleet', FLEET.made(fleet))}\n"


def _fleet_csv(fleet: Fleet, full: bool) -> str:
    from vmtax.report.render.wide_csv import wide_csv

    return wide_csv(fleet.costs)


def _fleet_prometheus(fleet: Fleet, full: bool) -> str:
    from vmtax.report.render.exchange import textfile

    return textfile(fleet.costs)


FLEET_FORMATS: dict[str, Callable[[Fleet, bool], str]] = {
    **_of_document(_fleet_document),
    "json": _fleet_json,
    "csv": _fleet_csv,
    "prometheus": _fleet_prometheus,
}


def find_fleet(name: str) -> Callable[[Fleet, bool], str]:
    """The function that writes a fleet in that format, `full` or not. Raises BadInput with the formats that exist."""
    _check(name, FLEET_FORMATS, FLEET_FORMATS)
    return FLEET_FORMATS[name]


def _fleet_change_document(change: FleetChange, detail: Detail) -> Document:
    from vmtax.report.sections.fleet_change import document

    return document(change, detail)


def _fleet_change_json(change: FleetChange, full: bool) -> str:
    from vmtax.report.answers.envelope import envelope
    from vmtax.report.answers.fleet_change import FLEET_CHANGE

    return f"{envelope('fleet-change', FLEET_CHANGE.made(change))}\n"


FLEET_CHANGE_FORMATS: dict[str, Callable[[FleetChange, bool], str]] = {
    **_of_document(_fleet_change_document),
    "json": _fleet_change_json,
}


def find_fleet_change(name: str) -> Callable[[FleetChange, bool], str]:
    """The function that writes changes over a fleet in that format, `full` or not. Raises BadInput with the formats
    that exist.
    """
    _check(name, FLEET_CHANGE_FORMATS, FLEET_CHANGE_FORMATS)
    return FLEET_CHANGE_FORMATS[name]


def find_change(name: str) -> Callable[[Change, bool], str]:
    """The function that writes a comparison in that format, `full` or not. Raises BadInput with the formats that
    exist.
    """
    _check(name, CHANGE_FORMATS, CHANGE_FORMATS)
    return CHANGE_FORMATS[name]
