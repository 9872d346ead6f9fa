"""What one run brings to every host that it measures."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath

from vmtax.core.errors import CannotDo
from vmtax.core.events import Event
from vmtax.core.records import Json
from vmtax.hypervisor import Credentials, Qemu
from vmtax.image.cache import Image
from vmtax.image.packs import Pack
from vmtax.image.place import Placed
from vmtax.machine import Machine
from vmtax.machine.guarded import GuardedMachine
from vmtax.machine.local import LocalMachine
from vmtax.network.wire import CardInUse, refuse_card
from vmtax.storage import DISK_DIRECTORY, Target
from vmtax.testbed import hosts
from vmtax.testbed.power import Power, PowerCut

Emit = Callable[[Event], None]


class CannotMeasure(CannotDo):
    """What the plan wants cannot be done here; the text says what would enable it."""


@dataclass(frozen=True, slots=True)
class Wire:
    """Two network cards that the user names, of the host under test and of the peer, and what is between them."""

    card: str
    peer: str  # where it is: local, ssh://... or a lab
    peer_card: str


@dataclass(frozen=True, slots=True)
class Destination:
    """A second host, to which guests are migrated, and the cards of both that lie on one network."""

    host: str  # where it is: local, ssh://... or a lab
    card: str  # of the host under test
    far_card: str  # of the destination


@dataclass(frozen=True, slots=True)
class TestbedOptions:
    """What the command line may choose about the hosts under test."""

    __test__ = False  # no test, whatever pytest makes of its name

    qemu: str | None = None  # another QEMU than the host's own
    target: Target = field(default_factory=Target)  # for the disks under test
    interleave_with: str | None = None  # a second host, or a second QEMU, in the same rounds
    emulate: bool = False  # measure also where no guest boots with KVM
    demonstration: bool = False  # what is measured only shows what a report looks like
    wire: Wire | None = None  # that the network under test goes over; None: one of its own
    power_cut: PowerCut | None = None  # None: the host under test keeps its power
    destination: Destination | None = None  # of guests that are migrated; None: another QEMU of their host

    @property
    def card(self) -> str | None:
        """The network card of the host under test that the user names."""
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
            **{name: True for name in ("emulate", "demonstration") if getattr(self, name)},
        }

    @staticmethod
    def from_json(data: Json) -> TestbedOptions:
        """Options of a resumed run. Permission to erase is never restored: the devices are empty again."""
        target = Target(
            PurePosixPath(data.get("disk_directory", DISK_DIRECTORY)),
            tuple(data.get("disk_devices", ())),
            data.get("disk_group"),
            data.get("disk_pool"),
        )
        emulate, demonstration = (bool(data.get(name)) for name in ("emulate", "demonstration"))
        wire = Wire(**data["wire"]) if data.get("wire") else None
        given = data.get("power_cut")
        power_cut = PowerCut.from_json(given) if given else None
        destination = Destination(**data["destination"]) if data.get("destination") else None
        interleaved = data.get("interleave_with")
        return TestbedOptions(
            data.get("qemu"), target, interleaved, emulate, demonstration, wire, power_cut, destination
        )


@dataclass(frozen=True, slots=True)
class Wired:
    """What is at the other end of a wire."""

    peer: Machine
    wire: Wire
    tree: str  # the image's files at the peer


@dataclass(frozen=True, slots=True)
class There:
    """The host that guests are migrated to, with the image and what runs guests there."""

    machine: Machine
    wanted: Destination
    placed: Placed
    qemu: Qemu

    def refuse_cards(self, host: Machine) -> None:
        """Raises CardInUse if a card may no longer be taken."""
        refuse_two_cards(host, self.machine, self.wanted)


def refuse_two_cards(host: Machine, machine: Machine, wanted: Destination) -> None:
    """Raises CardInUse unless each has its card, nothing uses them, and packets of one size pass both."""
    here, there = refuse_card(host, wanted.card), refuse_card(machine, wanted.far_card)
    if here != there:
        raise CardInUse(
            f"{host.path}: the card {wanted.card} has an MTU of {here}, and the card {wanted.far_card} of"
            f" {machine.path} of {there}: set both alike"
        )


@dataclass(frozen=True, slots=True)
class Session:
    """Where vmtax runs, and what it brings from there."""

    local: LocalMachine
    image: Image
    credentials: Credentials  # of this run's guests
    emit: Emit
    kernel_pack: Pack | None = None  # None: no kernel is built, or it is not there yet
    postgresql_pack: Pack | None = None  # None: no database is written, or it is not there yet
    wired: Wired | None = None  # None: the network under test has no wire that the user names
    power: Power | None = None  # None: the host under test keeps its power


@dataclass(frozen=True, slots=True)
class Hosts:
    """Where vmtax runs, and the host under test; often the same."""

    local: LocalMachine
    host: Machine
    other: Machine | None = None  # a second host under test
    peer: Machine | None = None  # at the other end of the wire that the user names
    destination: Machine | None = None  # of guests that are migrated, where that is another host


@contextlib.contextmanager
def connected(
    url: str,
    warn: Callable[[str], None],
    other: str | None = None,
    peer: str | None = None,
    destination: str | None = None,
) -> Iterator[Hosts]:
    """Reach the host under test; at exit, what is still set up there is undone, and `warn` gets what could not be.

    `other`: a second host under test, whose path is its name: `host` is the first one's
    `peer`: where the peer is; its path is `peer`, or that of this machine
    `destination`: of guests that are migrated; its path is its name
    """
    with contextlib.ExitStack() as stack:
        far = {other: other, peer: "peer", destination: destination} if url != "local" else {}
        local = LocalMachine(far.get("local") or "host")
        stack.callback(_close, local, warn)

        def reached(url: str, path: str) -> Machine:
            if url == "local":
                return local
            machine = hosts.connect(local, url, path)
            stack.callback(_close, machine, warn)
            return machine

        host, second = reached(url, "host"), reached(other, other) if other else None
        behind = reached(peer, "peer") if peer else None
        yield Hosts(local, host, second, behind, reached(destination, destination) if destination else None)


def _close(machine: GuardedMachine, warn: Callable[[str], None]) -> None:
    machine.close()
    for line in machine.left:
        warn(f"{machine.path}: left behind, and tried again at the next start: {line}")
