"""What every meter has: a look at a machine, or a guest, before each trial, and one after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol

from vmtax.core.machines import Reader
from vmtax.core.records import Disturbance

# The host under test; that and the guests that carry others; the machine that is measured, whose peer may run the
# command.
At = Literal["host", "hosts", "seat"]


@dataclass(frozen=True, slots=True)
class Work:
    """One command that ran between the two looks."""

    tool: str
    ok: bool
    seconds: float  # as seen from outside
    own_seconds: float | None = None  # by the tool's own clock; None: it does not report it
    emulated: bool = False  # some layer is
    operations: float | None = None  # that were done; None: the workload counts none


@dataclass(frozen=True, slots=True)
class Readings:
    """What a meter has to say of one machine and one trial."""

    rows: Mapping[str, float] = field(default_factory=dict)  # name -> value; kept as `Trial.readings`
    warnings: tuple[str, ...] = ()  # about the trial's figures, as `notices.recorded` writes them
    disturbance: Disturbance | None = None  # rows of the host under test that reports know one by one
    void: str = ""  # why the trial measured something else than it was to; empty: it did not


class Meter(Protocol):
    """Looks at machines around each trial. There is one for each boot, so that it may keep what it saw last."""

    name: ClassVar[str]  # in front of its rows: "vmstat.pgfault"
    at: ClassVar[At]
    command: ClassVar[tuple[str, ...]]  # how it looks at a machine

    def before(self, machine: Reader) -> None:
        """Raises MachineLost only."""
        ...

    def after(self, machine: Reader, works: Sequence[Work]) -> Readings:
        """`works`: what ran meanwhile; at a seat one command. Empty if the machine does not report it.

        Raises MachineLost only.
        """
        ...


class Counted(Protocol):
    """A guest, to a meter."""

    path: str

    def counters(self) -> Mapping[str, float]:
        """What its hypervisor has counted for it since its start, in base units; {} if nothing is counted."""
        ...


class GuestMeter(Protocol):
    """As a `Meter`, for guests: those that are measured, and those that carry them. It looks next to the trial."""

    name: ClassVar[str]

    def before(self, guest: Counted) -> None: ...
    def after(self, guest: Counted, works: Sequence[Work]) -> Readings:
        """`works`: what ran meanwhile in it and in guests inside it."""
        ...
