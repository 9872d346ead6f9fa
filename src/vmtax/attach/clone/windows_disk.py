"""The disk under test in a clone of a Windows: found by its serial number, and refused if anything is on it.

Scripts for PowerShell, which read and print a line NAME=VALUE for each disk, and one that writes. Never run on Windows.
Sources: learn.microsoft.com on MSFT_Disk, Get-Disk and Set-Disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vmtax.attach.domain import DomainError
from vmtax.meter.text import whole
from vmtax.meter.windows import rows, switch

LIST = """\
Get-Disk|ForEach-Object{
"disk=$($_.Number)|$($_.PartitionStyle)|$($_.NumberOfPartitions)|$($_.IsBoot -or $_.IsSystem)|$($_.IsReadOnly)|\
$($_.Size)|$($_.SerialNumber)"}
"""
# A Windows Server makes disks on SCSI read-only that it sees for the first time.
WRITABLE = "Set-Disk -Number {} -IsReadOnly $false"
RAW = "RAW"  # neither MBR nor GPT


@dataclass(frozen=True, slots=True)
class SeenDisk:
    """A physical disk, as Windows lists it."""

    number: int
    style: str  # of its partitions
    partitions: int | None  # None: it does not say
    is_of_system: bool | None
    is_readonly: bool | None
    size: int  # bytes
    serial: str

    @property
    def device(self) -> str:
        """By which a program opens all of it."""
        return rf"\\.\PhysicalDrive{self.number}"

    def why_not(self, size: int) -> str:
        """Why that many bytes of it are not written; "" if they may be."""
        if self.is_of_system is not False:
            return "Windows says that it runs from it"
        if self.style.upper() != RAW or self.partitions != 0:
            has = f"{self.partitions} partitions" if self.partitions is not None else "partitions, as far as is known"
            return f"it has {has} ({self.style or 'of an unknown style'}), and ours has none"
        return f"it has {self.size} bytes, and ours {size}" if self.size < size else ""


def parse_disks(text: str) -> list[SeenDisk]:
    """What LIST prints; a line that is not understood is no disk. Pure."""
    found = []
    for number, style, partitions, system, readonly, size, serial in rows(text, "disk", 7):
        if (known := whole(number)) is not None and known >= 0:
            whose = (switch(system), switch(readonly))
            found.append(SeenDisk(known, style, whole(partitions), *whose, whole(size) or 0, serial.strip(" \0")))
    return found


def chosen(disks: Sequence[SeenDisk], serial: str, size: int, name: str) -> SeenDisk | None:
    """The one with that serial number, if there is one. Pure. Raises DomainError if it must not be written.

    `name`: of the VM
    """
    ours = [each for each in disks if each.serial == serial]
    if len(ours) > 1:
        raise DomainError(f"a clone of {name}: {len(ours)} disks have the serial number {serial}")
    for disk in ours:
        if why := disk.why_not(size):
            what = f"{disk.device}, with the serial number {serial}, is not written"
            raise DomainError(f"a clone of {name}: {what}: {why}")
    return ours[0] if ours else None
