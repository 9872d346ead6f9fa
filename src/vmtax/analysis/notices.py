"""Collect the notices of a whole run, and group them by their causes. Pure."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from vmtax import stats
from vmtax.core import notices
from vmtax.core.notices import MEANINGS, Code, Notice
from vmtax.core.records import Boot, Comparison, Experiment, Trial

CROWDED = 0.25  # share of the time in which some task waited for a CPU
Figure = tuple[str, str]  # Metric.name, Treatment.name
_SEVERAL: frozenset[Code] = frozenset(("failed", "refused", "other"))  # codes that cover several causes
_ORDER = {code: place for place, code in enumerate(MEANINGS)}


@dataclass(frozen=True)
class Cause:
    """Notices with a common cause, and everything that they affect."""

    code: Code
    notices: tuple[Notice, ...]  # at least one

    @cached_property
    def text(self) -> str:
        """One sentence: that of the notices if they agree, otherwise the general meaning of the code."""
        texts = {notice.cause for notice in self.notices}
        return texts.pop() if len(texts) == 1 or self.code in _SEVERAL else MEANINGS[self.code].cause

    @property
    def effect(self) -> str:
        return self.notices[0].effect

    @cached_property
    def remedy(self) -> str:
        """One sentence: that of the notices if they agree, otherwise the table's."""
        remedies = {notice.remedy for notice in self.notices}
        return remedies.pop() if len(remedies) == 1 else MEANINGS[self.code].cure

    @cached_property
    def figures(self) -> frozenset[Figure]:
        """The figures that it affects; empty if it affects all of the run."""
        return frozenset(
            (metric, treatment) for one in self.notices for metric in one.metrics for treatment in one.treatments
        )

    @cached_property
    def concerned(self) -> frozenset[Figure]:
        """The figures that it affects, and those that have no value because of it."""
        lacking = ((metric, name) for one in self.notices for metric in one.lacking for name in one.treatments)
        return self.figures | frozenset(lacking)

    @cached_property
    def treatments(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for one in self.notices for name in one.treatments))

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for one in self.notices for name in one.metrics))

    @cached_property
    def rounds(self) -> tuple[int, ...]:
        return tuple(sorted({number for one in self.notices for number in one.rounds}))


def causes(experiment: Experiment, comparisons: Iterable[Comparison]) -> tuple[Cause, ...]:
    """Every cause once, the most serious first."""
    found: dict[tuple[Code, str], dict[Notice, None]] = {}
    of_comparisons = (notice for comparison in comparisons for notice in comparison.notices)
    of_boot = (notice for name, boots in _by_treatment(experiment.boots).items() for notice in of_boots(name, boots))
    for notice in (*_background_load(experiment), *_of_trials(experiment.trials), *of_boot, *of_comparisons):
        # Failures that differ only in numbers have the same cause.
        kind = re.sub(r"\d+(\.\d+)?", "#", notice.cause) if notice.code in _SEVERAL else ""
        found.setdefault((notice.code, kind), {})[notice] = None
    grouped = (Cause(code, tuple(mine)) for (code, _), mine in found.items())
    return tuple(sorted(grouped, key=lambda cause: _ORDER[cause.code]))


def _by_treatment(boots: Iterable[Boot]) -> dict[str, list[Boot]]:
    found: dict[str, list[Boot]] = defaultdict(list)
    for boot in boots:
        found[boot.treatment].append(boot)
    return found


def _background_load(experiment: Experiment) -> Iterator[Notice]:
    """Whether other processes wanted the CPUs, judged by trials on the host: in others, the guest's QEMU itself
    competes for them.
    """
    on_host = {treatment.name for treatment in experiment.treatments if not treatment.boots}
    read = [t.disturbance for t in experiment.trials if t.treatment in on_host and t.disturbance is not None]
    waited = sum(reading.cpu_pressure_seconds or 0.0 for reading in read)
    wall = sum(reading.wall_seconds for reading in read)
    if wall and waited > CROWDED * wall:
        yield Notice(
            "background-load",
            f"During {100 * waited / wall:.0f} % of the host's own measurements some task waited for a CPU, so other"
            " programs ran there",
        )


def _of_trials(trials: Sequence[Trial]) -> Iterator[Notice]:
    reported: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)  # workload and case -> metrics, in order
    for trial in trials:
        reported[trial.workload, trial.case].update((one.metric.name, None) for one in trial.measurements)
    for trial in trials:
        if trial.status != "ok":
            what = trial.workload, trial.case
            lacking = tuple(reported[what]) or (".".join(filter(None, what)),)
            failure = of_failure(trial)
            yield replace(failure, lacking=lacking, treatments=(trial.treatment,), rounds=(trial.round,))
        metrics = tuple(measurement.metric.name for measurement in trial.measurements)
        for found in map(notices.read, trial.warnings):
            if found.code != "second-boot":  # these are recorded with the boot
                of = _concerned(found.code, metrics)
                yield replace(found, metrics=of, treatments=(trial.treatment,), rounds=(trial.round,))


def _concerned(code: Code, metrics: tuple[str, ...]) -> tuple[str, ...]:
    """Those of a trial's metrics that one of its warnings is about."""
    if code != "ticks":
        return metrics
    from vmtax.workload.base import HOST_SIDE  # imports pydantic, which would slow every `show` down

    return tuple(name for name in metrics if name.endswith(f".{HOST_SIDE}"))


def of_ratio(found: stats.PairedRatio | None, alpha: float) -> Iterator[Notice]:
    """Notices that follow from the numbers of a ratio; None: no round has a value on both sides."""
    if found is None or (found.low is None and not found.coarse):
        needed, rounds = stats.minimum_rounds(alpha), found.pairs if found else 0
        yield Notice(
            "few-rounds",
            f"An interval needs {needed} rounds or more, and {rounds or 'none'} {'has' if rounds < 2 else 'have'} a"
            " value on both sides",
            f"Run more rounds, for example with --rounds {needed + 1}",
        )
    if found is None:
        return
    if found.coarse:
        cause = f"All {found.pairs} ratios are the same to the last digit, because the metric's steps are too coarse"
        yield Notice("coarse", cause)
    stalls = found.stalls
    if stalls.differ:
        yield Notice(
            "stalls",
            f"{100 * stalls.treatment:.0f} % of the values, and {100 * stalls.baseline:.0f} % of the baseline's"
            f" values, are slower than {stats.STALL} times their median (p = {stalls.p:.2g}); the ratio of the medians"
            f" is {found.ratio:.3f}, that of the means is {found.mean_ratio:.3f}",
        )
    if found.carry_over is not None and found.carry_over.matters:
        moved = 100 * abs(math.expm1(found.carry_over.estimate))
        cause = f"The ratio differs by {moved:.1f} % depending on which of the two configurations ran first"
        yield Notice("carry-over", f"{cause} (p = {found.carry_over.p:.2g})")


def of_failure(trial: Trial) -> Notice:
    """Why a trial has no result."""
    code: Code = "refused" if trial.status == "refused" else "failed"
    return Notice(code, notices.whole(trial.error) if trial.error else "No reason was recorded")


def of_boots(treatment: str, boots: Collection[Boot]) -> Iterator[Notice]:
    """Notices from a treatment's boots about all its figures."""
    causes: dict[Notice, set[int]] = defaultdict(set)
    for boot in boots:
        for notice in map(notices.read, boot.warnings):
            causes[notice].add(boot.round)
    # The reasons differ from boot to boot; a reader only needs to know that there was a second attempt.
    retried = [one for one in causes if one.code == "second-boot"]
    if retried:
        rounds = tuple(sorted(set().union(*(causes.pop(one) for one in retried))))
        booted = f"{len(rounds)} of {len({boot.round for boot in boots})} rounds"
        cause = f"{treatment} booted at the second attempt in {booted}: {retried[0].cause}"
        yield Notice("second-boot", cause, treatments=(treatment,), rounds=rounds)
    for notice, numbers in causes.items():
        yield replace(notice, treatments=(treatment,), rounds=tuple(sorted(numbers)))


def rounds_in_words(numbers: Sequence[int]) -> str:
    """Such as "1 round (3)", "7 rounds (1, 2, 3, 4, 5, ...)"."""
    shown = ", ".join(str(number) for number in numbers[:5]) + (", ..." if len(numbers) > 5 else "")
    return f"{len(numbers)} round{'s' if len(numbers) > 1 else ''} ({shown})"
