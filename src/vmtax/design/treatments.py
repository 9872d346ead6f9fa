"""Combine factors and levels into legal treatments, and order these in shuffled rounds."""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from vmtax.core.layers import EXISTING, LAYERS, VMS
from vmtax.core.records import Treatment
from vmtax.design.factors import BACKING, FACTORS, HELD, REBOOT, conflict_of, idle
from vmtax.design.filling import Filling, NamedPoint, fill, movable_of
from vmtax.design.guest import COUNT, OVERCOMMIT
from vmtax.design.host import of_boot
from vmtax.design.settings import PLUGGED
from vmtax.design.size import SIZES

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
    # Levels of the plan that hold where no factor names them: the size of its guests
    given: Mapping[str, str] = field(default_factory=dict)

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

    def levels_of(self, name: str, usual: str) -> list[str]:
        """The levels of a factor that its combinations may have; `usual`: the one for those that do not name it."""
        everywhere = self.factors.get(name, (usual,))
        return [level for part in self.parts for level in part.levels.get(name, everywhere)]

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


Code = Literal["illegal", "without-meaning", "excluded", "the-same"]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A combination that is not measured."""

    name: str  # of its treatment
    code: Code  # the kind of reason
    factors: tuple[str, ...]  # that the reason is about
    why: str  # for people
    levels: Mapping[str, str] = field(default_factory=dict)  # factor -> level

    @property
    def whole_name(self) -> str:
        """Its name with the levels that the reason is about: without them it may be that of a treatment."""
        return " ".join([self.name, *(f"{name}={self.levels[name]}" for name in self.factors if name in self.levels)])


@dataclass(frozen=True, slots=True)
class Expansion:
    """The result of a plan's factors."""

    kept: tuple[Treatment, ...]  # all legal treatments, in the plan's order
    omitted: tuple[LeftOut, ...]  # every other combination
    idle_excludes: tuple[int, ...]  # entries of `exclude` that match no treatment

    @property
    def left_out(self) -> list[str]:
        """A line for each combination that was left out, or for each reason."""
        names: dict[str, dict[str, None]] = {}
        measured = {each.name for each in self.kept}
        for one in self.omitted:
            names.setdefault(one.why, {})[one.name if one.name not in measured else one.whole_name] = None
        return _lines(names)


def moved_defaults(space: Space) -> list[str]:
    """One line for each unnamed factor that could not keep its default, or one level for all treatments."""
    return _moved(_filling(space))


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
    given = tuple(space.given.items())
    return _expand(tuple(layers), _named(space.factors), combinations, space.design, given, tuple(map(_named, exclude)))


@functools.lru_cache(maxsize=4)  # a command needs the same plan's treatments a dozen times
def _expand(
    layers: tuple[str, ...],
    factors: _Named,
    combinations: tuple[tuple[str | None, _Named], ...],
    design: Design,
    given: tuple[tuple[str, str], ...],
    exclude: tuple[_Named, ...],
) -> Expansion:
    parts = [Combination(dict(levels), name) for name, levels in combinations]
    space = Space(dict(factors), parts, design, dict(given))
    order = (*(name for name in FACTORS if name not in space.factors), *space.factors)
    exclusions = _Exclusions(exclude)
    matched = 0
    kept: dict[tuple[str, tuple[str, ...]], Treatment] = {}
    omitted: dict[tuple[str, str], LeftOut] = {}  # by name and reason
    every = list(_filled(space))
    unsaid = [name for name in SIZES if space.first(name) is None]
    for layer in layers:
        for candidate in every:
            first = candidate.first if candidate.part.name and LAYERS[layer].boots else every[0].levels
            named = candidate.named if LAYERS[layer].keeps else candidate.levels
            whole = under(layer, {name: candidate.levels[name] for name in named})
            here = {name: level for name, level in whole.items() if name not in unsaid}
            without = idle(here)
            name = _name(layer, candidate, here, without, first, order)
            left = None
            if (conflict := conflict_of(whole)) is not None:
                left = LeftOut(name, "illegal", tuple(conflict.levels), conflict.said(whole))
            else:
                entries = exclusions.matching(layer, here)
                left = _pointless(layer, name, candidate, without, space)
                matched |= 0 if left else entries
                if entries:
                    number = _lowest(entries)
                    why = f"excluded by the plan's exclude[{number}]"
                    left = LeftOut(name, "excluded", tuple(key for key, _ in exclude[number]), why)
            if left is None:
                treatment = Treatment(name, layer, here)
                same = kept.setdefault((layer, tuple(here.values())), treatment)
                if same.name != name and layer == "vm":
                    left = LeftOut(name, "the-same", (), f"has the same levels as {same.name}")
            if left is not None:
                omitted.setdefault((name, left.why), replace(left, levels=here))
    unmatched = tuple(number for number in range(len(exclude)) if not matched >> number & 1)
    return Expansion(tuple(kept.values()), tuple(omitted.values()), unmatched)


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
    """The levels of the host treatment below a guest's: the same boot and size, its own fio on the same backing, a raw
    file.

    The number of sets of processes, and how many CPUs they share, are only included if there are several.
    """
    of_host = {**backing({**levels, **_OF_HOST}), **{n: levels[n] for n in (*REBOOT, *HELD, *SIZES) if n in levels}}
    several = levels.get(COUNT.name, COUNT.default) != COUNT.default
    of_sets = (COUNT.name, OVERCOMMIT.name) if several else ()
    sets = {name: levels[name] for name in of_sets if name in levels}
    return {name: level for name, level in of_host.items() if name in levels} | sets


def under(layer: str, levels: Mapping[str, str]) -> dict[str, str]:
    """The levels that a treatment of this layer has, if a guest's are these; unknown ones are dropped."""
    here = {name: level for name, level in levels.items() if name in FACTORS and layer in FACTORS[name].layers}
    if layer == EXISTING:  # of a guest, it has the settings of a disk that is plugged in
        return {name: level for name, level in here.items() if FACTORS[name].layers == PLUGGED}
    return here if LAYERS[layer].boots else host_levels(here)


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


def points_of(space: Space) -> Iterator[NamedPoint]:
    """Its combinations, legal or not."""
    for number, part in enumerate(space.parts):
        first: dict[str, str] | None = None
        for named in space.points(part):
            first = first or named
            yield NamedPoint(number, named, first, space.given)


def _filling(space: Space) -> Filling:
    """Its combinations, with the levels of what it does not name."""
    movable = [movable_of({**space.factors, **part.levels}) for part in space.parts]
    elsewhere = [name for name in FACTORS if space.first(name) is not None]
    return fill(list(points_of(space)), lambda point: movable[point.part], elsewhere)


def _filled(space: Space) -> Iterator[_Candidate]:
    """Each combination with a level for every factor."""
    filling = _filling(space)
    first: dict[int, dict[str, str]] = {}
    for point, rest in zip(filling.points, filling.rests, strict=True):
        levels = point.filled(rest)
        yield _Candidate(space.parts[point.part], point.named, levels, first.setdefault(point.part, levels))


def _moved(filling: Filling) -> list[str]:
    """What must be said about how factors were filled that no part of the plan names."""
    lines = []
    named = {name for point in filling.points for name in point.named}
    for name in dict.fromkeys(n for rest in filling.rests for n in rest if n not in named):
        by: dict[str, list[str]] = {}
        for point, rest in zip(filling.points, filling.rests, strict=True):
            level = point.filled(rest)[name]
            with_level = ", ".join(point.named[each] for each in filling.by if each in point.named)
            if with_level not in by.setdefault(level, []):
                by[level].append(with_level)
        if len(by) == 1:
            (level,) = by
            default = FACTORS[name].default
            lines.append(f"{name}={level} in every guest instead of the default {default}: {_why_moved(filling, name)}")
        else:
            each = "; ".join(f"{level} with {' or '.join(levels)}" for level, levels in by.items())
            lines.append(
                f"{name} differs with {' and '.join(filling.by)}, because no level goes with all of them: {each}."
                " A comparison between these is one of both"
            )
    return lines


def _why_moved(filling: Filling, name: str) -> str:
    """What would be wrong if this factor had its default."""
    for point, rest in zip(filling.points, filling.rests, strict=True):
        levels = point.filled({**rest, name: FACTORS[name].default})
        if (conflict := conflict_of(levels)) is not None and conflict_of(point.filled(rest)) is None:
            return conflict.said(levels)
        nothing = {factor: needs for factor, needs in idle(levels).items() if factor in point.named}
        still = idle(point.filled(rest))
        if cured := next((factor for factor in nothing if factor not in still), None):
            return f"{cured} needs {nothing[cured]}"
    return "it is not legal with every named level"


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


def _pointless(
    layer: str, name: str, candidate: _Candidate, without: Mapping[str, str], space: Space
) -> LeftOut | None:
    """Why this combination does not differ from another one; None if it does."""
    if not LAYERS[layer].boots:
        return None  # levels without meaning for this layer do not matter
    for factor, because in without.items():
        first = candidate.part.levels.get(factor, space.factors.get(factor, ("",)))[0]
        if (level := candidate.named.get(factor, first)) != first:
            return LeftOut(name, "without-meaning", (factor,), f"{factor}={level} needs {because}")
    return None


def _lines(left_out: Mapping[str, Mapping[str, None]]) -> list[str]:
    lines = []
    for reason, names in left_out.items():
        if len(names) > MANY:
            lines.append(f"{next(iter(names))} and {len(names) - 1} more: {reason}")
        else:
            lines += [f"{name}: {reason}" for name in names]
    return lines
