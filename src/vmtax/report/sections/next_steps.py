"""What to do after a run has been read: at most three commands, the most useful first. Pure."""

from __future__ import annotations

import re
import shlex

from vmtax import stats
from vmtax.analysis.analysis import Analysis

MOST = 3
_ROUNDS = re.compile(r" --rounds[ =]\d+| --(yes|resume( \S+)?)\b")


def next_steps(analysis: Analysis) -> tuple[tuple[str, str], ...]:
    """(command, what it does)."""
    run = analysis.experiment
    id = shlex.quote(run.id)
    steps = []
    if run.state == "running":
        steps.append((f"vmtax watch {id}", "follow it"))
    elif run.state == "interrupted":
        steps.append((f"vmtax run --resume {id}", "finish it"))
    elif analysis.comparisons and analysis.rounds < (least := stats.minimum_rounds(analysis.criteria.alpha)):
        steps.append((f"{_ROUNDS.sub('', run.command)} --rounds {least + 1}", "enough rounds"))
    if analysis.emulated and any(cause.code == "emulated" for cause in analysis.causes):
        steps.append(("vmtax doctor", "why it is emulated"))
    if not analysis.comparisons and {treatment.layer for treatment in run.treatments} == {"host"}:
        steps.append(("vmtax run quick", "what a VM costs here"))
    steps.append((f"vmtax show {id} --full", "every figure and warning"))
    steps.append((f"vmtax report {id}", "the same with pictures"))
    return tuple(steps[:MOST])
