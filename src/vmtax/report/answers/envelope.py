"""The envelope of every JSON answer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

SCHEMA = "vmtax/1"
STEP = "  "  # of indentation
PIECED = 3  # the envelope, its data, and the lists in these


def envelope(kind: str, data: Any) -> str:
    """`data` as JSON text, as every `--json` prints it: a record becomes its fields, in their order.

    Values that JSON cannot represent (NaN, infinity) become null. The text equals that of `json.dumps` with an
    indentation of two, which takes twice the time and does not know records.
    """
    return "".join(pieces(kind, data))


def pieces(kind: str, data: Any) -> Iterator[str]:
    """The same text piece by piece: one for each entry of the lists of `data`, which may be iterators."""
    return _pieces({"schema": SCHEMA, "kind": kind, "data": data}, "\n", PIECED)


def _pieces(value: Any, gap: str, levels: int) -> Iterator[str]:
    """`levels`: of nesting whose entries are pieces of their own."""
    inner = gap + STEP
    if isinstance(value, Mapping) and levels:
        named, ends = ((f"{quoted(key)}: ", entry) for key, entry in value.items()), "{}"
    elif isinstance(value, Iterator) or (isinstance(value, (list, tuple)) and levels):
        named, ends = (("", entry) for entry in value), "[]"
    else:
        yield _text(value, gap)
        return
    before = ends[0]
    for name, entry in named:
        yield f"{before}{inner}{name}"
        yield from _pieces(entry, inner, max(0, levels - 1))
        before = ","
    yield ends if before != "," else f"{gap}{ends[1]}"


def _text(value: Any, gap: str) -> str:
    """`gap`: a newline and the indentation of the surrounding value."""
    if isinstance(value, str):
        return quoted(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return float.__repr__(value) if math.isfinite(value) else "null"
    if isinstance(value, int):
        return int.__repr__(value)
    inner = gap + STEP
    if isinstance(value, (list, tuple)):
        entries = [_text(entry, inner) for entry in value]
        return f"[{inner}{f',{inner}'.join(entries)}{gap}]" if entries else "[]"
    entries = [f"{quoted(key)}: {_text(entry, inner)}" for key, entry in _items(value).items()]
    return f"{{{inner}{f',{inner}'.join(entries)}{gap}}}" if entries else "{}"


def _items(record: Any) -> Mapping[str, Any]:
    if isinstance(record, Mapping):
        return record
    return {name: getattr(record, name) for name in record.__dataclass_fields__}
