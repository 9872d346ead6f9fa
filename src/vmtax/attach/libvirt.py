"""A running domain of libvirt, into which a port and disks are plugged."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from vmtax.attach import agent
from vmtax.attach.domain import FULL, SCSI, Domain, DomainError, find_domain, script
from vmtax.attach.pluggable import CONTROLLER, DATA, IMAGE, PORT, Bus, Settings
from vmtax.core.machines import Machine, Undoing

LIBVIRT = "libvirt:"
TAINTS = "the domain is marked as tainted (custom-ga-command) until it stops"
PLUGS = (
    "plugs a port, the root image as a read-only disk and, for disk tests, a disk of ours into it, and starts a program"
    f" by its guest agent: {TAINTS}. All is unplugged again;"
    " modules that its kernel loads for that (virtio_scsi, sd_mod, erofs) stay until it reboots. Until the run ends,"
    " make no snapshot or backup of it, and do not save or migrate it"
)
NO_SLOT = "unplug one of its devices, or log in to the VM: --guest ssh://root@ADDRESS"
SOCKET = re.compile(r"<source mode='bind' path='([^']+)'/>\s*<target type='virtio' name='([^']+)'")


@dataclass(frozen=True, slots=True)
class LibvirtVm:
    """One domain."""

    domain: Domain
    announced: str = PLUGS
    asked: str = TAINTS
    qemu: None = None  # it is found by its UUID

    @property
    def host(self) -> Machine:
        return self.domain.host

    @property
    def name(self) -> str:
        return f"{LIBVIRT}{self.domain.name}"

    @property
    def uuid(self) -> str:
        return self.domain.uuid

    @property
    def vcpus(self) -> int:
        return self.domain.vcpus

    @property
    def memory(self) -> int:
        return self.domain.memory

    @property
    def agent(self) -> agent.DomainAgent:
        return agent.DomainAgent(self.domain)

    @property
    def is_windows(self) -> bool:
        return self.domain.is_windows()

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(filter(None, [self.domain.unlike()]))

    def serial(self, what: str) -> str:
        return self.domain.serial(what)

    def remember(self) -> None:
        self.domain.before[:] = self.domain.digests()

    def later(self, undoing: Undoing) -> None:
        self.domain.later(undoing)

    def removal_of(self, file: str) -> Undoing:
        return self.domain.removal_of(file)

    def plug_port(self) -> None:
        self._plug(PORT, f"<channel type='unix'><target type='virtio' name='{self.serial(PORT)}'/>")

    def socket(self) -> PurePosixPath:
        found = [path for path, name in SOCKET.findall(self.domain.definition()) if name == self.serial(PORT)]
        if not found:
            raise DomainError(f"{self.name}: libvirt does not say where the socket of the port is")
        return PurePosixPath(found[0])

    def plug_image(self, file: str) -> tuple[Bus, str]:
        """A machine of type q35 often has one slot left: then one controller carries both disks."""
        domain, own = self.domain, self.settings().get("bus", "")
        attempts: list[Bus] = ["scsi"] if own == "scsi" else ["virtio", "scsi"]
        domain.detach_later(IMAGE)
        for bus in attempts:
            try:
                if bus == "virtio" and not has_two_slots(domain):
                    continue
                if bus == "scsi" and not SCSI.search(domain.definition()):
                    self._plug(CONTROLLER, "<controller type='scsi' model='virtio-scsi'>")
                    domain.detach_later(IMAGE)  # before the controller
                domain.attach(domain.disk(IMAGE, file, bus, {}, readonly=True))
            except DomainError as error:
                if FULL not in str(error):
                    raise
                if bus == attempts[-1]:
                    raise DomainError(f"{error}: {NO_SLOT}") from error
                continue
            return bus, why_other_bus(own, bus) if own not in ("", bus) else ""
        raise AssertionError("the last attempt returns or raises")

    def plug_data(self, file: str, bus: Bus, named: Settings) -> Undoing:
        domain, removal = self.domain, self.domain.removal(DATA)
        try:
            domain.attach(domain.disk(DATA, file, bus, {**domain.settings(), **named}))
        except BaseException:
            removal.undo()
            raise
        return removal

    def settings(self) -> dict[str, str]:
        return self.domain.settings()

    def start(self, argv: Sequence[str], given: str = "") -> int:
        return agent.start(self.domain, argv, given)

    def ended(self, pid: int) -> int | None:
        return agent.ended(self.domain, pid)

    def ends_later(self, argv: Sequence[str]) -> Undoing:
        ending = {"path": argv[0], "arg": list(argv[1:]), "capture-output": False}
        words = (self.domain.uri, self.domain.uuid, agent.command("guest-exec", ending))
        return self.host.undo_later(*script("end"), *words)

    def leave(self) -> dict[str, object]:
        return self.domain.leave()

    @classmethod
    def found(cls, host: Machine, name: str) -> LibvirtVm:
        """The running domain of that name or UUID, if its agent may answer. Raises DomainError."""
        domain = find_domain(host, name)
        agent.refuse_absent(domain)
        return cls(domain)

    def _plug(self, what: str, opening: str) -> None:
        """A device whose XML begins like that."""
        self.domain.detach_later(what)
        kind = opening[1:].partition(" ")[0]
        self.domain.attach(f"{opening}<alias name='{self.domain.alias(what)}'/></{kind}>")


def why_other_bus(own: str, bus: Bus) -> str:
    """Why its disk under test is on another bus than its own disk."""
    if own in ("virtio", "scsi"):
        return f"The disk under test is on {bus}, because no slot for {own} is free."
    return f"The disk under test is on {bus}, because none can be plugged in on {own} while a VM runs."


def has_two_slots(domain: Domain) -> bool:
    """Whether two more virtio disks fit: on a pcie machine, each takes a root port of its own."""
    text = domain.definition()
    ports = len(re.findall(r"<controller type='pci' index='\d+' model='pcie-root-port'", text))
    if not ports:
        return True  # a conventional bus has 32 slots, and says if they are used up
    used = set(re.findall(r"<address type='pci' domain='0x0000' bus='0x([0-9a-f]{2})'", text))
    taken = sum(1 for bus in used if bus != "00")
    return ports - taken >= 2
