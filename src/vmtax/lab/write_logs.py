"""Logs of all writes to the spare disks of a lab: a prefix of a log describes that disk after a power cut."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from vmtax.lab.home import Lab
from vmtax.lab.spec import disk_files, write_log


@dataclass(frozen=True, slots=True)
class SpareLog:
    """A spare disk of a lab that is up."""

    serial: str  # serial number of the disk in the lab
    disk: Path  # on the machine that runs the lab, like all files here
    log: Path
    size: int  # bytes of the disk


def spare_logs(one: Lab) -> list[SpareLog]:
    """All its spare disks; empty if it is off, or was started without logs. Raises LabError."""
    up = one.up()
    if up is None or not up.logs_writes:
        return []
    size = one.record().size
    disks = [path for path in disk_files(PurePosixPath(one.directory), size) if path.stem.startswith("spare")]
    found = {disk: Path(write_log(disk.parent, disk.stem, up.token)) for disk in disks}
    return [SpareLog(f"vmtax-{disk.stem}", Path(disk), log, size.spare_bytes) for disk, log in found.items()]
