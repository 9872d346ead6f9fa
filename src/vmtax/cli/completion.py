"""What bash makes of a command line that it asks to have completed."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from typing import Any

ASKING = "_VMTAX_COMPLETE"  # set by a shell that wants to know
_BEFORE = "_VMTAX_BEFORE"  # set by `join_words`


def join_words() -> None:
    """Make one word again of `disk.aio=native`, which bash takes for three: typer knows nothing of that.

    Of the word that is to be completed only what follows the sign is left, for bash replaces only that.
    """
    number = os.environ.get("COMP_CWORD", "")
    if os.environ.get(ASKING) != "complete_bash" or not number.isdecimal():
        return
    typed = os.environ.get("COMP_WORDS", "")
    between = "\n" if "\n" in typed else " "
    words = typed.split(between)[: int(number) + 1]
    *joined, last = re.sub(f"{between}=(?:{between}|$)", "=", between.join(words)).split(between)
    if len(joined) + 1 < len(words):  # it did so somewhere
        name, sign, last = last.rpartition("=")
        os.environ[_BEFORE] = name + sign
        os.environ |= {"COMP_WORDS": between.join([*joined, last]), "COMP_CWORD": str(len(joined))}


def before_word() -> str:
    """What stands before the word that is to be completed, up to an equals sign, where the shell split it there."""
    return os.environ.get(_BEFORE, "")


def leave_out_rich() -> None:
    """Hide rich from typer where a shell asks: typer imports it to remove markup, and no help text has any."""
    if ASKING in os.environ:
        sys.modules["rich"] = None  # type: ignore[assignment]  # so Python raises ImportError for it


def take_as_typed(context: Any, parameters: Iterable[Any]) -> None:
    """Leave words as they were typed where a shell asks: it needs no values, and for these typer imports pydantic."""
    if context.resilient_parsing:
        for parameter in parameters:
            parameter.process_value = lambda _, value: value
