"""Recovers a known cost with real guests, prints a table; exit code 1 where a bar is missed.

    python -m tools.prove_live [--rounds 10] [--seconds 5] [--limit 100] [--seed N]

QEMU's own limit on a disk's operations sets the truth on both sides: what it lets through in a second is what the guest
gets, as long as the disk could give much more, which is looked at first. The guests, the rounds, the trials and the
intervals are those of `vmtax run`. An interval at 95 % misses by chance once in twenty, the A/A's too.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from tools.prove.bar import Bar
from vmtax.analysis import comparisons
from vmtax.core.errors import FAILED, INTERRUPTED, CannotDo
from vmtax.core.events import Event, NoticeEvent, Step
from vmtax.core.records import Comparison, Treatment, Trial
from vmtax.design.treatments import Space, expand, shuffled_rounds
from vmtax.experiment.trial import Signatures, TrialKey, run_trials
from vmtax.image import build
from vmtax.plan.schema import parse
from vmtax.testbed.layers import opened
from vmtax.testbed.machines.machines import examined, set_up
from vmtax.testbed.session.session import TestbedOptions, connected
from vmtax.testbed.subjects.provisioned import Provisioned
from vmtax.workload import Site
from vmtax.workload.fio import Disk, DiskParameters

PLAN = """\
name: prove-live
layers: [vm]
guest: {vcpus: 1, memory: 512MiB}
workloads: [{disk: {patterns: [randread-4k-qd1], size: 64MiB}}]
"""
CASE = "randread-4k-qd1"
RAMP_SECONDS = 2.0  # the burst that QEMU lets through at first, a second's worth, is gone by then
METRIC = f"disk.{CASE}.iops"
COSTS = {"3 % fewer": 0.03, "10 % fewer": 0.10, "50 % fewer": 0.50}
BASE, AGAIN = "base", "base again (A/A)"
ENOUGH = 3.0  # times the limit that the disk must give without one
NEAR = 0.003  # an interval this near to the truth covers it: QEMU's limit is no exacter

console = Console()


class LimitedReads(Disk):
    """The disk workload's random reads without their first burst.

    One at a time: at the limit that one always waits. fio does not count what is under way when its ramp ends, which
    with more of them would be a larger share where less is let through.
    """

    def command(self, site: Site, case: str) -> Sequence[str]:
        return (*super().command(site, case), f"--ramp_time={RAMP_SECONDS:g}")

    def seconds(self, case: str) -> float:
        return super().seconds(case) + RAMP_SECONDS


@dataclass
class Proof:
    """What all its boots share."""

    machines: Provisioned
    workload: LimitedReads

    def trial(self, number: int, position: int, treatment: Treatment) -> Trial | None:
        """One boot and its trial; None where the guest was lost, which costs this round's pairs and no more."""
        self.machines.check_guards()
        key = TrialKey(number, position, treatment.name)
        try:
            with opened(self.machines, treatment) as running:
                (trial,) = run_trials(key, running, self.workload, CASE, Signatures(), iteration=1)
        except CannotDo as failure:
            console.print(f"round {number}, {treatment.name}: {failure}", style="yellow", markup=False)
            return None
        for doubt in (*trial.warnings, *filter(None, (trial.error,))):
            console.print(f"round {number}, {treatment.name}: {doubt}", style="yellow", markup=False)
        return trial


def treatment(name: str, iops_limit: int, repeats: str | None = None) -> Treatment:
    usual = expand(["vm"], Space()).kept[0].levels
    return Treatment(name, "vm", {**usual, "disk.iops_limit": str(iops_limit)}, repeats)


def treatments(limit: int) -> tuple[Treatment, ...]:
    """The baseline first: the others are compared with it."""
    costly = (treatment(name, round(limit * (1 - cost))) for name, cost in COSTS.items())
    return (treatment(BASE, limit), treatment(AGAIN, limit, BASE), *costly)


def rate(trial: Trial | None) -> float:
    """Operations a second; 0 where there is no result."""
    measured = trial.measurements if trial else ()
    return next((entry.value for entry in measured if entry.metric.name == METRIC), 0.0)


def bar(comparison: Comparison, truth: float) -> Bar:
    """Whether the interval of the overhead covers the truth, and 0 only where that is the truth."""
    estimate, low, high = comparisons.overhead(comparison)
    if low is None or high is None:
        return Bar(comparison.treatment, "an interval", f"{comparison.rounds} rounds", False)
    figure = f"{100 * estimate:.2f} % [{100 * low:.2f}, {100 * high:.2f}], {comparison.rounds} rounds"
    includes_none = low <= 0 <= high
    if truth == 0:
        return Bar(comparison.treatment, "0 %: the interval covers it", figure, includes_none)
    covers = low - NEAR <= truth <= high + NEAR
    wanted = f"{100 * truth:.2f} %: covered, or within {100 * NEAR:.1f} points; 0 excluded"
    return Bar(comparison.treatment, wanted, figure, covers and not includes_none)


def prove(proof: Proof, rounds: int, limit: int, seed: int) -> list[Bar]:
    """All bars; the first is that the limit is what limits."""
    free = rate(proof.trial(0, 1, treatment("no limit", 0)))
    bars = [Bar("disk without a limit", f"{ENOUGH * limit:.0f}/s or more", f"{free:.0f}/s", free >= ENOUGH * limit)]
    if not bars[0].met:
        return bars
    planned = treatments(limit)
    trials: list[Trial] = []
    for number, order in zip(range(1, rounds + 1), shuffled_rounds(planned, seed), strict=False):
        clock = time.monotonic()
        done = [proof.trial(number, position, entry) for position, entry in enumerate(order, start=1)]
        trials += filter(None, done)
        rates = ", ".join(f"{trial.treatment} {rate(trial):.1f}/s" for trial in done if trial)
        console.print(
            f"round {number} of {rounds}, {time.monotonic() - clock:.0f} s: {rates}", style="dim", markup=False
        )
    costs = {AGAIN: 0.0, **COSTS}
    found = comparisons.comparisons(planned, trials, ())
    return bars + [bar(entry, costs[entry.treatment]) for entry in found if entry.metric.name == METRIC]


def tell(event: Event) -> None:
    if isinstance(event, Step | NoticeEvent):
        console.print(event.what if isinstance(event, Step) else event.text, style="dim", markup=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=5.0, help="measured in each boot")
    parser.add_argument("--limit", type=int, default=100, help="operations a second of the base")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the order within rounds")
    asked = parser.parse_args()
    clock = time.monotonic()
    try:
        bars = proved(asked)
    except KeyboardInterrupt:
        console.print("interrupted; nothing is proved")
        return INTERRUPTED
    except CannotDo as error:
        console.print(f"nothing is proved: {error}", markup=False)
        return FAILED
    table = Table("what", "wanted", "found", "met", title=f"planted costs, seed {asked.seed}", box=None)
    for entry in bars:
        table.add_row(entry.what, entry.wanted, entry.figure, "yes" if entry.met else "[bold red]NO[/]")
    console.print(table)
    missed = sum(not entry.met for entry in bars)
    console.print(f"{time.monotonic() - clock:.0f} s; {'every bar is met' if not missed else f'{missed} missed'}")
    return 1 if missed else 0


def proved(asked: argparse.Namespace) -> list[Bar]:
    """The bars, on this host; everything that was set up is undone at the end, however that comes."""
    plan = parse(PLAN)
    with connected(plan.host, lambda text: console.print(text, markup=False)) as hosts:
        machines = set_up(examined(hosts, build.ensure(tell), tell, plan, TestbedOptions()), tell).own
        workload = LimitedReads(DiskParameters(patterns=(CASE,), seconds=asked.seconds), emulated=machines.emulated)
        return prove(Proof(machines, workload), asked.rounds, asked.limit, asked.seed)


if __name__ == "__main__":
    sys.exit(main())
