"""What to doubt: failures and warnings, each told once with everything it is about. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from vmtax.core.records import Comparison, Experiment, Trial

CONTENTION = 0.25  # share of the time in which some task waited for a CPU


@dataclass(frozen=True, slots=True)
class Doubt:
    """A warning, or a failure, and everything it is about."""

    text: str
    places: tuple[str, ...]


def doubts(experiment: Experiment, comparisons: Sequence[Comparison]) -> tuple[Doubt, ...]:
    """Failures first, then warnings; those that differ only in their numbers are told once."""
    found: dict[str, tuple[str, dict[str, None]]] = {}
    every = (*_contention(experiment), *_trial_doubts(experiment.trials), *_comparison_doubts(comparisons))
    for text, place in every:
        kind = re.sub(r"\d+(\.\d+)?", "#", text)
        found.setdefault(kind, (text, {}))[1][place] = None
    return tuple(Doubt(text, tuple(places)) for text, places in found.values())


def _contention(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """Whether something else wanted the CPUs, by the host's own trials: a guest's QEMU crowds them by itself."""
    on_host = {treatment.name for treatment in experiment.treatments if treatment.layer == "host"}
    read = [t.disturbance for t in experiment.trials if t.treatment in on_host and t.disturbance is not None]
    waited = sum(reading.cpu_pressure_seconds or 0.0 for reading in read)
    wall = sum(reading.wall_seconds for reading in read)
    if wall and waited > CONTENTION * wall:
        yield (
            f"contention: during {waited / wall:.0%} of the host's own trials some task waited for a CPU, so something"
            " else ran there: end it, or wait, and repeat".replace("%", " %", 1),
            "the whole run",
        )


def _trial_doubts(trials: Iterable[Trial]) -> list[tuple[str, str]]:
    failures: list[tuple[str, str]] = []
    warnings: list[tuple[str, str]] = []
    for trial in trials:
        place = f"{trial.treatment}, {' '.join(filter(None, (trial.workload, trial.case)))}, round {trial.round}"
        if trial.status != "ok":
            failures.append((f"{trial.status}: {trial.error or 'no reason was recorded'}", place))
        warnings += ((warning, place) for warning in trial.warnings)
    return failures + warnings


def _comparison_doubts(comparisons: Iterable[Comparison]) -> Iterator[tuple[str, str]]:
    for comparison in comparisons:
        for warning in comparison.warnings:
            # The banner says it, and the word stands beside every number.
            if not warning.startswith("emulated:"):
                yield warning, f"{comparison.metric.name}, {comparison.treatment} against {comparison.baseline}"
