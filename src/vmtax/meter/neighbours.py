"""Who else uses a host: VMs that run there, and how busy it is."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vmtax.core.units import at_most
from vmtax.machine import Reader
from vmtax.meter.text import number, parse_files

MOST_NAMED = 3
LOAD = ("cat", "/proc/loadavg")
# Complete process names, cut to 15 characters as the kernel does. They must match completely: on Proxmox, KVM has a
# kernel thread whose name begins with "kvm" and is longer; qemu-ga, qemu-img and qemu-nbd run no VM.
VMMS = "qemu-system-.*|qemu-kvm|kvm|firecracker|cloud-hyperviso|crosvm|VBoxHeadless|VirtualBoxVM|vmware-vmx"
PROCESSES = ("sh", "-c", 'exec grep -s -a -H -x -E "$1" /proc/[0-9]*/comm', "sh", VMMS)


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Who uses a host beside the run."""

    vms: tuple[str, ...] = ()  # "qemu-system-x86 (pid 812)"
    load: float | None = None  # tasks that ran or waited in the last minute, on average; None: unknown
    may_be_own: bool = False  # one of the VMs may be the one that is measured
    is_cloned: bool = False  # one of the VMs is the one that is cloned

    @property
    def is_crowded(self) -> bool:
        """Whether there are more VMs than the user has named."""
        return len(self.vms) > (self.may_be_own or self.is_cloned)

    def __str__(self) -> str:
        """In a sentence; "" if there is nothing to say."""
        busy = "" if self.load is None else f"load {self.load:.1f} in the last minute"
        if not self.vms:
            return busy
        named, also = ", ".join(at_most(MOST_NAMED, self.vms)), busy and f", {busy}"
        if self.may_be_own:
            lead = "1 VM runs here, which" if len(self.vms) == 1 else f"{len(self.vms)} VMs run here, of which one"
            lead += f" may be the one that is measured ({named}){also}"
            return f"{lead}: the run slows down any other, and that one falsifies the run's figures"
        if len(self.vms) == 1:
            return f"1 other VM runs here ({named}){also}: the run slows it down, and it falsifies the run's figures"
        lead = f"{len(self.vms)} other VMs run here ({named}){also}"
        return f"{lead}: the run slows them down, and they falsify its figures"

    def without(self, process: int) -> Neighbours:
        """The others than the VM of this process, which is the one that is measured."""
        return replace(self, vms=tuple(name for name in self.vms if not name.endswith(f"(pid {process})")))


def other_vms(reader: Reader) -> tuple[str, ...] | None:
    """The VMs of other programs and runs; None if they cannot be searched for."""
    outcome = reader.try_run(*PROCESSES)
    # Exit codes 1: none found; 2: a process ended meanwhile.
    return processes(outcome.stdout) if outcome.code in (0, 1, 2) else None


def processes(text: str) -> tuple[str, ...]:
    """Parse PROCESSES' output to "name (pid number)"."""
    files = parse_files(text)
    return tuple(f"{name} (pid {path.split('/')[2]})" for path, name in files.items() if path.count("/") > 2)


def read_neighbours(reader: Reader) -> Neighbours:
    """Reads only. What cannot be read is left out."""
    load = number(reader.try_run(*LOAD).stdout.partition(" ")[0])
    return Neighbours(other_vms(reader) or (), load)
