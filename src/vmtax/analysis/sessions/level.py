"""One run as one session: a level for each metric of each treatment, and of each contrast between treatments."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vmtax import stats
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.comparisons import contrasts
from vmtax.core.records import Experiment, Metric

FEWEST_ROUNDS = 2  # for a level and its error


@dataclass(frozen=True, slots=True)
class SessionSubject:
    """What has a level in each session."""

    metric: Metric
    treatment: str
    baseline: str | None = None  # if given, the level is that of treatment / baseline within rounds: the tax

    @property
    def name(self) -> str:
        """Such as "vm", or "vm against host"."""
        return self.treatment if self.baseline is None else f"{self.treatment} against {self.baseline}"


def levels(experiment: Experiment) -> dict[SessionSubject, stats.SessionLevel]:
    """The levels of a session, metrics in order of appearance, treatments in the plan's order, then contrasts.

    Left out are repeats for the A/A, trials that are not ok, values without a logarithm, and what has fewer than
    FEWEST_ROUNDS rounds.
    """
    return {subject: stats.level(logs) for subject, logs in round_logs(experiment).items()}


def round_logs(experiment: Experiment) -> dict[SessionSubject, list[float]]:
    """For each subject that has a level, the logarithms of its rounds."""
    logs = {
        side: {number: math.log(value) for number, value in rounds.items()}
        for side, rounds in Analysis(experiment).boot_numbers.items()
    }
    own = [treatment for treatment in experiment.treatments if treatment.repeats is None]
    pairs = contrasts(own)
    found: dict[SessionSubject, dict[int, float]] = {}
    for metric in dict.fromkeys(metric for metric, _ in logs):
        sides = {t.name: logs[metric, t.name] for t in own if (metric, t.name) in logs}
        found |= {SessionSubject(metric, name): rounds for name, rounds in sides.items()}
        for baseline, treatment in pairs:
            low, high = sides.get(baseline, {}), sides.get(treatment, {})
            both = {number: high[number] - low[number] for number in high if number in low}
            found[SessionSubject(metric, treatment, baseline)] = both
    return {subject: [*rounds.values()] for subject, rounds in found.items() if len(rounds) >= FEWEST_ROUNDS}


def rounds_of(experiment: Experiment) -> int:
    """The number of rounds in which anything succeeded."""
    return len({trial.round for trial in experiment.trials if trial.status == "ok"})
