"""Parse what a machine printed: a guest or a remote host may print anything instead. Pure.

All such parsing is here or in `meter/text.py`, whose functions give None for what they do not understand; a unit test
reads the rest of the source for numbers, JSON and unpacking. Here, `what` is the tool or the file, and whatever else
stands there raises MachineError: one line with the machine, the tool, what it must print and what it printed.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from typing import Any, NoReturn, Protocol, TypeVar

from vmtax.core.machines import MachineError

SHOWN = 80  # characters of the unexpected output
_DECIMAL = re.compile(r"\d{1,20}(?:\.\d{1,20})?", re.ASCII)
_WHOLE = {10: re.compile(r"\d{1,20}", re.ASCII), 16: re.compile(r"[0-9a-f]{1,16}", re.ASCII | re.IGNORECASE)}
_DIGITS = {10: "decimal", 16: "hexadecimal"}
_ID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
T = TypeVar("T")


class _Named(Protocol):
    @property
    def path(self) -> str: ...


def number_of(machine: _Named, what: str, text: str, *, most: float = 2.0**63) -> float:
    """`text` as a number from 0 to below `most`."""
    match = _DECIMAL.fullmatch(text.strip())
    number = float(match[0]) if match else -1.0
    if not 0 <= number < most:
        _refuse(machine, what, f"a number from 0 to {most:g}", text)
    return number


def whole_of(machine: _Named, what: str, text: str, *, most: int = 2**63, base: int = 10) -> int:
    """`text` as a whole number from 0 to below `most`, in digits of that base: 10 or 16."""
    match = _WHOLE[base].fullmatch(text.strip())
    number = int(match[0], base) if match else -1
    if not 0 <= number < most:
        _refuse(machine, what, f"a whole {_DIGITS[base]} number below {most:g}", text)
    return number


def words_of(
    machine: _Named, what: str, text: str, count: int | None = None, separator: str | None = None
) -> list[str]:
    """The words of the text: `count` of them, or at least one."""
    words = text.strip().split(separator)
    if not words or not all(words) or count not in (None, len(words)):
        _refuse(machine, what, "a word" if count is None else f"{count} words", text)
    return words


def table_of(machine: _Named, what: str, text: str, columns: int) -> list[list[str]]:
    """The words of each line that is not empty: `columns` of them."""
    return [words_of(machine, what, line, columns) for line in text.splitlines() if line.strip()]


def boot_id_of(machine: _Named, what: str, text: str) -> str:
    """The random UUID that tells one boot of a kernel from another."""
    return _matched(machine, what, _ID, "the id of a boot, such as 8d9a4c3c-28b5-4b6e-9d0a-3f0f2f3c8f51,", text)


def sha256_of(machine: _Named, what: str, text: str) -> str:
    """The first word that sha256sum prints."""
    return _matched(machine, what, _SHA256, "a sha256", text.strip().partition(" ")[0], text)


def base64_of(machine: _Named, what: str, text: str) -> bytes:
    """The bytes that base64 has there."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        _refuse(machine, what, "base64", text)


def json_of(machine: _Named, what: str, text: str, kind: type[T]) -> T:
    """The JSON in `text` as this type, such as a list of frozen records; keys that it lacks are left out."""
    from pydantic import ValidationError

    try:
        return _parsed(text, kind)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        _refuse(machine, what, "its usual JSON", text, f"{place}: {first['msg']}" if place else first["msg"])
    except (ValueError, RecursionError):
        _refuse(machine, what, "its usual JSON", text)


def json_or_none(text: str | bytes, kind: type[T]) -> T | None:
    """As `json_of`, for what is of no harm if it is missing."""
    try:
        return _parsed(text, kind)
    except (ValueError, RecursionError):
        return None


def object_or_none(text: str | bytes) -> dict[str, Any] | None:
    """The JSON object in `text`, whose values may be anything."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def counts_of(text: str, names: Sequence[str]) -> dict[str, float]:
    """The counts in `text`, one for each name, separated by spaces; {} if it is anything else."""
    words = text.split()
    if len(words) != len(names) or not all(word.isascii() and word.isdigit() and len(word) <= 20 for word in words):
        return {}
    return dict(zip(names, map(float, words), strict=True))


def _parsed(text: str | bytes, kind: type[T]) -> T:
    from pydantic import TypeAdapter

    return TypeAdapter(kind).validate_json(text, strict=True)


def _matched(
    machine: _Named, what: str, pattern: re.Pattern[str], wanted: str, text: str, whole: str | None = None
) -> str:
    if not pattern.fullmatch(text.strip()):
        _refuse(machine, what, wanted, text if whole is None else whole)
    return text.strip()


def _refuse(machine: _Named, what: str, wanted: str, text: str, why: str = "") -> NoReturn:
    because = f" ({why})" if why else ""
    raise MachineError(f"{machine.path}: {what}: {wanted} must stand there, not {_shown(text)}{because}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")
