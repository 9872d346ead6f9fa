"""Made-up runs of many days and of many hosts. No number in here was ever measured."""

from __future__ import annotations

import dataclasses
import functools
import math
import random
import time
from collections.abc import Mapping
from typing import Any

from tests.sample import sample_experiment
from tests.sample_facts import CREATED
from vmtax.analysis.many.costs import CostFigure, RunCosts, run_costs
from vmtax.core.records import Experiment, Measurement

DAY = 86400.0
ONE_MACHINE = "6" * 32
# Of the metrics that are not primary, a few: what is computed of one over many runs is computed of each.
OTHERS = ("memory.stream.bytes_per_second", "net.tcp-in.bits_per_second", "boot.ready_seconds")


def a_run(
    number: int, day: float = 0.0, vm: float = 0.0, *, sd: float = 0.003, rounds: int = 7, **facts: Any
) -> Experiment:
    """A run of `quick` with a random seed of that number, begun some days after the sample's; `vm`: how much more time,
    in log, everything takes in guests than in the sample; `facts` of its host.
    """
    label, host, name = facts.pop("label", ""), facts.pop("host", "local"), facts.pop("name", "quick")
    run = sample_experiment(rounds=rounds, seed=number, emulated=False)
    created = CREATED + day * DAY
    slower = random.Random(number).gauss(vm, sd)

    def moved(measurement: Measurement) -> Measurement:
        sign = -1 if measurement.metric.better == "higher" else 1
        return dataclasses.replace(measurement, value=measurement.value * math.exp(sign * slower))

    trials = tuple(
        dataclasses.replace(
            trial,
            started=trial.started + day * DAY,
            measurements=tuple(map(moved, trial.measurements)) if trial.treatment != "host" else trial.measurements,
        )
        for trial in run.trials
    )
    known = {"boot_id": f"boot {number}", "machine_id": ONE_MACHINE, **facts}
    return dataclasses.replace(
        run,
        id=_id(name, created, number),
        name=name,
        plan={**run.plan, "name": name},
        label=label,
        host=host,
        created=created,
        finished=created + 1200,
        trials=trials,
        facts={**run.facts, "host": {**run.facts["host"], **known}},
    )


@functools.cache
def _base() -> RunCosts:
    found = run_costs(a_run(1))
    assert found is not None
    return found


def is_kept(figure: CostFigure) -> bool:
    return figure.primary or figure.subject.metric.name in OTHERS


def costs(
    number: int,
    day: float = 0.0,
    vm: float = 0.0,
    *,
    sd: float = 0.003,
    rounds: int = 7,
    properties: Mapping[str, str] | None = None,
    **changes: Any,
) -> RunCosts:
    """The costs of such a run, quickly: figures of the sample's, moved, with an error of their own."""
    rng, base, created = random.Random(number), _base(), CREATED + day * DAY

    def moved(figure: CostFigure) -> CostFigure:
        error = sd * math.sqrt(rng.gammavariate((rounds - 1) / 2, 2 / (rounds - 1)))
        log = figure.log + vm + rng.gauss(0, sd)
        low, high = log - 2.4 * error, log + 2.4 * error
        return dataclasses.replace(figure, log=log, error=error, rounds=rounds, freedom=rounds - 1, low=low, high=high)

    def level(figure: CostFigure) -> CostFigure:
        log = figure.log + (vm if figure.subject.treatment != "host" else 0.0) + rng.gauss(0, sd)
        return dataclasses.replace(figure, log=log, error=figure.error and sd, rounds=rounds, freedom=rounds - 1)

    name = changes.get("host_name", "example")
    usual: dict[str, Any] = {
        "id": _id("quick", created, number),
        "machine_id": ONE_MACHINE if name == "example" else f"{number:032x}",
        "host": f"ssh://{name}",
        "boot": f"boot {number}",
    }
    return dataclasses.replace(
        base,
        created=created,
        ended=created + 1200,
        figures=tuple(filter(is_kept, map(moved, base.figures))),
        levels=tuple(filter(is_kept, map(level, base.levels))),
        properties={**base.properties, **(properties or {})},
        **{**usual, **changes},
    )


def _id(name: str, created: float, number: int) -> str:
    return f"{time.strftime('%Y%m%d-%H%M', time.gmtime(created))}-{name}-{number & 0xFFFF:04x}"
