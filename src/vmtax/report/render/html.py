"""The HTML report: one self-contained file. What was measured is only ever text in it, never markup or code."""

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
from vmtax.report.figures.base import Choice, Picture
from vmtax.report.wording.glossary import term_id

MOST_PLACES = 40  # of an item


def render_html(analysis: Analysis) -> str:
    """The report's text, at most 3 MB, most of which is plotly."""
    found = document(analysis, Detail.PAGE)
    drawn = {one.id: one.drawing for section in found.sections for one in _pictures(section.blocks)}
    script = _own_text("page.js")
    plotly = _plotly() if drawn else b""
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            head=found.head,
            sections=found.sections,
            policy=_policy(script.encode(), plotly),
            figure_data=_gzipped(_json(drawn)) if drawn else None,
            plotly=_packed(plotly),
            style=_own_text("style.css"),
            script=script,
            version=__version__,
        )
    )


def _pictures(blocks: Iterable[Block]) -> Iterator[Picture | Choice]:
    for block in blocks:
        if isinstance(block, Figure):
            yield from block.pictures
        elif isinstance(block, Folded):
            yield from _pictures(block.blocks)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("vmtax.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(whole=_whole, kind=lambda block: type(block).__name__, plain=plain)
    environment.globals.update(term_id=term_id, MOST_PLACES=MOST_PLACES)
    return environment


def _whole(text: str) -> str:
    """`text` whose numbers stay on one line with their units, and intervals whole."""
    text = re.sub(r"\[[^\s,\]]+, [^\s,\]]+\]", lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), text)
    return re.sub(r"(?<=\d) (?=%|ms\b|s\b|m\b|h\b|d\b|[KM]?i?B\b)|(?<=\d [mhd]) (?=\d)", "\N{NO-BREAK SPACE}", text)


def _own_text(name: str) -> Markup:
    return Markup(resources.files("vmtax.report").joinpath("page", name).read_text("utf-8"))  # ours, not measured


def _json(data: object) -> bytes:
    return json.dumps(data, allow_nan=False, separators=(",", ":")).encode()


def _gzipped(data: bytes) -> Markup:
    """Letters and digits, whatever was measured; page.js inflates it."""
    return Markup(base64.b64encode(gzip.compress(data, compresslevel=9, mtime=0)).decode())


@lru_cache(maxsize=1)
def _plotly() -> bytes:
    """plotly.min.js, found without importing plotly, which takes long."""
    package = importlib.util.find_spec("plotly")
    if package is None or package.origin is None:
        raise FileNotFoundError("the Python package plotly is not installed: pip install plotly")
    return (Path(package.origin).parent / "package_data" / "plotly.min.js").read_bytes()


@lru_cache(maxsize=1)
def _packed(script: bytes) -> Markup:
    """Compressed to a third; once for all reports, for it takes a while."""
    return _gzipped(script)


def _policy(*scripts: bytes) -> str:
    """A content security policy: nothing is loaded, and no script runs but these, also if markup slipped through."""
    hashes = " ".join(f"'sha256-{base64.b64encode(sha256(script).digest()).decode()}'" for script in scripts)
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src {hashes}; img-src data: blob:"
