"""The HTML report: one self-contained file. Measured text is only ever text in it, never markup or code."""

from __future__ import annotations

import base64
import gzip
import importlib.util
import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import sha256
from importlib import resources
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vmtax import __version__
from vmtax.analysis.analysis import Analysis
from vmtax.report.contents import document
from vmtax.report.document import Block, Detail, Figure, Folded, plain
from vmtax.report.figures.base import Choice
from vmtax.report.wording.glossary import term_id

MARKS = {  # SVG of the dots, centred on (0, 0)
    "circle": "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0Z",
    "diamond": "M0,-5.2L5.2,0L0,5.2L-5.2,0Z",
    "square": "M-3.7,-3.7H3.7V3.7H-3.7Z",
    "cross": "M-4,-4L4,4M4,-4L-4,4",
}


def render_html(analysis: Analysis) -> str:
    """The report: at most 400 kB for a run of `quick`; with plotly, for selectable pictures, 2 MB more."""
    found = document(analysis, Detail.PAGE)
    drawn = {one.id: one.drawing for section in found.sections for one in _choices(section.blocks)}
    script = _own_text("page.js") if drawn else Markup("")
    plotly = _plotly() if drawn else b""
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            head=found.head,
            sections=found.sections,
            policy=_policy(*((script.encode(), plotly) if drawn else ())),
            figure_data=_gzipped(_json(drawn)) if drawn else None,
            plotly=_packed(plotly) if drawn else None,
            style=_own_text("style.css"),
            script=script,
            version=__version__,
        )
    )


def _choices(blocks: Iterable[Block]) -> Iterator[Choice]:
    for block in blocks:
        if isinstance(block, Figure):
            yield from (one for one in block.pictures if isinstance(one, Choice))
        elif isinstance(block, Folded):
            yield from _choices(block.blocks)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("vmtax.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(whole=_whole, kind=lambda block: type(block).__name__, plain=plain, anchor=_anchor)
    environment.globals.update(term_id=term_id, MARKS=MARKS)
    return environment


def _whole(text: str) -> str:
    """`text` with no-break spaces in numbers with units, and in intervals."""
    text = re.sub(r"\[[^\s,\]]+, [^\s,\]]+\]", lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), text)
    return re.sub(r"(?<=\d) (?=%|ms\b|s\b|m\b|h\b|d\b|[KM]?i?B\b)|(?<=\d [mhd]) (?=\d)", "\N{NO-BREAK SPACE}", text)


def _anchor(name: str) -> str:
    """A metric's name as an id, without spaces and characters that are special in links."""
    return re.sub(r"[^\w.-]", "-", name)


def _own_text(name: str) -> Markup:
    # Our own file, not measured
    return Markup(resources.files("vmtax.report").joinpath("page", name).read_text("utf-8"))


def _json(data: object) -> bytes:
    return json.dumps(data, allow_nan=False, separators=(",", ":")).encode()


def _gzipped(data: bytes) -> Markup:
    """Letters and digits only; page.js decompresses it."""
    return Markup(base64.b64encode(gzip.compress(data, compresslevel=9, mtime=0)).decode())


@lru_cache(maxsize=1)
def _plotly() -> bytes:
    """plotly.min.js, found without importing plotly, which is slow."""
    package = importlib.util.find_spec("plotly")
    if package is None or package.origin is None:
        raise FileNotFoundError("the Python package plotly is not installed: pip install plotly")
    return (Path(package.origin).parent / "package_data" / "plotly.min.js").read_bytes()


@lru_cache(maxsize=1)
def _packed(script: bytes) -> Markup:
    """Compressed to a third; done once for all reports, because it is slow."""
    return _gzipped(script)


def _policy(*scripts: bytes) -> str:
    """A content security policy: nothing is loaded, and only these scripts run, even if markup slipped through."""
    if not scripts:
        return "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    hashes = " ".join(f"'sha256-{base64.b64encode(sha256(script).digest()).decode()}'" for script in scripts)
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src {hashes}; img-src data: blob:"
