"""Hooks of mkdocs.yml: the pages are written as GitHub reads them, and Python-Markdown is stricter."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

FENCE = re.compile(r" *(```+|~~~+)")
BLOCK = re.compile(r" *(?:[-*] |\d+\. |\|)")  # an item of a list, or a row of a table
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(((?:\.\./)+)[^)]*\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """With an empty line before each list, table and block of code, and without links that lead out of docs/."""
    return within(spaced(markdown), depth=len(PurePosixPath(page.file.src_uri).parts) - 1)


def spaced(markdown: str) -> str:
    """With an empty line before what begins a list, a table or a block of code."""
    inside, before = "", ""
    lines: list[str] = []
    for line in markdown.splitlines():
        fence = FENCE.match(line)
        begins = fence or (BLOCK.match(line) and not BLOCK.match(before) and not before.startswith(" "))
        if begins and not inside and before.strip():
            lines.append("")
        if fence and inside in ("", fence[1]):
            inside = "" if inside else fence[1]
        lines.append(line)
        before = line
    return "\n".join(lines)


def within(markdown: str, depth: int) -> str:
    """A link that leads out of docs/, from a page so deep in it, becomes its words."""
    return LINK.sub(lambda link: link[1] if link[2].count("../") > depth else link[0], markdown)
