"""A clone of a VM of the user's that libvirt runs: overlays on a consistent point of its disks, booted with settings of
choice, without its network.

Nothing of the VM is written or locked. A point of a domain that runs is a backup job of libvirt's, which ends with the
run; one of a domain that is off is read from its files, and holds as long as it stays off.
"""

from vmtax.attach.clone.boot import Cloned, booted
from vmtax.attach.clone.definition import Definition, why_not_cloned
from vmtax.attach.clone.edit import CloneDisk
from vmtax.attach.clone.guests import QUIET_SECONDS, ClonedGuest, LinuxGuest, WatchedGuest, WindowsGuest
from vmtax.attach.clone.levels import CHANGES
from vmtax.attach.clone.point import ClonePoint, opened, refuse
from vmtax.attach.domain import OFF

__all__ = [
    "CHANGES",
    "OFF",
    "QUIET_SECONDS",
    "CloneDisk",
    "ClonePoint",
    "Cloned",
    "ClonedGuest",
    "Definition",
    "LinuxGuest",
    "WatchedGuest",
    "WindowsGuest",
    "booted",
    "opened",
    "refuse",
    "why_not_cloned",
]
