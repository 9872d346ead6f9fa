"""A snapshot or backup of a guest's disk during each of its trials."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from vmtax.core.errors import CannotDo
from vmtax.core.machines import first_line
from vmtax.core.stopwatch import Stopwatch
from vmtax.design.disk import During
from vmtax.hypervisor import Guest
from vmtax.hypervisor.copying import DiskCopy
from vmtax.machine import Machine
from vmtax.meter import Readings

AT_WORK = 16  # reads and writes of a disk by which fio, and not the guest's kernel, is seen
LOOK_SECONDS = 0.05
NAME = "copying"  # prefix of its readings
# Of the time that a backup lasts: work that goes on longer, and for longer than a start and an end take, had none.
LONGER, LONGER_SECONDS = 1.25, 2.0


@dataclass(frozen=True, slots=True)
class Spare:
    """A file on the guest's host that gets what is copied from one of its disks."""

    path: PurePosixPath
    size: int  # bytes of the disk


class Copying:
    """What a guest offers whose disk is copied while it works. Nothing here raises CannotDo: what went wrong makes the
    trial void.
    """

    def __init__(self, host: Machine, guest: Guest, what: During, spares: Mapping[str, Spare]) -> None:
        """`spares`: by the name of their disks"""
        self._host, self._guest, self._what, self._spares = host, guest, what, spares
        self._left = ""  # why a disk is not as it was
        self._copy: DiskCopy | None = None
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._why = ""  # it failed
        self._began: Stopwatch | None = None
        self._lasts = math.inf  # seconds, of a backup at its rate

    @contextlib.contextmanager
    def around(self, disk: str, seconds: float, *, awaited: bool) -> Iterator[None]:
        """Prepare one of the guest's disks for one trial, and make it afterwards as it was.

        seconds: that a backup lasts at least; awaited: it begins when the disk is at work, not at once
        """
        spare = self._spares[disk]
        self._why, self._began = self._left, None
        self._over.clear()
        self._lasts = seconds if self._what is During.BACKUP else math.inf
        self._copy = copy = self._guest.copying(disk, self._what)
        if not self._why:
            with self._noted():
                self._host.run("truncate", "--size=0", str(spare.path))
                copy.prepare()
        work = (copy, math.ceil(spare.size / seconds), awaited)
        self._thread = threading.Thread(target=self._work, args=work, name="copying", daemon=True)
        try:
            yield
        finally:
            self._stop()
        if not self._left:
            try:
                copy.undo()
            except CannotDo as error:
                self._left = first_line(str(error))

    def begin(self) -> None:
        """The trial begins: it is called right before the commands are started, or released."""
        if not self._why and self._thread is not None:
            self._thread.start()

    def end(self) -> Readings:
        """The commands have ended."""
        self._stop()
        copied, worked = 0, 0.0
        if self._copy is not None and self._began is not None:
            worked = self._began.seconds
            if worked > max(LONGER * self._lasts, self._lasts + LONGER_SECONDS):
                self._why = f"the work took {worked:.1f} s, and the backup was over after {self._lasts:.1f} s"
            with self._noted():
                copied = self._copy.end()
        if not self._why and self._began is None:
            self._why = "the disk was not seen at work"
        if self._why or self._began is None:
            return Readings(void=f"{self._guest.path}: disk.snapshot_during={self._what}: {self._why}")
        return Readings({"seconds": worked, "bytes": float(copied)})

    def _stop(self) -> None:
        self._over.set()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()

    def _work(self, copy: DiskCopy, rate: int, awaited: bool) -> None:
        """In a thread of its own, beside the commands; nothing else speaks to the hypervisor meanwhile."""
        with self._noted():
            first = copy.operations()
            while awaited and copy.operations() - first < AT_WORK:
                if self._over.wait(LOOK_SECONDS):
                    return
            watch = Stopwatch()
            copy.begin(rate)
            self._began = watch

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except CannotDo as error:
            self._why = self._why or first_line(str(error))
