"""Valid plans at random, and the keys of a plan with their bounds; written anew here, not read from the schema."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping
from typing import Any, get_args

from vmtax.design.factors import FACTORS
from vmtax.design.guest import COUNT
from vmtax.workload import WORKLOADS
from vmtax.workload.base import Workload

KEYS = (
    *("name", "host", "guest", "guest.vcpus", "guest.memory", "layers", "factors", "factors.disk.bus", "design"),
    *("combinations", "exclude", "workloads", "primary", "decide", "decide.worse_than", "only_primary", "give_ups"),
    *("precision", "same_within", "rounds", "rounds.min", "rounds.max", "iterations", "budget", "seed", "colour"),
)
# (key, lowest, highest, how it is written)
NUMBERS = (
    ("guest.vcpus", 1, 1024, ""),
    ("guest.memory", 256, 2**30, "{}MiB"),
    ("guest.memory", 2**28, 2**50, ""),
    ("rounds.min", 1, 10_000, ""),
    ("rounds.max", 1, 10_000, ""),
    ("iterations", 1, 1000, ""),
    ("seed", 0, 2**63 - 1, ""),
    ("budget", 1, 30 * 86400, "{}s"),
    ("precision", 1, 50, "{}%"),
    ("same_within", 1, 50, "{}%"),
    ("decide.worse_than", 1, 50, "{}%"),
)
WORKLOAD_KEYS = [(name, key) for name, kind in WORKLOADS.items() for key in kind.parameters_type.model_fields]
OF_WINDOWS = "transfer"  # which no plan without such a guest can measure
ALONE = "durability"  # which takes one guest at a time
WITH_DISK = {name for name, kind in WORKLOADS.items() if kind.filled_bytes is not Workload.filled_bytes}
MOST = 2000  # configurations of a valid plan, so that thousands of cases take minutes


def at(plan: dict[str, Any], key: str, value: Any) -> None:
    """Put a value at a dotted key; at the top where the key is empty and the value a mapping."""
    if not key:
        plan.update(value)
        return
    first, dot, rest = key.partition(".")
    if not dot:
        plan[first] = value
    else:
        inner = plan.get(first)
        plan[first] = {**(inner if isinstance(inner, dict) else {}), rest: value}


def kinds_of(workload: str, key: str) -> tuple[Any, ...]:
    """The types that a parameter may have."""
    kind = WORKLOADS[workload].parameters_type.model_fields[key].annotation
    return get_args(kind) or (kind,)


def factors_of(layers: Collection[str]) -> list[str]:
    """The factors that are about one of these layers at least: any other one is refused."""
    return [name for name, factor in FACTORS.items() if set(factor.layers) & set(layers)]


def default_first(name: str) -> list[str]:
    """All levels of a factor."""
    factor = FACTORS[name]
    return [factor.default, *(level for level in factor.levels if level != factor.default)]


def valid_plan(source: random.Random) -> dict[str, Any]:
    """A plan that vmtax has to accept: its first combination consists of defaults and is not excluded."""
    layers = source.sample(["host", "vm", "nested"], source.randint(1, 3))
    names = [name for name, kind in WORKLOADS.items() if kind.layers & set(layers) and name != OF_WINDOWS]
    workloads = source.sample(names, source.randint(1, len(names)))
    workloads = [name for name in workloads if not any(name in WORKLOADS[other].not_with for other in workloads)]
    roles = max(WORKLOADS[name].roles for name in workloads)
    workloads = [name for name in workloads if roles == 1 or name != ALONE]
    if set(workloads) & WITH_DISK:  # a guest that is migrated has none
        workloads = [name for name in workloads if name != "migration"]
    workloads.sort(key=lambda name: not WORKLOADS[name].comes_first)
    layers = [layer for layer in layers if any(layer in WORKLOADS[name].layers for name in workloads)]
    plan: dict[str, Any] = {"name": _name(source), "layers": layers}
    plan["workloads"] = [_workload(source, name) for name in workloads]
    counted = roles == 1 and ALONE not in workloads
    usable = [name for name in factors_of(layers) if name != COUNT.name or counted]
    named = source.sample(usable, min(len(usable), source.randint(0, 5)))
    # Guests with roles come in whole sets; any other work takes any number.
    factors: dict[str, list[str]] = {} if roles == 1 else {COUNT.name: [str(roles)]}
    for name in named:
        levels = _levels(source, name)
        if math.prod(map(len, factors.values())) * len(levels) * len(layers) <= MOST:
            factors[name] = levels
    optional: dict[str, Any] = {
        "factors": factors,
        "exclude": _excludes(source, factors),
        "combinations": _combinations(source, usable, factors, len(layers)),
        "design": source.choice(["full", "one-at-a-time"]),
        "host": source.choice(["local", "ssh://box", "ssh://me@box.example:2222", "lab", "lab:blue"]),
        "guest": {"vcpus": source.randint(1, 1024), "memory": source.choice(["256MiB", "1GiB", "1.5G", 2**40])},
        "decide": {"worse_than": source.choice(["0.01%", "3%", "50%"])},
        "only_primary": source.random() < 0.5,
        "give_ups": source.random() < 0.5,
        "precision": source.choice(["none", "0.01%", "2%", "50 %", None]),
        "same_within": source.choice(["0.01%", "2.5%", "50%"]),
        "rounds": {"min": source.randint(1, 6), "max": source.randint(6, 10_000)},
        "iterations": source.choice(["auto", 1, 3, 1000]),
        "budget": source.choice(["none", None, "1s", "20m", "1h30m", "1.5h", "30d"]),
        "seed": source.choice([None, 0, source.randrange(2**63)]),
    }
    for key, value in optional.items():
        if source.random() < 0.5 or (key == "factors" and ("exclude" in plan or roles > 1)):
            plan[key] = value
    if "factors" not in plan:
        plan.pop("exclude", None)
    return plan


def _name(source: random.Random) -> str:
    rest = "abcXYZ019._-"
    return source.choice("aZ") + "".join(source.choices(rest, k=source.choice([0, 5, 63])))


def _levels(source: random.Random, name: str) -> list[str]:
    first, *others = default_first(name)
    return [first, *source.sample(others, source.randint(0, len(others)))]


def _excludes(source: random.Random, factors: dict[str, list[str]]) -> list[dict[str, Any]]:
    """Entries about levels that are not the first, so that the first combination stays."""
    several = [name for name, levels in factors.items() if len(levels) > 1]
    return [
        {name: source.choice(factors[name][1:]) for name in source.sample(several, source.randint(1, len(several)))}
        for _ in range(source.choice([0, 1, 3, 300]) if several else 0)
    ]


def _combinations(
    source: random.Random, usable: Collection[str], factors: Mapping[str, Collection[str]], layers: int
) -> list[dict[str, Any]]:
    """A few entries, of one or two factors each that are not in `factors`, the default first; with the factors, they
    make MOST configurations at most.
    """
    entries: list[dict[str, Any]] = []
    names = [name for name in usable if name not in factors]
    left = MOST // (layers * math.prod(map(len, factors.values())))  # combinations of the entries' levels
    for number in range(source.randint(0, 3)):
        chosen = source.sample(names, min(len(names), source.randint(1, 2)))
        levels = {name: _levels(source, name)[:3] for name in chosen}
        size = math.prod(map(len, levels.values()))
        if chosen and size <= left:
            left -= size
            entries.append({"name": f"n{number}", **levels})
    return entries


def _workload(source: random.Random, name: str) -> Any:
    parameters: dict[str, Any] = {
        "chess": {"depth": source.randint(1, 30), "emulated_depth": source.randint(1, 30)},
        "memory": {"cases": source.sample(["stream", "faults", "switches"], 2), "stream_cache": "64m"},
        "disk": {
            "patterns": source.sample(["randread-4k-qd1", "write-1m", "randrw-4k-qd8", "first-write-64k"], 3),
            "size": source.choice(["16MiB", "1.5GiB", "64TiB", "20G"]),
            "fresh_size": source.choice(["16MiB", "1GB"]),
            "seconds": source.choice([1, 2.5, 3600]),
        },
        "net": {"cases": ["tcp-out"], "seconds": source.uniform(1, 3600)},
    }.get(name, {})
    needed = {"run": "true"} if name == "command" else {}
    chosen = source.sample(list(parameters), source.randint(0, len(parameters)))
    given = needed | {key: parameters[key] for key in chosen}
    return {name: given} if given else name
