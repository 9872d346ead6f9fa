"""What one run has in common on all of its hosts: options, credentials, images, connections."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath

from vmtax.attach import LIBVIRT, PROXMOX, LibvirtVm, Pluggable, find_vm, look_up
from vmtax.core.errors import CannotDo
from vmtax.core.events import Event
from vmtax.core.layers import CLONE, EXISTING, EXISTING_PATH
from vmtax.core.records import Json
from vmtax.core.stored import StoredOptions
from vmtax.design.interleaved import is_host
from vmtax.hypervisor import Credentials, Qemu
from vmtax.image.cache import Image
from vmtax.image.packs import Pack
from vmtax.image.place import Placed
from vmtax.machine import Machine, MachineError
from vmtax.machine.guarded import GuardedMachine
from vmtax.machine.local import LocalMachine
from vmtax.machine.ssh import SshMachine, ssh_route
from vmtax.machine.windows.machine import WindowsMachine, connect_guest
from vmtax.network.wire import CardInUse, refuse_card
from vmtax.storage import DISK_DIRECTORY, Target
from vmtax.testbed.host import hosts
from vmtax.testbed.session.cloning import Cloning
from vmtax.testbed.session.power import Power, PowerCut
from vmtax.testbed.session.watching import Watching, watching
from vmtax.testbed.session.ways import Login, Plugged, Way
from vmtax.testbed.session.windows_agent import WindowsByAgent, windows_by_agent
from vmtax.testbed.session.windows_way import windows_login

Emit = Callable[[Event], None]


class CannotMeasure(CannotDo):
    """The plan cannot be measured here; the text says what would make it possible."""


@dataclass(frozen=True, slots=True)
class Wire:
    """Two network cards that the user names, one of the host under test and one of the peer, and the link between
    them.
    """

    card: str
    peer: str  # where the peer is: local, ssh://... or a lab
    peer_card: str


@dataclass(frozen=True, slots=True)
class Destination:
    """A second host to which guests are migrated, and the cards of both hosts, which are on one network."""

    host: str  # where it is: local, ssh://... or a lab
    card: str  # of the host under test
    far_card: str  # of the destination


@dataclass(frozen=True, slots=True)
class ExistingVm:
    """A VM of the user's: nothing of it is changed, and it is not rebooted."""

    name: str  # as the user names it: ssh://root@10.0.0.5
    directory: PurePosixPath = DISK_DIRECTORY  # in the VM, of the file for disk tests
    clone: bool = False  # clones of it are measured, of layer clone, and not the VM as it runs
    watched: bool = False  # it is watched from its host alone

    @property
    def layer(self) -> str:
        """On which it is measured."""
        return CLONE if self.clone else EXISTING

    def to_json(self) -> Json:
        kinds = {"clone": self.clone, "watched": self.watched}
        more = {name: True for name, applies in kinds.items() if applies}
        return {"name": self.name, "directory": str(self.directory), **more}


@dataclass(frozen=True, slots=True)
class TestbedOptions:
    """What the command line may choose about the hosts under test."""

    __test__ = False  # not a test class, despite its name

    qemu: str | None = None  # a QEMU to use instead of the host's own
    target: Target = field(default_factory=Target)  # where the disks under test will be
    interleave_with: str | None = None  # a second host, or a second QEMU, in the same rounds
    emulate: bool = False  # measure even if no guest boots with KVM
    demonstration: bool = False  # results only show what a report looks like
    wire: Wire | None = None  # the link that carries the network under test; None: a network of our own
    power_cut: PowerCut | None = None  # None: the host under test keeps its power
    destination: Destination | None = None  # of guests that are migrated; None: another QEMU of their host
    existing: ExistingVm | None = None  # of layer existing or clone; None: the plan has no such layer

    @property
    def other_host(self) -> str | None:
        """The second host under test; None if there is none."""
        other = self.interleave_with
        return other if other is not None and is_host(other) else None

    @property
    def card(self) -> str | None:
        """The network card of the host under test that the user named."""
        named = self.wire or self.destination
        return named.card if named else None

    def to_json(self) -> Json:
        target = self.target
        return {
            "qemu": self.qemu,
            "disk_directory": str(target.directory),
            "disk_devices": list(target.devices),
            "disk_group": target.group,
            "disk_pool": target.pool,
            "interleave_with": self.interleave_with,
            **({"wire": asdict(self.wire)} if self.wire else {}),
            **({"power_cut": self.power_cut.to_json()} if self.power_cut else {}),
            **({"destination": asdict(self.destination)} if self.destination else {}),
            **({"existing": vm.to_json()} if (vm := self.existing) else {}),
            **{name: True for name in ("emulate", "demonstration") if getattr(self, name)},
        }

    @staticmethod
    def from_json(data: Json) -> TestbedOptions:
        """Options of a resumed run. Permission to erase is never restored: the devices are empty again."""
        stored = StoredOptions.model_validate(data)
        directory = DISK_DIRECTORY if stored.disk_directory is None else PurePosixPath(stored.disk_directory)
        wire, cut, to, vm = stored.wire, stored.power_cut, stored.destination, stored.existing
        return TestbedOptions(
            qemu=stored.qemu,
            target=Target(directory, tuple(stored.disk_devices), stored.disk_group, stored.disk_pool),
            interleave_with=stored.interleave_with,
            emulate=stored.emulate,
            demonstration=stored.demonstration,
            wire=Wire(wire.card, wire.peer, wire.peer_card) if wire else None,
            power_cut=PowerCut(tuple(cut.command), cut.back_within) if cut else None,
            destination=Destination(to.host, to.card, to.far_card) if to else None,
            existing=ExistingVm(vm.name, PurePosixPath(vm.directory), vm.clone, vm.watched) if vm else None,
        )


@dataclass(frozen=True, slots=True)
class Wired:
    """The other end of a wire."""

    peer: Machine
    wire: Wire
    tree: str  # the image's files at the peer


@dataclass(frozen=True, slots=True)
class There:
    """The host to which guests are migrated, with its image and QEMU."""

    machine: Machine
    wanted: Destination
    placed: Placed
    qemu: Qemu
    accelerator: str  # the same as on the host under test
    note: str = ""  # how figures must be read because it is itself a VM; empty on bare metal

    def refuse_cards(self, host: Machine) -> None:
        """Raises CardInUse if one of the cards may no longer be taken."""
        refuse_two_cards(host, self.machine, self.wanted)


def refuse_two_cards(host: Machine, machine: Machine, wanted: Destination) -> None:
    """Raises CardInUse unless each host has its card, nothing uses the cards, and both can carry packets of the same
    size.
    """
    here, there = refuse_card(host, wanted.card), refuse_card(machine, wanted.far_card)
    if here != there:
        raise CardInUse(
            f"{host.path}: the card {wanted.card} has an MTU of {here}, and the card {wanted.far_card} of"
            f" {machine.path} of {there}: set both alike"
        )


@dataclass(frozen=True, slots=True)
class Session:
    """The machine that runs vmtax, and what it provides for the hosts."""

    local: LocalMachine
    image: Image
    credentials: Credentials  # for this run's guests
    emit: Emit
    kernel_pack: Pack | None = None  # None: no kernel is built, or the pack is not there yet
    postgresql_pack: Pack | None = None  # None: no database is written, or the pack is not there yet
    wired: Wired | None = None  # None: the user named no wire for the network under test
    power: Power | None = None  # None: the host under test keeps its power


@dataclass(frozen=True, slots=True)
class Hosts:
    """The machine that runs vmtax and the host under test, often the same, and any others."""

    local: LocalMachine
    host: Machine
    other: Machine | None = None  # a second host under test
    peer: Machine | None = None  # at the other end of the wire that the user named
    destination: Machine | None = None  # where guests are migrated to, if that is another host
    existing: Way | Cloning | Watching | None = None  # a VM of the user's that is measured, or of which clones are


@contextlib.contextmanager
def connected(url: str, warn: Callable[[str], None], options: TestbedOptions = TestbedOptions()) -> Iterator[Hosts]:
    """Connect to the host under test, whose path is `host`, and to the others that the options name. At exit, undo what
    is still set up there; `warn` gets what could not be undone.

    The path of a second host, and of a migration's destination, is its name; that of a peer is `peer`, or that of this
    machine.
    """
    other, vm = options.other_host, options.existing
    peer = options.wire.peer if options.wire else None
    destination = options.destination.host if options.destination else None
    with contextlib.ExitStack() as stack:
        far = {other: other, peer: "peer", destination: destination} if url != "local" else {}
        local = LocalMachine(far.get("local") or "host")
        stack.callback(close_machine, local, warn)

        def reached(url: str, path: str) -> Machine:
            if url == "local":
                return local
            machine = hosts.connect(local, url, path)
            stack.callback(close_machine, machine, warn)
            return machine

        @contextlib.contextmanager
        def entered(url: str) -> Iterator[SshMachine | WindowsMachine]:
            machine = connect_guest(local, ssh_route(url), EXISTING_PATH)
            try:
                yield machine
            finally:
                close_machine(machine, warn)

        host = reached(url, "host")
        existing = _own_vm(vm, host, options.target.directory, stack, local, entered) if vm else None
        if isinstance(existing, WindowsByAgent):
            stack.callback(close_machine, existing.there, warn)
        yield Hosts(
            local,
            host,
            reached(other, other) if other else None,
            reached(peer, "peer") if peer else None,
            reached(destination, destination) if destination else None,
            existing,
        )


def _own_vm(
    vm: ExistingVm,
    host: Machine,
    directory: PurePosixPath,
    stack: contextlib.ExitStack,
    local: LocalMachine,
    entered: Callable[[str], contextlib.AbstractContextManager[SshMachine | WindowsMachine]],
) -> Way | Cloning | Watching:
    """directory: for files on the VM's host; stack: with it, a VM is left in which something is done

    Raises DomainError and MachineError.
    """
    if vm.clone:
        return Cloning.of(look_up(host, vm.name.removeprefix(LIBVIRT)), directory, is_watched=vm.watched)
    if vm.watched:
        return watching(host, vm.name, entered)
    if (found := _found(host, vm.name)) is not None:
        if found.is_windows:
            return windows_by_agent(found, Path(local.scratch))
        return Plugged(found, directory)
    there = stack.enter_context(entered(vm.name))
    if isinstance(there, WindowsMachine):
        return windows_login(vm.name, there, vm.directory)
    if not vm.directory.is_absolute():
        raise MachineError(f"{vm.name}: is no Windows: --guest-dir {vm.directory} must be an absolute path there")
    return Login(vm.name, there, vm.directory)


def _found(host: Machine, name: str) -> Pluggable | None:
    """The VM that libvirt or Proxmox VE runs there; None if the name is another one's. Raises DomainError."""
    if name.startswith(LIBVIRT):
        return LibvirtVm.found(host, name.removeprefix(LIBVIRT))
    return find_vm(host, name.removeprefix(PROXMOX)) if name.startswith(PROXMOX) else None


def close_machine(machine: GuardedMachine | WindowsMachine, warn: Callable[[str], None]) -> None:
    """Undo and remove what is ours there; `warn` gets what could not be."""
    machine.close()
    again = "left behind" if isinstance(machine, WindowsMachine) else "left behind, and tried again at the next start"
    for line in machine.left:
        warn(f"{machine.path}: {again}: {line}")
