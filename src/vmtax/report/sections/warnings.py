"""What to doubt: failures and warnings, each told once with everything it is about. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from vmtax.analysis.analysis import Analysis
from vmtax.core.records import Comparison, Experiment, Trial
from vmtax.report.document import Detail, Item, List, Paragraph, Section

MOST = 8  # that are shown where there is little room
CONTENTION = 0.25  # share of the time in which some task waited for a CPU


@dataclass(frozen=True, slots=True)
class ReportWarning:
    """A warning, or a failure, and everything it is about."""

    text: str
    places: tuple[str, ...]


def warnings(analysis: Analysis) -> tuple[ReportWarning, ...]:
    """Failures first, then warnings; those that differ only in their numbers are told once."""
    kinds: dict[str, tuple[str, dict[str, None]]] = {}
    run = analysis.experiment
    for text, place in (*_contention(run), *_of_trials(run.trials), *_of_comparisons(analysis.comparisons)):
        kind = re.sub(r"\d+(\.\d+)?", "#", text)
        kinds.setdefault(kind, (text, {}))[1][place] = None
    return tuple(ReportWarning(text, tuple(places)) for text, places in kinds.values())


def section(found: Sequence[ReportWarning]) -> Section:
    items = tuple(Item(warning.text, warning.places) for warning in found)
    blocks = (List(items, MOST),) if items else (Paragraph("None.", detail=Detail.PAGE),)
    return Section("doubts", "Warnings", blocks, "Warnings")


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


def _of_trials(trials: Iterable[Trial]) -> list[tuple[str, str]]:
    failures: list[tuple[str, str]] = []
    warnings: list[tuple[str, str]] = []
    for trial in trials:
        place = f"{trial.treatment}, {' '.join(filter(None, (trial.workload, trial.case)))}, round {trial.round}"
        if trial.status != "ok":
            failures.append((f"{trial.status}: {trial.error or 'no reason was recorded'}", place))
        warnings += ((warning, place) for warning in trial.warnings)
    return failures + warnings


def _of_comparisons(comparisons: Iterable[Comparison]) -> Iterator[tuple[str, str]]:
    for comparison in comparisons:
        for warning in comparison.warnings:
            # The banner says it, and the word stands beside every number.
            if not warning.startswith("emulated:"):
                yield warning, f"{comparison.metric.name}, {comparison.treatment} against {comparison.baseline}"
