"""What must be equal in runs that are compared: their work, and what did it. As plain JSON, so that it can be kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from vmtax.analysis.emulation import emulated_treatments, on_emulated_hosts
from vmtax.core.records import Experiment, Json
from vmtax.core.units import at_most
from vmtax.plan.stored import plan_of

MOST_FILES = 10  # that changed, by name
PACKS = {"kernel_pack": "kernel pack", "postgresql_pack": "PostgreSQL pack"}  # facts of a host


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one run."""

    guest: Json  # the plan's guest
    parameters: Json  # workload -> parameters of its work, including defaults
    iterations: int | str  # of a boot; "auto": planned by the run
    emulated: str  # yes; yes, the host too; no
    packs: Json  # words for each of PACKS -> version and digest; {} if none was used
    image: str  # beginning of its identity
    treatments: Json  # name -> levels, guests that were up at once, and their accelerators from the outside in
    files: Json = field(default_factory=dict)  # the user's files in the image -> beginning of a digest


def work_of(experiment: Experiment) -> Work:
    """The work of a run. Raises PlanError for a plan of an older vmtax."""
    plan = plan_of(experiment)
    host = experiment.facts.get("host") or {}
    paths: dict[str, dict[str, str]] = {}
    for boot in experiment.boots:
        paths.setdefault(boot.treatment, {})[boot.path] = boot.accelerator
    return Work(
        plan.guest.model_dump(mode="json"),
        {
            workload.name: workload.parameters.model_dump(mode="json", exclude=set(workload.parameters.reporting))
            for workload in plan.build_workloads()
        },
        plan.iterations,
        _emulated(experiment),
        {words: host.get(name) or {} for name, words in PACKS.items()},
        str((host.get("image") or {}).get("identity", "not known"))[:12],
        {
            treatment.name: {
                "levels": dict(treatment.levels),
                "guests": len(paths.get(treatment.name, ())),
                # On an emulated host, KVM and TCG are both emulated, and very different
                "accelerators": [name for _, name in sorted(paths.get(treatment.name, {}).items())],
            }
            for treatment in experiment.treatments
        },
        (host.get("image") or {}).get("files") or {},
    )


def unlike(one: Work, other: Work) -> Iterator[str]:
    """Differences that make a comparison meaningless, one line each, with both values."""
    yield from _unequal("guest", one.guest, other.guest)
    # For the workloads that both have. Others appear in no line of the comparison.
    for name in one.parameters:
        if name in other.parameters:
            yield from _unequal(name, one.parameters[name], other.parameters[name])
    yield from _unequal("", {"iterations": one.iterations}, {"iterations": other.iterations})
    yield from _unequal("", {"emulated": one.emulated}, {"emulated": other.emulated})
    for words in one.packs:
        yield from _unequal(words, one.packs[words], other.packs.get(words, {}))
    yield from _changed(one, other) or _unequal("image", {"identity": one.image}, {"identity": other.image})
    common = [name for name in one.treatments if name in other.treatments]
    if not common:
        yield f"no configuration in common: {' / '.join(', '.join(side.treatments) for side in (one, other))}"
    for name in common:
        mine, theirs = one.treatments[name], other.treatments[name]
        yield from _unequal(name, mine["levels"], theirs["levels"])
        for what in ("guests", "accelerators"):
            yield from _unequal(name, {what: mine[what]}, {what: theirs[what]})


def _changed(one: Work, other: Work) -> list[str]:
    """The user's own files in which the images differ, in a line; [] if they are equal, or not known of both."""
    if not one.files or not other.files or one.files == other.files:
        return []
    names = sorted(one.files.keys() | other.files.keys())
    lacking = {"is new": one.files, "is gone": other.files}
    found = []
    for name in names:
        how = next((words for words, side in lacking.items() if name not in side), "changed")
        if one.files.get(name) != other.files.get(name):
            found.append(f"{name} {how}")
    named = ", ".join(at_most(MOST_FILES, found))
    return [f"your own files are not the same in both: {named}; the rest of the images may differ too"]


def _unequal(what: str, one: Json, other: Json) -> Iterator[str]:
    """Keys that both have, with unequal values; a newer version may know more keys."""
    for key in one:
        if key in other and one[key] != other[key]:
            yield f"{what}{what and '.'}{key} is {_shown(one[key])} in the first, {_shown(other[key])} in the second"


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)


def _emulated(experiment: Experiment) -> str:
    if on_emulated_hosts(experiment.treatments, experiment.facts):
        return "yes, the host too"
    return "yes" if emulated_treatments(experiment) else "no"
