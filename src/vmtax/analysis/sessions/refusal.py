"""Refuse to compare sessions that differ in what must be equal; the error names the difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from vmtax import stats
from vmtax.analysis.emulation import emulated_treatments, on_emulated_hosts
from vmtax.analysis.sessions.level import FEWEST_ROUNDS, rounds_of
from vmtax.core.errors import BadInput
from vmtax.core.notices import Notice
from vmtax.core.records import Experiment
from vmtax.plan.stored import plan_of

ENOUGH_ROUNDS = stats.minimum_rounds(stats.ALPHA)  # for a run that was stopped before it was complete


PACKS = {"kernel_pack": "kernel pack", "postgresql_pack": "PostgreSQL pack"}  # facts of a host


class Unlike(BadInput):
    """Runs that must not be compared; the text names the difference."""


def check(before: Sequence[Experiment], after: Sequence[Experiment]) -> tuple[Notice, ...]:
    """Raises Unlike if these are not sessions of the same work; returns notices that cast doubt on them."""
    every = [*before, *after]
    ids = [one.id for one in every]
    twice = next((id for id in ids if ids.count(id) > 1), None)
    if twice:
        raise Unlike(f"{twice} is named twice: a run compared with itself shows nothing; name another run")
    doubts = [doubt for one in every for doubt in _unfinished(one)]
    for side in (before, after):
        for other in side[1:]:
            if machine(side[0]) != machine(other):
                names = " and ".join(f"{host} ({model})" for host, model in (machine(side[0]), machine(other)))
                raise Unlike(
                    f"{side[0].id} and {other.id} are on one side, but of two machines: {names}; name one side each"
                )
    first = before[0]
    for other in every[1:]:
        difference = next(differences(first, other), None)
        if difference:
            raise Unlike(f"{first.id} and {other.id} are unlike and not compared: {difference}")
    return tuple(doubts)


def differences(one: Experiment, other: Experiment) -> Iterator[str]:
    """Differences that make a comparison meaningless, one line each, with both values."""
    plans = [plan_of(experiment) for experiment in (one, other)]
    yield from _unequal("guest", *(plan.guest.model_dump() for plan in plans))
    yield from _parameters(one, other)
    yield from _unequal("", *({"iterations": plan.iterations} for plan in plans))
    yield from _unequal("", *({"emulated": _emulated(experiment)} for experiment in (one, other)))
    for name, words in PACKS.items():
        yield from _unequal(words, *(_pack(experiment, name) for experiment in (one, other)))
    yield from _unequal("image", *({"identity": _identity(experiment)} for experiment in (one, other)))
    theirs = {treatment.name: treatment for treatment in other.treatments}
    common = [(mine, theirs[mine.name]) for mine in one.treatments if mine.name in theirs]
    if not common:
        names = (", ".join(treatment.name for treatment in e.treatments) for e in (one, other))
        yield "no configuration in common: {} / {}".format(*names)
    for mine, their in common:
        yield from _unequal(mine.name, dict(mine.levels), dict(their.levels))
        yield from _unequal(mine.name, *({"guests": _guests(e, mine.name)} for e in (one, other)))
        yield from _unequal(mine.name, *({"accelerators": _accelerators(e, mine.name)} for e in (one, other)))


def machine(experiment: Experiment) -> tuple[str, str]:
    """The host as it was given, and its CPU model."""
    return experiment.host, str((experiment.facts.get("host") or {}).get("cpu_model"))


def parameters(experiment: Experiment) -> dict[str, dict[str, Any]]:
    """Workload -> parameters of its work, including defaults."""
    plan = plan_of(experiment)
    return {
        workload.name: workload.parameters.model_dump(exclude=set(workload.parameters.reporting))
        for workload in plan.build_workloads()
    }


def _parameters(one: Experiment, other: Experiment) -> Iterator[str]:
    """For the workloads that both have. Others appear in no line of the comparison."""
    mine, theirs = parameters(one), parameters(other)
    for name in mine.keys() & theirs.keys():
        yield from _unequal(name, mine[name], theirs[name])


def _unfinished(experiment: Experiment) -> Iterator[Notice]:
    """Raises Unlike for a run that is not finished; yields a notice for one that was stopped and has enough rounds."""
    rounds = rounds_of(experiment)
    if experiment.state == "running":
        raise Unlike(f"{experiment.id} is running: wait until it has ended, vmtax watch {experiment.id}")
    counted = f"{rounds} round{'' if rounds == 1 else 's'}"
    if rounds < FEWEST_ROUNDS:
        raise Unlike(f"{experiment.id} has {counted} with a result: a session needs {FEWEST_ROUNDS} or more")
    if experiment.state != "complete":
        if rounds < ENOUGH_ROUNDS:
            raise Unlike(
                f"{experiment.id} was stopped after {counted}, and needs {ENOUGH_ROUNDS} or more to be compared:"
                f" vmtax run --resume {experiment.id}"
            )
        cause = f"{experiment.id} was stopped ({experiment.state}) after {counted}"
        yield Notice("stopped-early", cause, f"Finish it with vmtax run --resume {experiment.id}")


def _unequal(what: str, one: dict[str, Any], other: dict[str, Any]) -> Iterator[str]:
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


def _identity(experiment: Experiment) -> str:
    image = (experiment.facts.get("host") or {}).get("image") or {}
    return str(image.get("identity", "not known"))[:12]


def _pack(experiment: Experiment, name: str) -> dict[str, Any]:
    """Version and digest of the pack; {} if none was used."""
    return (experiment.facts.get("host") or {}).get(name) or {}


def _guests(experiment: Experiment, treatment: str) -> int:
    """The number of guests that were up at once."""
    return len({boot.path for boot in experiment.boots if boot.treatment == treatment})


def _accelerators(experiment: Experiment, treatment: str) -> tuple[str, ...]:
    """Accelerators of its guests, from the outside in: on an emulated host, KVM and TCG are both emulated, and very
    different.
    """
    found = {boot.path: boot.accelerator for boot in experiment.boots if boot.treatment == treatment}
    return tuple(found[path] for path in sorted(found))
