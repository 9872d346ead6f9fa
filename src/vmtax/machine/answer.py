"""Parse numbers and JSON objects that a machine printed: a guest or a remote host may print anything instead."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Protocol

from vmtax.core.machines import MachineError

SHOWN = 80  # characters of the unexpected output


class _Named(Protocol):
    @property
    def path(self) -> str: ...


def number_of(machine: _Named, what: str, text: str, *, most: float = 2.0**63) -> float:
    """`text` as a number from 0 to below `most`. Raises MachineError, which names the machine and `what`."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < most:  # also excludes NaN
        raise MachineError(f"{machine.path}: {what}: a number from 0 to {most:g} must stand there, not {_shown(text)}")
    return number


def rows_of(machine: _Named, what: str, text: str, *keys: str) -> list[dict[str, Any]]:
    """The list of objects in the JSON `text` under these nested keys. Raises as `number_of`."""
    try:
        value = json.loads(text)
        for key in keys:
            value = value[key]
    except (ValueError, LookupError, TypeError, RecursionError):
        value = None
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise MachineError(
            f"{machine.path}: {what}: JSON with a list of {keys[-1]} must stand there, not {_shown(text)}"
        )
    return value


def counts_of(text: str, names: Sequence[str]) -> dict[str, float]:
    """The counts in `text`, one for each name, separated by spaces; {} if it is anything else."""
    words = text.split()
    if len(words) != len(names) or not all(word.isascii() and word.isdigit() and len(word) <= 20 for word in words):
        return {}
    return dict(zip(names, map(float, words), strict=True))


def _shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")
