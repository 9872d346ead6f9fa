"""What a booted guest offers to workloads: its disks, its network card, the pack that it was given."""

from __future__ import annotations

import time

from vmtax.design.net import NetSettings
from vmtax.design.topology import Subject
from vmtax.hypervisor import BY_SERIAL, DATA_ID, FRESH_ID, BootFailed, Guest
from vmtax.hypervisor.confine import enter_tree
from vmtax.testbed.subjects import cards
from vmtax.testbed.subjects.provisioned import Provisioned
from vmtax.workload import Site

PACK_MOUNT = "/mnt"
DISK_SECONDS = 20.0  # until a guest has found all its disks; most exist when it is ready


def guest_site(on: Provisioned, subject: Subject, guest: Guest, card: NetSettings | None) -> Site:
    """Where workloads run in that guest. `card`: what it must have on the network under test. Raises BootFailed."""
    if on.database_pack is not None:
        on.database_pack.mount(guest)
    link = cards.link(on, guest, subject.number, card)
    disk, fresh = disks_of(guest)
    return Site(
        machine=guest.machine,
        layer=subject.layer,
        vcpus=guest.spec.vcpus,
        prefix=(),
        disk=disk,
        fresh_disk=fresh,
        kernel_pack=_kernel_userland(guest) if on.kernel_pack else None,
        link=link,
        lead=on.lead,
    )


def _kernel_userland(guest: Guest) -> tuple[str, ...]:
    """The command that enters the kernel pack in a guest that has it as its first pack, once it is mounted."""
    guest.machine.run("mount", "-t", "erofs", "-o", "ro", guest.spec.pack_devices[0], PACK_MOUNT)
    return enter_tree(PACK_MOUNT, root=True)


def disks_of(guest: Guest) -> tuple[str | None, str | None]:
    """The guest's device names of the disk under test and of the disk that was never written. Raises BootFailed."""
    found = devices(guest)
    return found.get(DATA_ID), found.get(FRESH_ID)


def devices(guest: Guest) -> dict[str, str]:
    """The guest's device names by the names of its disks. Raises BootFailed."""
    names = {disk.name for disk in guest.spec.disks}
    if len(names) < 2:
        return {name: device for name in names if (device := guest.spec.device(name)) is not None}
    deadline = time.monotonic() + DISK_SECONDS
    while True:
        rows = (line.split() for line in guest.machine.run(*BY_SERIAL).splitlines())
        found = {row[1]: f"/dev/{row[0]}" for row in rows if len(row) == 2}
        if names <= found.keys():
            return found
        if time.monotonic() > deadline:
            raise BootFailed(f"{guest.path}: not all of its disks came up; it sees {', '.join(found) or 'none'}")
        time.sleep(0.5)
