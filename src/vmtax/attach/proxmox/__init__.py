"""A VM that Proxmox VE runs, by `qm` and `pvesh` on its node: never run on Proxmox VE itself, but on a stand-in of ours
with a real QEMU below it, which prints what Proxmox's own source and manual say.
"""

from vmtax.attach.proxmox.find import find_vm
from vmtax.attach.proxmox.vm import PROXMOX, ProxmoxVm

__all__ = ["PROXMOX", "ProxmoxVm", "find_vm"]
