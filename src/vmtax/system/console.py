"""Create rich's consoles, which show text from plans, tools, guests or files literally."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from typing import IO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from vmtax.core.units import printable

FILE_COLUMNS = 80  # width of output to a file or a pipe
_PIECES = re.compile("(\n)")


class PlainConsole(Console):
    """Interprets no markup, emoji code, control or bidi character in any text, at any depth of a table."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Like rich's own, which calls this for nested parts, too; only rich's own control codes are kept."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(_clean(segment.text), segment.style)


def console(
    file: IO[str] | None = None, *, stderr: bool = False, width: int | None = None, color: bool = True
) -> Console:
    """A console on `file`, otherwise on stdout or stderr; `width` in columns, by default the terminal's."""
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
    """The text as it would be printed on stdout; plain if that is no terminal, and as wide as $COLUMNS, or 80.

    Lines that must not be wrapped, because they are to be copied, may be wider.
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
