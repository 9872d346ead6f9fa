"""A guest's card on the network under test. Each field is a factor of plans. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from vmtax.core.layers import GUESTS
from vmtax.core.records import Treatment
from vmtax.design.settings import SWITCH, Conflict, Settings, Where, is_on, setting
from vmtax.design.size import VCPUS


class Path(StrEnum):
    """How a guest's packets reach the network."""

    TAP = "tap"
    VHOST = "vhost"
    MACVTAP = "macvtap"
    E1000E = "e1000e"
    RTL8139 = "rtl8139"
    USER = "user"
    SRIOV = "sriov"
    SRIOV_STANDBY = "sriov-standby"
    SRIOV_AND_VHOST = "sriov+vhost"

    def of_guest(self, number: int) -> Path:
        """The path of the guest with this number, from 1, among those that work at once."""
        return self.parts[(number - 1) % len(self.parts)]

    @property
    def parts(self) -> tuple[Path, ...]:
        """The paths of neighbouring guests: one, or several in turn."""
        return tuple(map(Path, self.value.split("+")))

    @property
    def model(self) -> str:
        """QEMU's name of the virtual card."""
        return self.value if self in (Path.E1000E, Path.RTL8139) else "virtio-net-pci"

    @property
    def has_function(self) -> bool:
        """Whether each guest on it gets a virtual function of a card."""
        return self in (Path.SRIOV, Path.SRIOV_STANDBY)

    @property
    def has_vhost(self) -> bool:
        """Whether the host's kernel serves its virtio card, including a stand-by card."""
        return self in (Path.VHOST, Path.MACVTAP, Path.SRIOV_STANDBY)

    def is_carried_by(self, driver: str) -> bool:
        """Whether a card with this driver in the guest belongs to this path. A virtual function has its manufacturer's
        driver.
        """
        drivers = {Path.E1000E: ("e1000e",), Path.RTL8139: ("8139cp", "8139too")}.get(self, (VIRTIO,))
        return driver not in ("", VIRTIO) if self.has_function else driver in drivers


VIRTIO = "virtio_net"
# In microseconds; None: the driver's default. 8138 and not 8000, which igbvf reports and does not keep: it
# adapts every delay whose rate, 1e9 / (1024 * delay) without its fraction, is no multiple of four.
DELAYS = {"auto": None, "1ms": 1000, "4ms": 4000, "8ms": 8138}


@dataclass(frozen=True, slots=True, kw_only=True)
class NetSettings(Settings):
    """A treatment's settings for its guest's card."""

    path: Path = setting(
        "net.path",
        tuple(Path),
        Path,
        "how the guest's packets reach the network. tap: by a virtio card, whose packets QEMU itself carries to a tap"
        " on a bridge; vhost: the same, but the host's kernel carries the packets; macvtap: as vhost, but the kernel"
        " passes them to a network card without a bridge; e1000e, rtl8139: by a card that QEMU emulates completely,"
        " with a tap on a bridge; user: by a virtio card on a network that QEMU emulates as well, for TCP only; sriov:"
        " by a virtual function of a network card, which the guest gets; sriov-standby: the same, with a virtio card of"
        " the same address beside the function, which takes over when the function is gone; sriov+vhost: of several"
        " guests at once, every other one has a function, and the others use vhost. If a plan names one of the last"
        " three levels, all paths, and the host, use that network card to reach a peer behind it; a lab has such a card"
        " and such a peer. A nested guest has tap or vhost, and its outer VM has the same",
        layers=GUESTS,
        scope="network",
        conflicts=(
            Conflict(
                {"net.path": (Path.SRIOV_AND_VHOST,), "guest.count": ("1",)},
                "net.path={path} takes 2 guests at once or more, and guest.count is {count}",
            ),
        ),
    )
    queues: int = setting(
        "net.queues",
        ("1", "2", "4"),
        int,
        "number of queues of the guest's card in each direction, each served by a thread of the host's kernel; the"
        " guest uses no more of them than it has CPUs",
        layers=("vm",),
        scope="network",
        only_with={"net.path": (Path.VHOST,)},
        conflicts=tuple(
            Conflict(
                {"net.queues": (str(queues),), VCPUS: Where(queues.__gt__)},
                "net.queues={queues} takes {queues} CPUs, and guest.vcpus is {vcpus}",
            )
            for queues in (2, 4)
        ),
    )
    mtu: int = setting(
        "net.mtu",
        ("1500", "4000", "9000"),
        int,
        "the size in bytes of the largest packet between the guest and its peer",
        layers=("vm",),
        scope="network",
        only_with={"net.path": (Path.TAP, Path.VHOST, Path.E1000E)},
    )
    offloads: bool = setting(
        "net.offloads",
        tuple(reversed(SWITCH)),
        is_on,
        "whether the guest's virtio card computes checksums and divides large segments into packets, in both"
        " directions; if it does not, the guest's kernel does both",
        layers=("vm",),
        scope="network",
        only_with={"net.path": (Path.TAP, Path.VHOST)},
    )
    interrupt_delay: int | None = setting(  # in microseconds
        "net.interrupt_delay",
        tuple(DELAYS),
        DELAYS.__getitem__,
        "the longest time from the receipt of a packet until the guest's card interrupts. Packets that arrive meanwhile"
        " share the interrupt, so a long delay saves exits, and adds to the latency. auto: the driver's"
        " default, which often adapts the delay to the load. It is set in the guest, as by `ethtool -C NAME rx-usecs"
        " 1000`; some drivers refuse long delays",
        layers=("vm",),
        scope="network",
        only_with={"net.path": (Path.SRIOV, Path.E1000E)},
    )


PATH = NetSettings.factors()["path"].name
NAMES = tuple(factor.name for factor in NetSettings.factors().values())
DEFAULT = NetSettings()  # every factor at its default
USUAL_PATH = Path.VHOST  # the path that libvirt and Proxmox VE make, and a run whose plan names none


def settings_of(treatment: Treatment, guest: int | None = None) -> NetSettings:
    """The settings of its VMs' cards; a factor without meaning beside the others has its default.

    `guest`: number of one of them, for its own path
    """
    settings = meant(treatment.levels)
    return settings if guest is None else replace(settings, path=settings.path.of_guest(guest))


def meant(levels: Mapping[str, str]) -> NetSettings:
    """The settings of a card; a factor without meaning beside the others has its default. Raises UnknownLevel."""
    return NetSettings.of(NetSettings.of(levels).unusual)


def takes(path: Path, treatments: Sequence[Treatment]) -> bool:
    """Whether the packets of some guest take this path."""
    return any(each.layer in GUESTS and path in settings_of(each).path.parts for each in treatments)


def take_functions(treatments: Sequence[Treatment]) -> bool:
    """Whether some VM gets a virtual function of a card."""
    return any(takes(path, treatments) for path in Path if path.has_function)
