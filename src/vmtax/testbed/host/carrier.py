"""The disk on which an outer VM keeps the disks of its nested guests."""

from __future__ import annotations

from dataclasses import dataclass

from vmtax.design.disk import DiskSettings
from vmtax.machine import Machine
from vmtax.storage import FirstWrite, RawFile, fill
from vmtax.storage.backing import describe

CARRIER_DEVICE = "/dev/vdb"
CARRIER_MOUNT = "/srv"
NESTED_DISK = f"{CARRIER_MOUNT}/disk{{}}.raw"  # {}: number of the nested guest


@dataclass
class CarrierDisk:
    """The disk on which an outer VM keeps its nested guests' disks; two QEMUs of one host share it."""

    file: RawFile
    size: int  # bytes of each nested guest's disk
    guests: int = 1  # nested guests that have a disk on it
    first_write: FirstWrite | None = None  # of the nested guests' disks; None until the first boot has filled them

    def mount(self, carrier: Machine) -> None:
        """Mount an ext4 with a raw file for each nested guest. The first boot makes and fills them; later boots reuse
        them.
        """
        if self.first_write is None:
            carrier.run("mkfs.ext4", "-q", "-F", CARRIER_DEVICE)
        carrier.run("mount", "-t", "ext4", CARRIER_DEVICE, CARRIER_MOUNT)
        if self.first_write is not None:
            return
        allocation = f"{describe(DiskSettings())} on ext4 on the outer VM's data disk, which is another"
        when = "in the outer VM's first boot, before anything was measured in it"
        for number in range(1, self.guests + 1):
            disk = NESTED_DISK.format(number)
            carrier.run("fallocate", "-l", str(self.size), disk)
            first_write = fill(carrier, (), disk, self.size, allocation=allocation, when=when)
        carrier.run("sync")
        self.first_write = first_write
