"""Frozen records of what was done, and of the results. Base units everywhere: seconds, bytes, bits, operations.

Their types define the possible values. `store.model` checks everything that was not created by this process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Interval, Len, Predicate

from vmtax.core.layers import LAYERS
from vmtax.core.names import label_problem
from vmtax.core.notices import Code, Notice

Better = Literal["higher", "lower"]
Status = Literal["ok", "failed", "refused"]
Verdict = Literal["worse", "better", "no difference shown", "too few rounds"]
VerdictCode = Literal["worse", "better", "no-difference", "few-rounds"]
State = Literal["running", "complete", "interrupted", "failed"]

VERDICT_CODES: Mapping[Verdict, VerdictCode] = {
    "worse": "worse",
    "better": "better",
    "no difference shown": "no-difference",
    "too few rounds": "few-rounds",
}

Unit = Literal["1", "1/s", "s", "B", "B/s", "bit/s", "s/B"]  # the base units; see units.py for how they are written

# A JSON object as the standard library reads it.
Json = dict[str, Any]


def _is_plausible(value: float) -> bool:
    """True for any figure of a machine; ratios of such figures are finite. False for NaN."""
    return value == 0 or 1e-100 < abs(value) < 1e100


def _is_label(text: str) -> bool:
    return not text or label_problem(text) is None


Name = Annotated[str, Len(1, 10_000)]
Label = Annotated[str, Predicate(_is_label)]
Text = Annotated[str, Len(0, 2**20)]
LayerName = Annotated[str, Predicate(LAYERS.__contains__)]
Count = Annotated[int, Interval(ge=1, lt=2**31)]
Time = Annotated[float, Interval(ge=0, lt=2**33)]  # seconds since the epoch, until the year 2242
Share = Annotated[float, Interval(ge=0, le=1)]
Seconds = Annotated[float, Interval(ge=0, lt=1e10)]
Reading = Annotated[float, Interval(gt=-1e18, lt=1e18)]  # a difference of counters may be slightly negative
Difference = Annotated[int, Interval(gt=-(2**53), lt=2**53)]
Value = Annotated[float, Predicate(_is_plausible)]
OneReading = Annotated[Mapping[Name, Reading], Len(0, 1000)]
Readings = Annotated[Mapping[Name, OneReading], Len(0, 1000)]


@dataclass(frozen=True, slots=True)
class Metric:
    """The meaning of a number."""

    name: Name  # name of the metric: workload, case and measure, such as "disk.randread-4k-qd1.iops"
    unit: Unit  # a base unit of units.py
    better: Better  # which direction is an improvement

    @property
    def workload(self) -> str:
        """First part of the name."""
        return self.name.partition(".")[0]

    @property
    def case(self) -> str:
        """The part between workload and measure; "" if there is none."""
        return self.name.partition(".")[2].rpartition(".")[0]

    @property
    def measure(self) -> str:
        """Last part of the name."""
        return self.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Measurement:
    """One number reported by one workload."""

    metric: Metric
    value: Value  # in metric.unit


@dataclass(frozen=True, slots=True)
class Treatment:
    """One layer and one level of each factor."""

    name: Name  # the layer, then the levels that differ within the plan: "vm disk.cache=writeback"
    layer: LayerName  # host, container, vm or nested: the layer on which it runs
    levels: Mapping[Name, Name] = field(default_factory=dict)  # factor -> level, for all factors that apply to its
    # layer
    repeats: Name | None = None  # name of the treatment that this one repeats in each round (the A/A); None: it is not
    # a repeat
    side: Text = ""  # value of --interleave-with, for the treatments of that side; empty for all others

    @property
    def boots(self) -> bool:
        """Whether it is measured in a guest, with a kernel that is booted for it."""
        return LAYERS[self.layer].boots


@dataclass(frozen=True, slots=True)
class Boot:
    """One start of one guest for one treatment. A nested treatment has two boots: that of the outer VM and its own."""

    round: Count  # number of the round, from 1
    treatment: Name  # name of the treatment
    path: Name  # path of the machine: "host/vm", "host/vm/vm"
    accelerator: Name  # "kvm" or "tcg"
    emulated: bool  # whether this guest, or any machine below it, runs on TCG
    argv: tuple[Text, ...]  # the whole QEMU command line
    ready_seconds: Seconds  # time from the launch of QEMU to the first answered command
    kernel_seconds: Seconds  # the part of ready_seconds that the guest's kernel took
    warnings: tuple[Text, ...] = ()  # doubts about the boot, each as "CODE: CAUSE", such as "second-boot: ..."
    obtained: OneReading = field(default_factory=dict)  # what the guest really got, by name: "memory.huge_bytes"


@dataclass(frozen=True, slots=True)
class Moved:
    """How a guest was migrated, according to its hypervisor."""

    total_seconds: Seconds
    downtime_seconds: Seconds
    sent_bytes: Value


@dataclass(frozen=True, slots=True)
class Disturbance:
    """What else happened on the host under test while a trial ran. It explains outliers; no trial is removed for it."""

    wall_seconds: Seconds  # time between the two readings, by the host's own clock
    busy_seconds: Reading  # CPUs x wall - idle, over all CPUs; stolen time is included
    steal_seconds: Reading  # CPU time, over all CPUs, that the host did not get because it is a guest and its
    # hypervisor ran something else
    cpu_pressure_seconds: Reading | None  # time in which some task waited for a CPU; None: the kernel has no PSI
    io_pressure_seconds: Reading | None  # time in which some task waited for a disk; None: the kernel has no PSI
    memory_pressure_seconds: Reading | None  # time in which some task waited for memory; None: the kernel has no PSI
    mean_frequency_hz: Reading | None  # mean of the frequencies at the two readings, not over the time between them;
    # None: unknown
    throttles: Difference | None  # how often the package that was too hot most often was slowed down; None: this
    # is not counted there


@dataclass(frozen=True, slots=True)
class Trial:
    """One execution of one workload in one boot, successful or not."""

    round: Count  # number of the round, from 1
    position: Count  # position of the treatment within its round's shuffled order, from 1
    treatment: Name  # name of the treatment
    workload: Name  # name of the workload
    case: Text  # part of the workload, such as "randread-4k-qd1"; empty: there is only one
    iteration: Count  # number of the iteration within the boot, from 1
    status: Status  # "failed": the command did not work; "refused": it worked but must not be compared
    started: Time  # start time, in seconds since the epoch, by the clock of the machine that runs vmtax
    wall_seconds: Seconds  # duration of the command in seconds, measured from outside
    measurements: tuple[Measurement, ...] = ()
    warnings: tuple[Text, ...] = ()  # doubts about the result, each as `CODE: CAUSE`
    error: Text | None = None  # why it failed or was refused, in one line; None: no reason was recorded
    raw: str = ""  # the tool's own output; stored compressed beside the database
    disturbance: Disturbance | None = None  # what else happened on the host under test; None: it was not read
    latencies: tuple[tuple[Share, Seconds], ...] = ()  # (share of operations, most seconds that these took), rising
    machine: Text = ""  # path of the machine whose work was measured, such as "host/vm-2"; empty in older runs
    readings: Readings = field(default_factory=dict)  # path of a machine -> what meters counted there, such as
    # "vmstat.pgfault"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric of one treatment compared with a baseline. The ends of the interval are None if there are too few
    rounds, or if all ratios are equal because the metric's steps are too coarse.
    """

    metric: Metric
    baseline: str  # name of the treatment that it is compared with
    treatment: str  # name of the treatment
    ratio: float  # exp of the Hodges-Lehmann estimate of ln(treatment / baseline) over rounds; NaN: no round has both
    # values
    low: float | None  # lower end of the ratio's interval
    high: float | None  # upper end of the ratio's interval
    rounds: int  # rounds in which both sides have a value
    verdict: Verdict  # what the interval shows, in words
    mean_ratio: float | None = None  # exp of the mean of ln(treatment / baseline); stalls affect it, unlike `ratio`;
    # None: no round has both
    p95_ratio: float | None = None  # ratio of the slow tails: of 95th percentiles of times, or 5th percentiles of
    # rates; None: fewer than 200 rounds
    baseline_stalls: float = 0.0  # share of the baseline's values that are slower than 1.5 times their median, 0 to 1
    treatment_stalls: float = 0.0  # the same share of the treatment's values
    stalls_p: float = 1.0  # p-value of Fisher's exact test that compares these two shares
    carry_over: float | None = None  # mean ln(treatment / baseline) of the rounds in which the baseline ran first,
    # minus that of the other rounds; None: one of these orders occurred in fewer than two rounds
    carry_over_p: float | None = None  # p-value of carry_over, by permutation of the orders; None if carry_over is
    notices: tuple[Notice, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """The notices about this comparison, as sentences."""
        return tuple(notice.text for notice in self.notices)

    @property
    def verdict_code(self) -> VerdictCode:
        """The verdict as an identifier."""
        return VERDICT_CODES[self.verdict]

    @property
    def notice_codes(self) -> tuple[Code, ...]:
        """Codes of the notices about this comparison; `notices` of the run has their causes and cures."""
        return tuple(dict.fromkeys(notice.code for notice in self.notices))


@dataclass(frozen=True, slots=True)
class Experiment:
    """One run of a plan, as read from the store; meter/facts.py has the facts about machines."""

    id: Name  # id of the run, such as "20261121-0412-quick-7f3a"; it is unique, and ids sort by time
    name: Name  # name of the plan
    host: Name  # the host that was measured, as given: local, ssh://[user@]host or lab[:NAME]
    command: Text  # command line that repeats the run
    created: Time  # time of the start, in seconds since the epoch
    finished: Time | None  # time of the end, in seconds since the epoch; None: not finished
    state: State  # whether the run is in progress, or how it ended
    plan: Json  # the plan with every default filled in, as `vmtax plan show --json` prints it
    facts: Json  # path of a machine -> facts about that machine; a fact that could not be read is None
    treatments: tuple[Treatment, ...]  # the treatments that were compared
    boots: tuple[Boot, ...]  # every start of a guest
    trials: tuple[Trial, ...]
    notes: tuple[Text, ...] = ()  # what was not measured and why, and what else a reader must know
    options: Json = field(default_factory=dict)  # what the command line added to the plan; used again when the run is
    # resumed
    ended: Text | None = None  # why there were no more rounds, such as precise enough, decided, budget or rounds.max;
    # None: unknown, or the run was stopped
    label: Label = ""  # label that the user gave to the run, which other runs may have too; empty: none
    seconds: Seconds | None = None  # working time so far, without pauses; None: not stored

    @property
    def took(self) -> float | None:
        """Duration, including set-up but not pauses; None: the run is in progress, or its duration is unknown.

        For runs stored by earlier versions: from beginning to end.
        """
        if self.state == "running":
            return None
        if self.seconds is None and self.finished is not None:
            return max(0.0, self.finished - self.created)  # clocks may have been set
        return self.seconds
