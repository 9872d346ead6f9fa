"""Rules for the parts of a plan: what each may contain, and which problems it has."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import AfterValidator, ValidationError

from vmtax.core import names
from vmtax.core.layers import LAYERS
from vmtax.core.units import as_size, count_of, show
from vmtax.design.asked import sentence, unmeasured
from vmtax.design.factors import FACTORS
from vmtax.design.guest import COUNT
from vmtax.design.size import MEMORY, VCPUS
from vmtax.design.treatments import Combination, Design, Space, expand
from vmtax.plan.errors import Place, Problem, problems_of, unknown

if TYPE_CHECKING:
    from vmtax.workload.base import Workload

MOST_CONFIGURATIONS = 10_000  # of a plan: these would take years, and more than a second to enumerate
_LONGEST_HOST = 300  # characters: a DNS name has at most 253
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]{0,39}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# No part may begin with "-", which ssh would read as an option. A user of a domain of Windows: DOMAIN\user.
_SSH = re.compile(
    r"ssh://(?:(?:\w[\w.-]*\\)?\w[\w.-]*@)?(?:\w[\w.-]*|\[[0-9A-Fa-f:]+\])(?::(?P<port>\d{1,5}))?", re.ASCII
)


def workload_types() -> Mapping[str, type[Workload[Any]]]:
    """The workloads by name; imported late so that this module's users need none of them."""
    from vmtax.workload import WORKLOADS

    return WORKLOADS


def build(name: str, parameters: Mapping[str, Any], emulated: bool = False) -> Workload[Any]:
    """A workload with validated parameters. Raises pydantic.ValidationError if they are wrong."""
    kind = workload_types()[name]
    return kind(kind.parameters_type.model_validate(parameters), emulated=emulated)


def one_of(what: str, legal: Sequence[str]) -> AfterValidator:
    """A validator that accepts only legal names."""

    def test(name: str) -> str:
        if name not in legal:
            raise ValueError(unknown(what, name, legal))
        return name

    return AfterValidator(test)


def iterations(value: object) -> object:
    """A whole number, or the word for an automatic number."""
    whole = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 1000
    if not whole and value != "auto":
        raise ValueError(f"must be a whole number from 1 to 1000, or auto, not {show(value)}")
    return value


def plan_name(name: str) -> str:
    """A validator for names that can be part of file names."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"must be 1 to 64 letters, digits, `.`, `_` or `-`, and begin with one of the first two: {show(name)}"
        )
    return name


def host(text: str) -> str:
    """A validator for the host to measure."""
    if text == "lab" or text.startswith("lab:"):
        if text != "lab" and not names.LAB.fullmatch(text.removeprefix("lab:")):
            raise ValueError(f"must be lab or lab:NAME, the name up to 20 of a-z, 0-9 and -, not {show(text)}")
        return text
    match = _SSH.fullmatch(text)
    if text != "local" and (match is None or len(text) > _LONGEST_HOST or not 0 < int(match["port"] or 22) < 2**16):
        is_ipv6 = text.removeprefix("ssh://").count(":") > 1 and "[" not in text
        brackets = ": an IPv6 address is in brackets, as in ssh://root@[fd00::1]" if is_ipv6 else ""
        raise ValueError(f"must be local, ssh://[user@]host[:port] or lab[:NAME], not {show(text)}{brackets}")
    return text


def level_lists(factors: object) -> object:
    """Allows a level without a list, numbers in place of text, and sizes and times in any spelling."""
    if not isinstance(factors, dict):
        return factors
    lists = {name: list(v) if isinstance(v, list | tuple) else [v] for name, v in factors.items()}
    texts = {name: [show(v) if isinstance(v, int | float) else v for v in levels] for name, levels in lists.items()}
    return {name: [_spelled(name, level) for level in levels] for name, levels in texts.items()}


def spelled(name: str, levels: Sequence[str]) -> tuple[str, ...]:
    """The levels of a factor as plans have them, however a person wrote them: "64KiB" for "64k"."""
    return tuple(FACTORS[name].spelled(level) for level in levels) if name in FACTORS else tuple(levels)


def _spelled(name: object, level: object) -> object:
    return spelled(name, [level])[0] if isinstance(name, str) and isinstance(level, str) else level


def choice(entry: object) -> object:
    """A workload as written in a plan, `disk` or `disk: {size: 1GiB}`, or as stored: `{name: disk, parameters:
    ...}`.
    """
    if isinstance(entry, str):
        return {"name": entry}
    if not isinstance(entry, dict) or entry.keys() == {"name", "parameters"}:
        return entry
    if len(entry) != 1:
        raise ValueError(
            f"must be one workload: indent the parameters below its name ({', '.join(map(str, entry))[:60]})"
        )
    ((name, parameters),) = entry.items()
    return {"name": name, "parameters": {} if parameters is None else parameters}


def repeated(at: Place, names: Sequence[str]) -> list[Problem]:
    """Names that occur twice in a list."""
    first = {name: i for i, name in reversed(list(enumerate(names)))}
    return [((*at, i), f"{show(name)} is given twice") for i, name in enumerate(names) if first[name] < i]


def factor_problems(factors: Mapping[str, Sequence[str]], layers: Sequence[str]) -> list[Problem]:
    """Unknown factors and levels, repeated levels, factors without meaning for these layers."""
    problems: list[Problem] = []
    for name, levels in factors.items():
        at: Place = ("factors", name)
        if name not in FACTORS:
            problems.append((at, unknown("factor", name, FACTORS)))
            continue
        problems += [*_unknown_levels(at, levels), *repeated(at, levels)]
        if not levels:
            problems.append((at, f"must have at least one level; legal: {', '.join(FACTORS[name].levels)}"))
        if not set(layers) & set(FACTORS[name].layers):
            problems.append((at, f"is about {' and '.join(FACTORS[name].layers)}, but layers has {', '.join(layers)}"))
    return problems


def combination(entry: object) -> object:
    """An entry as written in a plan, `{name: lvm, disk.volume: lvm}`, or as stored, `{name: ..., levels: ...}`."""
    if not isinstance(entry, dict) or entry.keys() == {"name", "levels"}:
        return entry
    levels = {key: value for key, value in entry.items() if key != "name"}
    return {"name": entry.get("name"), "levels": levels}


def label(name: str) -> str:
    """A validator for the name of a combination, which becomes part of treatments' names."""
    if not _LABEL.fullmatch(name):
        raise ValueError(
            f"must be 1 to 40 letters, digits or any of . _ - / +, and begin with a letter or digit: {show(name)}"
        )
    return name


class ListEntry(Protocol):
    """An entry of a plan's hand-made list."""

    @property
    def name(self) -> str | None: ...
    @property
    def levels(self) -> Mapping[str, Sequence[str]]: ...


class SizeOfGuests(Protocol):
    """The size of a plan's guests."""

    @property
    def vcpus(self) -> int: ...
    @property
    def memory(self) -> int: ...


def space(
    factors: Mapping[str, Sequence[str]], design: Design, combinations: Sequence[ListEntry], guest: SizeOfGuests
) -> Space:
    """The treatments that a plan's keys describe."""
    given = {VCPUS: str(guest.vcpus), MEMORY: as_size(guest.memory)}
    return Space(factors, [Combination(entry.levels, entry.name) for entry in combinations], design, given)


def combination_problems(
    entries: Sequence[tuple[str | None, Mapping[str, Sequence[str]]]], factors: Mapping[str, Sequence[str]]
) -> list[Problem]:
    """Empty entries, unknown factors and levels, repeated names, factors that are also in `factors`."""
    problems: list[Problem] = []
    names: set[str | None] = set()
    for number, (name, levels) in enumerate(entries):
        at: Place = ("combinations", number)
        if not levels:
            problems.append((at, "names no level: say what it is, such as {disk.volume: lvm, disk.filesystem: none}"))
        if name is not None and name in names:
            problems.append(((*at, "name"), f"{show(name)} is given twice"))
        names.add(name)
        for factor, wanted in levels.items():
            here: Place = (*at, factor)
            if factor not in FACTORS:
                problems.append((here, unknown("factor", factor, FACTORS)))
                continue
            if factor in factors:
                problems.append((here, f"{factor} is in factors as well: name it in one of the two"))
            problems += [*_unknown_levels(here, wanted), *repeated(here, wanted)]
            if not wanted:
                problems.append((here, f"must have at least one level; legal: {', '.join(FACTORS[factor].levels)}"))
    return problems


def exclude_problems(entries: Sequence[Mapping[str, Sequence[str]]]) -> list[Problem]:
    """Empty entries, unknown factors and levels."""
    problems: list[Problem] = []
    for number, entry in enumerate(entries):
        at: Place = ("exclude", number)
        if not entry:
            problems.append((at, "is empty: say what to leave out, such as {disk.cache: writeback, layers: nested}"))
        for name, levels in entry.items():
            if name != "layers" and name not in FACTORS:
                problems.append(((*at, name), unknown("factor", name, ["layers", *FACTORS])))
            else:
                problems += _unknown_levels((*at, name), levels)
    return problems


def too_many(layers: Sequence[str], space: Space) -> list[Problem]:
    """A problem if the plan has more configurations than can be planned; calculated, because they cannot be
    enumerated.
    """
    count = space.count() * len(layers)
    if count <= MOST_CONFIGURATIONS:
        return []
    at: Place = ("combinations",) if space.combinations else ("factors",)
    cures = ["fewer levels", "fewer entries" if space.combinations else "a list of `combinations`"]
    if space.design == "full":
        cures.insert(0, "`design: one-at-a-time`")
    message = (
        f"{space.count():,} combinations of levels on {count_of(len(layers), 'layer')} make"
        f" {count:,} configurations before exclusions, at most {MOST_CONFIGURATIONS:,} are possible:"
        f" use {', '.join(cures[:-1])} or {cures[-1]}"
    )
    return [(at, message)]


def nothing_left(layers: Sequence[str], space: Space, entries: Sequence[Mapping[str, Sequence[str]]]) -> list[Problem]:
    """A problem if every combination is illegal or excluded."""
    found = expand(layers, space, entries)
    at: Place = ("exclude",) if entries else ("combinations",) if space.combinations else ("factors",)
    if found.kept:
        return []
    lines = (
        sentence(one, space, space.factors) for one in unmeasured(layers, space, entries, space.factors) if one.cure
    )
    why = next(lines, "; ".join(found.left_out[:3]))
    return [(at, f"no configuration is left to measure: {why}")]


def workload_problems(
    choices: Sequence[tuple[str, Mapping[str, Any]]], layers: Sequence[str], vcpus: int
) -> list[Problem]:
    """Unknown workloads, wrong parameters, repeated entries, workloads that run on none of these layers or not on this
    number of CPUs.
    """
    types = workload_types()
    names = [name for name, _ in choices]
    problems = repeated(("workloads",), names)
    for number, (name, parameters) in enumerate(choices):
        at: Place = ("workloads", number)
        problems += [
            (at, f"{other} ends its guests while they write: measure {name} in another plan")
            for other in names
            if other in types and name in types[other].not_with
        ]
        if name not in types:
            problems.append((at, unknown("workload", name, types)))
            continue
        if not types[name].layers & set(layers):
            legal = ", ".join(layer for layer in LAYERS if layer in types[name].layers)
            problems.append((at, f"{name} runs on {legal}, but layers has {', '.join(layers)}"))
        try:
            workload = build(name, parameters)
        except ValidationError as error:
            problems += problems_of(error, types[name].parameters_type, (*at, name))
        else:
            lists = {field: value for field, value in workload.parameters if isinstance(value, tuple)}
            problems += [one for field, value in lists.items() for one in repeated((*at, name, field), value)]
            problems += [((*at, name), why_not)] if (why_not := workload.why_not(vcpus)) else []
    return problems


def disk_problems(choices: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Problem]:
    """Workloads whose disk under test another one takes from them: it has files there, or its guest has no disk."""
    from vmtax.workload.migration import Migration

    problems: list[Problem] = []
    workloads = [build(*choice) for choice in choices]
    keepers = [one.name for one in workloads if one.keeps_files]
    is_migrated = any(one.name == Migration.name for one in workloads)
    for number, one in enumerate(workloads):
        if not one.filled_bytes:
            continue
        at: Place = ("workloads", number)
        problems += [
            (at, f"{one.name} writes over the files that {name} has on the disk under test: make two plans")
            for name in keepers
            if one.name != name
        ]
        if is_migrated:
            why = "a guest that is migrated has no disk of its own"
            problems.append((at, f"{why}: measure {one.name} and {Migration.name} in two plans"))
    return problems


def order_problems(choices: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Problem]:
    """Workloads that must come first, and do not."""
    from vmtax.workload import Command

    types, problems, before = workload_types(), list[Problem](), ""
    for number, (name, _) in enumerate(choices):
        if before and types[name].comes_first:
            problems.append((("workloads", number), f"{name} is no first use any more after {before}: put it before"))
        before = before or (name if issubclass(types[name], Command) else "")
    return problems


def count_problems(choices: Sequence[tuple[str, Mapping[str, Any]]], space: Space) -> list[Problem]:
    """Numbers of guests at once with which a workload cannot give each of them its part."""
    problems: list[Problem] = []
    levels = space.levels_of(COUNT.name, COUNT.default)
    at: Place = ("factors", COUNT.name) if COUNT.name in space.factors else ("workloads",)
    for name, _ in choices:
        several = workload_types()[name].roles
        wrong = [level for level in levels if int(level) % several]
        if wrong:
            legal = ", ".join(level for level in COUNT.levels if not int(level) % several)
            found = f"{COUNT.name}={','.join(wrong)} is no multiple of {several}"
            problems.append((at, f"{name} gives each of {several} guests other work, but {found}; right are {legal}"))
    return problems


def metric_problems(primary: Sequence[str], legal: Sequence[str]) -> list[Problem]:
    """Metrics that the plan's workloads do not report; suggests metrics of the same workload if there are any."""
    problems = repeated(("primary",), primary)
    for number, name in enumerate(primary):
        if name not in legal:
            related = [metric for metric in legal if metric.split(".")[0] == name.split(".")[0]]
            problems.append((("primary", number), unknown("metric", name, related or legal)))
    return problems


def _unknown_levels(at: Place, levels: Sequence[str]) -> list[Problem]:
    name = at[-1]
    factor = FACTORS.get(str(name))
    what, legal = (f"level of {name}", factor.levels) if factor else ("layer", LAYERS)
    others = factor and factor.others
    if others and others.ends:
        legal = (*legal, f"or any from {' to '.join(others.ends)}")
    if others and others.form:
        legal = (*legal, f"or {others.form}")
    takes = factor.takes if factor else LAYERS.__contains__
    return [((*at, i), unknown(what, level, legal)) for i, level in enumerate(levels) if not takes(level)]
