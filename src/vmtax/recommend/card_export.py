"""A network card as an administrator sets it up: commands for the host, and settings for QEMU, libvirt and Proxmox.
Pure.

Sources: libvirt's formatdomain, "Network interfaces" (driver, host and guest offloads, mtu, type='hostdev'); its schema
domain.rng. Proxmox VE's qm.conf(5) (net[n], hostpci[n]). ip-link(8), ip-tuntap(8); the kernel's
Documentation/PCI/pci-iov-howto.rst and Documentation/ABI/testing/sysfs-bus-pci (driver_override, drivers_probe,
sriov_numvfs). For a function with a stand-by card: the kernel's Documentation/networking/net_failover.rst, libvirt's
"Teaming a virtio/hostdev NIC pair", QEMU's docs/system/virtio-net-failover.rst.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from xml.etree import ElementTree as Xml

from vmtax.design.net import DEFAULT, NetSettings, Path, meant
from vmtax.hypervisor.qemu.cards import OFFLOADS, card_arguments
from vmtax.hypervisor.spec import Tap, UserNetwork, card_of
from vmtax.recommend.forms import Argv, Form, broken

VMID, BRIDGE, CARD = "VMID", "BRIDGE", "CARD"
RING = 256  # descriptors of the receive ring of Intel's Ethernet drivers by default
STANDBY = "ua-standby"  # libvirt accepts user-defined names with this prefix
TAP, MAC, FUNCTION = "vm1", "52:54:00:00:00:01", "0000:01:10.0"
# Back ends of cards whose tap QEMU does not make itself.
BEHIND: Mapping[Path, Tap | UserNetwork] = {
    Path.MACVTAP: Tap(TAP, device="/dev/tapN", vhost=True),
    Path.USER: UserNetwork("10.0.2.0/24", "10.0.2.2", restricted=False),  # QEMU's default addresses
}


@dataclass(frozen=True, slots=True)
class CardExport:
    """One choice in the form of each program; what a form cannot express is in its notes."""

    mac: str  # MAC address of the card
    function: str | None  # PCI address of the virtual function; None: the choice needs none
    host: tuple[Argv, ...]  # commands for the host that QEMU's arguments need, in order; words in capitals must be
    # replaced
    host_notes: tuple[str, ...]  # which of these commands the other forms need as well
    qemu: Argv  # arguments that are added to QEMU's command line
    qemu_notes: tuple[str, ...]  # what these cannot express
    libvirt: str  # a child of <domain>
    libvirt_notes: tuple[str, ...]  # what it cannot express
    proxmox: tuple[Argv, ...]  # commands; empty if Proxmox VE cannot express the choice
    proxmox_notes: tuple[str, ...]  # what these cannot express

    def forms(self, width: int = 78) -> tuple[Form, ...]:
        """The host's commands, and its forms for QEMU, libvirt and Proxmox; commands are broken at `width`."""
        return (
            Form("What it takes on the host", "sh", tuple(broken(self.host, width)), self.host_notes),
            Form("QEMU", "sh", tuple(broken((self.qemu,), width)), self.qemu_notes),
            Form("libvirt", "xml", tuple(self.libvirt.splitlines()), self.libvirt_notes),
            Form("Proxmox VE", "sh", tuple(broken(self.proxmox, width)), self.proxmox_notes),
        )

    @property
    def put_in(self) -> str:
        """Which placeholders in the forms must be replaced, in sentences."""
        tap = f", the tap's name {TAP}" if self.host else ""
        own = f", the function's address {self.function}" if self.function else tap
        return (
            f"The card that was measured is gone. Replace these: the MAC {self.mac}, which no other guest"
            f" has{own}, and what is written in capital letters."
        )


def export_card(levels: Mapping[str, str]) -> CardExport:
    """Export a treatment's levels for a card. Raises UnknownLevel."""
    settings = meant(levels)
    function = FUNCTION if settings.path.has_function else None
    host, host_notes = _host(settings)
    proxmox, proxmox_notes = _proxmox(settings)
    return CardExport(
        mac=MAC,
        function=function,
        host=host,
        host_notes=host_notes,
        qemu=card_arguments([card_of(settings, TAP, MAC, function, BEHIND.get(settings.path))]),
        qemu_notes=(*_qemu_notes(settings.path), *_guest_mtu(settings), *_guest_delay(settings)),
        libvirt=_libvirt(settings),
        libvirt_notes=(*(() if _is_virtio(settings) else _guest_mtu(settings)), *_guest_delay(settings)),
        proxmox=proxmox,
        proxmox_notes=(*proxmox_notes, *_guest_delay(settings)),
    )


NO_NOTE = "nothing to set up: QEMU's user-mode network, behind the host's own address."
# libvirt's type of interface, and its source, for paths without a bridge.
SOURCES: Mapping[Path, tuple[str, dict[str, str]]] = {
    Path.MACVTAP: ("direct", {"dev": CARD, "mode": "bridge"}),
    Path.USER: ("user", {}),
}
TAP_NOTE = (
    "these are for QEMU's arguments: libvirt and Proxmox VE make the tap themselves. The bridge is there already, with"
    " the host's own card as a port."
)
OPEN_NOTE = (
    f"QEMU is handed the tap open: add `3<>/dev/tapN` to its command line, where N is what /sys/class/net/{TAP}/ifindex"
    " has."
)
MACVTAP_NOTE = (
    "these are for QEMU's arguments: libvirt makes the macvtap itself. CARD is the host's own card, and a port of no"
    " bridge. The guest does not reach the host by it, only what is behind the card."
)
FUNCTION_NOTE = (
    "sriov_numvfs is how many functions the card has, one for each guest; `readlink"
    f" /sys/class/net/{CARD}/device/virtfn0` prints the address of the first. libvirt and Proxmox VE bind it to"
    " vfio-pci themselves, and libvirt sets its MAC. After a reboot all of it is to be done again."
)

STANDBY_NOTE = (
    f"CARD is a port of {BRIDGE}, on which the virtio card stands by for the function. In a migration the MAC moves"
    f" when the function is gone: `ip link set dev {CARD} vf 0 mac 00:00:00:00:00:00`,"
    f" `bridge fdb add {MAC} dev {CARD}` and `bridge fdb replace {MAC} dev {TAP} master static`; and back where the"
    " guest has a function again."
)
PORT_NOTE = "the function is plugged into a PCI Express port: it needs the machine type q35."


def _qemu_notes(path: Path) -> tuple[str, ...]:
    """What QEMU's arguments require."""
    notes = {Path.MACVTAP: (OPEN_NOTE,), Path.SRIOV_STANDBY: (PORT_NOTE,)}
    return notes.get(path, ())


def _host(settings: NetSettings) -> tuple[tuple[Argv, ...], tuple[str, ...]]:
    """The commands for the host, and what must be known about them."""
    if settings.path is Path.SRIOV:
        return tuple(_function(FUNCTION)), (FUNCTION_NOTE,)
    if settings.path is Path.MACVTAP:
        return tuple(_macvtap()), (MACVTAP_NOTE,)
    if settings.path is Path.SRIOV_STANDBY:
        outside = ("bridge", "fdb", "replace", MAC, "dev", CARD, "master", "static")
        return (*_function(FUNCTION), *_tap(settings), outside), (FUNCTION_NOTE, STANDBY_NOTE)
    return ((), (NO_NOTE,)) if settings.path is Path.USER else (tuple(_tap(settings)), (TAP_NOTE,))


def _is_virtio(settings: NetSettings) -> bool:
    """Whether it is a virtio card of QEMU's."""
    return settings.path is not Path.SRIOV and settings.path.model == "virtio-net-pci"


def _tap(settings: NetSettings) -> Iterator[Argv]:
    queues = ("multi_queue",) if settings.queues > 1 else ()
    yield ("ip", "tuntap", "add", "dev", TAP, "mode", "tap", *queues)
    mtu = ("mtu", str(settings.mtu)) if settings.mtu != DEFAULT.mtu else ()
    yield ("ip", "link", "set", "dev", TAP, *mtu, "master", BRIDGE, "up")


def _macvtap() -> Iterator[Argv]:
    yield ("ip", "link", "add", "link", CARD, "name", TAP, "type", "macvtap", "mode", "bridge")
    yield ("ip", "link", "set", "dev", TAP, "address", MAC, "up")


def _function(address: str) -> Iterator[Argv]:
    device, function = f"/sys/class/net/{CARD}/device", f"/sys/bus/pci/devices/{address}"
    yield ("modprobe", "vfio-pci")
    yield ("ip", "link", "set", "dev", CARD, "up")
    yield _write("0", f"{device}/sriov_drivers_autoprobe")
    yield _write("1", f"{device}/sriov_numvfs")
    yield ("ip", "link", "set", "dev", CARD, "vf", "0", "mac", MAC)
    yield _write("vfio-pci", f"{function}/driver_override")
    yield _write(address, "/sys/bus/pci/drivers_probe")


def _write(value: str, file: str) -> Argv:
    return ("sh", "-c", f"echo {value} > {file}")


def _most(delay: int) -> float:
    """The Mbit/s of packets of 1500 bytes that fill a ring while the card delays its interrupt. `delay`: in us"""
    return RING * 1500 * 8 / delay


def _guest_delay(settings: NetSettings) -> Iterator[str]:
    """How the guest sets the delay of its card's interrupts, which nothing outside it can."""
    if settings.interrupt_delay is not None:
        yield (
            f"the guest sets the delay of its card's interrupts itself, at each boot before the card is up: `ethtool -C"
            f" NAME rx-usecs {settings.interrupt_delay}`, with `adaptive-rx off` if its driver adapts delays. A packet"
            f" that arrives then waits for up to {settings.interrupt_delay // 1000} ms, and the card drops packets once"
            f" its ring is full: one of {RING} packets of 1500 bytes at {_most(settings.interrupt_delay):.0f} Mbit/s."
        )


def _guest_mtu(settings: NetSettings) -> Iterator[str]:
    """The guest itself sets the MTU of its card."""
    if settings.mtu != DEFAULT.mtu:
        yield f"the guest sets the MTU of its card itself: `ip link set dev NAME mtu {settings.mtu}`."


def _libvirt(settings: NetSettings) -> str:
    devices = Xml.Element("devices")
    if settings.path is not Path.SRIOV:
        kind, behind = SOURCES.get(settings.path, ("bridge", {"bridge": BRIDGE}))
        card = Xml.SubElement(devices, "interface", type=kind)
        Xml.SubElement(card, "mac", address=MAC)
        if behind:
            Xml.SubElement(card, "source", behind)
        Xml.SubElement(card, "model", type="virtio" if _is_virtio(settings) else settings.path.model)
        if behind and _is_virtio(settings):
            _driver(card, settings)
        if settings.mtu != DEFAULT.mtu:
            Xml.SubElement(card, "mtu", size=str(settings.mtu))
        if settings.path.has_function:
            Xml.SubElement(card, "teaming", type="persistent")
            Xml.SubElement(card, "alias", name=STANDBY)
    if settings.path.has_function:
        card = _passed(devices)
        if settings.path is not Path.SRIOV:
            Xml.SubElement(card, "teaming", type="transient", persistent=STANDBY)
    Xml.indent(devices)
    return Xml.tostring(devices, encoding="unicode")


def _passed(devices: Xml.Element) -> Xml.Element:
    card = Xml.SubElement(devices, "interface", type="hostdev", managed="yes")
    Xml.SubElement(card, "mac", address=MAC)
    domain, bus, rest = FUNCTION.split(":")
    slot, _, function = rest.partition(".")
    places = {"domain": domain, "bus": bus, "slot": slot, "function": function}
    source = Xml.SubElement(card, "source")
    Xml.SubElement(source, "address", {"type": "pci", **{name: f"0x{value}" for name, value in places.items()}})
    return card


def _driver(card: Xml.Element, settings: NetSettings) -> None:
    """Who carries the packets of a virtio card, in how many queues, and which offloads are off."""
    driver = Xml.SubElement(card, "driver", name="qemu" if settings.path is Path.TAP else "vhost")
    if settings.queues > 1:
        driver.set("queues", str(settings.queues))
    if not settings.offloads:
        guest = [name.removeprefix("guest_") for name in OFFLOADS if name.startswith("guest_")]
        host = [name.removeprefix("host_") for name in OFFLOADS if not name.startswith("guest_")]
        Xml.SubElement(driver, "host", dict.fromkeys(host, "off"))
        Xml.SubElement(driver, "guest", dict.fromkeys(guest, "off"))


def _proxmox(settings: NetSettings) -> tuple[tuple[Argv, ...], tuple[str, ...]]:
    if settings.path is Path.TAP:
        return (), (
            "Proxmox VE gives every virtio card vhost, where the host's kernel has it: that is net.path=vhost. For"
            " QEMU's own back end put the QEMU arguments into `qm set VMID --args`.",
        )
    if settings.path is Path.SRIOV:
        command: Argv = ("qm", "set", VMID, "--machine", "q35", "--hostpci0", f"{FUNCTION},pcie=1")
        return (command,), ("a guest that has it is not migrated to another node; pcie=1 needs the machine type q35.",)
    if settings.path is Path.SRIOV_STANDBY:
        return (), (
            "Proxmox VE has no function with a card that stands by: put the QEMU arguments into `qm set VMID --args`.",
        )
    if settings.path is Path.MACVTAP:
        return (), ("Proxmox VE has no macvtap: it puts the cards of its guests on a bridge.",)
    is_virtio = _is_virtio(settings)
    words = [f"{'virtio' if is_virtio else settings.path.model}={MAC}"]
    words += [f"bridge={BRIDGE}"] if settings.path is not Path.USER else []
    if settings.queues > 1:
        words.append(f"queues={settings.queues}")
    notes = []
    if settings.mtu != DEFAULT.mtu and is_virtio:
        words.append(f"mtu={settings.mtu}")
    elif settings.mtu != DEFAULT.mtu:
        notes += [
            f"it cannot set net.mtu={settings.mtu} for this card: the tap has the MTU of the bridge.",
            *_guest_mtu(settings),
        ]
    if not settings.offloads:
        notes.append(
            "it cannot set net.offloads=off: `ethtool -K NAME tx off rx off tso off gso off` in the guest does."
        )
    return (("qm", "set", VMID, "--net0", ",".join(words)),), tuple(notes)
