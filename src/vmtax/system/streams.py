"""Make the standard streams safe at the start: no text, locale or closed descriptor can break them."""

from __future__ import annotations

import codecs
import io
import os
import re
import select
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

WIDEST = 1000  # columns and lines of a terminal; environment variables may claim more
SIZES = ("COLUMNS", "LINES", "TERMINAL_WIDTH")  # the last one is typer's
ERRORS = "vmtax.plain"  # name of the handler for text that a stream's encoding cannot express
PLAIN = {"−": "-", "–": "-", "×": "x", "·": ".", "→": ">", "±": "~", "µ": "u", "…": "."}


class OutputError(Exception):
    """Standard output cannot be written. Not an OSError: typer would silently end the program."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.strerror)
        self.errno = error.errno


class _Descriptor(io.FileIO):
    """A descriptor whose failures can be recognized or, for error messages, are ignored."""

    def __init__(self, number: int, *, ignored: bool) -> None:
        super().__init__(number, "wb", closefd=False)
        self.ignored = ignored

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            while (count := super().write(data)) is None:  # somebody has made it non-blocking, and it is full
                select.select([], [self], [])
        except OSError as error:
            if self.ignored:
                return memoryview(data).nbytes
            raise OutputError(error) from error
        return count


def ready() -> None:
    """Open closed descriptors among 0 to 2, replace the three streams, and remove impossible terminal sizes.

    Otherwise the next file that is opened would get a closed descriptor. Writing to a closed stdout fails.
    """
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, flags), True)
    codecs.register_error(ERRORS, _plain)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 (it stays open)
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    sys.stdout, sys.stderr = _writer(1, sys.stdout), _writer(2, sys.stderr)
    for name in SIZES:
        _bound(name)


def lose() -> None:
    """Discard unwritten output for stdout, which is broken."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, _Descriptor):
        raw.ignored = True  # Python writes the rest when it destroys the stream, and reports failures
    sys.stdout = io.StringIO()


def _writer(number: int, old: TextIO | None) -> io.TextIOWrapper:
    """A text stream on that descriptor, in the encoding of the stream that it replaces."""
    if old is not None:
        old.flush()
    raw = _Descriptor(number, ignored=number == 2)
    encoding = getattr(old, "encoding", None) or "utf-8"
    lines = number == 2 or raw.isatty()
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, ERRORS, line_buffering=lines)


def _plain(error: UnicodeError) -> tuple[str, int]:
    """For codecs: a similar character, or a question mark."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(PLAIN.get(c, "?") for c in error.object[error.start : error.end]), error.end


def _bound(name: str) -> None:
    text = os.environ.get(name)
    if text is None:
        return
    if re.fullmatch("0*[1-9][0-9]{0,8}", text):
        os.environ[name] = str(min(int(text), WIDEST))
    else:
        del os.environ[name]
