"""Factors × levels → legal treatments, and the shuffled rounds they run in."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from vmtax.result import Treatment

GUESTS = ("vm", "nested")

# The cache modes in which QEMU opens the image with O_DIRECT.
_DIRECT = frozenset({"none", "directsync"})


@dataclass(frozen=True, slots=True)
class Factor:
    """One setting whose price is asked for."""

    name: str  # dotted, as a plan writes it: "disk.cache"
    levels: tuple[str, ...]  # every legal level
    default: str  # the level of a plan that does not name the factor
    layers: tuple[str, ...]  # where it means anything
    describe: str  # one line for the docs


_ALL = (
    Factor(
        "disk.cache",
        ("none", "writeback", "writethrough", "directsync", "unsafe"),
        "none",
        GUESTS,
        "QEMU's cache mode: whether the host's page cache is used, and whether a flush reaches the disk",
    ),
    Factor(
        "disk.aio",
        ("native", "threads", "io_uring"),
        "native",
        GUESTS,
        "how QEMU submits I/O to the host's kernel; native goes only with disk.cache none or directsync",
    ),
    Factor("disk.bus", ("virtio", "ide", "nvme"), "virtio", GUESTS, "the disk controller the guest sees"),
    Factor(
        "cpu.mitigations",
        ("auto", "off"),
        "auto",
        GUESTS,
        "the guest kernel's defences against speculation attacks (mitigations= on its command line)",
    ),
)
FACTORS: Mapping[str, Factor] = MappingProxyType({factor.name: factor for factor in _ALL})


def why_illegal(levels: Mapping[str, str]) -> str | None:
    """Why these levels cannot go together; None when they can, or when too few are given to tell."""
    cache = levels.get("disk.cache", "none")
    if levels.get("disk.aio") == "native" and cache not in _DIRECT:
        return f"disk.aio=native needs O_DIRECT, which disk.cache={cache} does not use"
    return None


def settled(factors: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The one level, for all treatments, of each factor that the plan does not name.

    The default, or where that is illegal with a named level the first level that is legal with all of them:
    a factor nobody asked about must neither remove treatments nor differ between them.
    """
    named = list(_combinations(factors))
    levels: dict[str, str] = {}
    for factor in FACTORS.values():
        if factor.name in factors:
            continue
        fits = (level for level in (factor.default, *factor.levels) if _fits(factor.name, level, named))
        levels[factor.name] = next(fits, factor.default)
    return levels


def moved_defaults(factors: Mapping[str, Sequence[str]]) -> list[str]:
    """One line for each unnamed factor that could not keep its default."""
    return [
        f"{name}={level} in every guest instead of the default {FACTORS[name].default}, "
        "which is not legal with every named level"
        for name, level in settled(factors).items()
        if level != FACTORS[name].default
    ]


def treatments(
    layers: Sequence[str],
    factors: Mapping[str, Sequence[str]],
    exclude: Sequence[Mapping[str, Sequence[str]]] = (),
) -> tuple[list[Treatment], list[str]]:
    """Every legal treatment in the plan's order, and one line for each combination left out.

    An entry of `exclude` maps factor names, and "layers", to the levels it is about; it matches where all of them do.
    The first level of each factor is the baseline and is not part of a name.
    """
    kept: list[Treatment] = []
    left_out: list[str] = []
    for layer in layers:
        for treatment in _of_layer(layer, factors):
            reason = why_illegal(treatment.levels) or _excluded(treatment, exclude)
            if reason is None:
                kept.append(treatment)
            else:
                left_out.append(f"{treatment.name}: {reason}")
    return kept, left_out


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


def shuffled_rounds(treatments: Sequence[Treatment], seed: int) -> Iterator[list[Treatment]]:
    """Endless rounds: each treatment once, in an order drawn afresh for each round. One seed, one sequence."""
    source = random.Random(seed)
    while True:
        order = list(treatments)
        source.shuffle(order)
        yield order


def _of_layer(layer: str, factors: Mapping[str, Sequence[str]]) -> Iterator[Treatment]:
    """Every combination of one layer, legal or not."""
    here = [name for name, factor in FACTORS.items() if layer in factor.layers]
    rest = settled(factors)
    for named in _combinations({name: levels for name, levels in factors.items() if name in here}):
        levels = {name: named.get(name, rest.get(name, "")) for name in here}
        shown = [f"{name}={level}" for name, level in named.items() if level != factors[name][0]]
        yield Treatment(" ".join([layer, *shown]), layer, levels)


def _combinations(factors: Mapping[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    for levels in itertools.product(*factors.values()):
        yield dict(zip(factors, levels, strict=True))


def _fits(name: str, level: str, named: Sequence[Mapping[str, str]]) -> bool:
    """Whether this level makes no combination illegal that is legal without it."""
    return all(why_illegal({**levels, name: level}) is None for levels in named if why_illegal(levels) is None)


def _excluded(treatment: Treatment, exclude: Sequence[Mapping[str, Sequence[str]]]) -> str | None:
    number = next((i for i, entry in enumerate(exclude) if matches(treatment, entry)), None)
    return None if number is None else f"excluded by the plan's exclude[{number}]"
