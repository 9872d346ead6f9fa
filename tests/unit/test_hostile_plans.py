"""The generator of valid plans for `make hostile`: what it makes is valid, whatever workloads are added."""

from __future__ import annotations

import json
import random

from tools.hostile.plan_maker import OF_WINDOWS, valid_plan
from vmtax.plan.schema import parse
from vmtax.workload import WORKLOADS


def test_a_generated_plan_is_valid() -> None:
    measured: set[str] = set()
    for seed in range(30):
        plan = valid_plan(random.Random(seed))
        parse(json.dumps(plan), "generated")
        measured.update(entry if isinstance(entry, str) else next(iter(entry)) for entry in plan["workloads"])
    assert measured == set(WORKLOADS) - {OF_WINDOWS}
