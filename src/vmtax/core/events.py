"""Frozen progress events. The screen and the tests read the same stream."""

from __future__ import annotations

from dataclasses import dataclass

from vmtax.core.records import Boot, Comparison, Treatment, Trial


@dataclass(frozen=True, slots=True)
class Step:
    """A slow step: building an image, probing, copying."""

    what: str  # "building the root image", "probing /dev/kvm"
    detail: str = ""  # newest detail of the step
    done: float | None = None  # share from 0 to 1, if known


@dataclass(frozen=True, slots=True)
class NoticeEvent:
    """Something that the user must know: what is not measured, why TCG is used."""

    text: str


@dataclass(frozen=True, slots=True)
class ExpectedTime:
    """How long the rounds to come will take, in seconds, as far as is known before the first one."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class RunStarted:
    experiment: str  # Experiment.id
    treatments: tuple[Treatment, ...]
    rounds_min: int
    rounds_max: int
    emulated: bool = False  # the host under test itself is emulated, and so every figure
    rounds_done: int = 0  # in earlier sessions


@dataclass(frozen=True, slots=True)
class TreatmentStarted:
    round: int
    position: int
    treatment: Treatment


@dataclass(frozen=True, slots=True)
class GuestBooted:
    boot: Boot


@dataclass(frozen=True, slots=True)
class WorkloadStarted:
    treatment: str
    workload: str
    case: str
    iteration: int = 1  # of this boot
    iterations: int = 1  # planned in this boot


@dataclass(frozen=True, slots=True)
class TrialFinished:
    trial: Trial


@dataclass(frozen=True, slots=True)
class RoundFinished:
    round: int
    planned: int  # rounds as expected now; may change with the budget and the intervals
    seconds_left: tuple[float, float]  # a range until two rounds are done, a single value from then on
    comparisons: tuple[Comparison, ...]  # of the primary metrics, so far


@dataclass(frozen=True, slots=True)
class RunFinished:
    experiment: str
    rounds: int
    seconds: float
    workload_share: float  # share of `seconds` spent inside workloads, 0 to 1


Event = (
    Step
    | NoticeEvent
    | ExpectedTime
    | RunStarted
    | TreatmentStarted
    | GuestBooted
    | WorkloadStarted
    | TrialFinished
    | RoundFinished
    | RunFinished
)
