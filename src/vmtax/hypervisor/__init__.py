"""Guests: their specification (`GuestSpec`: disks, cards), and `boot(parent, spec)`, which boots them on any machine.

A spec names the hypervisor that boots it. So far this is always QEMU; another hypervisor would be a package beside
`qemu/`, with a class that implements `Hypervisor`.
"""

from vmtax.hypervisor.base import AWAITED, BootFailed, BootPatience, Guest, GuestSpec, Hypervisor, Lasting, Thread, boot
from vmtax.hypervisor.credentials import Credentials
from vmtax.hypervisor.move import MEETING_MODE, Move, MoveFailed
from vmtax.hypervisor.qemu.accelerator import Accelerator, choose, known, probe_spec, remembered
from vmtax.hypervisor.qemu.cycles import why_no_cycles
from vmtax.hypervisor.qemu.detect import Qemu, QemuError
from vmtax.hypervisor.spec import BY_SERIAL, DATA_ID, FRESH_ID, Card, Drive, Nic, Passed, Tap, UserNetwork, card_of

__all__ = [
    "AWAITED",
    "BY_SERIAL",
    "DATA_ID",
    "FRESH_ID",
    "MEETING_MODE",
    "Accelerator",
    "BootFailed",
    "BootPatience",
    "Card",
    "Credentials",
    "Drive",
    "Guest",
    "GuestSpec",
    "Hypervisor",
    "Lasting",
    "Move",
    "MoveFailed",
    "Nic",
    "Passed",
    "Qemu",
    "QemuError",
    "Tap",
    "Thread",
    "UserNetwork",
    "boot",
    "card_of",
    "choose",
    "known",
    "probe_spec",
    "remembered",
    "why_no_cycles",
]
