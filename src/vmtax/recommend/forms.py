"""The forms in which an administrator applies a choice, as text. Pure."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

Argv = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Form:
    """One way to write a choice down, ready to be copied."""

    heading: str
    language: Literal["sh", "xml"]
    text: tuple[str, ...]  # lines; () if this form cannot say it, and the notes say why
    notes: tuple[str, ...]


class Export(Protocol):
    """One choice in every form; what a form cannot say stands in its notes."""

    def forms(self, width: int = 78) -> tuple[Form, ...]:
        """The commands that make it, and its forms for QEMU, libvirt and Proxmox; commands are broken at `width`."""

    @property
    def put_in(self) -> str:
        """What of the forms is to be replaced, in sentences."""


def lines(export: Export, width: int = 80) -> list[str]:
    """As text; commands are broken between words only, with a backslash."""
    text: list[str] = []
    for form in export.forms(width - 2):
        text += ["", f"{form.heading}:", *(f"  {line}" for line in form.text)]
        text += [line for note in form.notes for line in _note(note, width)]
    return text[1:]


def broken(commands: tuple[Argv, ...], width: int) -> Iterator[str]:
    """As a shell takes them; broken only in front of an option, which keeps its value beside it."""
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
