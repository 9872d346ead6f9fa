"""Define factors, and convert a treatment's levels, which are text, to typed settings. Pure.

A factor is one field of a class of settings, which defines its levels, their meaning, and how programs that use it
write it. Only `Settings.of` looks up a level by the factor's name.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, Self, TypeVar

from vmtax.core.layers import CLONE, EXISTING, GUESTS
from vmtax.core.units import as_size, parse_bytes, same_quantity, size_text

Scope = Literal["guest", "disk", "network", "host", "reboot"]
# Programs with an option for a factor: -drive, -device, the kernel, qemu-img -o, mount, zfs -o, libvirt, Proxmox.
Program = Literal["drive", "kernel", "qemu-img", "mount", "zfs", "libvirt", "proxmox", "device"]
T = TypeVar("T")
WORK = {"disk": "disk", "zfs": "disk", "net": "network", "migration": "migration"}  # by the first word of a factor

BACKED = ("host", "container", CLONE, "vm")  # a nested guest's disk is always a raw file on its outer VM's disk
CLONED = (*GUESTS, CLONE)  # a clone of a user's VM is booted with such a setting
PLUGGED = (*CLONED, EXISTING)  # an existing VM's disk under test is plugged in with such a setting
ON_HOST = (CLONE, "vm")  # VMs that run on the host under test itself
SWITCH = ("off", "on")
_FACTOR = "factor"  # key in a field's metadata


@dataclass(frozen=True, slots=True)
class ProgramOption:
    """How a program writes a factor."""

    name: str
    # Level -> value; other levels are not written. None: the level itself is written
    values: Mapping[str, str] | None = None

    def of(self, level: str) -> str | None:
        """The value for a level; None if it is not written."""
        return level if self.values is None else self.values.get(level)


@dataclass(frozen=True, slots=True)
class Where:
    """The levels of a factor that are read as such numbers."""

    fits: Callable[[int], bool]
    read: Callable[[str], int] = int

    def __contains__(self, level: object) -> bool:
        return isinstance(level, str) and self.fits(self.read(level))


@dataclass(frozen=True, slots=True)
class AllBut:
    """Every level of a factor but one; a factor that has no level yet has none of them."""

    level: str

    def __contains__(self, level: object) -> bool:
        return level not in (None, self.level)


@dataclass(frozen=True, slots=True)
class Conflict:
    """Levels that cannot be combined."""

    # Factor -> levels; the conflict applies if each of these factors is at one of its levels
    levels: Mapping[str, Container[object]]
    why: str  # factors in braces, by the last part of their names, are replaced by their levels
    assumed: tuple[str, ...] = ()  # factors that are assumed to be at their default if a plan does not name them

    def said(self, levels: Mapping[str, str]) -> str:
        """Why these levels, to which it applies, cannot be combined."""
        return self.why.format_map({name.rpartition(".")[2]: levels.get(name) for name in self.levels})


@dataclass(frozen=True, slots=True)
class OtherLevels:
    """Levels beside those that are listed, which depend on the host or are as many as numbers."""

    pattern: str  # regular expression
    form: str = ""  # how they are written, for people; empty: they are names or figures
    ends: tuple[str, str] | None = None  # the least and the greatest


@dataclass(frozen=True, slots=True)
class Factor:
    """A setting whose cost is of interest."""

    name: str  # dotted, as in a plan: "disk.cache"
    levels: tuple[str, ...]  # every legal level that is known here, the default first
    describe: str  # one line for the documentation
    layers: tuple[str, ...]  # where it has a meaning
    scope: Scope  # what it changes
    read: Callable[[str], Any]  # converts a level to the value in the settings
    options: Mapping[Program, ProgramOption]
    # Factor -> levels beside which it has a meaning; any level for a factor that is not listed
    only_with: Mapping[str, Collection[str]]
    conflicts: tuple[Conflict, ...]
    others: OtherLevels | None = None

    @property
    def default(self) -> str:
        """The level for a plan that does not name the factor."""
        return self.levels[0]

    @property
    def work(self) -> str:
        """What a plan must measure for it to have an effect: "disk", "network", "migration"; "": anything."""
        return WORK.get(self.name.partition(".")[0], "")

    def takes(self, level: str) -> bool:
        """Whether it is a legal level."""
        if level in self.levels:
            return True
        if self.others is None or re.fullmatch(self.others.pattern, level) is None:
            return False
        if self.others.ends is None:
            return True
        least, greatest = map(self.read, self.others.ends)
        return bool(least <= self.read(level) <= greatest)

    def spelled(self, written: str) -> str:
        """The level that a person wrote in another way: "64KiB" for "64k", "200us" for "0.2ms"; if there is none, what
        was written.
        """
        if written in self.levels:
            return written
        for level in self.levels:
            if same_quantity(level, written):
                return level
        named = set(written.split("+"))
        ordered = "+".join(level for level in self.levels if level in named)
        if named <= set(self.levels) and self.takes(ordered):
            return ordered
        ends = self.others and self.others.ends
        return size_text(written) if ends and ends[0].endswith("B") else written

    def level(self, value: object) -> str:
        """The level for `value`."""
        for level in self.levels:
            if self.read(level) == value:
                return level
        for written in _spellings(value):
            if self.takes(written) and self.read(written) == value:
                return written
        raise ValueError(f"{self.name}: no level is read as {value!r}")

    def why_idle(self, levels: Mapping[str, str]) -> str | None:
        """The level without which it has no meaning; None if it has one. `levels`: of every factor."""
        for name, legal in self.only_with.items():
            if levels[name] not in legal:
                return needed(name, legal)
        return None


def needed(name: str, legal: Iterable[str]) -> str:
    """What a factor without a meaning lacks: one of these levels of another factor."""
    return f"{name}={' or '.join(legal)}"


def _spellings(value: object) -> Iterator[str]:
    """How a level can be written that is read as `value`: a name, a number, a size in bytes or MiB, seconds."""
    yield str(value)
    if isinstance(value, int | float):
        yield from (as_size(round(value)), as_size(round(value * 2**20)), f"{value * 1000:g}ms", f"{value:g}s")


def setting(
    name: str,
    levels: Collection[str],
    read: Callable[[str], T],
    describe: str,
    *,
    layers: tuple[str, ...] = GUESTS,
    scope: Scope = "disk",
    options: Mapping[Program, ProgramOption] = MappingProxyType({}),
    only_with: Mapping[str, Collection[str]] = MappingProxyType({}),
    conflicts: tuple[Conflict, ...] = (),
    others: OtherLevels | None = None,
) -> T:
    """A field of a class of settings that is a factor of plans."""
    every = tuple(map(str, levels))
    factor = Factor(name, every, describe, layers, scope, read, options, only_with, conflicts, others)
    return field(default=read(factor.default), metadata={_FACTOR: factor})


def is_on(level: str) -> bool:
    """The value of a level of SWITCH."""
    return level == "on"


def in_bytes(levels: Collection[str]) -> dict[str, str]:
    """Values of an `Option` that is a number of bytes."""
    return {level: str(parse_bytes(level)) for level in levels}


class UnknownLevel(ValueError):
    """A level that this version of vmtax does not know; the text names factor and level."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one subject. Each field is created by `setting`."""

    @classmethod
    @functools.cache
    def factors(cls) -> dict[str, Factor]:
        """Field -> factor."""
        return {each.name: each.metadata[_FACTOR] for each in dataclasses.fields(cls)}

    @classmethod
    def of(cls, levels: Mapping[str, str]) -> Self:
        """Convert a treatment's levels; missing ones have their default. Raises UnknownLevel."""
        values = {}
        for place, factor in cls.factors().items():
            level = levels.get(factor.name, factor.default)
            if not factor.takes(level):
                raise UnknownLevel(f"{factor.name}={level} is none of its levels: {', '.join(factor.levels)}")
            values[place] = factor.read(level)
        return cls(**values)

    @property
    def levels(self) -> dict[str, str]:
        """The level of every factor."""
        return {factor.name: factor.level(getattr(self, place)) for place, factor in self.factors().items()}

    @property
    def unusual(self) -> dict[str, str]:
        """The levels that differ from the default and have a meaning beside the others."""
        levels = self.levels
        return {
            factor.name: levels[factor.name]
            for factor in self.factors().values()
            if levels[factor.name] != factor.default and factor.why_idle(levels) is None
        }

    def options(self, program: Program) -> Iterator[tuple[str, str]]:
        """(name, value) of each option that passes these settings to a program."""
        levels = self.levels
        for factor in self.factors().values():
            option = factor.options.get(program)
            value = None if option is None else option.of(levels[factor.name])
            if option is not None and value is not None and factor.why_idle(levels) is None:
                yield option.name, value
