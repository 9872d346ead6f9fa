"""What every workload offers: parameters, cases, metrics; and what a command does: argv → pure parse."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, model_validator

from vmtax.core.machines import Machine
from vmtax.core.records import Measurement, Metric
from vmtax.workload.site import Site

LEAST_OF_RATE = 0.95  # of the rate that is asked for; below it a machine is at its limit


class Parameters(BaseModel):
    """What a plan may set of a workload; each workload has its own subclass. Numbers are numbers, and no text is."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
    reporting: ClassVar[frozenset[str]] = frozenset()  # those that choose figures and leave the work as it is

    @model_validator(mode="before")
    @classmethod
    def _lists_are_tuples(cls, data: Any) -> Any:
        """YAML and JSON have lists where a frozen record has tuples."""
        if not isinstance(data, Mapping):
            return data
        return {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}


@dataclass(frozen=True, slots=True)
class Measure:
    """One kind of number that a workload reports, in words."""

    meaning: str  # what the number is
    label: str  # what tables call it
    phrase: str = ""  # what is lost or added, in a sentence; "": the metric's name
    may_be_zero: bool = False  # it counts losses: 0 is a true value, of which there is no ratio


@dataclass(frozen=True, slots=True)
class Counted:
    """The end of a command's time, in seconds. What it takes before all of these is its start."""

    seconds: float  # that the figures are about
    before: float = 0.0  # of the same work before them
    after: float = 0.0  # of the same work after them
    rest: float = 0.0  # until the command ends


HOST_SIDE = "host_side_seconds"  # the same, of the part of that time which serves a guest on KVM
CPU_PER_OPERATION = "host_cpu_seconds"  # last part of the metric for which `Workload.operations` counts

P = TypeVar("P", bound=Parameters)


class BadOutput(Exception):
    """The tool ended well but its output is not what was expected, or fails its correctness check."""


class Workload(ABC, Generic[P]):
    """One benchmark, with fixed parameters: its cases and metrics, where it runs, and how long it takes. Stateless."""

    name: ClassVar[str]
    describe: ClassVar[str]  # one line for the docs
    tool: ClassVar[str]  # what measures it
    title: ClassVar[str]  # what it is about: "CPU"
    packages: ClassVar[tuple[str, ...]] = ()  # of Debian, in the root image
    headline: ClassVar[str]  # name of the metric that a report's first sentence is about, unless the plan says another
    # Whether one configuration's figures are set against another's as ratios. Counts, which may be 0, are not: they are
    # in no comparison, ranking, score or summary, and no run stops because of them.
    compared: ClassVar[bool] = True
    replaced: ClassVar[frozenset[str]] = frozenset()  # measures in whose place people are shown what is derived
    # The last part of a metric's name -> what it is; or all of the name, where the label says the case as well.
    measures: ClassVar[Mapping[str, Measure]] = MappingProxyType({})
    parameters_type: ClassVar[type[Parameters]]
    layers: ClassVar[frozenset[str]] = frozenset({"host", "vm", "nested"})
    networked: ClassVar[bool] = False  # whether it needs a network peer
    not_with: ClassVar[frozenset[str]] = frozenset()  # workloads that take a guest which ends in order: it ends it
    emulated_start_seconds: ClassVar[float] = (
        0.0  # beyond a small program's: until it works, on each emulated CPU of a machine
    )

    def __init__(self, parameters: P, *, emulated: bool = False) -> None:
        """`emulated`: some layer of this run is, so that run lengths must suit a CPU some 25 times slower."""
        self.parameters = parameters
        self.emulated = emulated

    def settled(self) -> Mapping[str, Any]:
        """Parameters that a plan may leave to the machine, as this run has them."""
        return {}

    @abstractmethod
    def cases(self) -> Sequence[str]:
        """The parts, each one trial; [""] where there is only one, () if each boot is the trial."""

    @abstractmethod
    def metrics(self) -> Sequence[Metric]:
        """Every metric it can report with these parameters."""

    def reports(self, case: str) -> Sequence[Metric]:
        """The metrics that one case reports."""
        return [metric for metric in self.metrics() if metric.case == case]

    @classmethod
    def measure(cls, metric: Metric) -> Measure:
        """What its number is; of a metric that only another version has, what its name says."""
        words = metric.measure.replace("_", " ")
        return cls.measures.get(metric.name) or cls.measures.get(metric.measure) or Measure(words, words)

    @classmethod
    def phrase(cls, metric: Metric) -> str:
        """What is lost or added, in a sentence: "memory bandwidth"."""
        return cls.measure(metric).phrase or metric.name

    @classmethod
    def operations_of(cls, case: str) -> str:
        """What is done in a case, where tables name it by its parts: "4 KiB random writes (one at a time)"; else ""."""
        return ""

    @classmethod
    def spoken(cls, metric: Metric) -> str:
        """What pictures and main tables call a metric whose case and label do not read plainly; else ""."""
        return ""

    @abstractmethod
    def seconds(self, case: str) -> float:
        """About how long one case takes where nothing is emulated; for estimates and time limits."""

    def shortfall(self, rounds: int) -> str:
        """One line that says what so few rounds cannot show, and the remedy; "" if they are enough."""
        return ""

    def written_bytes(self, case: str) -> float:
        """About how much one case writes to the disk under test, at most, on a fast disk; said before a run."""
        return 0.0

    @classmethod
    def derived(cls, measurements: Sequence[Measurement]) -> tuple[Measurement, ...]:
        """What people are shown in the place of some of one trial's measurements, made of these."""
        return ()

    @classmethod
    def derived_metrics(cls, reported: Collection[Metric]) -> tuple[Metric, ...]:
        """The metrics of what is derived, where these are reported."""
        return ()

    def layers_of(self, case: str) -> frozenset[str]:
        """Where one case can be run."""
        return self.layers

    @property
    def takes_bridge(self) -> str:
        """Which part cannot go through QEMU's user networking, which without root is all there is; "" if it can."""
        return ""

    def why_not(self, vcpus: int) -> str | None:
        """Why its parameters mean nothing on `vcpus` CPUs, in one line; None if they do."""
        return None

    def once(self, case: str) -> bool:
        """Whether one case means something only the first time in a boot."""
        return False


class Command(Workload[P]):
    """A workload whose cases are one command each, run in the userland of every layer."""

    @abstractmethod
    def command(self, site: Site, case: str) -> Sequence[str]:
        """The argv, as seen inside the userland of `site`."""

    def seat(self, site: Site) -> tuple[Machine, tuple[str, ...]]:
        """The machine on which the command is run, and what enters the userland there."""
        return site.machine, site.prefix

    server_capabilities: ClassVar[tuple[str, ...]] = ()  # those of root's that its servers need

    def servers(self, address: str, port: int) -> Sequence[Sequence[str]]:
        """The argv of each server that the peer runs for one machine, inside its userland; `port`: of that `Link`."""
        return ()

    @abstractmethod
    def parse(self, case: str, output: str) -> tuple[Measurement, ...]:
        """Pure; `output` is stdout, then stderr. Raises BadOutput, whose text says what was expected."""

    def operations(self, case: str, output: str) -> float | None:
        """Pure. How many operations were done, if the host's CPU time is given for each; otherwise None.

        Called only with an output that `parse` accepted. Such a workload has metrics named `CPU_PER_OPERATION`.
        """
        return None

    def signature(self, case: str, output: str) -> str | None:
        """Pure. What must be the same on every layer, or the work was not the same; None: nothing to compare."""
        return None

    def own_seconds(self, case: str, output: str) -> float | None:
        """Pure. How long the measured part took by the tool's own clock; None if it does not report that.

        Called only with an output that `parse` accepted.
        """
        return None

    def counted(self, case: str, output: str) -> Counted | None:
        """Pure. Which part of the command's time its figures are about; None: it is not known.

        Called only with an output that `parse` accepted.
        """
        own = self.own_seconds(case, output)
        return None if own is None else Counted(own)

    def latencies(self, case: str, output: str) -> tuple[tuple[float, float], ...]:
        """Pure. (share of operations, seconds that these took at most), rising; () if it is not reported.

        Called only with an output that `parse` accepted.
        """
        return ()
