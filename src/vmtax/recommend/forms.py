"""Write a choice as text, in the forms that administrators use. Pure."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

Argv = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Form:
    """One notation of a choice, ready to be copied."""

    heading: str
    language: Literal["sh", "xml"]
    text: tuple[str, ...]  # lines; () if this form cannot express it, and the notes say why
    notes: tuple[str, ...]


class Export(Protocol):
    """One choice in every form; the notes say what a form cannot express."""

    def forms(self, width: int = 78) -> tuple[Form, ...]:
        """The commands that make it, and its forms for QEMU, libvirt and Proxmox; commands are wrapped at `width`."""

    @property
    def put_in(self) -> str:
        """Which placeholders in the forms must be replaced, in sentences."""


def lines(export: Export, width: int = 80) -> list[str]:
    """As text; commands are wrapped only between words, with a backslash."""
    text: list[str] = []
    for form in export.forms(width - 2):
        text += ["", f"{form.heading}:", *(f"  {line}" for line in form.text)]
        text += [line for note in form.notes for line in _note(note, width)]
    return text[1:]


def broken(commands: tuple[Argv, ...], width: int) -> Iterator[str]:
    """In shell syntax; wrapped only before an option, whose value stays on the same line."""
    for argv in commands:
        pieces: list[str] = []
        for word in map(shlex.quote, argv):
            if not pieces or word.startswith("-"):
                pieces.append(word)
            else:
                pieces[-1] += f" {word}"
        rows = [pieces[0]]
        for piece in pieces[1:]:
            if len(rows[-1]) + len(piece) + 3 <= width:  # a space, and " \\" at the end
                rows[-1] += f" {piece}"
            else:
                rows[-1] += " \\"
                rows.append(f"  {piece}")
        yield from rows


def _note(note: str, width: int) -> list[str]:
    return textwrap.wrap(note, width, initial_indent="  ! ", subsequent_indent="    ", break_long_words=False)
