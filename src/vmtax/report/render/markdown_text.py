"""Escape text for Markdown, so that measured or user-given text stays text."""

from __future__ import annotations

import re

from vmtax.core.units import printable


def text(raw: str) -> str:
    """`raw` as literal text on one line; it does not start a list either."""
    return re.sub(r"^(\d*)([-+.)])(?=\s|$)", r"\1\\\2", escaped(" ".join(printable(raw).split())))


def escaped(text: str) -> str:
    """Escape every character that is special in Markdown or HTML."""
    harmless = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"[\\`*_\[\]|~#$]", r"\\\g<0>", harmless)


def row(*cells: str) -> str:
    """A row of a table; the cells are Markdown."""
    return f"| {' | '.join(cells)} |"
