"""A small made-up run of each built-in plan, and of each way to run one: what the store, a file and a report must bear.

No number in here was ever measured. Each has all kinds of records that its plan leads to, and few of each.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.sample import sample_experiment
from tests.sample_facts import CREATED
from vmtax.core.layers import LAYERS
from vmtax.core.records import Boot, Experiment, Measurement, Metric, Treatment, Trial
from vmtax.design.host import KERNEL_ARGUMENTS, boots_asked, of_boot
from vmtax.design.reboots import seed_of, shuffled_blocks
from vmtax.plan.names import builtin_plans
from vmtax.plan.schema import Plan, from_data, load
from vmtax.plan.vary import varied
from vmtax.workload.base import Workload

ROUNDS = 3
MOST_TREATMENTS = 5
MOST_CASES = 2  # of each workload
TYPICAL: Mapping[str, float] = {
    **{"1": 5.0, "1/s": 4e4, "s": 2e-3, "B": 1e6, "B/s": 3e9, "bit/s": 9e9, "s/B": 2e-9},
}
PATHS: Mapping[str, tuple[str, ...]] = {"vm": ("host/vm",), "nested": ("host/vm", "host/vm/vm")}
POWER_CUT = {"command": ["/usr/bin/fence", "--off"], "back_within": 900.0}
WIRE = {"card": "eth1", "peer": "ssh://peer", "peer_card": "eth2"}
DESTINATION = {"host": "ssh://there", "card": "eth1", "far_card": "eth2"}


def _rebooted(run: Experiment) -> Experiment:
    """With the boots of the host that it asks for."""
    known = {"kernel_command_line": "root=/dev/vda2 ro", "mitigations": {"meltdown": "Not affected; x"}}
    order = itertools.islice(shuffled_blocks(run.treatments, seed_of(run)), ROUNDS * len(boots_asked(run.treatments)))
    boots = [
        {
            **known,
            **dataclasses.asdict(block),
            "began": CREATED,
            "over": True,
            "boot_id": f"{block.round} {block.level}",
        }
        for block in order
    ]
    return _with_host_facts(run, boots=boots)


def _with_host_facts(run: Experiment, **facts: Any) -> Experiment:
    return dataclasses.replace(run, facts={**run.facts, "host": {**run.facts["host"], **facts}})


def _with_options(**options: Any) -> Callable[[Experiment], Experiment]:
    return lambda run: dataclasses.replace(run, options={**run.options, **options})


def _with_packs(run: Experiment) -> Experiment:
    pack = {"version": "6.12", "digest": "ab" * 32}
    return _with_host_facts(run, kernel_pack=pack, postgresql_pack=pack, boot_id="7e1c", measured_as_root=True)


def _stopped(run: Experiment) -> Experiment:
    return dataclasses.replace(run, state="interrupted", ended=None)


# What is run -> the plan, and what is special about its run
WAYS: Mapping[str, tuple[str, Callable[[Experiment], Experiment]]] = {
    **{name: (name, _with_packs) for name in builtin_plans()},
    "reboots": ("quick", _rebooted),
    "reboots, stopped": ("quick", lambda run: _stopped(_rebooted(run))),
    "wire": ("network", _with_options(wire=WIRE)),
    "power cut": ("durability", _with_options(power_cut=POWER_CUT)),
    "destination": ("migration", _with_options(destination=DESTINATION)),
    "interleaved": ("quick", _with_options(interleave_with="/opt/qemu", emulate=True, demonstration=True)),
    "disks, stopped": (
        "storage",
        lambda run: _stopped(_with_options(disk_devices=["/dev/vdb"], disk_group="vg", disk_pool="tank")(run)),
    ),
}


@functools.cache
def run_of(way: str) -> Experiment:
    """The run of one of WAYS."""
    name, special = WAYS[way]
    plan = load(name)
    if way.startswith("reboots"):
        plan = varied(plan, [f"{KERNEL_ARGUMENTS}=none,mitigations=off"])
    plan = from_data({**plan.model_dump(mode="json"), "rounds": {"min": ROUNDS, "max": max(ROUNDS, 7)}})
    base = sample_experiment(rounds=1)
    treatments = _some(plan)
    options: dict[str, Any] = {"qemu": None, "disk_directory": "/var/lib/vmtax"}
    disk = {**base.facts["host"]["disk"], "features": {t.name: [_FEATURE] for t in treatments if t.boots}}
    made = dataclasses.replace(
        base,
        id=f"20261121-0412-{name}-{list(WAYS).index(way):04x}",
        name=plan.name,
        command=f"vmtax run {name}",
        plan=plan.model_dump(mode="json"),
        facts={**base.facts, "host": {**base.facts["host"], "disk": disk}},
        options={**options, "disk_devices": [], "disk_group": None, "disk_pool": None, "interleave_with": None},
        treatments=treatments,
        boots=tuple(boot for number in range(1, ROUNDS + 1) for boot in _boots(number, treatments)),
        trials=tuple(trial for number in range(1, ROUNDS + 1) for trial in _trials(number, plan, treatments)),
        ended="after 3 rounds, as planned",
    )
    return special(made)


_FEATURE = {"name": "durable", "state": "yes", "how": "documented", "words": ""}


def _some(plan: Plan) -> tuple[Treatment, ...]:
    """The first of each layer and of each boot of the host, then others, and the repeat."""
    entries = plan.entries()
    firsts = {(t.layer, of_boot(t)): t for t in reversed(entries) if t.repeats is None}
    others = [t for t in entries if t.repeats is None and t not in firsts.values()]
    chosen = [*firsts.values(), *others][: max(MOST_TREATMENTS, len(firsts))]
    again = [t for t in entries if t.repeats in {t.name for t in chosen}]
    return tuple(sorted([*chosen, *again], key=entries.index))


def _boots(number: int, treatments: tuple[Treatment, ...]) -> Iterator[Boot]:
    for treatment in treatments:
        for path in PATHS.get(treatment.layer, ()):
            yield Boot(number, treatment.name, path, "kvm", False, ("qemu-system-x86_64", "-m", "1024"), 3.0, 1.5)


def _trials(number: int, plan: Plan, treatments: tuple[Treatment, ...]) -> Iterator[Trial]:
    for position, treatment in enumerate(treatments, start=1):
        for workload in plan.build_workloads():
            if treatment.layer in workload.layers:
                cases = list(plan.cases(workload, treatment))[:MOST_CASES] or ([] if workload.cases() else [""])
                for case in cases:
                    yield _trial(number, position, treatment, workload, case)


def _trial(number: int, position: int, treatment: Treatment, workload: Workload[Any], case: str) -> Trial:
    metrics = workload.reports(case) if case or workload.cases() else workload.metrics()
    slower = 1.0 + 0.1 * [*LAYERS].index(treatment.layer) + 0.01 * ((number * 7 + position * 3) % 5)
    path = PATHS.get(treatment.layer, ("host",))[-1]
    busy = {"ledger.workload": 1.5, "ledger.other": 0.1, "ledger.remainder": 0.1, "ledger.busy": 1.7}
    return Trial(
        *(number, position, treatment.name, workload.name, case, 1, "ok", CREATED + 60.0 * number, 5.0),
        measurements=tuple(Measurement(metric, _value(metric, slower)) for metric in metrics),
        disturbance=sample_experiment(rounds=1).trials[0].disturbance,
        machine=path,
        readings={"host": {**busy, "ledger.seconds": 5.0, "ledger.error": 0.1}},
        latencies=((0.5, 1e-3), (0.99, 4e-3)) if workload.name == "disk" else (),
    )


def _value(metric: Metric, slower: float) -> float:
    if metric.unit == "1":  # a count, or a share
        return TYPICAL["1"]
    return TYPICAL[metric.unit] * (slower if metric.better == "lower" else 1 / slower)
