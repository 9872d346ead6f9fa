"""Virtual functions of a network card (SR-IOV) that are given to guests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from vmtax.core.errors import CannotDo
from vmtax.machine import Machine
from vmtax.machine.answer import table_of, whole_of

MODULES = "the kernel modules vfio_pci and vfio_iommu_type1 are needed"
VF_MAC = "52:54:00:76:74:21"
# Run in a guest, which has no udev: loads the drivers of all its devices. Constant text.
LOAD_DRIVERS = ("sh", "-c", "cat /sys/bus/pci/devices/*/modalias | xargs modprobe -a -q; true")
HAS_VFIO = ("sh", "-c", "test -e /sys/bus/pci/drivers/vfio-pci || modprobe -n -q vfio_pci")  # loads nothing
LOAD_VFIO = ("sh", "-c", "test -e /sys/bus/pci/drivers/vfio-pci || modprobe vfio_pci")
# The kernel puts each device behind an IOMMU into a group; without an active IOMMU there are no groups.
HAS_IOMMU = ("test", "-e", "/sys/kernel/iommu_groups/0")
# For each card that supports functions: name, how many it can have, how many it has, kind of link (1: Ethernet), how
# many interfaces share its device (ports, representors), and how many are built on it (bridge, bond, switch, VLAN).
# Constant text.
CARDS = (
    *("sh", "-c"),
    "for file in /sys/class/net/*/device/sriov_totalvfs; do "
    'test -e "$file" || exit 0; card=${file%/device/*}; '
    'set -- "$card"/device/net/*; ports=$#; '
    'set -- "$card"/upper_*; test -e "$1" || shift; '
    'echo "${card##*/} $(cat "$file") $(cat "${file%totalvfs}numvfs") $(cat "$card/type") $ports $#"; done',
)
ETHERNET = "1"
# No address is requested or accepted from the network while the card is up for our guest.
NO_IPV6 = "/proc/sys/net/ipv6/conf/{}/disable_ipv6"
# For the PCI device with this directory: the other devices of its IOMMU group whose drivers keep VFIO from giving any
# of them away. Constant text.
OTHERS_IN_GROUP = (
    *("sh", "-c"),
    'for other in "$1"/iommu_group/devices/*; do'
    ' test "${other##*/}" != "${1##*/}" && test -e "$other/driver" || continue;'
    ' case "$(basename "$(readlink "$other/driver")")" in vfio*|pcieport|pci-stub) ;;'
    ' *) echo "${other##*/}";; esac; done',
    "sh",
)
WRITE = ("sh", "-c", 'printf %s "$1" > "$2"', "sh")


class NoCard(CannotDo):
    """There is no card with virtual functions that may be used; the text says why."""


def free_card(machine: Machine, functions: int = 1, named: str | None = None) -> str:
    """The first unused card that can have that many virtual functions, and whose existing ones are unused. Raises
    NoCard.

    `named`: consider only this card; it was checked elsewhere that at most its functions can be in use

    InfiniBand is left alone: programs can use it directly while its interface is down.
    """
    cards = table_of(machine, "cards with virtual functions", machine.run(*CARDS), 6)
    if named is not None:
        cards = [card for card in cards if card[0] == named]
        if not cards:
            raise NoCard(f"the network card {named} has no virtual functions (no sriov_totalvfs in its device)")
    if not cards:
        raise NoCard("no network card here has virtual functions (sriov_totalvfs in /sys/class/net)")
    most = 0
    for name, total, used, kind, ports, uppers in cards:
        up = named is None and machine.run("ip", "-o", "link", "show", "dev", name, "up").strip()
        if (used, kind, ports, uppers) != ("0", ETHERNET, "1", "0") or up:
            continue
        has = whole_of(machine, f"sriov_totalvfs of {name}", total)
        most = max(most, has)
        if has >= functions:
            return name
    if most:
        raise NoCard(f"{functions} virtual functions are wanted at once, and a card here has {most} at most")
    names = ", ".join(name for name, *_ in cards)
    raise NoCard(
        f"every card with virtual functions is in use ({names}): an Ethernet card with one port that is down, in no "
        "bridge or bond, with sriov_numvfs 0, is used"
    )


class Card:
    """A card with functions; the guard restores its settings. Needs root, an IOMMU and vfio-pci."""

    def __init__(self, machine: Machine, name: str) -> None:
        self._machine = machine
        self._name = name
        self._device = f"/sys/class/net/{name}/device"

    def _set(self, value: str, file: str) -> None:
        """Write to a file, of the device if the path is relative; the guard restores the old value."""
        path = str(PurePosixPath(self._device) / file)
        before = self._machine.read_text(path).strip()
        self._machine.undo_later(*WRITE, before, path)
        self._machine.run(*WRITE, value, path)

    def up(self) -> None:
        """Bring the card up in its present place. A card that is put on a bridge is brought up there."""
        machine = self._machine
        if machine.succeeds("test", "-e", NO_IPV6.format(self._name)):
            self._set("1", NO_IPV6.format(self._name))
        machine.undo_later("ip", "link", "set", "dev", self._name, "down")
        machine.run("ip", "link", "set", "dev", self._name, "up")

    def functions(self, macs: Sequence[str]) -> tuple[str, ...]:
        """Make a function for each MAC, bound to vfio-pci; returns their PCI addresses. The guard removes them."""
        machine = self._machine
        machine.run(*LOAD_VFIO, remedy=MODULES)
        # QEMU finds no IOMMU without this module, and nothing loads it automatically.
        machine.try_run("modprobe", "-q", "vfio_iommu_type1")
        self._set("0", "sriov_drivers_autoprobe")
        self._set(str(len(macs)), "sriov_numvfs")
        return tuple(self._bound(number, mac) for number, mac in enumerate(macs))

    def _bound(self, number: int, mac: str) -> str:
        """Give a function that MAC and bind it to vfio-pci; returns its PCI address."""
        machine = self._machine
        machine.run("ip", "link", "set", "dev", self._name, "vf", str(number), "mac", mac)
        address = machine.run("readlink", f"{self._device}/virtfn{number}").strip().rpartition("/")[2]
        function = f"/sys/bus/pci/devices/{address}"
        if not machine.succeeds("test", "-e", f"{function}/iommu_group"):
            raise NoCard(f"{self._name}: its functions have no IOMMU group; boot with intel_iommu=on or amd_iommu=on")
        if others := machine.run(*OTHERS_IN_GROUP, function).split():
            raise NoCard(
                f"{self._name}: the host uses {', '.join(others)}, in the IOMMU group of its function {address}, which"
                " can only be given away as a whole: put the card in a slot whose port has ACS"
            )
        machine.run(*WRITE, "vfio-pci", f"{function}/driver_override")
        machine.run(*WRITE, address, "/sys/bus/pci/drivers_probe")
        return address
