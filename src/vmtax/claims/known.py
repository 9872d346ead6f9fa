"""Facts about programs and devices, which rules need; data in facts/."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from vmtax.plan.kinds import FileKind
from vmtax.plan.yaml import read

_FACTS = FileKind("table of facts", "an entry", Path(__file__).parent / "facts", as_printed=True)
_Text = Annotated[str, Field(min_length=0, strict=True)]
_Options = Mapping[_Text, tuple[_Text, ...]]


class _Fact(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Duration(_Fact):
    """A program that ends after a time, whatever the speed."""

    tool: _Text
    test: _Text | None = None  # of the tool; None: all
    since: _Text = "0"  # the first version that does
    seconds: float | None = None  # how long by default; None: no default
    by: _Text  # the option that sets the time
    needs: tuple[_Text, ...] = ()  # options without which it is not so
    unless: Mapping[_Text, _Text] = {}  # option: value with which it is not so
    why: _Text


class IdleOption(_Fact):
    """An option that has no effect beside others."""

    tool: _Text
    test: _Text | None = None
    option: _Text
    above: float | None = None  # only larger values have none; None: all
    beside: _Options  # option: its values, "" is not given; all must be so
    why: _Text


class Cached(_Fact):
    """A program whose reads and writes go through the page cache."""

    tool: _Text
    test: _Text | None = None
    beside: _Options  # option: its values, "" is not given
    why: _Text


class ToolFacts(_Fact):
    """What is known of programs."""

    durations: tuple[Duration, ...]
    idle_options: tuple[IdleOption, ...]
    cached: tuple[Cached, ...]


class LinkFact(_Fact):
    """What a device or a link carries at most."""

    bytes_per_second: float
    name: _Text  # for people


class LinkFacts(_Fact):
    """What is known of devices and links."""

    links: Mapping[_Text, LinkFact]


_Model = TypeVar("_Model", bound=_Fact)


@functools.cache
def tools() -> ToolFacts:
    """Facts about programs."""
    return _read("tools", ToolFacts)


@functools.cache
def links() -> Mapping[str, LinkFact]:
    """Facts about devices and links, by their names in `through`."""
    return _read("links", LinkFacts).links


def _read(name: str, model: type[_Model]) -> _Model:
    file = _FACTS.files[name]
    return model.model_validate(read(file.read_text(encoding="utf-8"), file.name, _FACTS).data)
