"""Where two QEMUs meet for a live migration."""

from __future__ import annotations

import itertools

from vmtax.hypervisor import MEETING_MODE, Qemu
from vmtax.machine import Machine

_numbers = itertools.count(1)


def meeting(machine: Machine, qemu: Qemu, *, keeps_user: bool = False) -> str:
    """A new directory on that machine for the sockets of two QEMUs. Raises MachineError.

    `keeps_user`: these QEMUs keep the user that started them, because of their guests' devices
    """
    directory = str(machine.scratch / f"meeting-{next(_numbers)}")
    machine.run("mkdir", "-m", MEETING_MODE, directory)
    if qemu.user is not None and not keeps_user:
        machine.run("chown", str(qemu.user), directory)
    return directory
