"""Losses among the states of one kind of end, with exact bounds, as numbers and in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vmtax import stats
from vmtax.core.units import count_of
from vmtax.workload.durability import (
    FILE_SYSTEM,
    HOST_CUT,
    IMAGE,
    KILLED,
    LOST,
    NAME,
    POWER_CUT,
    REAL_CUT,
    STACK_CUT,
    STATES,
    TORN,
    WITHOUT_DISK,
    WITHOUT_DISK_LOST,
    is_control,
)
from vmtax.workload.durability.records import CONTROL

CONFIDENCE = stats.CONFIDENCE
WORDS: Mapping[str, str] = {  # kind of end -> name of its states
    KILLED: "disks of killed guests",
    POWER_CUT: "states of a power cut",
    HOST_CUT: "cuts of the host's power",
    STACK_CUT: "states of the host's disks",
    REAL_CUT: "real power cuts",
}


@dataclass(frozen=True, slots=True)
class Count:
    """Losses among states, and the bounds of their share."""

    states: int  # number of states in which something had been acknowledged; of a whole end, by any writer but the
    # control
    lost: int  # number of these states in which acknowledged data were lost or torn; of a whole end, by any writer but
    # the control, or in which something was damaged

    @property
    def high(self) -> float:
        """The exact one-sided upper bound of this share, at `confidence`; 1 without a state."""
        return stats.upper_bound(self.lost, self.states, CONFIDENCE) if self.states else 1.0

    @property
    def low(self) -> float:
        """The exact one-sided lower bound of the share of states with a loss, at `confidence`; 0 without a state."""
        return stats.lower_bound(self.lost, self.states, CONFIDENCE) if self.states else 0.0

    @property
    def bound(self) -> str:
        """Such as "at most 0.14 %" without a loss, "at least 13 %" with one; "" if there is no state."""
        return self.short_bound.replace("≤", "at most").replace("≥", "at least")

    @property
    def short_bound(self) -> str:
        """Such as "≤ 0.14 %", for tables."""
        if not self.states:
            return ""
        return f"≥ {percent(self.low)}" if self.lost else f"≤ {percent(self.high, up=True)}"

    def __str__(self) -> str:
        return f"{self.lost:,} of {self.states:,}"


@dataclass(frozen=True, slots=True)
class Writer:
    """What one writer in the guest lost of the data that it had acknowledged, over all rounds."""

    name: str  # append-fsync-4k, sqlite-wal, ...; control: the writer that never flushes, and must lose data
    states: int  # number of states of the disk in which the writer had acknowledged something
    lost: int  # number of these states in which acknowledged data were missing or old
    torn: int  # number of these states in which acknowledged data were torn: partly new and partly old

    @property
    def missing(self) -> Count:
        return Count(self.states, self.lost)

    @property
    def has_loss(self) -> bool:
        return bool(self.lost or self.torn)


@dataclass(frozen=True, slots=True)
class End:
    """The states of the disk after one kind of end of the guest, over all rounds."""

    end: str  # guest-killed: QEMU was killed; power-cut: a power cut of the host, rebuilt from the log of QEMU's
    # writes; host-cut: the outer VM of a nested guest was killed; stack-cut: a power cut of the host, rebuilt from the
    # logs of writes to its own disks; real-cut: a real power cut of the host under test
    count: Count  # of states in which anything had been acknowledged; lost: by any writer but the control, or damaged
    file_system_damaged: int  # number of states in which a file system was damaged
    image_damaged: int | None  # number of states in which qemu-img check found damage; None: a raw image has no
    # structure to check
    writers: tuple[Writer, ...]  # the writers, without the control
    control: Writer | None  # the control; None: it had acknowledged nothing
    without_disk: Count | None = None  # of `count`, those in which one of the host's disks was missing; None: none was

    @property
    def has_loss(self) -> bool:
        return self.count.lost > 0

    @property
    def control_lost(self) -> bool:
        """Whether the trial detected the loss that had to occur."""
        return self.control is not None and self.control.has_loss

    @property
    def sentence(self) -> str:
        """Such as "0 of 2,143 states of a power cut lost anything: at most 0.14 % at 95 %"."""
        states, bound = f"{self.count} {WORDS.get(self.end, self.end)}", f"{self.count.bound} at {percent(CONFIDENCE)}"
        gone = self.without_disk
        if not self.has_loss:
            lacking = f", {gone.states:,} of which had one of the disks gone," if gone else ""
            return f"{states}{lacking} lost anything: {bound}"
        named = [writer.name for writer in sorted(self.writers, key=_worst_first) if writer.has_loss]
        of = f", most often of {named[0]}" if named else ""
        damaged = f", {' and '.join(self.damage)} damaged" if self.damage else ""
        what = "were damaged" if self.damage and not named else "lost data"
        lacking = f", in {gone} of those with one of the disks gone" if gone else ""
        return f"{states} {what} ({bound}{lacking}){of}{damaged}"

    @property
    def damage(self) -> tuple[str, ...]:
        """What was damaged: "12 file systems", "3 images"."""
        counts = ((self.file_system_damaged, "file system"), (self.image_damaged or 0, "image"))
        return tuple(count_of(count, what) for count, what in counts if count)


def end_of(name: str, sums: Mapping[str, int]) -> End:
    """`name`: of workload.durability.ENDS; `sums`: metric -> its sum over all rounds."""

    def number(*parts: str, most: int | None = None) -> int:
        """A sum; at most the number of states."""
        found = max(0, sums.get(".".join((NAME, name, *parts)), 0))
        return found if most is None else min(found, most)

    parts = [metric.split(".") for metric in sums if metric.startswith(f"{NAME}.{name}.")]
    writers = []
    for writer in dict.fromkeys(part[2] for part in parts if len(part) == 4):
        acknowledged = number(writer, STATES)
        losses = (number(writer, measure, most=acknowledged) for measure in (LOST, TORN))
        writers.append(Writer(writer, acknowledged, *losses))
    judged = tuple(writer for writer in writers if not is_control(writer.name))
    states = number(STATES)
    file_system, image = number(FILE_SYSTEM, most=states), number(IMAGE, most=states)
    each = [number(LOST, most=states), file_system, image, *(min(states, max(w.lost, w.torn)) for w in judged)]
    gone = number(WITHOUT_DISK, most=states)
    return End(
        name,
        Count(states, max(each)),
        file_system,
        image if f"{NAME}.{name}.{IMAGE}" in sums else None,
        judged,
        next((writer for writer in writers if writer.name == CONTROL and writer.states), None),
        Count(gone, number(WITHOUT_DISK_LOST, most=gone)) if gone else None,
    )


def percent(share: float, *, up: bool = False) -> str:
    """A bound for people, rounded to two digits towards the safe side; `up`: it is an upper bound."""
    from decimal import ROUND_CEILING, ROUND_FLOOR, Context

    rounded = Context(prec=2, rounding=ROUND_CEILING if up else ROUND_FLOOR).create_decimal(repr(100 * share))
    return f"{min(rounded, type(rounded)(100)):f} %"


def _worst_first(writer: Writer) -> int:
    return -max(writer.lost, writer.torn)
