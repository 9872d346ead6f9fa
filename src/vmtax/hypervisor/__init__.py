"""QEMU: what a guest is (GuestSpec), its command line, its boot on any machine, its end."""

from vmtax.hypervisor.credentials import Credentials
from vmtax.hypervisor.qemu.accelerator import Accelerator, choose
from vmtax.hypervisor.qemu.boot import BootFailed, Guest, boot
from vmtax.hypervisor.qemu.detect import Qemu, QemuError, find_qemu, image_qemu
from vmtax.hypervisor.spec import Drive, GuestSpec

__all__ = [
    "Accelerator",
    "BootFailed",
    "Credentials",
    "Drive",
    "Guest",
    "GuestSpec",
    "Qemu",
    "QemuError",
    "boot",
    "choose",
    "find_qemu",
    "image_qemu",
]
