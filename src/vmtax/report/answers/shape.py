"""How a record is written as JSON: the names of its keys, in their order, and what its fields do not say.

A key that is named like a field or property of the record has its value, its type and its meaning: the comment beside
the field, or the property's docstring. `run=experiment.id` is the attribute `id` of the attribute `experiment`. So a
record is described once. Keys are listed, because they are a promise: a new field of a record changes no answer.
`schema.py` makes the JSON Schema from the same declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from vmtax.core.records import Json


@dataclass(frozen=True, slots=True)
class AnswerKey:
    """A key that is no attribute of the record, or whose type or meaning is not the attribute's."""

    kind: Any  # type of the value, for the schema
    meaning: str  # what it means, for the schema
    value: Callable[[Any, Any], Any] | None = None  # from the record and the context; None: the attribute's, or given


class Shape:
    """The keys of one kind of record in JSON.

    keys: their names; own: those that the record's attributes do not describe; name: that of the record in the schema;
    about: its description there, unless that is the record's docstring; parts: shapes of the records in its fields
    """

    def __init__(
        self,
        record: type,
        keys: str,
        own: Mapping[str, AnswerKey] | None = None,
        *,
        name: str = "",
        about: str = "",
        parts: Sequence[Shape] = (),
    ) -> None:
        self.record, self.own, self.parts = record, own or {}, {part.record: part for part in parts}
        self.name, self.about = name or record.__name__, about
        named = (key.partition("=") for key in keys.split())
        self.paths = {key: path or key for key, _, path in named}  # key -> attribute
        self._values = {key: self._value(key, path) for key, path in self.paths.items()}

    def _value(self, key: str, path: str) -> Callable[[Any, Any], Any]:
        own, read = self.own.get(key), attrgetter(path)
        return own.value if own and own.value else lambda record, _: read(record)

    def made(self, record: Any, context: Any = None, **given: Any) -> Json:
        """A record as JSON; `context`: what values are computed from besides the record; `given`: values of keys."""
        return {
            key: given[key] if key in given else self._written(value(record, context), context)
            for key, value in self._values.items()
        }

    def _written(self, value: Any, context: Any) -> Any:
        part = self.parts.get(type(value))
        if part is not None:
            return part.made(value, context)
        return [self._written(entry, context) for entry in value] if isinstance(value, (list, tuple)) else value


# `metric=metric.name unit=metric.unit better=metric.better`: a program must accept units that are added
UNIT = AnswerKey(str, "base unit of the metric (1/s, s, B/s, bit/s, B, s/B or 1); a ratio of two values has none")
# With an `Analysis` as context
EMULATED = AnswerKey(
    bool,
    "whether any guest or the host of this treatment ran on an emulated CPU",
    lambda record, analysis: record.treatment in analysis.emulated,
)
EITHER_EMULATED = AnswerKey(
    bool, "whether either side ran on an emulated CPU", lambda record, analysis: analysis.is_emulated(record)
)
