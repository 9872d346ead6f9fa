"""Network cards of guests on the network under test: how they are made, passed to QEMU and connected to the peer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from vmtax.core.records import Treatment
from vmtax.design import net
from vmtax.design.net import NetSettings, Path, settings_of
from vmtax.hypervisor import Card, Guest, Nic, Tap, UserNetwork, card_of
from vmtax.hypervisor.confine import enter_tree
from vmtax.machine import Machine
from vmtax.network import PEER_ADDRESS, Segment, guest_address
from vmtax.network.segment import BOTH_LENGTH, PREFIX_LENGTH, SUBNET
from vmtax.testbed.host import needs
from vmtax.testbed.network import net_paths, standby
from vmtax.testbed.session.base import Handover
from vmtax.testbed.subjects.provisioned import Provisioned, port
from vmtax.workload import Link
from vmtax.workload.net import PORT


@dataclass(frozen=True, slots=True)
class Plug:
    """A network card that a guest is to have."""

    segment: Segment | None  # the network that it is on; None: QEMU's user-mode network
    mac: str
    settings: NetSettings = net.DEFAULT
    function: str | None = None  # PCI address of a virtual function that the guest may be given
    number: int = 1  # of the guest among those that work at once
    awaits: bool = False  # for the destination of a migration: the guest's address is still in use elsewhere

    def insert(self, stack: contextlib.ExitStack) -> tuple[Card, Callable[[], None] | None]:
        """The card for QEMU's command line, and what to call when QEMU runs, if anything. `stack` removes what is made
        here.
        """
        path, segment = self.settings.path, self.segment
        if path is Path.USER or segment is None:
            behind = UserNetwork(SUBNET, PEER_ADDRESS, guest_address(self.number), (PORT,))
            return card_of(self.settings, "", self.mac, None, behind), None
        if path is Path.MACVTAP:
            tap, device = segment.make_macvtap(self.mac)
            stack.callback(segment.remove_macvtap, tap, device)
            return card_of(self.settings, tap, self.mac, None, Tap(tap, device, vhost=True)), None
        tap = segment.tap_name()
        if path.has_function and not self.awaits:
            # Its function has no address if the guest before it moved to another host.
            segment.set_function(self.number - 1, self.mac)

        def attach() -> None:
            segment.attach(tap, self.settings.mtu)
            if self.awaits:
                return
            if path.has_function:
                segment.dismiss(self.mac)  # a migration that failed may have left it at the uplink's own port
                segment.leave_outside(self.mac)
            else:
                segment.admit(self.mac, tap)

        card = card_of(self.settings, tap, self.mac, self.function)
        if self.awaits and isinstance(card, Nic):  # the function still belongs to the guest that moves
            card = replace(card, primary=None)
        return card, None if path is Path.SRIOV else attach


def handover(guest: Guest, here: tuple[Machine, Plug | None], there: tuple[Machine, Plug | None]) -> Handover:
    """What keeps the guest's address reachable when it moves. `here`, `there`: each host and its card for the guest."""
    source, destination = _outlet(*here), _outlet(*there)
    if source is None or destination is None:
        return Handover()
    _, card = here
    assert card is not None
    return standby.AddressMove(guest, card.mac, card.number - 1, source, destination)


def _outlet(host: Machine, card: Plug | None) -> standby.Outlet | None:
    """None if the guest has no card on a bridge of that host."""
    if card is None or card.segment is None or card.settings.path is Path.USER:
        return None
    return standby.Outlet(host, card.segment, card.function if card.settings.path.has_function else None)


def plug(on: Provisioned, treatment: Treatment, number: int) -> Plug | None:
    """The card of the VM with that number; None if the plan measures no network."""
    if not on.networked:
        return None
    settings = settings_of(treatment, number)
    if on.network is None:  # we are not root on the host
        settings = replace(settings, path=Path.USER)
    function = on.network.functions[number - 1] if on.network and on.network.functions else None
    segment = on.network.segment if on.network else None
    return Plug(segment, net_paths.mac_of(settings.path, number), settings, function, number)


def tapped_of(on: Provisioned, guest: Guest) -> standby.Tapped | None:
    """Where to count the packets of a guest with a virtual function and a stand-by card; None: it has no such pair."""
    return standby.Tapped.of(guest, on.host, on.network.segment) if on.network else None


def link(on: Provisioned, guest: Guest, number: int, wanted: NetSettings | None) -> Link | None:
    """The guest's link to its peer, with its address set; None if it has no card for that.

    `wanted`: what the card must be, if the plan specifies it. Raises BootFailed if the card differs.
    """
    if not guest.spec.cards:
        return None
    nic = net_paths.VIRTIO_NIC
    if wanted is not None:
        nic = net_paths.find_card(guest, wanted, net_paths.mac_of(wanted.path, number))
    direct = wanted is not None and wanted.path is Path.MACVTAP
    address = f"{guest_address(number, direct=direct)}/{BOTH_LENGTH if direct else PREFIX_LENGTH}"
    commands = f"address add {address} dev {nic}\nlink set {nic} up\n"
    guest.machine.run("ip", "-batch", "-", input=commands)
    if (tapped := tapped_of(on, guest)) is not None:
        standby.prove(guest, tapped)
    elif needs.migrates(on.plan) and on.network is not None and on.network.functions:
        # The peer may remember the address from a guest with another card; a ping from this guest updates it.
        guest.machine.try_run(*standby.PING, timeout=60)
    (card,) = guest.spec.cards
    if not (isinstance(card, Nic) and isinstance(card.behind, UserNetwork)):
        return Link(guest.machine, (), PEER_ADDRESS, port(number))
    # QEMU connects to the guest, not the guest to a peer: otherwise the guest could reach every service of the host.
    guest.machine.start("iperf3", "--server", "--port", str(PORT))
    peer = (*enter_tree(on.tree, root=on.is_root, network=True), "--")
    return Link(on.host, peer, "127.0.0.1", guest.ports[PORT], at_peer=True)
