"""The workload durability: which acknowledged writes survive each way in which a guest can end.

Writers in a guest acknowledge their records to a witness outside; then the guest or its host is ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, Field, model_validator

from vmtax.core.layers import GUESTS
from vmtax.core.quantities import Quantity
from vmtax.core.records import Measurement, Metric
from vmtax.core.units import parse_bytes
from vmtax.workload.base import Measure, Parameters, Workload
from vmtax.workload.durability.postgresql import NAME as POSTGRESQL
from vmtax.workload.durability.records import CONTROL, LYING, kind_of, writer_problem
from vmtax.workload.durability.source import guest_source
from vmtax.workload.durability.stacks import Stack
from vmtax.workload.migration import PYTHON

KILLED = "guest-killed"
HOST_CUT = "host-cut"
POWER_CUT = "power-cut"
STACK_CUT = "stack-cut"
REAL_CUT = "real-cut"
ENDS: Mapping[str, str] = {
    KILLED: "QEMU is killed, and the disk is what its host then has of it",
    HOST_CUT: "the host really loses its power: the outer VM, in which a nested guest writes, is killed",
    POWER_CUT: "the host loses its power: states of the disk, rebuilt from QEMU's log of its writes",
    STACK_CUT: "the host loses its power: states of its own disks, and on them all that lies below the guest's",
    REAL_CUT: "the host under test loses its power by the command of --power-cut: its disk, once it is back",
}
# The given number of states is rebuilt for each of these; the other ends count once for each guest that was ended.
REBUILT = (POWER_CUT, STACK_CUT)
USUAL_WRITERS = (
    "append-fsync-4k",
    "append-fdatasync-64k",
    "overwrite-dsync-4k",
    "overwrite-fsync-256k",
    "rename-fsync-16k",
    "sqlite-wal",
    "sqlite-rollback",
)
CHECK_SECONDS, EMULATED_CHECK_SECONDS = 0.1, 0.5  # to check one state of a guest's disk
# To check one state of a host's disk under emulation, by what has to be assembled; without emulation, the time shrinks
# in the same proportion.
EMULATED_STACK_SECONDS = {"volume": 1.0, "file system": 2.0, "pool": 2.5, "RAIDZ1": 6.0}
# For each PostgreSQL server: its database's size on disk; seconds to start it, and to recover and check one state.
DATABASE_BYTES = 64 * 2**20
DATABASE_SECONDS, EMULATED_DATABASE_SECONDS = 2.0, 25.0
RECOVERY_SECONDS, EMULATED_RECOVERY_SECONDS = 0.2, 2.0
GROWING = frozenset({"append", "sqlite", POSTGRESQL})  # modes of writers that keep everything they write
NAME = "durability"
# If none of this many states lost anything, at most 1.0 % of all states do, at 95 % confidence: this counts as durable.
NEEDED_STATES = 300
STATES, LOST, TORN = "states", "lost", "torn"  # measures of an end, or of one of its writers
FILE_SYSTEM, IMAGE = "file_system_damaged", "image_damaged"  # measures of an end only
WITHOUT_DISK, WITHOUT_DISK_LOST = "states_without_disk", "lost_without_disk"
TOTALS = (STATES, LOST, FILE_SYSTEM, IMAGE)
TOTALS_WITHOUT_DISK = (WITHOUT_DISK, WITHOUT_DISK_LOST)  # additional measures of STACK_CUT
OF_WRITER = (STATES, LOST, TORN)


def _known(name: str) -> str:
    if name == CONTROL:
        raise ValueError(f"{CONTROL} is in every boot: leave it out")
    if problem := writer_problem(name):
        raise ValueError(problem)
    return name


def _writable(options: str) -> str:
    if "ro" in options.split(","):
        raise ValueError("ro: the writers could write nothing; leave it out")
    return options


Writer = Annotated[str, AfterValidator(_known)]
Options = Annotated[str, AfterValidator(_writable)]
Room = Annotated[str, Quantity(parse_bytes, "64KiB", "1GiB", "1MiB", as_text=True)]
DiskSize = Annotated[str, Quantity(parse_bytes, "64MiB", "64GiB", "192MiB", as_text=True)]


class DurabilityParameters(Parameters):
    writers: tuple[Writer, ...] = Field(
        USUAL_WRITERS,
        min_length=1,
        max_length=20,
        description="what writes in the guest, all at once: append, overwrite or rename, then fsync, fdatasync or dsync"
        " (O_DSYNC), then the size of a record, from 4k to 1m; or sqlite-wal, sqlite-rollback, or"
        " sqlite-rollback-full, whose last transaction a power cut may undo on any disk (synchronous=FULL, not EXTRA);"
        " or postgresql, a server that needs the PostgreSQL pack",
    )
    size: DiskSize = Field("192MiB", description="size of the disk, which is made anew for each boot")
    room: Room = Field("1MiB", description="bytes of records after which each writer stops")
    seconds: float = Field(
        5.0,
        ge=1,
        le=600,
        description="seconds for which the writers write at most; each boot ends at a random moment in the last half",
    )
    states: int = Field(
        300,
        strict=True,
        ge=1,
        le=100_000,
        description="number of states of the disk, after the host has lost its power, that are checked after each boot;"
        " with --power-cut there is one",
    )
    mount_options: Options = Field(
        "",
        max_length=200,
        pattern=r"^[a-z0-9_=,]*$",
        description="options with which the guest mounts its ext4 file system, such as barrier=0",
    )

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        """Compares the size with what certainly stays on the disk; writers detect if the file system needs more."""
        needed = (self.databases + 1) * DATABASE_BYTES
        if self.databases and self.size_bytes < needed:
            raise ValueError(f"a database of PostgreSQL takes room: size must be {needed // 2**20}MiB or more")
        growing = sum(kind_of(name).mode in GROWING for name in (*self.writers, CONTROL))
        kept = growing * parse_bytes(self.room)
        if kept > self.size_bytes:
            raise ValueError(
                f"{growing} of its writers keep {self.room} each, more than size, which is {self.size}: lower room, or"
                " raise size"
            )
        return self

    @property
    def size_bytes(self) -> int:
        return parse_bytes(self.size)

    @property
    def databases(self) -> int:
        """How many PostgreSQL servers write."""
        return sum(kind_of(name).mode == POSTGRESQL for name in self.writers)


@dataclass(slots=True)
class Counts:
    """Results for the states of one end, as numbers of states."""

    states: int = 0  # states in which something had been acknowledged
    lost: int = 0
    file_system_damaged: int = 0
    image_damaged: int | None = None  # None: the image format has no structure to damage
    states_without_disk: int | None = None  # among `states`; None: none of several disks was ever removed
    lost_without_disk: int | None = None  # among those
    of_writer: dict[str, dict[str, int]] = field(default_factory=dict)  # writer -> OF_WRITER -> states

    def add(
        self, state: Mapping[str, object], acknowledged: Mapping[str, int], image: str, *, without_disk: bool = False
    ) -> None:
        """Add one state, as the program in the guest reported it.

        image: qemu-img's complaint, "" if there is none; without_disk: one of the host's disks was missing
        """
        writers = {name for name, count in acknowledged.items() if count > 0}
        if all(is_control(name) for name in writers):
            return
        found = state.get("writers")
        by_name = found if isinstance(found, Mapping) else {}
        damaged = bool(state.get("file_system"))
        hurt = False
        for name in writers:
            counts = self.of_writer.setdefault(name, dict.fromkeys(OF_WRITER, 0))
            # If the file system cannot be mounted, nothing can be read from it.
            one = by_name.get(name) or {"lost": acknowledged[name], "torn": 0}
            counts["states"] += 1
            counts["lost"] += one["lost"] > 0
            counts["torn"] += one["torn"] > 0
            hurt = hurt or (not is_control(name) and (one["lost"] > 0 or one["torn"] > 0))
        self.states += 1
        self.file_system_damaged += damaged
        if self.image_damaged is not None:
            self.image_damaged += bool(image)
        is_lost = hurt or damaged or bool(image)
        self.lost += is_lost
        if without_disk:
            self.states_without_disk = (self.states_without_disk or 0) + 1
            self.lost_without_disk = (self.lost_without_disk or 0) + is_lost


class Durability(Workload[DurabilityParameters]):
    """Has no command: each boot is one trial, which ends the guest."""

    name = NAME
    describe = "durability: which acknowledged data survive when QEMU is killed, and when the host loses its power"
    tool = "vmtax"
    title = "Durability"
    headline = f"{NAME}.{POWER_CUT}.{LOST}"
    compared = False
    not_with = frozenset({"boot", "migration"})
    measures: ClassVar = {
        STATES: Measure("states of the disk in which something had been acknowledged", STATES, may_be_zero=True),
        LOST: Measure("states in which acknowledged data were missing or old", LOST, may_be_zero=True),
        TORN: Measure("states in which acknowledged data were torn", TORN, may_be_zero=True),
        FILE_SYSTEM: Measure("states in which a file system was damaged", "file system damaged", may_be_zero=True),
        IMAGE: Measure("states in which qemu-img check found damage", "image damaged", may_be_zero=True),
        WITHOUT_DISK: Measure(
            "states in which one of the host's disks was gone", "states without a disk", may_be_zero=True
        ),
        WITHOUT_DISK_LOST: Measure(
            "states with a loss, of those in which one of the host's disks was gone",
            "lost without a disk",
            may_be_zero=True,
        ),
    }
    parameters_type = DurabilityParameters
    layers = frozenset(GUESTS)

    @property
    def writers(self) -> tuple[str, ...]:
        """All writers, including one that never flushes: if that loses nothing, the trial would not have noticed a
        loss.
        """
        return (*self.parameters.writers, CONTROL)

    def cases(self) -> Sequence[str]:
        return ("",)

    def metrics(self) -> Sequence[Metric]:
        return [
            metric(end, measure, writer)
            for end in ENDS
            for writer, measures in (
                ("", TOTALS + (TOTALS_WITHOUT_DISK if end == STACK_CUT else ())),
                *((name, OF_WRITER) for name in self.writers),
            )
            for measure in measures
        ]

    def reports(self, case: str) -> Sequence[Metric]:
        return self.metrics()

    def seconds(self, case: str) -> float:
        each = EMULATED_CHECK_SECONDS if self.emulated else CHECK_SECONDS
        start = EMULATED_DATABASE_SECONDS if self.emulated else DATABASE_SECONDS
        recovery = EMULATED_RECOVERY_SECONDS if self.emulated else RECOVERY_SECONDS
        databases = self.parameters.databases
        each += recovery * databases
        return self.parameters.seconds + start * databases + self.parameters.states * each

    def shortfall(self, rounds: int) -> str:
        states = self.parameters.states * rounds
        if states >= NEEDED_STATES:
            return ""
        # With one state, each state is a power cut, and each boot has one.
        cure = "raise rounds" if self.parameters.states == 1 else "raise rounds, or workloads.durability.states"
        return (
            f"durability: {states} states of each at most, and {NEEDED_STATES} are needed to show that one is durable:"
            f" {cure}"
        )

    def written_bytes(self, case: str, *, usual: bool = False) -> float:
        records = parse_bytes(self.parameters.room) * (2 * len(self.writers) + 4)
        return records + self.parameters.databases * DATABASE_BYTES

    def writing(self, directory: str) -> tuple[str, ...]:
        """The argv of the program that writes in the guest."""
        return (*_program("write"), directory, str(parse_bytes(self.parameters.room)), *self.writers)

    def checking(
        self, device: str, mount: str, inside: str = "", stack: Stack | None = None, beside: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """The argv of the program that checks states in another guest.

        `inside`: the file that is the guest's disk, if `device` is its host's disk; "": `device` is the guest's
        `stack`: how the guest's disk is laid out on `device` and those in `beside`, the disks of a host under test
        """
        below = "" if stack is None else json.dumps(stack._asdict())
        given = {"--options": self.parameters.mount_options, "--inside": inside, "--stack": below}
        pairs = [*given.items(), *(("--beside", other) for other in beside)]
        options = [word for name, value in pairs if value for word in (name, value)]
        return (*_program("verify"), *options, device, mount, *self.writers)

    def measured(self, found: Mapping[str, Counts]) -> Iterator[Measurement]:
        """Pure."""
        for end, seen in found.items():
            counts = {name: getattr(seen, name) for name in (*TOTALS, *TOTALS_WITHOUT_DISK)}
            yield from (Measurement(metric(end, name), float(n)) for name, n in counts.items() if n is not None)
            for writer, each in seen.of_writer.items():
                yield from (Measurement(metric(end, name, writer), float(count)) for name, count in each.items())


def is_control(writer: str) -> bool:
    """Whether it acknowledges records that it has not flushed: then its losses are no fault of the disk."""
    return writer == CONTROL or writer.startswith(LYING)


def metric(end: str, measure: str, writer: str = "") -> Metric:
    """The metric that counts states of one end; of one writer if it is given."""
    name = ".".join(filter(None, (NAME, end, writer, measure)))
    return Metric(name, "1", "higher" if measure in (STATES, WITHOUT_DISK) else "lower")


def _program(command: str) -> tuple[str, ...]:
    return (PYTHON, "-I", "-S", "-c", guest_source(), command)
