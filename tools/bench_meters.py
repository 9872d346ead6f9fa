"""What meters do to what they measure: a guest works with all of them, with none, and with none once more.

Neither of its workloads reports `host_side_seconds`, so their guests are not sampled: it is the cost without samples.

python -m tools.bench_meters [--host lab:NAME]
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vmtax import stats
from vmtax.core.records import Trial
from vmtax.experiment.trial import Signatures, TrialKey, run_trials
from vmtax.image import build
from vmtax.meter import GUEST_METERS, METERS
from vmtax.plan.schema import parse
from vmtax.testbed.layers import opened
from vmtax.testbed.machines.machines import examined, set_up
from vmtax.testbed.session.base import RunningTreatment
from vmtax.testbed.session.session import TestbedOptions, connected
from vmtax.workload import Command

MEASURED = {  # workload, of one case -> what is measured
    "tlb": "reads at random",  # on one CPU, in little memory: it scatters little, and begins at once
    "wakeup": "wake-ups",  # its vCPU halts and is scheduled again a thousand times a second
}
PLAN = """\
name: meters
layers: [vm]
guest: {vcpus: 1, memory: 512MiB}
workloads: [tlb: {cases: [chase-1m], seconds: 2}, wakeup: {seconds: 2}]
"""
ROUNDS = 12
ON, OFF, AGAIN = "on", "off", "off again"
WANTED = 0.01  # a difference below it is no matter


def meters(host: str = "local") -> None:
    """Prints the difference that all meters together make, beside that of none against none.

    host: where the guest runs, as in a plan
    """
    plan = parse(f"{PLAN}host: {host}\n")
    with connected(host, print) as hosts:
        sides = examined(
            hosts, build.ensure(lambda event: None), lambda event: None, plan, TestbedOptions(emulate=True)
        )
        own = set_up(sides, lambda event: None).own
        with opened(own, plan.treatments()[0][0]) as running:
            names = ", ".join(kind.name for kind in (*METERS, *GUEST_METERS))
            print(f"meters ({names}), {ROUNDS} rounds of one guest; wanted: less than 1 %")
            for workload in own.workloads:
                _print(running, workload)


def _print(running: RunningTreatment, workload: Command[Any]) -> None:
    (case,) = workload.cases()
    times, seconds = _rounds(running, workload, case)
    floor = stats.paired_ratio(times[OFF], times[AGAIN])
    difference = stats.paired_ratio(times[OFF], times[ON])
    print(f"  {MEASURED[workload.name]}:")
    print(f"    all meters on against all off {_written(difference)}: {verdict(difference, floor)}")
    print(f"    all off against all off {_written(floor)}")
    print(f"    a trial takes longer by {seconds[ON] - seconds[OFF]:.2f} s", flush=True)


def verdict(difference: stats.PairedRatio, floor: stats.PairedRatio) -> str:
    """Whether a difference is one that matters."""
    low, high = _bounds(difference)
    if max(abs(low), abs(high)) < WANTED:
        return "less than 1 %"
    noise = max(map(abs, _bounds(floor)))
    return "within the noise floor" if abs(difference.ratio - 1) <= noise else "MORE than 1 % and than the noise floor"


def _rounds(
    running: RunningTreatment, workload: Command[Any], case: str
) -> tuple[Mapping[str, Sequence[float]], Mapping[str, float]]:
    """The times that each arm measured, in the order of the rounds, and the median seconds that its trials took."""
    without = replace(running, meters=(), guest_meters=())
    arms = {ON: running, OFF: without, AGAIN: without}
    figures: dict[str, list[float]] = {arm: [] for arm in arms}
    taken: dict[str, list[float]] = {arm: [] for arm in arms}
    for number in range(1, ROUNDS + 1):
        for position, arm in enumerate(random.sample(list(arms), len(arms)), start=1):
            started = time.monotonic()
            trial = _trial(TrialKey(number, position, arm), arms[arm], workload, case)
            taken[arm].append(time.monotonic() - started)
            figures[arm].append(trial.measurements[0].value)
    return figures, {arm: sorted(each)[len(each) // 2] for arm, each in taken.items()}


def _trial(key: TrialKey, running: RunningTreatment, workload: Command[Any], case: str) -> Trial:
    (trial,) = run_trials(key, running, workload, case, Signatures(), iteration=1)
    if trial.status != "ok":
        raise SystemExit(f"a trial failed: {trial.error}")
    return trial


def _bounds(ratio: stats.PairedRatio) -> tuple[float, float]:
    """Of the interval of the difference, as shares; infinite where there is none."""
    if ratio.low is None or ratio.high is None:
        return float("-inf"), float("inf")
    return ratio.low - 1, ratio.high - 1


def _written(ratio: stats.PairedRatio) -> str:
    low, high = _bounds(ratio)
    return f"{100 * (ratio.ratio - 1):+6.2f} % [{100 * low:+.2f}, {100 * high:+.2f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="local", help="where the guest runs, as in a plan")
    meters(parser.parse_args().host)


if __name__ == "__main__":
    main()
