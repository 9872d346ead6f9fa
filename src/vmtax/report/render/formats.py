"""The formats of reports and of comparisons, by name. What writes one is imported only when it is used."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from vmtax.core.errors import BadInput

if TYPE_CHECKING:
    from vmtax.analysis.analysis import Analysis
    from vmtax.analysis.many.fleet import Fleet
    from vmtax.analysis.many.fleet_change import FleetChange
    from vmtax.analysis.many.history import HostHistory
    from vmtax.analysis.sessions import Change


@dataclass(frozen=True, slots=True)
class LateWriter:
    """A function of this part of vmtax whose module is imported when it is first called."""

    place: str  # module:function, the module as it is called inside report

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)

    @property
    def function(self) -> Callable[..., Any]:
        module, _, name = self.place.partition(":")
        found: Callable[..., Any] = getattr(import_module(f"vmtax.report.{module}"), name)
        return found


@dataclass(frozen=True, slots=True)
class Format:
    """A format in which an experiment can be written."""

    name: str
    suffix: str  # of the file
    write: (
        LateWriter  # of an analysis: the whole file as text, or pieces of it, each text of whole characters, or bytes
    )
    text: bool = True  # UTF-8, so that a terminal can show it
    ranks: bool = True  # includes rankings; otherwise only measurements
    costs: bool = False  # has costs alone, and refuses a run that has none

    def pieces(self, analysis: Analysis) -> Iterator[bytes]:
        """Of the file, one after the other; of a text, whole characters."""
        written = self.write(analysis)
        for piece in (written,) if isinstance(written, str) else written:
            yield piece.encode() if isinstance(piece, str) else piece

    def render(self, analysis: Analysis) -> bytes:
        """The whole file."""
        return b"".join(self.pieces(analysis))


FORMATS = {
    format.name: format
    for format in (
        Format("html", ".html", LateWriter("render.html:render_html")),
        Format("markdown", ".md", LateWriter("render.markdown:render_markdown")),
        Format("json", ".json", LateWriter("answers.run:written_pieces")),
        Format("csv", ".csv", LateWriter("render.csv:csv_pieces"), ranks=False),
        Format("parquet", ".parquet", LateWriter("render.parquet:parquet_pieces"), text=False, ranks=False),
        Format("bencher", ".bencher.json", LateWriter("render.exchange:bencher_of_run"), ranks=False, costs=True),
        Format(
            "github-action",
            ".github-action.json",
            LateWriter("render.exchange:github_action_of_run"),
            ranks=False,
            costs=True,
        ),
        Format("prometheus", ".prom", LateWriter("render.exchange:textfile_of_run"), ranks=False, costs=True),
    )
}
# Of the others, each writes what was found, with all details or without, as one text.
CHANGE_FORMATS: dict[str, Callable[[Change, bool], str]] = {
    name: LateWriter(f"render.change_files:{name}") for name in ("terminal", "markdown", "junit", "json")
}
HISTORY_FORMATS: dict[str, Callable[[HostHistory, bool], str]] = {
    name: LateWriter(f"render.history_files:{name}") for name in ("terminal", "html", "markdown", "json", "csv")
}
FLEET_FORMATS: dict[str, Callable[[Fleet, bool], str]] = {
    name: LateWriter(f"render.fleet_files:{name}")
    for name in ("terminal", "html", "markdown", "json", "csv", "prometheus")
}
FLEET_CHANGE_FORMATS: dict[str, Callable[[FleetChange, bool], str]] = {
    name: LateWriter(f"render.fleet_change_files:{name}") for name in ("terminal", "html", "markdown", "json")
}


def find(name: str, *, printed: bool = False) -> Format:
    """The format of that name; `printed`: on a terminal. Raises BadInput with the formats that exist."""
    _check(name, FORMATS, [format.name for format in FORMATS.values() if format.text or not printed])
    return FORMATS[name]


def find_change(name: str) -> Callable[[Change, bool], str]:
    """What writes a comparison in that format. Raises BadInput with the formats that exist."""
    _check(name, CHANGE_FORMATS, CHANGE_FORMATS)
    return CHANGE_FORMATS[name]


def find_history(name: str) -> Callable[[HostHistory, bool], str]:
    """What writes a history in that format. Raises BadInput with the formats that exist."""
    _check(name, HISTORY_FORMATS, HISTORY_FORMATS)
    return HISTORY_FORMATS[name]


def find_fleet(name: str) -> Callable[[Fleet, bool], str]:
    """What writes a fleet in that format. Raises BadInput with the formats that exist."""
    _check(name, FLEET_FORMATS, FLEET_FORMATS)
    return FLEET_FORMATS[name]


def find_fleet_change(name: str) -> Callable[[FleetChange, bool], str]:
    """What writes changes over a fleet in that format. Raises BadInput with the formats that exist."""
    _check(name, FLEET_CHANGE_FORMATS, FLEET_CHANGE_FORMATS)
    return FLEET_CHANGE_FORMATS[name]


def _check(name: str, known: Iterable[str], offered: Iterable[str]) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, offered, n=1)
        meant = f"; did you mean {near[0]}?" if near else f"; there are: {', '.join(offered)}"
        raise BadInput(f"unknown format {name!r}{meant}")
