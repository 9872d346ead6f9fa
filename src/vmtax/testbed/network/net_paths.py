"""The factor `net.path`: guests' cards on the network under test, and the host's card that carries their packets."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vmtax.core.errors import CannotDo
from vmtax.core.records import Treatment
from vmtax.design.net import DEFAULT, NAMES, PATH, NetSettings, Path, settings_of, takes
from vmtax.hypervisor import BootFailed, Guest
from vmtax.lab.home import Up, lab
from vmtax.machine import Machine
from vmtax.network import sriov
from vmtax.network.interrupts import delay_interrupts
from vmtax.plan.guests import guests_at_once
from vmtax.plan.schema import Plan
from vmtax.testbed.network import standby

# MAC addresses of the guests under test, by guest number: of a virtual card of QEMU, and of a virtual function of the
# host's card, which may receive packets for it even while no guest has it.
MACS, FUNCTION_MACS = "52:54:00:76:75:{:02x}", "52:54:00:76:77:{:02x}"
VIRTIO_NIC = "eth1"  # name of a guest's card on the network under test if its driver is loaded at boot
# Prints name and driver of the network card with this MAC, once it exists. Constant text.
FIND = (
    *("sh", "-c"),
    "for try in 1 2 3 4 5 6 7 8 9 10; do"
    ' for card in /sys/class/net/*; do read -r mac < "$card/address" && test "$mac" = "$1" || continue;'
    ' echo "${card##*/} $(basename "$(readlink -f "$card/device/driver")")"; exit; done; sleep 1; done',
    "sh",
)
# Prints how many receive queues the network card of this name has. Constant text.
QUEUES = ("sh", "-c", 'ls -d "/sys/class/net/$1/queues/"rx-* | wc -l', "sh")
# Prints feature bits of a virtio network card, one digit each: checksum and segmentation offloads, for sending and for
# receiving. Bits 0, 1, 7, 8, 11 and 12 of the virtio specification. Constant text.
FEATURES = (
    *("sh", "-c"),
    'read -r bits < "/sys/class/net/$1/device/features"; for bit in 1 2 8 9 12 13; do '
    'echo "$bits" | cut -c "$bit" | tr -d "\\n"; done',
    "sh",
)
LOAD_VHOST = ("sh", "-c", "test -c /dev/vhost-net || modprobe vhost_net")
IN_LAB = re.compile(r"(?:^|\s)vmtax\.lab=(\S+)", re.ASCII)


def names_card(plan: Plan) -> bool:
    """Whether the plan specifies the guests' network cards."""
    return any(plan.space.first(name) is not None for name in NAMES)


def largest_mtu(treatments: Sequence[Treatment]) -> int:
    """The MTU of the peer in bytes: the largest of the guests' MTUs."""
    return max((settings_of(each).mtu for each in treatments if each.layer == "vm"), default=DEFAULT.mtu)


def load(machine: Machine, treatments: Sequence[Treatment]) -> None:
    """Load the kernel modules that these treatments' paths need; they stay loaded. Raises MachineError."""
    if any(takes(path, treatments) for path in Path if path.has_vhost):
        machine.run(*LOAD_VHOST)


def peer_behind_card(machine: Machine) -> str | None:
    """The namespace that a lab's cards lead to, on the machine that runs vmtax; None if this is no lab of ours."""
    found = IN_LAB.search(machine.read_text("/proc/cmdline"))
    up: Up | None = lab(found[1]).up() if found else None
    return up.peer_namespace if up else None


def functions(machine: Machine, plan: Plan, card: str) -> tuple[str, ...]:
    """PCI addresses of virtual functions of this card, one for each guest that runs at once.

    Raises CannotDo and MachineError.
    """
    guests = guests_at_once(plan)
    macs = [mac_of(Path.SRIOV, number) for number in range(1, guests + 1)]
    return sriov.Card(machine, card).functions(macs)


def mac_of(path: Path, number: int) -> str:
    """The MAC address of the card of the guest with that number."""
    return (FUNCTION_MACS if path.has_function else MACS).format(number)


def find_card(guest: Guest, wanted: NetSettings, mac: str) -> str:
    """The guest's name for its card, after setting the MTU. Raises BootFailed if the guest did not obtain what is
    wanted.
    """
    path = wanted.path
    if path is Path.SRIOV_STANDBY:
        return standby.find(guest, mac)
    if path.model != DEFAULT.path.model or path.has_function:  # the driver of a virtio card is loaded at boot
        guest.machine.run(*sriov.LOAD_DRIVERS)
    name, _, driver = guest.machine.run(*FIND, mac).strip().partition(" ")
    if not path.is_carried_by(driver):
        seen = f"its driver is {driver}" if name else f"the guest has no card with the address {mac}"
        raise BootFailed(f"{guest.path}: {PATH}={path} was not obtained: {seen}")
    if wanted.mtu != DEFAULT.mtu:
        guest.machine.run("ip", "link", "set", "dev", name, "mtu", str(wanted.mtu))
    if wanted.queues > 1 and (queues := guest.machine.run(*QUEUES, name).split()) != [str(wanted.queues)]:
        raise BootFailed(f"{guest.path}: net.queues={wanted.queues} was not obtained: the guest uses {queues[0]}")
    if not wanted.offloads and guest.machine.run(*FEATURES, name).strip("0\n"):
        raise BootFailed(f"{guest.path}: net.offloads=off was not obtained: the card offers checksums or segmentation")
    if wanted.interrupt_delay is not None:
        try:
            delay_interrupts(guest.machine, name, wanted.interrupt_delay)
        except CannotDo as error:
            raise BootFailed(f"{guest.path}: net.interrupt_delay was not obtained ({driver}): {error}") from error
    return name
