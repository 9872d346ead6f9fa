"""The HTML report: one self-contained file. Measured text is only ever text in it, never markup or code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vmtax import __version__
from vmtax.analysis.analysis import Analysis
from vmtax.report.contents import document
from vmtax.report.document import Block, Detail, Document, Figure, Folded, plain
from vmtax.report.picture import PictureChoice
from vmtax.report.wording.glossary import term_id

# Content security policy: nothing is loaded, and no script runs, even if markup slipped through
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
MARKS = {  # SVG of the dots, centred on (0, 0)
    "circle": "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0Z",
    "diamond": "M0,-5.2L5.2,0L0,5.2L-5.2,0Z",
    "square": "M-3.7,-3.7H3.7V3.7H-3.7Z",
    "triangle": "M0,-4.8L4.6,3.4H-4.6Z",
    "wedge": "M0,4.8L4.6,-3.4H-4.6Z",
    "star": "M0,-5.6L1.6,-1.8L5.5,-1.6L2.4,0.9L3.5,4.8L0,2.6L-3.5,4.8L-2.4,0.9L-5.5,-1.6L-1.6,-1.8Z",
    "cross": "M-4,-4L4,4M4,-4L-4,4",
}


def render_html(analysis: Analysis) -> str:
    """The report: at most 400 kB for a run of `quick`."""
    return page(document(analysis, Detail.PAGE))


def page(found: Document) -> str:
    """A document with a head as a page."""
    choices = (one for section in found.sections for one in _choices(section.blocks))
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            head=found.head,
            sections=found.sections,
            policy=POLICY,
            style=_own_text("style.css"),
            options=max((len(options) for one in choices for _, options in one.selects), default=0),
            version=__version__,
        )
    )


def _choices(blocks: Iterable[Block]) -> Iterator[PictureChoice]:
    for block in blocks:
        if isinstance(block, Figure):
            yield from (one for one in block.pictures if isinstance(one, PictureChoice))
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
    environment.globals.update(term_id=term_id, MARKS=MARKS, zip=zip)
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
