"""The levels of the factors that a plan does not name: the nearest to the defaults with which its own levels are legal
and have a meaning. Pure.

What depends on what is declared at the factors (`conflicts`, `only_with`); here it is only asked.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vmtax.design.factors import FACTORS, RULED, conflict_of, idle, kind_of
from vmtax.design.size import SIZES

MOST_CHANGES = 4  # of levels in one repair: the longest chain that factors have is three
MOST_WAYS = 20  # repairs of one kind that are considered
MOST_DIFFERING = 2  # factors that may differ with another one before each combination is filled by itself
MOST_TRIED = 1_000  # changes that are looked at for levels in common, before each combination is filled by itself
_HOPELESS = (True, len(FACTORS), len(FACTORS))  # illegal by the plan's own levels
Levels = Mapping[str, str]
Variable = tuple[Hashable, str]  # (points that share it, factor)


@dataclass(frozen=True, slots=True)
class NamedPoint:
    """A combination of the levels that a plan names."""

    part: int  # number of the entry of its list
    named: Levels
    first: Levels  # named levels of its part's first combination
    given: Levels  # levels that are the plan's own, though no factor names them: the size of its guests
    kind: Hashable = field(init=False, compare=False)  # points of the same kind are helped by the same levels

    def __post_init__(self) -> None:
        named = ((name, self.named[name]) for name in RULED if name in self.named)
        kinds = ((name, kind_of(name, level), level == self.first.get(name)) for name, level in named)
        object.__setattr__(self, "kind", (self.part, *sorted(self.given.items()), *kinds))

    def filled(self, rest: Levels, names: Iterable[str] = FACTORS) -> dict[str, str]:
        """A level for each of these factors. `rest`: of those that are not named, if not their default."""
        return {name: _level(name, self.named, self.given, rest) for name in names}

    def faults(self, rest: Levels) -> tuple[bool, int, int]:
        """How far these levels are from being of use: illegal; how many named levels that make a difference, and how
        many others, have no meaning.
        """
        levels = self.filled(rest, RULED)
        nothing = [name for name in idle(levels) if name in self.named]
        pointless = sum(self.named[name] != self.first[name] for name in nothing)
        return conflict_of(levels) is not None, pointless, len(nothing) - pointless


@dataclass(frozen=True, slots=True)
class Filling:
    """How the factors that a plan does not name are filled."""

    points: tuple[NamedPoint, ...]
    rests: tuple[Levels, ...]  # for each point, the levels that are not the default
    by: tuple[str, ...] = ()  # named factors with whose levels others differ; (): the same for all
    differing: tuple[str, ...] = ()  # those others


def repairs(
    levels: Levels, movable: Collection[str], asked: Collection[str], kept: Collection[str] = ()
) -> Iterator[dict[str, str]]:
    """Changes of some movable factors with each of which a combination is legal and every asked factor has a meaning;
    fewest changes first. `kept`: factors that change only if the combination is illegal otherwise
    """
    seen: set[frozenset[tuple[str, str]]] = set()
    nearest: list[dict[str, str]] = [{}]
    for _ in range(MOST_CHANGES + 1):
        further: list[dict[str, str]] = []
        for changes in nearest:
            now = {**levels, **changes}
            is_legal, moves = conflict_of(now) is None, list(_moves(now, asked))
            if not moves:
                yield changes
                continue
            for name, wanted in moves:
                if name in movable and name not in changes and not (is_legal and name in kept):
                    more = {**changes, name: wanted}
                    if (key := frozenset(more.items())) not in seen:
                        seen.add(key)
                        further.append(more)
        nearest = further


def fill(
    points: Sequence[NamedPoint], movable: Callable[[NamedPoint], Collection[str]], apart: Collection[str]
) -> Filling:
    """The same levels for all points, if there are such; else the fewest that differ with one of the named factors.

    movable: the factors that a point does not name; apart: those among them that other parts of the plan name, and
    which differ from part to part
    """
    different: dict[Hashable, NamedPoint] = {}
    for point in points:
        different.setdefault((point.part, *map(point.named.get, RULED)), point)
    few = list(different.values())
    ruled = {point.part: [name for name in movable(point) if name in RULED] for point in few}
    # Each point's best: what remains wrong then is the plan's own
    alike: dict[Hashable, tuple[tuple[bool, int, int], list[dict[str, str]]]] = {}
    for point in few:
        if (kind := point.kind) not in alike:
            alike[kind] = _best(point, ruled[point.part], apart)
    best = [alike[point.kind] for point in few]
    moved = dict.fromkeys(name for _, ways in best for changes in ways for name in changes)
    solver = _Solver(few, ruled, [fault for fault, _ in best], apart)
    tried = itertools.count()

    def group(by: Sequence[str], differing: Collection[str]) -> Callable[[NamedPoint, str], Hashable]:
        return lambda point, name: (
            point.part if name in apart else None,
            tuple(point.named.get(each) for each in by) if name in differing else (),
        )

    named = [name for name in dict.fromkeys(n for p in few for n in p.named) if name in RULED]
    varying = [name for name in named if len({point.named.get(name) for point in few}) > 1]
    ways: Iterator[tuple[tuple[str, ...], tuple[str, ...]]] = itertools.chain(
        [((), ())],
        (
            ((by,), differing)
            for count in range(1, MOST_DIFFERING + 1)
            for differing in itertools.combinations(moved, count)
            for by in varying
        ),
        [(tuple(varying), tuple(moved))],
    )
    for by, differing in ways:
        grouped = group(by, differing)
        last = by == tuple(varying) and differing == tuple(moved)
        if (found := solver.solve(grouped, None if last else tried)) is not None:
            rests = tuple(
                {
                    name: found[grouped(point, name), name]
                    for name in ruled.get(point.part, ())
                    if (grouped(point, name), name) in found
                }
                for point in points
            )
            return Filling(tuple(points), rests, by, differing)
    raise AssertionError("each combination can be filled by itself")


@dataclass(frozen=True, slots=True)
class _Solver:
    """Looks for levels that several points can share."""

    points: Sequence[NamedPoint]
    movable: Mapping[int, Sequence[str]]  # part -> factors
    best: Sequence[tuple[bool, int, int]]  # for each point, the least faults that it can have
    kept: Collection[str]  # factors that change only if a point is illegal otherwise
    _faults: dict[Hashable, tuple[bool, int, int]] = field(default_factory=dict)  # of points of a kind, by their levels
    _ways: dict[Hashable, Sequence[dict[str, str]]] = field(default_factory=dict)  # likewise

    def solve(
        self, group: Callable[[NamedPoint, str], Hashable], tried: Iterator[int] | None
    ) -> dict[Variable, str] | None:
        """The levels that are not the default, by who shares them; None if there are none that suit all points, or if
        they were not found soon. `tried`: counts what is looked at, up to MOST_TRIED; None: there is no limit
        """
        owner = functools.cache(lambda number, name: group(self.points[number], name))
        return self._searched(owner, tried, {}, range(len(self.points)))

    def _searched(
        self,
        owner: Callable[[int, str], Hashable],
        tried: Iterator[int] | None,
        levels: dict[Variable, str],
        unsure: Sequence[int],
    ) -> dict[Variable, str] | None:
        """`owner`: who shares a factor with that point; `levels`: known so far; `unsure`: the points that these may not
        suit
        """
        for number in unsure:
            point, least = self.points[number], self.best[number]
            rest = {name: level for (who, name), level in levels.items() if owner(number, name) == who}
            if self._faults_of(point, rest) <= least:
                continue
            for changes in self._ways_of(point, rest):
                if tried is not None and next(tried) > MOST_TRIED:
                    return None
                if not changes or self._faults_of(point, {**rest, **changes}) > least:
                    continue
                new = {(owner(number, name), name): level for name, level in changes.items()}
                earlier = (n for n in range(number + 1) if any(owner(n, name) == who for who, name in new))
                after = [*earlier, *range(number + 1, len(self.points))]
                if (found := self._searched(owner, tried, {**levels, **new}, after)) is not None:
                    return found
            return None
        return levels

    def _ways_of(self, point: NamedPoint, rest: Levels) -> Iterable[dict[str, str]]:
        key = point.kind, frozenset(rest.items())
        if (known := self._ways.get(key)) is None:
            free = [name for name in self.movable[point.part] if name not in rest]
            known = self._ways[key] = list(_ways(point, rest, free, self.kept))
        return known

    def _faults_of(self, point: NamedPoint, rest: Levels) -> tuple[bool, int, int]:
        key = point.kind, frozenset(rest.items())
        if (known := self._faults.get(key)) is None:
            known = self._faults[key] = point.faults(rest)
        return known


def _best(
    point: NamedPoint, movable: Collection[str], kept: Collection[str]
) -> tuple[tuple[bool, int, int], list[dict[str, str]]]:
    """The least faults that a point can have, and the changes that lead there."""
    if (now := point.faults({})) == (False, 0, 0):
        return now, []
    ways = list(_ways(point, {}, movable, kept))
    least = min((point.faults(changes) for changes in ways), default=_HOPELESS)
    return least, [changes for changes in ways if point.faults(changes) == least]


def _ways(point: NamedPoint, rest: Levels, free: Collection[str], kept: Collection[str]) -> Iterator[dict[str, str]]:
    """Changes with which a point is legal, those first that give most of its named levels a meaning.

    A level that no change gives a meaning is the plan's own matter, and must not keep others from getting theirs.
    """
    levels = point.filled(rest, RULED)
    nothing = [name for name in idle(levels) if name in point.named]
    others = [name for name in point.named if name not in nothing]
    curable = [name for name in nothing if free and any(True for _ in repairs(levels, free, [*others, name], kept))]
    for count in range(len(curable), -1, -1):
        is_found = False
        for asked in itertools.islice(itertools.combinations(curable, count), MOST_WAYS):
            for changes in itertools.islice(repairs(levels, free, [*others, *asked], kept), MOST_WAYS):
                is_found = True
                yield changes
        if is_found:
            return  # with fewer of them, more levels have no meaning


def _moves(levels: Levels, asked: Collection[str]) -> Iterator[tuple[str, str]]:
    """(factor, level) of each change that removes the first conflict, or gives the first asked factor a meaning."""
    if (conflict := conflict_of(levels)) is not None:
        for name, illegal in conflict.levels.items():
            yield from ((name, level) for level in FACTORS[name].levels if level not in illegal)
        return
    for name in idle(levels):
        if name in asked:
            for other, legal in FACTORS[name].only_with.items():
                if levels[other] not in legal:
                    yield from ((other, level) for level in FACTORS[other].levels if level in legal)
            return


def _level(name: str, named: Levels, given: Levels, rest: Levels) -> str:
    for source in (named, rest, given):
        if name in source:
            return source[name]
    return FACTORS[name].default


def movable_of(named: Collection[str]) -> list[str]:
    """The factors that may be filled beside these: a plan's guests have the size that it says."""
    return [name for name in FACTORS if name not in named and name not in SIZES]
