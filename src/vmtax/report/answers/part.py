"""What every record of an answer is: a dataclass whose fields, in their order, are the keys of its JSON.

The comment beside a field is its description in the schema. No pydantic: it loads slowly, and printing needs none.
"""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, ClassVar, Self


class Part:
    """Base units: seconds, bytes, bits, operations; times since the epoch."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # the schema allows no other keys

    _names: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def of(cls, record: object, **more: Any) -> Self:
        """With what `record` has under the same names, and `more`."""
        if "_names" not in vars(cls):  # a run has many thousand measurements
            cls._names = tuple(field.name for field in fields(cls))  # type: ignore[arg-type]  # all subclasses are dataclasses
        return cls(**{name: getattr(record, name) for name in cls._names if name not in more}, **more)


def written(seconds: float) -> str:
    """A time since the epoch in UTC, to the second: "2026-11-22T09:37:00Z"."""
    return f"{datetime.fromtimestamp(int(seconds), UTC):%Y-%m-%dT%H:%M:%SZ}"
