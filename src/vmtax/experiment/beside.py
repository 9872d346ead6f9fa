"""What goes on beside the commands of a trial: snapshots and backups of the guests' disks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vmtax.hypervisor import DATA_ID, FRESH_ID
from vmtax.meter import Readings
from vmtax.testbed.session.base import RunningTreatment
from vmtax.testbed.session.copying import Copying
from vmtax.workload import Command
from vmtax.workload.fio import PATTERNS, Disk


@dataclass(frozen=True, slots=True)
class Beside:
    """What each subject of a treatment has beside its commands, in their order."""

    copies: tuple[Copying | None, ...]

    def begin(self) -> None:
        for each in self.copies:
            if each is not None:
                each.begin()

    def end(self) -> list[Readings | None]:
        """Readings for each subject; None for one that has nothing beside its commands."""
        return [None if each is None else each.end() for each in self.copies]


@contextlib.contextmanager
def beside(running: RunningTreatment, workload: Command[Any], case: str) -> Iterator[Beside]:
    """Prepare it for one trial, and undo it when the trial has been read."""
    is_disk = isinstance(workload, Disk)
    name = FRESH_ID if is_disk and PATTERNS[case].fresh else DATA_ID
    copies = tuple(subject.offer(Copying) for subject in running.subjects)
    with contextlib.ExitStack() as stack:
        for subject, each in zip(running.subjects, copies, strict=True):
            if each is not None:
                seconds = workload.seconds(case) + 2 * subject.site.lead
                stack.enter_context(each.around(name, seconds, awaited=is_disk))
        yield Beside(copies)
