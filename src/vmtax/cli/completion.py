"""Adapt the program to bash when it completes a command line."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from typing import Any

ASKING = "_VMTAX_COMPLETE"  # set by a shell that asks for completion
_BEFORE = "_VMTAX_BEFORE"  # set by `join_words`


def join_words() -> None:
    """Join the words of `disk.aio=native`, which bash splits into three, because typer does not know that.

    Of the word to be completed, only the part after the sign is left, because bash replaces only that part.
    """
    number = os.environ.get("COMP_CWORD", "")
    if os.environ.get(ASKING) != "complete_bash" or not number.isdecimal():
        return
    typed = os.environ.get("COMP_WORDS", "")
    between = "\n" if "\n" in typed else " "
    words = typed.split(between)[: int(number) + 1]
    *joined, last = re.sub(f"{between}=(?:{between}|$)", "=", between.join(words)).split(between)
    if len(joined) + 1 < len(words):  # something was split
        name, sign, last = last.rpartition("=")
        os.environ[_BEFORE] = name + sign
        os.environ |= {"COMP_WORDS": between.join([*joined, last]), "COMP_CWORD": str(len(joined))}


def before_word() -> str:
    """The part of the word to be completed that the shell split off, up to and including an equals sign."""
    return os.environ.get(_BEFORE, "")


def leave_out_rich() -> None:
    """Hide rich from typer while a shell asks: typer imports it to remove markup, and no help text has any."""
    if ASKING in os.environ:
        sys.modules["rich"] = None  # type: ignore[assignment]  # so Python raises ImportError for it


def take_as_typed(context: Any, parameters: Iterable[Any]) -> None:
    """Do not convert words while a shell asks: completion needs no values, and conversion imports pydantic."""
    if context.resilient_parsing:
        for parameter in parameters:
            parameter.process_value = lambda _, value: value
