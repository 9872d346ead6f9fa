"""Ways into a VM of the user's that libvirt or Proxmox VE runs: a port and disks of ours are plugged in, and unplugged
again.

The guest is entered by its agent, which starts the image's ssh server on the port, and ends it. Nothing of its
configuration, files or network is used or changed; modules that its kernel loads for that stay until it reboots.
"""

from vmtax.attach.agent import AgentRefused
from vmtax.attach.domain import Domain, DomainError, look_up
from vmtax.attach.entry import Entered, enter
from vmtax.attach.libvirt import LIBVIRT, LibvirtVm
from vmtax.attach.pluggable import Pluggable
from vmtax.attach.proxmox import PROXMOX, find_vm
from vmtax.attach.scratch import plugged_disk, why_not

__all__ = [
    "LIBVIRT",
    "PROXMOX",
    "AgentRefused",
    "Domain",
    "DomainError",
    "Entered",
    "LibvirtVm",
    "Pluggable",
    "enter",
    "find_vm",
    "look_up",
    "plugged_disk",
    "why_not",
]
