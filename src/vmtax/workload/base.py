"""The interface of workloads: parameters, cases and metrics; for commands, an argv and a pure parser of the output."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, model_validator

from vmtax.core.layers import LAYERS
from vmtax.core.machines import Machine
from vmtax.core.records import Measurement, Metric, Trial
from vmtax.workload.output import (
    MOST,
    MOST_OPERATIONS,
    reading,
    refuse_bad_latencies,
    refuse_doubts,
    refuse_falling,
    within,
)
from vmtax.workload.site import Access, PeerServer, Site

LEAST_OF_RATE = 0.95  # required share of the requested rate; below it a machine is at its limit


class Parameters(BaseModel):
    """Parameters of a workload in a plan; each workload has its own subclass. Strict: text is not converted to
    numbers.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
    reporting: ClassVar[frozenset[str]] = frozenset()  # parameters that do not change the work

    @classmethod
    def located(cls, given: Mapping[str, Any], directory: Path) -> dict[str, Any]:
        """The parameters as a plan in `directory` gives them, with paths of files from there."""
        return dict(given)

    @model_validator(mode="before")
    @classmethod
    def _lists_are_tuples(cls, data: Any) -> Any:
        """Convert the lists of YAML and JSON to tuples, which frozen records need."""
        if not isinstance(data, Mapping):
            return data
        return {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}


@dataclass(frozen=True, slots=True)
class Measure:
    """One kind of number that a workload reports, with its names."""

    meaning: str  # what the number is
    label: str  # name in tables
    phrase: str = ""  # what is lost or added, in a sentence; "": the metric's name is used
    may_be_zero: bool = False  # whether it counts losses: then 0 is a valid value, and there are no ratios to it
    # A number that is smaller or larger is impossible; in the metric's unit. By default it is above 0, and at most what
    # `output.MOST` has for the unit.
    least: float = math.ulp(0.0)
    most: float = math.inf


@dataclass(frozen=True, slots=True)
class Counted:
    """The last parts of a command's time, in seconds. The time before them is the command's start."""

    seconds: float  # that the figures cover
    before: float = 0.0  # of the same work before that
    after: float = 0.0  # of the same work after that
    rest: float = 0.0  # after that, until the command ends


HOST_SIDE = "host_side_seconds"  # the part of it that serves a guest on KVM
CPU_PER_OPERATION = "host_cpu_seconds"  # last part of the metric of CPU time per `Workload.operations`

P = TypeVar("P", bound=Parameters)


class Workload(ABC, Generic[P]):
    """One benchmark with fixed parameters: its cases and metrics, where it runs, and how long it takes. Stateless."""

    name: ClassVar[str]
    describe: ClassVar[str]  # one line for the documentation
    tool: ClassVar[str]  # the program that measures
    title: ClassVar[str]  # its subject: "CPU"
    packages: ClassVar[tuple[str, ...]] = ()  # Debian packages in the root image
    headline: ClassVar[str]  # name of the metric for a report's first sentence, unless the plan names another
    case_is_name: ClassVar[bool] = False  # whether a case is the name of a program, which needs no title beside it
    # Capabilities of root that it needs on a host, where it has none otherwise
    capabilities: ClassVar[tuple[str, ...]] = ()
    # Whether figures of configurations are compared as ratios. Counts, which may be 0, are not: they take part in no
    # comparison, ranking, score or summary, and do not decide when a run stops.
    compared: ClassVar[bool] = True
    # Measures that people do not see, because derived measures replace them
    replaced: ClassVar[frozenset[str]] = frozenset()
    # The last part of a metric's name -> its meaning; or the whole name, if the label includes the case.
    measures: ClassVar[Mapping[str, Measure]] = MappingProxyType({})
    parameters_type: ClassVar[type[Parameters]]
    layers: ClassVar[frozenset[str]] = frozenset(LAYERS)
    comes_first: ClassVar[bool] = False  # whether it measures what no other command may have done before
    # Workloads that need a guest which shuts down in order, which this workload prevents
    not_with: ClassVar[frozenset[str]] = frozenset()
    # How many kinds of work, each with its own metrics, it gives in turn to machines that work at once. The number of
    # machines is a multiple of that
    roles: ClassVar[int] = 1
    emulated_start_seconds: ClassVar[float] = (
        0.0  # longer than a small program needs to start, on each emulated CPU of a machine
    )

    def __init__(self, parameters: P, *, emulated: bool = False) -> None:
        """`emulated`: some layer of this run is emulated, so run lengths must suit a CPU that is about 25 times
        slower.
        """
        self.parameters = parameters
        self.emulated = emulated

    def settled(self) -> Mapping[str, Any]:
        """Values of this run for parameters that a plan may leave open."""
        return {}

    @abstractmethod
    def cases(self) -> Sequence[str]:
        """The parts, each one trial; [""] if there is only one, () if each boot is the trial."""

    @abstractmethod
    def metrics(self) -> Sequence[Metric]:
        """Every metric it can report with these parameters."""

    def reports(self, case: str) -> Sequence[Metric]:
        """The metrics that one case reports."""
        return [metric for metric in self.metrics() if metric.case == case]

    @classmethod
    def measure(cls, metric: Metric) -> Measure:
        """The meaning of a metric's number; if only another version has the metric, its name."""
        words = metric.measure.replace("_", " ")
        return cls.measures.get(metric.name) or cls.measures.get(metric.measure) or Measure(words, words)

    @classmethod
    def refuse_impossible(cls, measurements: Sequence[Measurement]) -> None:
        """Raises BadOutput that names a figure which cannot be true."""
        for one in measurements:
            measure = cls.measure(one.metric)
            least = 0.0 if measure.may_be_zero else measure.least
            unit = "" if one.metric.unit == "1" else f" {one.metric.unit}"
            within(one.metric.name, one.value, least, min(measure.most, MOST[one.metric.unit]), unit)
        refuse_falling(measurements)

    @classmethod
    def phrase(cls, metric: Metric) -> str:
        """What is lost or added, in a sentence: "memory bandwidth"."""
        return cls.measure(metric).phrase or metric.name

    @classmethod
    def operations_of(cls, case: str) -> str:
        """The work of a case, if tables show its parts: "4 KiB random writes (one at a time)"; else ""."""
        return ""

    @classmethod
    def bytes_of(cls, case: str) -> int | None:
        """The size of an operation of a case, if people give its rate in bytes; else None."""
        return None

    @classmethod
    def same_as(cls, metric: Metric) -> str:
        """Name of the metric that is this one times a constant, and which people are shown; "" if there is none."""
        return ""

    @classmethod
    def spoken(cls, metric: Metric) -> str:
        """A metric's name in pictures and main tables, if case and label alone are hard to read; else ""."""
        return ""

    @abstractmethod
    def seconds(self, case: str) -> float:
        """Approximate duration of one case without emulation, for estimates and time limits."""

    def explained(self, case: str, complaint: str) -> str:
        """What the last line of the tool's errors means, and the remedy, in one line; "" if nothing better is known."""
        return ""

    def limit(self, case: str, slowdown: float) -> float:
        """Seconds after which one case counts as hung, without a grace period. `slowdown`: of the slowest layer."""
        return self.seconds(case) * slowdown

    def shortfall(self, rounds: int) -> str:
        """What cannot be shown with so few rounds, and the remedy, in one line; "" if they are enough."""
        return ""

    def written_bytes(self, case: str, *, usual: bool = False) -> float:
        """Approximate bytes that one case writes to the disk under test: on a very fast disk, at most, or on a usual
        one, a SATA SSD.
        """
        return 0.0

    def written_by(self, trial: Trial) -> float:
        """The bytes that a trial wrote; of one that failed, what it may have written at most."""
        return self.written_bytes(trial.case)

    @classmethod
    def derived(cls, measurements: Sequence[Measurement]) -> tuple[Measurement, ...]:
        """Measurements that people are shown instead of some of a trial's measurements, calculated from them."""
        return ()

    @classmethod
    def derived_metrics(cls, reported: Collection[Metric]) -> tuple[Metric, ...]:
        """The metrics that are derived if these are reported."""
        return ()

    def layers_of(self, case: str) -> frozenset[str]:
        """The layers on which one case can run."""
        return self.layers

    @property
    def filled_bytes(self) -> int:
        """Bytes of the disk under test, which is written in full before the first round; 0 if it needs none."""
        return 0

    @property
    def keeps_files(self) -> bool:
        """Whether it has files of its own in a directory on the disk under test (`Site.directory`)."""
        return False

    @property
    def fresh_bytes(self) -> int:
        """Bytes of the disk that is made anew for each boot; 0 if it needs none."""
        return 0

    @property
    def networked(self) -> bool:
        """Whether it needs a network peer."""
        return False

    @property
    def takes_bridge(self) -> str:
        """The part of the work that needs more than QEMU's user networking, the only network without root; "" if none
        does.
        """
        return ""

    def why_not(self, vcpus: int) -> str | None:
        """Why its parameters make no sense on `vcpus` CPUs, in one line; None if they do."""
        return None

    def once(self, case: str) -> bool:
        """Whether one case is valid only the first time in a boot."""
        return False


# Waits at a barrier before it becomes a command. Constant text, the arguments stay arguments.
HELD = ("sh", "-c", 'd="$1"; shift; echo > "$d/ready" && read -r _ < "$d/go" || exit 125; exec "$@"', "sh")


class Command(Workload[P]):
    """A workload that runs one command for each case, in the userland of every layer."""

    # Whether several machines that work at once repeat it, because its figures cover all that its tool does. fio and
    # iperf3 work before and after the counted time by themselves (`Site.lead`).
    repeats_at_once: ClassVar[bool] = False

    @abstractmethod
    def command(self, site: Site, case: str) -> Sequence[str]:
        """The argv, as seen inside the userland of `site`."""

    def held(self, case: str, argv: Sequence[str], directory: PurePosixPath) -> Sequence[str]:
        """The command such that it writes a line to `directory`/ready when it has started, and then waits until it can
        read one from `directory`/go. By default, it waits before its program starts.
        """
        return (*HELD, str(directory), *argv)

    def seat(self, site: Site) -> tuple[Machine, tuple[str, ...]]:
        """The machine that runs the command, and the prefix that enters the userland there."""
        return site.machine, site.prefix

    def servers(self, address: str, port: int, access: Access) -> Sequence[PeerServer]:
        """Those that the peer runs for one machine; `port`: that of the `Link`."""
        return ()

    def input(self, site: Site) -> str | None:
        """What its command reads from its standard input; None: nothing."""
        return None

    # Patterns of lines in which the tool doubts its figures, or says that it did not do all of the work
    doubts: ClassVar[Sequence[str]] = ()

    def parse(self, case: str, output: str) -> tuple[Measurement, ...]:
        """Pure; `output` is stdout, then stderr. Raises BadOutput, whose text says what was expected, and nothing else.

        An output that it accepts has figures within their ranges, and everything else that this class reads of it.
        """
        with reading(self.tool):
            refuse_doubts(self.tool, self.doubts, output)
            found = self.read(case, output)
            self.refuse_impossible(found)
            self._refuse_rest(case, output)
        return found

    def _refuse_rest(self, case: str, output: str) -> None:
        own, operations, counted = (
            self.own_seconds(case, output),
            self.operations(case, output),
            self.counted(case, output),
        )
        for seconds in (own or 0.0, *(astuple(counted) if counted else ())):
            within("a time", seconds, 0.0, MOST["s"], " s")
        if operations is not None:
            within("the number of operations", operations, 0.0, MOST_OPERATIONS)
        refuse_bad_latencies(self.latencies(case, output))
        self.signature(case, output)

    @abstractmethod
    def read(self, case: str, output: str) -> tuple[Measurement, ...]:
        """Pure. What `parse` returns if it is possible. Raises BadOutput, or anything else if the output is no output
        of the tool.
        """

    def operations(self, case: str, output: str) -> float | None:
        """Pure. The number of operations, if the host's CPU time is reported per operation; otherwise None.

        Called only with an output that `parse` accepted. Such a workload has metrics named `CPU_PER_OPERATION`.
        """
        return None

    def signature(self, case: str, output: str) -> str | None:
        """Pure. A value that is equal on every layer if the work was the same; None: nothing to compare."""
        return None

    def own_seconds(self, case: str, output: str) -> float | None:
        """Pure. How long the measured part took by the tool's own clock; None if it does not report that.

        Called only with an output that `parse` accepted.
        """
        return None

    def counted(self, case: str, output: str) -> Counted | None:
        """Pure. The part of the command's time that its figures cover; None: unknown.

        Called only with an output that `parse` accepted.
        """
        own = self.own_seconds(case, output)
        return None if own is None else Counted(own)

    def latencies(self, case: str, output: str) -> tuple[tuple[float, float], ...]:
        """Pure. Pairs (share of operations, most seconds that these took), rising; () if not reported.

        Called only with an output that `parse` accepted.
        """
        return ()
