"""Refuse to compare sessions that differ in what must be equal; the error names the difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vmtax import stats
from vmtax.analysis.sessions.level import FEWEST_ROUNDS, rounds_of
from vmtax.analysis.sessions.work import unlike, work_of
from vmtax.core.errors import BadInput
from vmtax.core.notices import Notice
from vmtax.core.records import Experiment

ENOUGH_ROUNDS = stats.minimum_rounds(stats.ALPHA)  # for a run that was stopped before it was complete


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
    return unlike(work_of(one), work_of(other))


def machine(experiment: Experiment) -> tuple[str, str]:
    """The host as it was given, and its CPU model."""
    return experiment.host, str((experiment.facts.get("host") or {}).get("cpu_model"))


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
