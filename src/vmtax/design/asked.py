"""Levels that a user asked for by name: whether each is measured, and if not, what would have to be added. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vmtax.design.factors import FACTORS, idle
from vmtax.design.filling import repairs
from vmtax.design.treatments import Space, expand, points_of

OPTION = "--vary"
CHEAP = 2000  # configurations that are planned in a moment; of larger plans, fewer changes are tried
MOST_TRIED = 20  # changes that are tried for one level before only what it lacks is named
Asked = Mapping[str, Sequence[str]]  # factor -> levels
Excluded = Sequence[Mapping[str, Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """Levels of a factor that no configuration has, all for the same reason."""

    factor: str
    levels: tuple[str, ...]
    needs: Mapping[str, str]  # other factors -> the level that would give it a meaning; empty if no change would
    cure: Mapping[str, Sequence[str]]  # levels to name, with which every level is measured; empty if there are none
    # Another factor that was asked for, without whose levels there would be a cure; empty if there is none, or if these
    # are not the first levels that nothing helps
    rival: str
    why: str  # how it was left out


def unmeasured(layers: Sequence[str], space: Space, exclude: Excluded, asked: Asked) -> list[Unmeasured]:
    """What was asked for and is part of no configuration, or only of some in which it has no meaning."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], Unmeasured] = {}
    most = tries = max(2, MOST_TRIED * CHEAP // max(CHEAP, space.count() * len(layers)))
    for name, level in _missing(layers, space, exclude, asked):
        needs, cure, tried = _remedy(layers, space, exclude, asked, (name, level), tries)
        tries = 0 if cure else tries - tried  # one line that helps is enough
        key = name, tuple(needs.items())
        if key not in found:
            why = _why(layers, space, exclude, (name, level))
            is_first = not found  # the others are not shown if nothing helps
            rival = (
                _rival(layers, space, exclude, asked, (name, level), most) if is_first and needs and not cure else ""
            )
            found[key] = Unmeasured(name, (), needs, cure, rival, why)
        found[key] = replace(found[key], levels=(*found[key].levels, level))
    return list(found.values())


def sentence(one: Unmeasured, space: Space, asked: Asked, varied: Collection[str] = ()) -> str:
    """What these levels need, and what to type. `varied`: factors that the option names already"""
    what = f"{one.factor}={','.join(one.levels)}"
    if not one.needs:
        return f"{what} is not measured: {one.why}"
    says = f"{what} needs {' and '.join(f'{name}={level}' for name, level in one.needs.items())}"
    if not one.cure:
        listed = [name for name in one.needs if any(name in part.levels for part in space.combinations)]
        cure = f": the plan's combinations list {', '.join(listed)}: write a plan of your own" if listed else ""
        if one.rival and not listed:
            cure = f", which {one.rival}={','.join(asked[one.rival])} does not go with: leave out one of them"
        why = f": {one.why}" if one.why != says else ""
        return f"{says}{cure or f', which does not go with the rest of the plan{why}'}"
    return f"{says}: {'; '.join(_cures(one, asked, varied))}"


def _cures(one: Unmeasured, asked: Asked, varied: Collection[str]) -> Iterator[str]:
    new = {name: f"{OPTION} {name}={','.join(levels)}" for name, levels in one.cure.items()}
    added = [text for name, text in new.items() if name not in varied]
    if added:
        yield f"add {' '.join(added)}"
    yield from (
        f"in place of {OPTION} {name}={','.join(asked[name])}, {text}" for name, text in new.items() if name in varied
    )


def _missing(layers: Sequence[str], space: Space, exclude: Excluded, asked: Asked) -> list[tuple[str, str]]:
    measured: set[tuple[str, str]] = set()
    for treatment in expand(layers, space, exclude).kept:
        measured |= {(name, treatment.levels.get(name, "")) for name in asked.keys() - idle(treatment.levels).keys()}
    return [(name, level) for name, levels in asked.items() for level in levels if (name, level) not in measured]


def _remedy(
    layers: Sequence[str], space: Space, exclude: Excluded, asked: Asked, pair: tuple[str, str], tries: int
) -> tuple[dict[str, str], dict[str, Sequence[str]], int]:
    """What a level needs; what to name, so that everything that was asked for is measured; how often that was tried."""
    first: dict[str, str] = {}
    tried = 0
    for needs in _needs(space, pair):
        first = first or needs
        for cure in _spellings(needs, asked, space.factors):
            further = replace(space, factors={**space.factors, **cure})
            if any(name in part.levels for part in space.combinations for name in cure):
                continue
            if tried >= tries:
                return first, {}, tried
            tried += 1
            if not _missing(layers, further, exclude, {**asked, **cure}):
                return needs, {**_beside_default(layers, further, exclude, asked, pair[0]), **cure}, tried
    return first, {}, tried


def _beside_default(
    layers: Sequence[str], space: Space, exclude: Excluded, asked: Asked, name: str
) -> dict[str, Sequence[str]]:
    """The levels of this factor with its default before them, if they make one configuration alone, which would be
    compared with nothing; otherwise {}.
    """
    levels = (FACTORS[name].default, *asked[name])
    if len(expand(layers, space, exclude).kept) > 1 or levels[0] in asked[name]:
        return {}
    further = replace(space, factors={**space.factors, name: levels})
    return {} if _missing(layers, further, exclude, {**asked, name: levels}) else {name: levels}


def _rival(
    layers: Sequence[str], space: Space, exclude: Excluded, asked: Asked, pair: tuple[str, str], tries: int
) -> str:
    """The first other factor that was asked for, without which this level could be measured; "" if there is none, or
    if none was found with that many tries.
    """
    for other in [name for name in asked if name != pair[0]]:
        less = replace(space, factors={name: levels for name, levels in space.factors.items() if name != other})
        rest = {name: levels for name, levels in asked.items() if name != other}
        _, cure, tried = _remedy(layers, less, exclude, rest, pair, tries)
        tries -= tried
        if cure:
            return other
    return ""


def _needs(space: Space, pair: tuple[str, str]) -> Iterator[dict[str, str]]:
    """Levels of other factors with which a level has a meaning, the fewest first."""
    others = [other for other in FACTORS if other != pair[0]]
    found = (
        (len(changes), number, changes)
        for number, point in enumerate(itertools.islice(_with(space, pair), MOST_TRIED))
        for changes in itertools.islice(repairs(point, others, [pair[0]]), MOST_TRIED)
        if changes
    )
    yield from (changes for _, _, changes in sorted(found, key=lambda each: each[:2])[: 2 * MOST_TRIED])


def _with(space: Space, pair: tuple[str, str]) -> Iterator[dict[str, str]]:
    """The combinations that have a level, what they do not name at its default."""
    for point in points_of(space):
        if point.named.get(pair[0]) == pair[1]:
            yield point.filled({})


def _spellings(needs: Mapping[str, str], asked: Asked, planned: Asked) -> Iterator[dict[str, Sequence[str]]]:
    """Ways to name these levels: beside those that were asked for, in place of them, or beside those of the plan."""
    for beside in (asked, {}, planned):
        yield {name: tuple(dict.fromkeys([*beside.get(name, ()), level])) for name, level in needs.items()}


def _why(layers: Sequence[str], space: Space, exclude: Excluded, pair: tuple[str, str]) -> str:
    omitted = (one.why for one in expand(layers, space, exclude).omitted if one.levels.get(pair[0]) == pair[1])
    return next(omitted, f"{pair[0]}={pair[1]} needs {idle(dict([pair])).get(pair[0], 'another plan')}")
