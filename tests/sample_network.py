"""A made-up run of plans `network` and `sriov`: whose CPU pays for each path. No number in here was ever measured.

What is in it, so that tests can look for it: vhost costs the host less than QEMU's own back end, the cards that QEMU
plays in full cost it most, and of a virtual function the host's side is a few per cent of vhost's.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import random
from collections.abc import Iterator, Mapping

from tests.sample import sample_experiment
from vmtax.core.records import Boot, Experiment, Json, Measurement, Metric, Treatment, Trial

CASES = ("tcp-in", "tcp-out")
RATE = 100  # Mbit/s
PATHS: Mapping[str, tuple[float, float]] = {  # the host's CPU time in ns for each byte, and the share of its side
    "tap": (31.0, 0.62),
    "vhost": (22.0, 0.44),
    "e1000e": (68.0, 0.71),
    "rtl8139": (190.0, 0.78),
    "sriov": (13.0, 0.03),
}


@functools.cache
def network_experiment(
    rounds: int = 7,
    seed: int = 1,
    *,
    paths: tuple[str, ...] = tuple(PATHS),
    failing: str = "",
    emulated: bool = False,
    latency: bool = False,
) -> Experiment:
    """A guest for each path. That of `failing` did not carry the rate; with `latency`, round trips were measured."""
    source = random.Random(seed)
    chosen = tuple(_treatment(path, paths[0]) for path in paths)
    trials = [
        trial
        for number in range(1, rounds + 1)
        for position, one in enumerate(chosen, 1)
        for trial in _trials(source, number, position, one, failing, latency)
    ]
    base = sample_experiment(rounds=1, seed=seed, emulated=emulated)
    accelerator = "tcg" if emulated else "kvm"
    return dataclasses.replace(
        base,
        id=f"20261121-0412-network-{seed & 0xFFFF:04x}",
        name="network",
        command="vmtax run network",
        plan=_plan(rounds, paths),
        treatments=chosen,
        boots=tuple(Boot(1, t.name, "host/vm", accelerator, emulated, ("qemu",), 1.0, 1.0) for t in chosen),
        trials=tuple(trials),
    )


def _treatment(path: str, first: str) -> Treatment:
    return Treatment("vm" if path == first else f"vm net.path={path}", "vm", {"net.path": path})


def _trials(
    source: random.Random, number: int, position: int, one: Treatment, failing: str, latency: bool
) -> Iterator[Trial]:
    path = one.levels["net.path"]
    cost, share = PATHS[path]
    for case in CASES:
        noise = math.exp(source.gauss(0, 0.01))
        own = 1e-9 * cost * noise * (1.1 if case == "tcp-out" else 1.0)
        rows = (("host_cpu_seconds", own), ("host_side_seconds", own * share * math.exp(source.gauss(0, 0.02))))
        values = tuple(Measurement(Metric(f"net.{case}.{measure}", "s/B", "lower"), value) for measure, value in rows)
        if path == failing:
            error = f"{case}: 61 Mbit/s were reached of the {RATE} that were asked for, so this is full load"
            yield Trial(number, position, one.name, "net", case, 1, "failed", 0.0, 10.5, error=error)
        else:
            yield Trial(number, position, one.name, "net", case, 1, "ok", 0.0, 10.5, values)
    if latency:
        trip = 30e-6 * (1.0 if path == "sriov" else 2.0 if path in ("tap", "vhost") else 4.0)
        value = Measurement(Metric("latency.udp-rr.p50_seconds", "s", "lower"), trip * math.exp(source.gauss(0, 0.01)))
        yield Trial(number, position, one.name, "latency", "udp-rr", 1, "ok", 0.0, 5.0, (value,))


def _plan(rounds: int, paths: tuple[str, ...]) -> Json:
    return {
        "name": "network",
        "layers": ["vm"],
        "factors": {"net.path": list(paths)},
        "primary": [f"net.{case}.host_cpu_seconds" for case in CASES],
        "workloads": [{"net": {"seconds": 10, "rate": RATE, "cases": list(CASES)}}],
        "rounds": {"min": rounds, "max": 60},
        "same_within": 0.02,
        "precision": 0.02,
    }
