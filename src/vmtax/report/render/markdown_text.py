"""Text in Markdown that stays text, whatever was measured or named by somebody."""

from __future__ import annotations

import re

from vmtax.core.units import printable


def text(raw: str) -> str:
    """`raw` on one line, as it is: nor does it begin a list where it begins a line."""
    return re.sub(r"^(\d*)([-+.)])(?=\s|$)", r"\1\\\2", escaped(" ".join(printable(raw).split())))


def escaped(text: str) -> str:
    """Every character that Markdown or HTML could obey, made harmless."""
    harmless = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"[\\`*_\[\]|~#$]", r"\\\g<0>", harmless)


def row(*cells: str) -> str:
    """A line of a table; the cells are Markdown."""
    return f"| {' | '.join(cells)} |"
