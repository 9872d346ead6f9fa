"""Frozen records of what was done and what came out. Base units everywhere: seconds, bytes, bits, operations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Better = Literal["higher", "lower"]
Status = Literal["ok", "failed", "refused"]
Verdict = Literal["worse", "better", "no difference shown", "too few rounds"]
State = Literal["running", "complete", "interrupted", "failed"]

LAYERS = ("host", "vm", "nested")  # from the bottom up

# A JSON object as the standard library reads it.
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Metric:
    """What a number means."""

    name: str  # "workload.case.measure", for example "disk.randread-4k-qd1.iops"
    unit: str  # base unit as units.py knows it: "1/s", "s", "B/s", "bit/s", "B", "1"
    better: Better  # which direction is an improvement


@dataclass(frozen=True, slots=True)
class Measurement:
    """One number that one workload reported."""

    metric: Metric
    value: float  # in metric.unit


@dataclass(frozen=True, slots=True)
class Treatment:
    """One layer and one level of each factor."""

    name: str  # "vm disk.cache=writeback": the layer, then the levels that differ within the plan
    layer: str  # "host", "vm" or "nested"
    levels: Mapping[str, str] = field(default_factory=dict)  # dotted factor name -> level, every factor named
    repeats: str | None = None  # name of the treatment that this one is once more in each round: the A/A
    side: str = ""  # what `run --interleave-with` names, for the treatments of that side


@dataclass(frozen=True, slots=True)
class Boot:
    """One start of one guest for one treatment; a nested treatment has two, the carrier's and its own."""

    round: int  # from 1
    treatment: str  # Treatment.name
    path: str  # the machine's path: "host/vm", "host/vm/vm"
    accelerator: str  # "kvm" or "tcg"
    emulated: bool  # True when this guest, or any machine below it, runs on TCG
    argv: tuple[str, ...]  # the whole QEMU command line
    ready_seconds: float  # launch to first answered command
    kernel_seconds: float  # the guest kernel's own share of ready_seconds
    warnings: tuple[str, ...] = ()  # for example "booted at the second attempt: ..."


@dataclass(frozen=True, slots=True)
class Disturbance:
    """What else happened on the host under test while a trial ran. It explains outliers; it never deletes one."""

    wall_seconds: float  # between the two readings, by the host's own clock
    busy_seconds: float  # CPUs x wall - idle, over all CPUs; what was stolen is in it
    steal_seconds: float  # over all CPUs: the host is itself a guest, and its hypervisor ran something else
    cpu_pressure_seconds: float | None  # some task waited for a CPU; None: kernel without PSI
    io_pressure_seconds: float | None  # some task waited for a disk
    memory_pressure_seconds: float | None  # some task waited for memory
    mean_frequency_hz: float | None  # of the two readings, not of the time between them
    throttles: int | None  # times that the first CPU's package was slowed down for its heat; None: not counted there


@dataclass(frozen=True, slots=True)
class Trial:
    """One execution of one workload in one boot, whether it worked or not."""

    round: int  # from 1
    position: int  # of the treatment within its round's shuffled order, from 1
    treatment: str  # Treatment.name
    workload: str  # "chess", "memory", "disk", "net", "boot"
    case: str  # the part of the workload: "randread-4k-qd1"; "" where there is only one
    iteration: int  # within the boot, from 1
    status: Status  # "failed": the command did not work; "refused": it worked but must not be compared
    started: float  # seconds since the epoch, clock of the machine that runs vmtax
    wall_seconds: float  # the command's duration seen from outside
    measurements: tuple[Measurement, ...] = ()
    warnings: tuple[str, ...] = ()  # doubts that are shown beside the result
    error: str | None = None  # one line: why it failed or was refused
    raw: str = ""  # the tool's own output; kept compressed beside the store
    disturbance: Disturbance | None = None  # None: not read
    latencies: tuple[tuple[float, float], ...] = ()  # (share of operations, seconds that these took at most), rising


@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric of one treatment against a baseline, with its exact interval."""

    metric: Metric
    baseline: str  # Treatment.name
    treatment: str  # Treatment.name
    ratio: float  # exp(Hodges-Lehmann of ln(treatment/baseline) over rounds)
    low: float | None  # interval of the ratio; None with too few rounds
    high: float | None
    rounds: int  # rounds in which both sides have a value
    verdict: Verdict
    mean_ratio: float | None = None  # exp(mean of the log ratios): moves with stalls that the median does not see
    p95_ratio: float | None = None  # of the slow tails; None with fewer than 200 rounds
    baseline_stalls: float = 0.0  # share of its runs that are slower than 1.5 times its median
    treatment_stalls: float = 0.0
    stalls_p: float = 1.0  # Fisher's exact test of the two
    carry_over: float | None = None  # mean(D | baseline first) - mean(D | treatment first), D in log ratio
    carry_over_p: float | None = None  # by permutation; None: the order never changed
    warnings: tuple[str, ...] = ()  # each names its cure


@dataclass(frozen=True, slots=True)
class Experiment:
    """One run of a plan, as read from the store."""

    id: str  # short, unique, sortable by time: "20261121-0412-quick-7f3a"
    name: str  # the plan's name
    host: str  # "local" or "ssh://user@host", as given
    command: str  # the command line that repeats it
    created: float  # seconds since the epoch
    finished: float | None
    state: State
    plan: Json  # the whole validated plan
    facts: Json  # machine path -> facts of that machine; see meter/facts.py
    treatments: tuple[Treatment, ...]
    boots: tuple[Boot, ...]
    trials: tuple[Trial, ...]
    notes: tuple[str, ...] = ()  # what was not measured and why; falls back to TCG because ...
    options: Json = field(default_factory=dict)  # what the command line added to the plan; a resumed run has the same
    ended: str | None = None  # why there were no more rounds: precise enough, decided, budget, rounds.max
