"""A made-up storage sweep in the shape of the published article. No number in here was ever measured.

What is in it, so that tests can look for it: writethrough is far below the rest on small writes, IDE gains nothing from
queue depth, a sparse qcow2's first write is slower than its rewrite, bus and file system hardly matter to small writes.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import random
from collections.abc import Iterator, Mapping

from tests.sample import CREATED, LATENCIES, sample_experiment
from vmtax.core.records import Boot, Experiment, Json, Measurement, Metric, Treatment, Trial
from vmtax.design.disk import DiskSettings
from vmtax.design.features import Feature, documented_durability

Patterns = Mapping[str, tuple[float, int, int, float]]
PATTERNS: Patterns = {  # host's operations per second, bytes of one, queue depth, guest / host under TCG
    "randread-4k-qd1": (13_000, 4096, 1, 0.62),
    "randwrite-4k-qd1": (12_100, 4096, 1, 0.55),
    "randread-4k-qd32": (71_000, 4096, 32, 0.31),
    "randwrite-4k-qd32": (64_000, 4096, 32, 0.29),
    "randwrite-4k-fsync": (1_450, 4096, 1, 0.83),
    "randrw-4k-qd8": (38_000, 4096, 8, 0.38),
    "first-write-64k": (4_900, 65536, 1, 0.71),
    "rewrite-64k": (7_300, 65536, 1, 0.66),
}
# What the article's score needs as well.
SEQUENTIAL: Patterns = {"read-1m": (2_800, 2**20, 1, 0.8), "write-1m": (1_650, 2**20, 1, 0.7)}
PRIMARY = (
    "disk.randwrite-4k-qd1.iops",
    "disk.randread-4k-qd32.iops",
    "disk.first-write-64k.iops",
    "disk.rewrite-64k.iops",
    "disk.randwrite-4k-qd1.p99_seconds",
)
FEW = ("iops", "p99_seconds", "host_cpu_seconds", "ready_seconds")
FACTORS = {  # the first level of each is the baseline, and not part of a name
    "disk.filesystem": ("ext4", "xfs", "none"),
    "disk.format": ("raw", "qcow2"),
    "disk.cache": ("none", "writeback", "writethrough"),
    "disk.bus": ("virtio", "ide"),
}
MORE = {"disk.volume": ("plain", "lvm-thin", "raidz1-dataset")}  # with these, 72 treatments
FIXED = {"disk.aio": "threads", "disk.preallocation": "off", "cpu.mitigations": "auto"}
BACKING = ("disk.volume", "disk.filesystem", "disk.format")


@functools.cache
def storage_experiment(
    rounds: int = 6,
    seed: int = 1,
    *,
    many: bool = False,
    emulated: bool = True,
    host: bool = True,
    failed: int = 0,
    features: bool = True,
    sequential: bool = False,
    few: bool = False,
) -> Experiment:
    """24 guest treatments, 72 where `many`, and the host's own three backings; qcow2 goes with ext4 alone.

    The guest of the last treatment is lost in the first `failed` rounds; with `features`, the run found out what each
    disk can do; with `sequential`, it measured what the article's score needs; with `few`, it
    kept no more than FEW of each of the other patterns. The same arguments give the same experiment.
    """
    factors = {**(MORE if many else {}), **FACTORS}
    chosen = (*(_host(factors) if host else ()), *_guests(factors))
    base = sample_experiment(rounds=1, seed=seed, emulated=emulated)
    patterns = {**PATTERNS, **(SEQUENTIAL if sequential else {})}
    boots, trials = _play(random.Random(seed), chosen, rounds, emulated, failed, patterns)
    if few:
        trials = tuple(map(_with_few, trials))
    return dataclasses.replace(
        base,
        id=f"20261121-0412-storage-{seed & 0xFFFF:04x}",
        name="storage",
        command="vmtax run storage",
        finished=trials[-1].started + trials[-1].wall_seconds,
        facts=_with_features(base.facts, chosen) if features else base.facts,
        plan=_plan(rounds, factors),
        treatments=chosen,
        boots=boots,
        trials=trials,
        notes=(*base.notes, "vm disk.filesystem=none disk.format=qcow2: qcow2 is a file, and needs a file system"),
    )


def _with_few(trial: Trial) -> Trial:
    kept = tuple(one for one in trial.measurements if one.metric.measure in FEW or trial.case in SEQUENTIAL)
    return dataclasses.replace(trial, measurements=kept)


def _guests(factors: dict[str, tuple[str, ...]]) -> Iterator[Treatment]:
    for levels in itertools.product(*factors.values()):
        chosen = dict(zip(factors, levels, strict=True))
        if chosen["disk.format"] == "raw" or chosen["disk.filesystem"] == "ext4":
            yield Treatment(_name("vm", chosen, factors), "vm", {**FIXED, **chosen})


def _host(factors: dict[str, tuple[str, ...]]) -> Iterator[Treatment]:
    for level in factors["disk.filesystem"]:
        levels = {**{name: factors[name][0] for name in BACKING if name in factors}, "disk.filesystem": level}
        yield Treatment(_name("host", levels, factors), "host", levels)


def _name(layer: str, levels: dict[str, str], factors: dict[str, tuple[str, ...]]) -> str:
    return " ".join([layer, *(f"{name}={level}" for name, level in levels.items() if level != factors[name][0])])


def _with_features(facts: dict[str, Json], chosen: tuple[Treatment, ...]) -> dict[str, Json]:
    found = {t.name: [feature.to_json() for feature in _features(t.levels)] for t in chosen if t.layer == "vm"}
    host = facts["host"]
    return {**facts, "host": {**host, "disk": {**(host.get("disk") or {}), "features": found}}}


def _features(levels: Mapping[str, str]) -> Iterator[Feature]:
    """As a host answers: only qcow2 saves state, a device is no file and not thin, IDE was not tried on a full disk."""
    refused = "Device 'data' is writable but does not support snapshots"
    qcow2, device = levels["disk.format"] == "qcow2", levels["disk.filesystem"] == "none"
    yield documented_durability(DiskSettings.of(levels))
    yield Feature("savevm", "yes", "savevm") if qcow2 else Feature("savevm", "no", "savevm", refused)
    how = "blockdev-snapshot-internal-sync"
    words = "Block format 'raw' used by device 'data' does not support internal snapshots"
    yield Feature("snapshots", "yes", how) if qcow2 else Feature("snapshots", "no", how, words)
    yield Feature("file", "no" if device else "yes", "stat", "a block special file" if device else "a regular file")
    if device:
        yield Feature("thin", "no", "stat", "a whole device")
    else:
        yield Feature(
            "thin", "yes", "qemu-img create, sync, stat", f"a fresh image takes {1 if qcow2 else 0} % of its size"
        )
    if levels["disk.bus"] == "virtio":
        yield Feature("pause-on-full", "yes", "filled a small file system under a guest", "all it wrote was read again")
    else:
        yield Feature("pause-on-full", "not tried", "", "needs root, and a guest of the image")
    yield Feature("migration", "yes", "migrate to exec:cat", "the guest's own state")


def _log_gain(pattern: str, levels: dict[str, str]) -> float:
    """ln of what these levels do to a pattern's rate."""
    writes, first = "write" in pattern or "randrw" in pattern, pattern.startswith("first")
    small = "-4k" in pattern
    gain = 0.0
    if levels.get("disk.cache") == "writethrough" and writes and "fsync" not in pattern:
        gain += math.log(0.28 if small else 0.55)
    if levels.get("disk.cache") == "writeback":
        gain += math.log(1.12)
    if levels.get("disk.bus") == "ide":
        gain += math.log(0.28 if "qd32" in pattern else 0.55 if "qd8" in pattern else 0.9)
    if levels["disk.format"] == "qcow2":
        gain += math.log(0.62 if first else 0.97)
        if writes and levels.get("disk.cache") == "writethrough":
            gain += math.log(0.85)  # each write waits for the image's own tables as well
    gain += {"ext4": 0.0, "xfs": -0.01, "none": 0.02}.get(levels["disk.filesystem"], 0.0)
    return gain + {"lvm-thin": -0.02, "raidz1-dataset": -1.1 if writes else -0.25}.get(levels.get("disk.volume", ""), 0)


def _log_processor(levels: dict[str, str]) -> float:
    """ln of what these levels do to the host CPU time of one operation."""
    return (
        {"none": 0.0, "writeback": 0.22, "writethrough": 0.35}.get(levels.get("disk.cache", ""), -1.2)
        + (0.75 if levels.get("disk.bus") == "ide" else 0.0)
        + (0.12 if levels["disk.format"] == "qcow2" else 0.0)
        + {"ext4": 0.0, "xfs": 0.01, "none": -0.08}.get(levels["disk.filesystem"], 0.0)
    )


def _play(
    rng: random.Random, chosen: tuple[Treatment, ...], rounds: int, emulated: bool, failed: int, patterns: Patterns
) -> tuple[tuple[Boot, ...], tuple[Trial, ...]]:
    boots: list[Boot] = []
    trials: list[Trial] = []
    now, wander = CREATED + 4.0, 0.0
    for number in range(1, rounds + 1):
        for position, treatment in enumerate(rng.sample(chosen, len(chosen)), start=1):
            wander = 0.8 * wander + rng.gauss(0, 0.01)
            if treatment.layer == "vm":
                ready = 3.1 * math.exp(rng.gauss(0, 0.03))
                accelerator = "tcg" if emulated else "kvm"
                argv = ("qemu-system-x86_64", "-accel", accelerator)
                boots.append(Boot(number, treatment.name, "host/vm", accelerator, emulated, argv, ready, 0.6 * ready))
                now += ready
            if number <= failed and treatment == chosen[-1]:
                error = "the guest did not answer within 120 s"
                trials.append(Trial(number, position, treatment.name, "boot", "", 1, "failed", now, 120.0, error=error))
                continue
            for trial in _trials(rng, number, position, treatment, wander, now, patterns):
                trials.append(trial)
                now = trial.started + trial.wall_seconds + 0.3
    return tuple(boots), tuple(trials)


def _trials(
    rng: random.Random,
    number: int,
    position: int,
    treatment: Treatment,
    wander: float,
    now: float,
    patterns: Patterns,
) -> Iterator[Trial]:
    boot = rng.gauss(0, 0.05)
    levels, guest = dict(treatment.levels), treatment.layer == "vm"
    for pattern, (host, size, depth, share) in patterns.items():
        gain = _log_gain(pattern, levels) if guest else {"xfs": -0.01, "none": 0.05}.get(levels["disk.filesystem"], 0)
        rate = host * (share if guest else 1.0) * math.exp(gain + wander + boot + rng.gauss(0, 0.04))
        mean = depth / rate
        processor = (55e-6 if guest else 9e-6) * (size / 4096) ** 0.3 * math.exp(_log_processor(levels) - wander)
        values = {
            "iops": (rate, "1/s", "higher"),
            "bytes_per_second": (rate * size, "B/s", "higher"),
            "mean_seconds": (mean, "s", "lower"),
            "host_cpu_seconds": (processor * math.exp(rng.gauss(0, 0.03)), "s", "lower"),
        }
        tail = 1.9 if levels.get("disk.cache") == "writethrough" else 1.0
        spread = rng.gauss(0, 0.05)
        latencies = tuple(
            (part, factor ** (tail if factor > 1 else 1.0) * mean * math.exp(spread)) for part, factor in LATENCIES
        )
        if "fsync" in pattern:
            latencies = ()
        for name, part in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999)):
            if latencies:
                values[f"{name}_seconds"] = (dict(latencies)[part], "s", "lower")
        measurements = tuple(
            Measurement(Metric(f"disk.{pattern}.{measure}", unit, "higher" if better == "higher" else "lower"), value)
            for measure, (value, unit, better) in values.items()
        )
        yield Trial(
            *(number, position, treatment.name, "disk", pattern, 1, "ok", now, 5.5 + rng.random() / 10, measurements),
            latencies=latencies,
        )
        now += 6
    if guest:
        ready = Measurement(Metric("boot.ready_seconds", "s", "lower"), 3.1 * math.exp(rng.gauss(0, 0.03)))
        yield Trial(number, position, treatment.name, "boot", "", 1, "ok", now, 3.2, (ready,))


def _plan(rounds: int, factors: dict[str, tuple[str, ...]]) -> Json:
    return {
        "name": "storage",
        "host": "local",
        "guest": {"vcpus": 1, "memory": "512MiB"},
        "layers": ["host", "vm"],
        "factors": {name: list(levels) for name, levels in factors.items()},
        "exclude": [],
        "workloads": [{"disk": {"patterns": list(PATTERNS), "size": "256MiB"}}, "boot"],
        "primary": list(PRIMARY),
        "precision": None,
        "same_within": 0.02,
        "rounds": {"min": rounds, "max": rounds},
        "budget": "100m",
    }
