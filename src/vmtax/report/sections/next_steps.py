"""What to do after reading a run: at most three commands, the most useful first. Pure."""

from __future__ import annotations

import math
import re
import shlex

from vmtax import stats
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.builds import runs_windows
from vmtax.analysis.summary import summary
from vmtax.core.records import Experiment
from vmtax.core.units import format_cost
from vmtax.design.reboots import how_to_boot
from vmtax.workload.durability import NEEDED_STATES

MOST = 3
# Options that a repetition omits: its rounds or its time, and options about one run.
_ONCE = re.compile(
    r" (--(rounds|budget|label|output)[ =]|-o *)('[^']*'|\S+)| (--(yes|or-demo|json|resume( \S+)?)|-y)(?=\s|$)"
)


def next_steps(analysis: Analysis) -> tuple[tuple[str, str], ...]:
    """(command, what it does)."""
    run = analysis.experiment
    id = shlex.quote(run.id)
    steps = []
    if run.state == "running":
        steps.append((f"vmtax watch {id}", "follow it"))
    elif run.state in ("interrupted", "failed") and not run.options.get("imported"):
        how = how_to_boot(run)
        option, what = ("--after-reboot", f"finish it, on the host booted {how}") if how else ("--resume", "finish it")
        steps.append((f"vmtax run {option} {id}", what))
    elif (
        run.command.startswith("vmtax run")
        and not run.options.get("demonstration")  # more of it would say nothing more
        and analysis.comparisons
        and analysis.rounds < (least := stats.minimum_rounds(analysis.criteria.alpha))
    ):
        steps.append((f"{_ONCE.sub('', run.command)} --rounds {least + 1}", "enough rounds"))
    elif any(one.rounds for one in analysis.comparisons) and not analysis.emulated and _has_one_disk(run):
        steps.append(("vmtax run disk-cache", f"{_highest_of_disk(analysis)}which cache mode"))
    if analysis.emulated and any(cause.code == "emulated" for cause in analysis.causes):
        steps.append(("vmtax doctor", "why it is emulated"))
    if not analysis.comparisons and {treatment.layer for treatment in run.treatments} == {"host"}:
        host = "" if run.host == "local" else f" --host {shlex.quote(run.host)}"
        guest = " --guest ssh://Administrator@vm" if runs_windows(run.facts) else ""
        steps.append((f"vmtax run quick{host}{guest}", "what a VM costs there" if host else "what a VM costs here"))
    if analysis.survival is not None:
        if (rounds := _rounds_to_show(analysis)) is not None:
            command = f"{_ONCE.sub('', run.command)} --rounds {rounds}"
            steps.append((command, "enough states to show what is durable"))
        steps.append((f"vmtax show {id} --why durable", "the evidence, writer by writer"))
    steps.append((f"vmtax show {id} --full", "every figure and warning"))
    steps.append((f"vmtax report {id}", "the same with pictures"))
    return tuple(steps[:MOST])


def _rounds_to_show(analysis: Analysis) -> int | None:
    """The number of rounds after which every configuration that lacks nothing else has enough states of a power cut;
    None: they have them already.
    """
    run, survival = analysis.experiment, analysis.survival
    again = run.command.startswith("vmtax run") and not run.options.get("demonstration")
    if survival is None or run.state != "complete" or not again:
        return None
    short = [one.modelled for one in survival.evidence if one.is_short]
    needed = [math.ceil(analysis.rounds * NEEDED_STATES / end.count.states) for end in short if end is not None]
    return max(needed, default=None)


def _highest_of_disk(analysis: Analysis) -> str:
    """The highest shown cost of the disk, as the beginning of a reason; "" if there is none."""
    found = summary(analysis)
    costs = [one for figure in found.figures if figure.metric.workload == "disk" for one in figure.contrasts[:1] if one]
    shown = [one.ratio for one in costs if one.verdict == "worse" and math.isfinite(one.ratio)]
    return f"disk {format_cost(max(shown)).estimate}: " if shown else ""


def _has_one_disk(run: Experiment) -> bool:
    """Whether it measures the disk without a choice of disks."""
    levels = {tuple(sorted(each.levels.items())) for each in run.treatments if each.layer == "vm"}
    return len(levels) == 1 and any(trial.workload == "disk" for trial in run.trials)
