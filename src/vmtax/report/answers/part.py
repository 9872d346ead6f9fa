"""The base of records that only answers have: dataclasses whose fields, in their order, are the keys of their JSON.

The comment beside a field is its description in the schema. Pydantic is not used here, because it loads slowly and
printing does not need it.
"""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, ClassVar, Self


class AnswerRecord:
    """A record in base units: seconds, bytes, bits, operations. Times are in seconds since the epoch."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # the schema allows no other keys

    _names: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def of(cls, record: object, **more: Any) -> Self:
        """A part with the attributes of `record` that have the same names, and with `more`."""
        if "_names" not in vars(cls):  # only once: a run has thousands of measurements
            cls._names = tuple(field.name for field in fields(cls))  # type: ignore[arg-type]  # all subclasses are dataclasses
        return cls(**{name: getattr(record, name) for name in cls._names if name not in more}, **more)


def written(seconds: float) -> str:
    """A time in seconds since the epoch, as text in UTC: "2026-11-22T09:37:00Z"."""
    return f"{datetime.fromtimestamp(int(seconds), UTC):%Y-%m-%dT%H:%M:%SZ}"
