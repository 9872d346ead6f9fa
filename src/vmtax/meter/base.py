"""The interface of meters: each reads a machine, or a guest, before and after each trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol

from vmtax.core.machines import Reader
from vmtax.core.records import Disturbance

# host: the host under test; hosts: that and the guests that carry others; seat: the machine that is measured, while its
# peer may run the command.
At = Literal["host", "hosts", "seat"]


@dataclass(frozen=True, slots=True)
class MeteredCommand:
    """One command that ran between the two readings."""

    tool: str
    ok: bool
    seconds: float  # as seen from outside
    own_seconds: float | None = None  # of what its figures cover, by the tool's own clock; None: not reported
    emulated: bool = False  # some layer is emulated
    operations: float | None = None  # number of operations; None: the workload does not count them
    starts: int = 1  # how often the command was started, one after the other
    around_seconds: float = 0.0  # of the tool's work before and after what `own_seconds` covers, such as fio's ramp


@dataclass(frozen=True, slots=True)
class Readings:
    """What a meter found out about one machine during one trial."""

    rows: Mapping[str, float] = field(default_factory=dict)  # name -> value; stored as `Trial.readings`
    warnings: tuple[str, ...] = ()  # about the trial's figures, in the format of `notices.recorded`
    disturbance: Disturbance | None = None  # values of the host under test that reports show separately
    void: str = ""  # why the trial is void because it measured something else; empty: it is not


class Meter(Protocol):
    """Reads machines around each trial. Each boot has its own meter, which may remember its last reading."""

    name: ClassVar[str]  # prefix of its rows: "vmstat.pgfault"
    at: ClassVar[At]
    command: ClassVar[tuple[str, ...]]  # how it reads a machine

    def before(self, machine: Reader) -> None:
        """Read before a trial. Raises only MachineLost."""
        ...

    def after(self, machine: Reader, works: Sequence[MeteredCommand]) -> Readings:
        """Read after a trial. `works`: what ran meanwhile; at a seat one command. Empty if the machine reports nothing.

        Raises only MachineLost.
        """
        ...


class MeteredGuest(Protocol):
    """A guest, as a meter sees it."""

    path: str

    def counters(self) -> Mapping[str, float]:
        """What its hypervisor has counted for it since its start, in base units; {} if nothing is counted."""
        ...


class GuestMeter(Protocol):
    """Like a `Meter`, for guests: those that are measured, and those that carry them. Its readings are closest to the
    trial.
    """

    name: ClassVar[str]

    def before(self, guest: MeteredGuest) -> None: ...
    def after(self, guest: MeteredGuest, works: Sequence[MeteredCommand]) -> Readings:
        """`works`: what ran meanwhile in it and in guests nested in it."""
        ...
