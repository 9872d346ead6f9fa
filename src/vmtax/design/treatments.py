"""Combine factors and levels into legal treatments, and order these in shuffled rounds."""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from vmtax.core.layers import LAYERS, VMS
from vmtax.core.records import Treatment
from vmtax.design.factors import BACKING, FACTORS, LEGALITY, REBOOT, idle, why_illegal
from vmtax.design.guest import COUNT
from vmtax.design.host import of_boot

Design = Literal["full", "one-at-a-time"]
MANY = 3  # more combinations left out for one reason than this are named in a single line
# The host's own disk for every guest's disk: the host never writes qcow2, and its file is written in full.
_OF_HOST = {"disk.format": "raw", "disk.preallocation": "falloc"}

_Named = tuple[tuple[str, tuple[str, ...]], ...]  # names with their levels: a hashable mapping


@dataclass(frozen=True, slots=True)
class Combination:
    """An entry of a plan's hand-made list: a small factorial of its own, in addition to the plan's factors."""

    levels: Mapping[str, Sequence[str]]
    name: str | None = None  # replaces its first levels in its treatments' names


@dataclass(frozen=True, slots=True)
class Space:
    """Everything that a plan says about its treatments."""

    factors: Mapping[str, Sequence[str]] = field(default_factory=dict)
    combinations: Sequence[Combination] = ()
    design: Design = "full"

    @property
    def parts(self) -> Sequence[Combination]:
        """The entries of its list; without a list, one entry that adds nothing."""
        return self.combinations or (Combination({}),)

    def first(self, name: str) -> str | None:
        """The baseline level of a factor, None if the plan does not name it."""
        for source in (self.factors, *(part.levels for part in self.combinations)):
            if name in source:
                return source[name][0]
        return None

    def count(self) -> int:
        """How many combinations of named levels `points` yields for all parts together, without enumerating them."""
        return sum(self._count(part) for part in self.parts)

    def points(self, part: Combination) -> Iterator[dict[str, str]]:
        """Every combination of the levels named for `part`, legal or not; the last name changes fastest."""
        named = {**self.factors, **part.levels}
        if self.design == "full":
            for chosen in itertools.product(*named.values()):
                yield dict(zip(named, chosen, strict=True))
            return
        first = {name: levels[0] for name, levels in named.items()}
        yield first
        for name, levels in reversed(named.items()):
            for level in levels[1:]:
                yield {**first, name: level}

    def _count(self, part: Combination) -> int:
        sizes = [len(levels) for levels in {**self.factors, **part.levels}.values()]
        return math.prod(sizes) if self.design == "full" else 1 + sum(size - 1 for size in sizes)


@dataclass(frozen=True, slots=True)
class Expansion:
    """The result of a plan's factors."""

    kept: tuple[Treatment, ...]  # all legal treatments, in the plan's order
    left_out: tuple[str, ...]  # a line for each combination that was left out, or for each reason
    idle_excludes: tuple[int, ...]  # entries of `exclude` that match no treatment


def settled(space: Space) -> dict[str, str]:
    """The single level, for all treatments, of each factor that the plan does not name.

    It is the default or, if that is illegal with a named level, the first level that is legal with all of them: a
    factor that the plan does not name must neither remove treatments nor differ between them.
    """
    # Of thousands of combinations, few differ in the factors that determine whether a level is legal.
    different: dict[tuple[str | None, ...], dict[str, str]] = {}
    for part in space.parts:
        for levels in space.points(part):
            different.setdefault(tuple(map(levels.get, LEGALITY)), levels)
    points = list(different.values())
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
    """All legal treatments in the plan's order, and one line for each combination that was left out, or for each
    reason.
    """
    expansion = expand(layers, space, exclude)
    return list(expansion.kept), list(expansion.left_out)


def expand(layers: Sequence[str], space: Space, exclude: Sequence[Mapping[str, Sequence[str]]] = ()) -> Expansion:
    """Everything that follows from a plan's factors; cached for equal arguments.

    An entry of `exclude` maps factor names, and "layers", to levels; it matches treatments that have one of the levels
    for each of them. The first level of each factor is the baseline and is not part of a name.
    """
    combinations = tuple((part.name, _named(part.levels)) for part in space.combinations)
    return _expand(tuple(layers), _named(space.factors), combinations, space.design, tuple(map(_named, exclude)))


@functools.lru_cache(maxsize=4)  # a command needs the same plan's treatments a dozen times
def _expand(
    layers: tuple[str, ...],
    factors: _Named,
    combinations: tuple[tuple[str | None, _Named], ...],
    design: Design,
    exclude: tuple[_Named, ...],
) -> Expansion:
    space = Space(dict(factors), [Combination(dict(levels), name) for name, levels in combinations], design)
    order = (*(name for name in FACTORS if name not in space.factors), *space.factors)
    exclusions = _Exclusions(exclude)
    matched = 0
    kept: dict[tuple[str, tuple[str, ...]], Treatment] = {}
    left_out: dict[str, dict[str, None]] = {}  # reason -> names
    every = list(_filled(space))
    for layer in layers:
        for candidate in every:
            first = candidate.first if candidate.part.name and LAYERS[layer].boots else every[0].levels
            here = _of_layer(layer, candidate.levels)
            without = idle(here)
            name = _name(layer, candidate, here, without, first, order)
            reason = why_illegal(here)
            if reason is None:
                entries = exclusions.matching(layer, here)
                pointless = _pointless(layer, candidate, without, space)
                matched |= 0 if pointless else entries
                reason = f"excluded by the plan's exclude[{_lowest(entries)}]" if entries else pointless
            if reason is None:
                treatment = Treatment(name, layer, here)
                same = kept.setdefault((layer, tuple(here.values())), treatment)
                if same.name != name and layer == "vm":
                    reason = f"has the same levels as {same.name}"
            if reason is not None:
                left_out.setdefault(reason, {})[name] = None
    unmatched = tuple(number for number in range(len(exclude)) if not matched >> number & 1)
    return Expansion(tuple(kept.values()), tuple(_lines(left_out)), unmatched)


def repeat(treatments: Sequence[Treatment]) -> Treatment | None:
    """The first guest treatment again, for the A/A of each round; None if there is no guest.

    It is a guest, so that it includes the differences between boots (METHOD.md, guards). An existing VM has none.
    """
    guests = sorted((t for t in treatments if t.layer in VMS), key=lambda t: VMS.index(t.layer))
    return replace(guests[0], name=f"{guests[0].name} again", repeats=guests[0].name) if guests else None


def backing(levels: Mapping[str, str]) -> dict[str, str]:
    """Those of a treatment's levels that determine the file or device of its disk; treatments with equal ones share
    it.
    """
    without = idle(levels)
    return {name: levels[name] for name in BACKING if name in levels and name not in without}


def host_levels(levels: Mapping[str, str]) -> dict[str, str]:
    """The levels of the host treatment below a guest's: the same boot, its own fio on the same backing, a raw file.

    The number of sets of processes is only included if it is above one.
    """
    of_host = {**backing({**levels, **_OF_HOST}), **{name: levels[name] for name in REBOOT if name in levels}}
    several = levels.get(COUNT.name, COUNT.default) != COUNT.default
    sets = {COUNT.name: levels[COUNT.name]} if several else {}
    return {name: level for name, level in of_host.items() if name in levels} | sets


def shuffled_rounds(treatments: Sequence[Treatment], seed: int) -> Iterator[list[Treatment]]:
    """Endless rounds: each treatment once, in an order drawn for each round. The same seed gives the same sequence.

    Treatments of one boot of the host are adjacent: the boots are shuffled, and the treatments within each boot.
    """
    source = random.Random(seed)
    while True:
        order = list(treatments)
        source.shuffle(order)
        boots = list(dict.fromkeys(map(of_boot, treatments)))
        if len(boots) > 1:
            source.shuffle(boots)
            order.sort(key=lambda treatment: boots.index(of_boot(treatment)))
        yield order


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A combination with a level for every factor."""

    part: Combination
    named: Mapping[str, str]  # those of its levels that the plan names
    levels: Mapping[str, str]
    first: Mapping[str, str]  # levels of the first combination of the same part


class _Exclusions:
    """The entries of `exclude`. Bit `i` of a number stands for entry `i`: thousands are matched with one AND per
    key.
    """

    def __init__(self, entries: Sequence[_Named]) -> None:
        self._all = (1 << len(entries)) - 1
        self._of: dict[str, dict[str | None, int]] = {}  # key -> level -> entries that name it
        self._silent: dict[str, int] = {}  # key -> entries that do not name it
        for number, entry in enumerate(entries):
            bit = 1 << number
            for key, levels in entry:
                self._silent[key] = self._silent.get(key, self._all) & ~bit
                named = self._of.setdefault(key, {})
                for level in levels:
                    named[level] = named.get(level, 0) | bit

    def matching(self, layer: str, levels: Mapping[str, str]) -> int:
        """The entries that match this treatment."""
        found = self._all
        for key, named in self._of.items():
            found &= self._silent[key] | named.get(layer if key == "layers" else levels.get(key), 0)
        return found


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _named(levels: Mapping[str, Sequence[str]]) -> _Named:
    return tuple((name, tuple(each)) for name, each in levels.items())


def _filled(space: Space) -> Iterator[_Candidate]:
    """Each combination with a level for every factor."""
    rest = settled(space)
    for part in space.parts:
        points = list(space.points(part))
        # Factors that only other entries of the list name; the same for all treatments of an entry.
        filled = dict(rest)
        for name in FACTORS:
            if name not in rest and name not in points[0]:
                filled[name] = _fitting(name, [{**filled, **levels} for levels in points])
        first: dict[str, str] | None = None
        for named in points:
            every = {**filled, **named}
            levels = {name: every[name] for name in FACTORS}
            first = first or levels
            yield _Candidate(part, named, levels, first)


def _name(
    layer: str,
    candidate: _Candidate,
    here: Mapping[str, str],
    without: Mapping[str, str],
    first: Mapping[str, str],
    order: Sequence[str],
) -> str:
    """`first`: levels of the plan's first combination or, if this one's entry has a name, of that entry's first."""
    # A name may include a format or an attachment, which the host's own disk does not have.
    words = [layer, *([candidate.part.name] if candidate.part.name and LAYERS[layer].boots else [])]
    for name in order:
        level = here.get(name, COUNT.default if name == COUNT.name else None)
        meant = name not in without and (LAYERS[layer].boots or name not in _OF_HOST)
        if level is not None and level != first[name] and meant:
            words.append(f"{name}={level}")
    return " ".join(words)


def _of_layer(layer: str, levels: Mapping[str, str]) -> dict[str, str]:
    here = {name: level for name, level in levels.items() if layer in FACTORS[name].layers}
    return here if LAYERS[layer].boots else host_levels(here)


def _pointless(layer: str, candidate: _Candidate, without: Mapping[str, str], space: Space) -> str | None:
    """Why this combination does not differ from another one; None if it does."""
    if not LAYERS[layer].boots:
        return None  # levels without meaning for this layer do not matter
    for name, because in without.items():
        first = candidate.part.levels.get(name, space.factors.get(name, ("",)))[0]
        if (level := candidate.named.get(name, first)) != first:
            return f"{name}={level} needs {because}"
    return None


def _lines(left_out: Mapping[str, Mapping[str, None]]) -> list[str]:
    lines = []
    for reason, names in left_out.items():
        if len(names) > MANY:
            lines.append(f"{next(iter(names))} and {len(names) - 1} more: {reason}")
        else:
            lines += [f"{name}: {reason}" for name in names]
    return lines


def _fitting(name: str, points: Sequence[Mapping[str, str]]) -> str:
    """The default, or the first level that makes no combination illegal that is legal without it."""
    factor = FACTORS[name]
    if name not in LEGALITY:
        return factor.default
    legal = [levels for levels in points if why_illegal(levels) is None]
    fits = (
        level
        for level in (factor.default, *factor.levels)
        if all(why_illegal({**levels, name: level}) is None for levels in legal)
    )
    return next(fits, factor.default)
