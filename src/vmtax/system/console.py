"""The one place where rich's consoles are made: text from plans, tools, guests or files is shown as it is."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from typing import IO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from vmtax.core.units import printable

FILE_COLUMNS = 80  # of what is written to a file or a pipe
_PIECES = re.compile("(\n)")


class PlainConsole(Console):
    """Obeys no markup, emoji code, control or bidi character of any text, however deep in a table it is."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As rich's own, which calls this for every part of a part; what moves the cursor is rich's and stays."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(_clean(segment.text), segment.style)


def console(
    file: IO[str] | None = None, *, stderr: bool = False, width: int | None = None, color: bool = True
) -> Console:
    """A console on `file`, else on stdout or stderr; `width` in columns, else the terminal's."""
    return PlainConsole(
        file=file,
        stderr=stderr,
        width=width,
        color_system="auto" if color else None,
        markup=False,
        emoji=False,
        highlight=False,
    )


def as_text(renderable: RenderableType) -> str:
    """What would be printed on stdout; where that is no terminal plain, as wide as $COLUMNS says, else 80.

    A line that must not be broken may be wider: it is to be copied.
    """
    writer = console(width=None if sys.stdout.isatty() else _columns())
    with writer.capture() as captured:
        writer.print(renderable, crop=False)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def _columns() -> int:
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isdecimal() and len(given) < 6 and int(given) else FILE_COLUMNS


def _clean(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(piece if piece == "\n" else printable(piece) for piece in _PIECES.split(text))
