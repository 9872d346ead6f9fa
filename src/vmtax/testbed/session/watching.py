"""A VM of the user's that is only watched from its host: what its QEMU takes there. Nothing is looked at inside, so
that neither a guest agent nor a program in it is needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from vmtax.attach import LIBVIRT, PROXMOX, DomainError
from vmtax.attach.domain import RUNNING, Domain, find_domain, words_of_virsh
from vmtax.attach.proxmox.find import find_running
from vmtax.core.layers import EXISTING_PATH
from vmtax.core.machines import MachineLost
from vmtax.core.records import Json
from vmtax.machine import Machine
from vmtax.machine.answer import boot_id_of
from vmtax.machine.windows.machine import WindowsMachine
from vmtax.meter.windows import read_windows
from vmtax.network.wire import BOOT_ID
from vmtax.plan.schema import GuestSize
from vmtax.testbed.session.observed import Watched
from vmtax.testbed.session.ways import Login, find_qemu
from vmtax.workload.idle import IdleWorkload

SEEN = (
    "{} was watched from its host alone: nothing was looked at inside meanwhile, so that what it did is not known. Its"
    " figure is the time of its QEMU's threads; interrupts of the host for it are not in it."
)
LOGGED_IN = "It was logged in to before, for its UUID and size, and was left before anything was measured."
QEMU = "qemu:"  # followed by the number of its process on the host
NAME_IT = "name it as libvirt:NAME, proxmox:VMID or qemu:PID, on its own host (--host)"
THREADS = ("sh", "-c", 'cat "/proc/$1/task/"*/comm', "sh")  # their names. Argument: the process
FILES = ("sh", "-c", 'readlink "/proc/$1/fd/"*', "sh")  # that are open, where they may be seen. Argument: the process
COUNTS_AS_EMULATED = "{} counts as emulated: no thread of its QEMU has the name of a vCPU, and {}"
STAT = re.compile(r".*\) (?:\S+ ){19}(\d+)", re.DOTALL)  # of /proc/PID/stat: when it was started, in ticks


@dataclass(frozen=True, slots=True)
class Watching:
    """A VM that ran when it was named."""

    name: str
    host: Machine
    uuid: str  # of qemu:PID, what tells its process from a later one with that number
    qemu: int  # its process, on the host
    vcpus: int | None  # None: not known
    memory: int | None  # bytes; None: not known
    state: Callable[[], str]  # in the words of who runs it; "" if it runs. Raises MachineLost
    started: str  # when that process was: its number can become another one's
    emulation: tuple[bool, str]  # whether it has no KVM, and why that is assumed; "": it is known
    machine: None = None
    path: str = EXISTING_PATH
    verb: str = "watch"
    announced: str = ""
    takes_root: bool = False
    measures: tuple[str, ...] = (IdleWorkload.name,)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know about it."""
        seen = (SEEN.format(self.name), *([LOGGED_IN] if self.name.startswith("ssh://") else []))
        return (*seen, *([f"{self.why_emulated}."] if self.emulation[1] else []))

    @property
    def why_emulated(self) -> str:
        """If it is."""
        name, assumed = self.name, self.emulation[1]
        known = f"the CPU of {name} is emulated, as the names of its QEMU's threads say"
        return COUNTS_AS_EMULATED.format(name, assumed) if assumed else known

    @property
    def is_emulated(self) -> bool:
        return self.emulation[0]

    @property
    def facts(self) -> Json:
        known: Json = {"cpus_online": self.vcpus, "memory_bytes": self.memory}
        return {**known, "uuid": self.uuid, "emulated_cpu": self.is_emulated, "watched": True}

    @property
    def watched(self) -> Watched:
        return Watched(self.qemu, self.why_void)

    def size(self) -> GuestSize:
        raise AssertionError("nothing beside it gets as many CPUs")

    def why_not(self, levels: Mapping[str, str]) -> str | None:
        return f"{', '.join(levels)}: it is watched as it is, and gets none" if levels else None

    def why_void(self) -> str:
        if (state := self.state()) != "":
            return f"{self.name} is {state}, and did not idle"
        return "" if _started(self.host, self.qemu) == self.started else f"the QEMU of {self.name} has ended"

    def check(self) -> None:
        """Raises MachineLost if there is nothing to watch any more."""
        if why := self.why_void():
            raise MachineLost(why)

    def leave(self) -> Json:
        """Nothing was done to it."""
        return {}


def watching(host: Machine, name: str, entered: Callable[[str], AbstractContextManager[Machine]]) -> Watching:
    """`entered`: logs in to a VM that is named so, and leaves it. Raises DomainError, which says what to type, and
    MachineError.
    """
    if name.startswith(LIBVIRT):
        domain = find_domain(host, name.removeprefix(LIBVIRT))
        size = (domain.vcpus, domain.memory)
        return _of(f"{LIBVIRT}{domain.name}", host, domain.uuid, None, size, lambda: _state(domain))
    if name.startswith(PROXMOX):
        vm = find_running(host, name.removeprefix(PROXMOX))
        return _of(vm.name, host, vm.uuid, vm.qemu, (vm.vcpus, vm.memory), lambda: vm.status().replace("running", ""))
    if name.startswith(QEMU):
        pid = _process(host, name)
        identity = f"{boot_id_of(host, BOOT_ID, host.read_text(BOOT_ID))}/{_started(host, pid)}"
        return _of(name, host, identity, pid, (None, None), lambda: "")
    with entered(name) as there:  # and left again: a login has processes in it, and wakes it to stay alive
        uuid, vcpus, memory = _read(name, there, host)
    return _of(name, host, uuid, None, (vcpus, memory), lambda: "")


def _read(name: str, there: Machine, host: Machine) -> tuple[str, int | None, int | None]:
    """The UUID, CPUs and bytes of memory of a VM that was logged in to."""
    if isinstance(there, WindowsMachine):
        facts = read_windows(there)
        return facts.uuid or "", facts.cpus, facts.memory_bytes
    login = Login(name, there, host.scratch)
    has = login.size()
    return login.uuid, has.vcpus, has.memory


def _of(
    name: str,
    host: Machine,
    uuid: str,
    qemu: int | None,
    size: tuple[int | None, int | None],
    state: Callable[[], str],
) -> Watching:
    if qemu is None:
        qemu, why = find_qemu(host, uuid)
        if qemu is None:
            raise DomainError(f"{name}: what it takes of {host.path} cannot be seen: {why}: {NAME_IT}")
    return Watching(name, host, uuid, qemu, *size, state, _started(host, qemu), _emulation(host, qemu))


def _emulation(host: Machine, qemu: int) -> tuple[bool, str]:
    """Whether that QEMU has no KVM, and why that is assumed; "": it is known. Its threads have names only with the
    option debug-threads, which libvirt gives it.
    """
    names = host.try_run(*THREADS, str(qemu)).stdout.splitlines()
    if any(each.endswith("/TCG") for each in names):
        return True, ""
    if any(each.startswith("CPU ") for each in names):
        return False, ""
    files = host.try_run(*FILES, str(qemu)).stdout.splitlines()
    if any(each.startswith("anon_inode:kvm-") for each in files):
        return False, ""
    return True, "none of its open files is one of KVM" if files else "only root sees there which files it has open"


def _process(host: Machine, name: str) -> int:
    """The number in it. Raises DomainError if no QEMU has it."""
    pid = int(name.removeprefix(QEMU))
    comm = host.try_run("cat", f"/proc/{pid}/comm").stdout.strip()
    if comm != "kvm" and not comm.startswith(("qemu-system", "qemu-kvm")):  # kernel threads are called kvm-…
        what = f"process {pid} there is {comm}, and no QEMU" if comm else f"there is no process {pid}"
        raise DomainError(f"{host.path}: {name}: {what}: `pgrep -l 'qemu-|^kvm$'` lists those that run")
    return pid


def _started(host: Machine, pid: int) -> str:
    """When that process was started; "" if there is none."""
    found = STAT.match(host.try_run("cat", f"/proc/{pid}/stat").stdout)
    return found[1] if found else ""


def _state(domain: Domain) -> str:
    said = domain.ask("domstate")
    state = said.stdout.strip() if said.ok else words_of_virsh(said)
    return "" if state in RUNNING else state
