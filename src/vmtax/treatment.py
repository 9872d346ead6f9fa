"""Factors × levels → legal treatments, and the shuffled rounds they run in."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from vmtax.factor import BACKING, FACTORS, GUESTS, idle, why_illegal
from vmtax.result import Treatment

Design = Literal["full", "one-at-a-time"]
MANY = 3  # combinations left out for one reason, above which they are told in one line
# What a host's own disk is whatever the guest's is: the host never writes qcow2, and its file is written in full.
_OF_HOST = {"disk.format": "raw", "disk.preallocation": "falloc"}


@dataclass(frozen=True, slots=True)
class Combination:
    """An entry of a plan's hand-made list: a small factorial of its own, beside what the plan's factors say."""

    levels: Mapping[str, Sequence[str]]
    name: str | None = None  # stands in its treatments' names in place of its first levels


@dataclass(frozen=True, slots=True)
class _Point:
    """One level of each named factor."""

    part: Combination
    levels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Space:
    """All that a plan says of its treatments."""

    factors: Mapping[str, Sequence[str]] = field(default_factory=dict)
    combinations: Sequence[Combination] = ()
    design: Design = "full"

    def first(self, name: str) -> str | None:
        """The baseline level of a factor, None where the plan does not name it."""
        for source in (self.factors, *(part.levels for part in self.combinations)):
            if name in source:
                return source[name][0]
        return None

    def points(self) -> Iterator[_Point]:
        """Every combination of named levels, legal or not."""
        for part in self.combinations or (Combination({}),):
            named = {**self.factors, **part.levels}
            first = {name: levels[0] for name, levels in named.items()}
            for levels in _products(named):
                changed = sum(level != first[name] for name, level in levels.items())
                if self.design == "full" or changed <= 1:
                    yield _Point(part, levels)


def settled(space: Space) -> dict[str, str]:
    """The one level, for all treatments, of each factor that the plan does not name.

    The default, or where that is illegal with a named level the first level that is legal with all of them:
    a factor nobody asked about must neither remove treatments nor differ between them.
    """
    points = [point.levels for point in space.points()]
    return {name: _fitting(name, points) for name in FACTORS if space.first(name) is None}


def moved_defaults(space: Space) -> list[str]:
    """One line for each unnamed factor that could not keep its default."""
    return [
        f"{name}={level} in every guest instead of the default {FACTORS[name].default}, "
        "which is not legal with every named level"
        for name, level in settled(space).items()
        if level != FACTORS[name].default
    ]


def treatments(
    layers: Sequence[str], space: Space, exclude: Sequence[Mapping[str, Sequence[str]]] = ()
) -> tuple[list[Treatment], list[str]]:
    """Every legal treatment in the plan's order, and one line for each combination left out, or for each reason.

    An entry of `exclude` maps factor names, and "layers", to the levels it is about; it matches where all of them do.
    The first level of each factor is the baseline and is not part of a name.
    """
    kept: dict[tuple[str, tuple[tuple[str, str], ...]], Treatment] = {}
    left_out: dict[str, dict[str, None]] = {}  # reason -> names
    every = list(_filled(space))
    firsts = {id(part): next(levels for point, levels in every if point.part is part) for part in space.combinations}
    for layer in layers:
        for point, levels in every:
            first = firsts[id(point.part)] if point.part.name and layer != "host" else every[0][1]
            treatment = _treatment(layer, space, point, levels, first)
            reason = _why_not(treatment, space, point, exclude)
            same = kept.setdefault((layer, tuple(treatment.levels.items())), treatment) if reason is None else treatment
            if reason is None and same is not treatment and layer == "vm":
                reason = f"has the same levels as {same.name}"
            if reason is not None:
                left_out.setdefault(reason, {})[treatment.name] = None
    return list(kept.values()), _told(left_out)


def repeat(treatments: Sequence[Treatment]) -> Treatment | None:
    """The first guest treatment once more, for the A/A of each round; None where there is no guest.

    A guest, so that the differences between boots are in it (METHOD.md, guards).
    """
    guests = sorted((t for t in treatments if t.layer in GUESTS), key=lambda t: GUESTS.index(t.layer))
    return replace(guests[0], name=f"{guests[0].name} again", repeats=guests[0].name) if guests else None


def matches(treatment: Treatment, entry: Mapping[str, Sequence[str]]) -> bool:
    """Whether an entry of `exclude` is about this treatment."""
    have = {**treatment.levels, "layers": treatment.layer}
    return all(have.get(key) in levels for key, levels in entry.items())


def backing(levels: Mapping[str, str]) -> dict[str, str]:
    """Of a treatment's levels what decides the file or device of its disk; two with the same share one."""
    without = idle(levels)
    return {name: levels[name] for name in BACKING if name in levels and name not in without}


def host_levels(levels: Mapping[str, str]) -> dict[str, str]:
    """The levels of the host treatment below a guest's: the host's own fio on the same backing, as a raw file."""
    return {name: level for name, level in backing({**levels, **_OF_HOST}).items() if name in levels}


def shuffled_rounds(treatments: Sequence[Treatment], seed: int) -> Iterator[list[Treatment]]:
    """Endless rounds: each treatment once, in an order drawn afresh for each round. One seed, one sequence."""
    source = random.Random(seed)
    while True:
        order = list(treatments)
        source.shuffle(order)
        yield order


def _filled(space: Space) -> Iterator[tuple[_Point, dict[str, str]]]:
    """Each combination with a level of every factor."""
    rest = settled(space)
    points = list(space.points())
    # What only other entries of the list name; the same for all treatments of an entry.
    elsewhere: dict[int, dict[str, str]] = {}
    for part in space.combinations:
        own = [{**rest, **point.levels} for point in points if point.part is part]
        missing = [
            name for name in FACTORS if name not in rest and name not in part.levels and name not in space.factors
        ]
        found: dict[str, str] = {}
        elsewhere[id(part)] = found
        for name in missing:
            found[name] = _fitting(name, [{**levels, **found} for levels in own])
    for point in points:
        levels = {**rest, **elsewhere.get(id(point.part), {}), **point.levels}
        yield point, {name: levels[name] for name in FACTORS}


def _treatment(
    layer: str, space: Space, point: _Point, levels: Mapping[str, str], first: Mapping[str, str]
) -> Treatment:
    """`first`: the levels of the plan's first combination, or where this one's entry has a name, of that entry's."""
    here = _of_layer(layer, levels)
    without = {*idle(here), *(_OF_HOST if layer == "host" else ())}
    order = (*(name for name in FACTORS if name not in space.factors), *space.factors)
    # A name may tell of a format or an attachment, which the host's own disk has not.
    words = [layer, *([point.part.name] if point.part.name and layer != "host" else [])]
    words += [
        f"{name}={here[name]}" for name in order if name in here and name not in without and here[name] != first[name]
    ]
    return Treatment(" ".join(words), layer, here)


def _of_layer(layer: str, levels: Mapping[str, str]) -> dict[str, str]:
    here = {name: level for name, level in levels.items() if layer in FACTORS[name].layers}
    return host_levels(here) if layer == "host" else here


def _why_not(
    treatment: Treatment, space: Space, point: _Point, exclude: Sequence[Mapping[str, Sequence[str]]]
) -> str | None:
    """Why there is no such treatment; None where there is."""
    if (reason := why_illegal(treatment.levels)) is not None:
        return reason
    number = next((i for i, entry in enumerate(exclude) if matches(treatment, entry)), None)
    if number is not None:
        return f"excluded by the plan's exclude[{number}]"
    if treatment.layer == "host":
        return None  # what means nothing to it is not told apart in it
    for name, because in idle(treatment.levels).items():
        first = point.part.levels.get(name, space.factors.get(name, ("",)))[0]
        if name in point.levels and point.levels[name] != first:
            return f"{name} means nothing where {because}"
    return None


def _told(left_out: Mapping[str, Mapping[str, None]]) -> list[str]:
    lines = []
    for reason, names in left_out.items():
        if len(names) > MANY:
            lines.append(f"{next(iter(names))} and {len(names) - 1} more: {reason}")
        else:
            lines += [f"{name}: {reason}" for name in names]
    return lines


def _products(factors: Mapping[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    for levels in itertools.product(*factors.values()):
        yield dict(zip(factors, levels, strict=True))


def _fitting(name: str, points: Sequence[Mapping[str, str]]) -> str:
    """The default, or the first level that makes no combination illegal that is legal without it."""
    factor = FACTORS[name]
    legal = [levels for levels in points if why_illegal(levels) is None]
    fits = (
        level
        for level in (factor.default, *factor.levels)
        if all(why_illegal({**levels, name: level}) is None for levels in legal)
    )
    return next(fits, factor.default)
