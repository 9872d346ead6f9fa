"""Options that belong together are one frozen record: a command has a parameter of that type, and gets its values.

A field of the record is annotated as typer wants an option, or is such a record again; its default is the option's.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any


def spread(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command as typer sees it: with the fields of each record in place of the parameter that takes the record."""
    hints = typing.get_type_hints(command, include_extras=True)
    parameters = inspect.signature(command).parameters.values()
    records = {each.name: hints[each.name] for each in parameters if dataclasses.is_dataclass(hints[each.name])}
    if not records:
        return command
    shown = [
        option
        for each in parameters
        for option in (
            _options(records[each.name]) if each.name in records else [each.replace(annotation=hints[each.name])]
        )
    ]

    def called(**values: Any) -> Any:
        grouped = {name: _filled(record, values) for name, record in records.items()}
        return command(**{name: values[name] for name in values if name in hints}, **grouped)

    called.__name__, called.__doc__ = command.__name__, command.__doc__
    called.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]  # which inspect reads
    called.__annotations__ = {each.name: each.annotation for each in shown}
    return called


def given(*records: Any) -> list[str]:
    """The options, such as --disk-dir, whose values in these records are not their defaults."""
    options = []
    for record in records:
        for field in dataclasses.fields(record):
            value = getattr(record, field.name)
            if dataclasses.is_dataclass(value):
                options += given(value)
            elif value not in (field.default, [], ""):
                options.append("--" + field.name.replace("_", "-"))
    return options


def _options(record: type) -> Iterator[inspect.Parameter]:
    hints = typing.get_type_hints(record, include_extras=True)
    for field in dataclasses.fields(record):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            yield from _options(typing.cast("type", hint))
        else:
            kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
            yield inspect.Parameter(field.name, kind, default=field.default, annotation=hint)


def _filled(record: Any, values: Mapping[str, Any]) -> Any:
    hints = typing.get_type_hints(record)
    return record(
        **{
            field.name: _filled(hints[field.name], values)
            if dataclasses.is_dataclass(hints[field.name])
            else values[field.name]
            for field in dataclasses.fields(record)
        }
    )
