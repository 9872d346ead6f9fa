"""Made-up experiments in the shape of real ones, for tests and benches. No number in here was ever measured."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.sample_facts import CREATED, facts
from vmtax.core.records import Better, Boot, Disturbance, Experiment, Json, Measurement, Metric, Treatment, Trial

PATTERNS = ("randread-4k-qd1", "randwrite-4k-qd1", "randwrite-4k-qd32", "randwrite-4k-fsync", "read-1m", "write-1m")
ROUNDS_MAX = 60
DEFAULTS = {"disk.bus": "virtio", "disk.cache": "none", "disk.format": "raw", "guest.mitigations": "auto"}
LEVELS = {
    "disk.cache": ("none", "writeback", "writethrough", "directsync", "unsafe"),
    "disk.format": ("raw", "qcow2"),
    "disk.bus": ("virtio", "nvme", "ide"),
    "guest.mitigations": ("auto", "off"),
}


@dataclass(frozen=True, slots=True)
class _Kind:
    """One metric of one case, and what its values look like."""

    workload: str
    case: str
    measure: str
    unit: str
    better: Better
    host: float  # typical value on the host
    vm: float  # vm / host on real KVM
    nested: float  # nested / vm on real KVM
    tcg: float  # vm / host when emulated
    noise: float = 0.01  # coefficient of variation between boots

    @property
    def metric(self) -> Metric:
        return Metric(
            ".".join(part for part in (self.workload, self.case, self.measure) if part), self.unit, self.better
        )

    def typical(self, layer: str, emulated: bool) -> float:
        vm = self.tcg if emulated else self.vm
        return self.host * {"host": 1.0, "vm": vm, "nested": vm * self.nested}[layer]


def _disk_kinds() -> Iterator[_Kind]:
    shapes = {  # host IOPS, bytes per operation, queue depth, vm and nested share, share under TCG
        "randread-4k-qd1": (9_800, 4096, 1, 0.81, 0.62, 0.43),
        "randwrite-4k-qd1": (31_000, 4096, 1, 0.64, 0.51, 0.17),
        "randwrite-4k-qd32": (142_000, 4096, 32, 0.88, 0.70, 0.12),
        "randwrite-4k-fsync": (1_150, 4096, 1, 0.93, 0.84, 0.71),
        "read-1m": (2_900, 1 << 20, 1, 0.98, 0.92, 0.55),
        "write-1m": (1_650, 1 << 20, 1, 0.97, 0.90, 0.48),
    }
    for pattern, (iops, size, depth, vm, nested, tcg) in shapes.items():
        mean = depth / iops
        yield _Kind("disk", pattern, "iops", "1/s", "higher", iops, vm, nested, tcg, 0.025)
        yield _Kind("disk", pattern, "bytes_per_second", "B/s", "higher", iops * size, vm, nested, tcg, 0.025)
        yield _Kind("disk", pattern, "mean_seconds", "s", "lower", mean, 1 / vm, 1 / nested, 1 / tcg, 0.025)
        if pattern == "randwrite-4k-fsync":
            continue  # fio times write and fsync apart: their sum has a mean and no percentiles
        yield _Kind("disk", pattern, "p50_seconds", "s", "lower", 0.93 * mean, 1 / vm, 1 / nested, 1 / tcg, 0.02)
        yield _Kind("disk", pattern, "p99_seconds", "s", "lower", 2.7 * mean, 1.2 / vm, 1.3 / nested, 1.5 / tcg, 0.08)
        yield _Kind("disk", pattern, "p999_seconds", "s", "lower", 6.1 * mean, 1.3 / vm, 1.4 / nested, 2 / tcg, 0.12)


KINDS = (
    _Kind("chess", "one-thread", "nodes_per_second", "1/s", "higher", 1_210_000, 0.984, 0.979, 0.049, 0.008),
    _Kind("chess", "", "nodes_per_second", "1/s", "higher", 2_340_000, 0.981, 0.976, 0.047, 0.008),
    _Kind("memory", "stream", "bytes_per_second", "B/s", "higher", 18.2e9, 0.985, 0.96, 0.09, 0.012),
    _Kind("memory", "faults", "per_second", "1/s", "higher", 611_000, 0.79, 0.55, 0.08, 0.015),
    _Kind("memory", "switches", "per_second", "1/s", "higher", 402_000, 0.95, 0.71, 0.05, 0.02),
    *_disk_kinds(),
    _Kind("net", "tcp-in", "bits_per_second", "bit/s", "higher", 38.1e9, 0.63, 0.41, 0.042, 0.03),
    _Kind("net", "tcp-in", "local_cpu", "1", "lower", 0.97, 1.12, 1.21, 1.7, 0.03),
    _Kind("net", "tcp-in", "peer_cpu", "1", "lower", 0.81, 1.05, 1.02, 0.6, 0.03),
    _Kind("net", "tcp-out", "bits_per_second", "bit/s", "higher", 37.4e9, 0.71, 0.46, 0.034, 0.03),
    _Kind("net", "tcp-out", "local_cpu", "1", "lower", 0.84, 1.15, 1.24, 1.9, 0.03),
    _Kind("net", "tcp-out", "peer_cpu", "1", "lower", 0.95, 1.04, 1.03, 0.5, 0.03),
    # A host has no boot metric; the "host" column only carries the scale.
    _Kind("boot", "", "ready_seconds", "s", "lower", 1.0, 1.31, 1.74, 4.2, 0.03),
    _Kind("boot", "", "kernel_seconds", "s", "lower", 1.0, 0.62, 1.58, 2.4, 0.02),
    _Kind("boot", "", "shutdown_seconds", "s", "lower", 1.0, 0.21, 1.4, 0.8, 0.06),
)
LATENCIES = (  # share of operations -> multiple of the mean
    *((0.01, 0.70), (0.05, 0.76), (0.1, 0.79), (0.2, 0.83), (0.3, 0.87), (0.4, 0.90), (0.5, 0.93), (0.6, 0.97)),
    *((0.7, 1.03), (0.8, 1.12), (0.9, 1.35), (0.95, 1.70), (0.99, 2.70), (0.995, 3.40), (0.999, 6.10)),
)
WALL = {"chess": 3.2, "memory": 4.0, "disk": 6.0, "net": 5.0, "boot": 6.5}


@functools.cache
def sample_experiment(
    rounds: int = 7,
    seed: int = 0,
    emulated: bool = True,
    measurements: int | None = None,
    *,
    failures: int = 0,
    treatments: int = 3,
) -> Experiment:
    """A finished experiment: host, vm, nested, then factor levels of vm and nested where `treatments` > 3.

    `measurements` replaces `rounds` and `treatments` by what gives exactly that many. The first `failures` trials of
    round 2 and later that are not on the host are recorded as failed. The same arguments give the same experiment.
    """
    if measurements is not None:
        treatments = max(3, math.ceil(measurements / ((len(KINDS) - 1) * ROUNDS_MAX)))
        rounds = math.ceil(measurements / _per_round(treatments))
    chosen = tuple(itertools.islice(_all_treatments(), treatments))
    boots, trials = _Run(random.Random(seed), chosen, emulated).rounds(rounds)
    trials = _cut(_break(trials, failures), measurements)
    return Experiment(
        id=f"20261121-0412-quick-{seed & 0xFFFF:04x}",
        name="quick",
        host="local",
        command="vmtax run quick",
        created=CREATED,
        finished=trials[-1].started + trials[-1].wall_seconds + 1.5 if trials else CREATED,
        state="complete",
        plan=_plan(rounds, chosen),
        facts=facts(emulated),
        treatments=chosen,
        boots=boots,
        trials=trials,
        notes=_notes(emulated),
    )


def large_experiment(measurements: int) -> Experiment:
    """An experiment of exactly that many measurements: up to 60 rounds, then more treatments."""
    return sample_experiment(measurements=measurements, emulated=False)


def on_emulated_host(experiment: Experiment, *paths: str) -> Experiment:
    """The same experiment, its host under test itself emulated, as a run on it is stored; `paths`: of other hosts."""
    facts = dict(experiment.facts)
    for path in ("host", *paths):
        facts[path] = {**facts["host"], "virtualized": True, "hypervisor": "qemu", "emulated_cpu": True}
    boots = tuple(dataclasses.replace(boot, accelerator="kvm", emulated=True) for boot in experiment.boots)
    return dataclasses.replace(experiment, facts=facts, boots=boots)


def unstarted(experiment: Experiment, **changes: Any) -> Experiment:
    """The same experiment as it is before its first round, then with `changes`."""
    empty = dataclasses.replace(experiment, state="running", finished=None, boots=(), trials=(), facts={}, notes=())
    return dataclasses.replace(empty, **changes)


def without_raw(experiment: Experiment) -> Experiment:
    """The same experiment as the store gives it when raw output is not asked for."""
    trials = tuple(dataclasses.replace(trial, raw="") for trial in experiment.trials)
    return dataclasses.replace(experiment, trials=trials)


def with_repeat(experiment: Experiment) -> Experiment:
    """The same experiment with an A/A: `vm` a second time in every round, a little different by chance."""
    source = random.Random(2)
    original = next(treatment for treatment in experiment.treatments if treatment.name == "vm")
    again = dataclasses.replace(original, name="vm again", repeats="vm")

    def repeated(trial: Trial) -> Trial:
        values = tuple(Measurement(m.metric, m.value * math.exp(source.gauss(0, 0.01))) for m in trial.measurements)
        position = len(experiment.treatments) + 1
        return dataclasses.replace(trial, treatment=again.name, position=position, measurements=values)

    trials = tuple(repeated(trial) for trial in experiment.trials if trial.treatment == "vm")
    boots = tuple(
        dataclasses.replace(boot, treatment=again.name) for boot in experiment.boots if boot.treatment == "vm"
    )
    return dataclasses.replace(
        experiment,
        treatments=(*experiment.treatments, again),
        boots=(*experiment.boots, *boots),
        trials=(*experiment.trials, *trials),
    )


def _all_treatments() -> Iterator[Treatment]:
    yield Treatment("host", "host", dict(DEFAULTS))
    for levels in itertools.product(*LEVELS.values()):
        chosen = dict(zip(LEVELS, levels, strict=True))
        for layer in ("vm", "nested"):
            differs = (f"{factor}={level}" for factor, level in sorted(chosen.items()) if level != DEFAULTS[factor])
            yield Treatment(" ".join((layer, *differs)), layer, dict(sorted(chosen.items())))


def _kinds_of(layer: str) -> tuple[_Kind, ...]:
    return tuple(kind for kind in KINDS if layer != "host" or kind.workload != "boot")


def _per_round(treatments: int) -> int:
    return len(_kinds_of("host")) + (treatments - 1) * len(_kinds_of("vm"))


class _Run:
    """Plays the rounds: a wandering machine, a factor's own effect, one error per boot and a small one per value."""

    def __init__(self, rng: random.Random, treatments: tuple[Treatment, ...], emulated: bool) -> None:
        self.rng, self.treatments, self.emulated = rng, treatments, emulated
        self.now, self.speed = CREATED + 4.0, 0.0
        self.aside = random.Random(1)  # what was added later, so that the figures drawn before stay the same
        self.effects = {t.name: 0.0 if index < 3 else rng.gauss(0, 0.08) for index, t in enumerate(treatments)}

    def rounds(self, count: int) -> tuple[tuple[Boot, ...], tuple[Trial, ...]]:
        boots: list[Boot] = []
        trials: list[Trial] = []
        for number in range(1, count + 1):
            order = self.rng.sample(self.treatments, len(self.treatments))
            for position, treatment in enumerate(order, start=1):
                self.speed = 0.8 * self.speed + self.rng.gauss(0, 0.004)
                boots += self.boots(number, treatment)
                trials += self.trials(number, position, treatment)
        return tuple(boots), tuple(trials)

    def boots(self, number: int, treatment: Treatment) -> Iterator[Boot]:
        paths = {"host": (), "vm": ("host/vm",), "nested": ("host/vm", "host/vm/vm")}[treatment.layer]
        for path in paths:
            inner = path == "host/vm/vm"
            accelerator = "tcg" if self.emulated and not inner else "kvm"
            kernel = (2.6 if self.emulated else 0.62) * (1.6 if inner else 1.0) * math.exp(self.rng.gauss(0, 0.03))
            ready = kernel * 1.7
            retried = (treatment.layer, number) == ("nested", 3) and inner
            warnings = ("booted at the second attempt: QEMU ended with SIGABRT (iotlb_to_section)",) if retried else ()
            argv = _argv(accelerator, treatment, path)
            yield Boot(number, treatment.name, path, accelerator, self.emulated, argv, ready, kernel, warnings)
            self.now += ready

    def trials(self, number: int, position: int, treatment: Treatment) -> Iterator[Trial]:
        boot_error = self.rng.gauss(0, 1)
        groups = itertools.groupby(_kinds_of(treatment.layer), key=lambda kind: (kind.workload, kind.case))
        for (workload, case), kinds in groups:
            values = tuple(Measurement(k.metric, self.value(k, treatment, boot_error)) for k in kinds)
            wall = WALL[workload] * math.exp(self.rng.gauss(0, 0.01))
            values = (*values, *self.host_cpu(treatment, values))
            means = [m.value for m in values if m.metric.name.startswith("disk.") and m.metric.unit == "s"]
            yield Trial(
                round=number,
                position=position,
                treatment=treatment.name,
                workload=workload,
                case=case,
                iteration=1,
                status="ok",
                started=self.now,
                wall_seconds=wall,
                measurements=values,
                warnings=self.doubts(workload, wall),
                raw="".join(f"{m.metric.name} {m.value!r} {m.metric.unit}\n" for m in values),
                disturbance=self.disturbance(wall),
                readings=self.ledger(treatment, workload, wall),
                # The fsync pattern has a mean only.
                latencies=tuple((share, factor * means[0]) for share, factor in LATENCIES) if len(means) > 1 else (),
            )
            self.now += wall + 0.4

    def value(self, kind: _Kind, treatment: Treatment, boot_error: float) -> float:
        sign = 1 if kind.better == "higher" else -1
        effect = self.effects[treatment.name] if kind.workload == "disk" else 0.0
        spread = kind.noise * (0.8 * boot_error + 0.6 * self.rng.gauss(0, 1))
        return kind.typical(treatment.layer, self.emulated) * math.exp(sign * (self.speed + effect) + spread)

    def host_cpu(self, treatment: Treatment, values: Sequence[Measurement]) -> Iterator[Measurement]:
        """What the whole host does for each byte: both ends, and the way between them."""
        ends, bits = ([m.value for m in values if m.metric.unit == unit] for unit in ("1", "bit/s"))
        if ends and bits:
            way = {"host": 1.1, "vm": 1.2, "nested": 1.3}[treatment.layer]
            case = values[0].metric.case
            metric = Metric(f"net.{case}.host_cpu_seconds", "s/B", "lower")
            yield Measurement(metric, 8 * sum(ends) / bits[0] * way * math.exp(self.aside.gauss(0, 0.02)))

    def ledger(self, treatment: Treatment, workload: str, wall: float) -> dict[str, dict[str, float]]:
        """Who kept 1.9 CPUs of the host busy, and one CPU of a guest."""
        guest = "emulator" if self.emulated else "guest"
        busy, network = 1.9 * wall, workload == "net"
        shares = {"workload": 0.9, "soft_irq": 0.06, "other": 0.02}
        if treatment.layer != "host":
            shares = {guest: 0.50, "vhost": 0.25, "soft_irq": 0.10} if network else {guest: 0.80, "main_loop": 0.04}
            shares |= {"vcpu_kernel": 0.08, "other": 0.02}
        shares["remainder"] = 1 - math.fsum(shares.values())
        inside = {"user": 0.5, "kernel": 0.3, "soft_irq": 0.15, "remainder": 0.05}
        paths = {"host": (), "vm": ("host/vm",), "nested": ("host/vm", "host/vm/vm")}[treatment.layer]
        found = {"host": _ledger("ledger", shares, busy, wall)}
        for number, path in enumerate(paths, start=1):
            is_last = number == len(paths)
            found[path] = _ledger(*(("clock", inside) if is_last else ("ledger", shares)), wall / number, wall)
        return found

    def disturbance(self, wall: float) -> Disturbance:
        busy = self.aside.random() < 0.02  # now and then a neighbour
        return Disturbance(
            wall_seconds=round(wall, 2),
            busy_seconds=wall * (2.6 if busy else 1.1),
            steal_seconds=0.0,
            cpu_pressure_seconds=wall * (0.4 if busy else 0.004),
            io_pressure_seconds=wall * 0.01,
            memory_pressure_seconds=0.0,
            mean_frequency_hz=2.4e9 * (1 + 0.002 * self.aside.gauss(0, 1)),
            throttles=0,
        )

    def doubts(self, workload: str, wall: float) -> tuple[str, ...]:
        if self.rng.random() > 0.01:
            return ()
        return (
            f"the {workload} command took {wall:.2f} s by our clock, 1.4 % more than by its own: run it again idle",
        )


def _ledger(meter: str, shares: Mapping[str, float], busy: float, wall: float) -> dict[str, float]:
    entries = {name: share * busy for name, share in shares.items()}
    rows = {**entries, "busy": busy, "seconds": wall, "error": 0.1}
    return {f"{meter}.{name}": round(value, 6) for name, value in rows.items()}


def _argv(accelerator: str, treatment: Treatment, path: str) -> tuple[str, ...]:
    carrier = treatment.layer == "nested" and path == "host/vm"
    cpu = "host" if accelerator == "kvm" else "EPYC-v1"
    cache = treatment.levels["disk.cache"]
    drive = f"file=/run/vmtax/data.img,format={treatment.levels['disk.format']},if=none,id=data,cache={cache}"
    memory = "2048" if carrier else "1024"
    return (
        *("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-M", "q35"),
        *("-accel", accelerator, "-cpu", cpu, "-smp", "2", "-m", memory),
        *("-drive", drive, "-device", "virtio-blk-pci,drive=data"),
    )


def _break(trials: tuple[Trial, ...], failures: int) -> tuple[Trial, ...]:
    broken = itertools.islice((i for i, t in enumerate(trials) if t.round > 1 and t.treatment != "host"), failures)
    result = list(trials)
    for index in broken:
        error = "stress-ng ended with exit code 2: stress-ng: error: mmap failed, out of memory"
        result[index] = dataclasses.replace(result[index], status="failed", error=error, measurements=(), raw=error)
    return tuple(result)


def _cut(trials: tuple[Trial, ...], measurements: int | None) -> tuple[Trial, ...]:
    """The first trials with that many measurements in all; the last one loses what is too much."""
    if measurements is None:
        return trials
    kept: list[Trial] = []
    for trial in trials:
        if measurements <= 0:
            break
        kept.append(dataclasses.replace(trial, measurements=trial.measurements[:measurements]))
        measurements -= len(trial.measurements)
    return tuple(kept)


def _plan(rounds: int, treatments: tuple[Treatment, ...]) -> Json:
    factors: dict[str, list[str]] = {}
    for treatment, (factor, default) in itertools.product(treatments, DEFAULTS.items()):
        levels = factors.setdefault(factor, [default])
        if treatment.levels[factor] not in levels:
            levels.append(treatment.levels[factor])
    return {
        "name": "quick",
        "host": "local",
        "guest": {"vcpus": 2, "memory": "1GiB"},
        "layers": ["host", "vm", "nested"],
        "factors": {factor: levels for factor, levels in factors.items() if len(levels) > 1},
        "exclude": [],
        "workloads": ["chess", "memory", {"disk": {"patterns": list(PATTERNS), "size": "1GiB"}}, "net", "boot"],
        "primary": ["chess.nodes_per_second", "disk.randread-4k-qd1.iops"],
        "precision": 0.02,
        "rounds": {"min": 7, "max": max(7, rounds)},
        "budget": "20m",
    }


def _notes(emulated: bool) -> tuple[str, ...]:
    if not emulated:
        return ()
    return (
        "/dev/kvm opens but no guest kernel booted on it within 20 s: guests are emulated (TCG).",
        "nested runs on KVM inside an emulated guest: it shows that nesting works, not what it costs.",
    )
