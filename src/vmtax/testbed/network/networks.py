"""The private network under test of one run: its bridge, its peer, and the host's cards that it uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vmtax.core.records import Treatment
from vmtax.design.net import Path, take_functions, takes
from vmtax.hypervisor.confine import enter_tree
from vmtax.machine import Machine
from vmtax.network import END_ADDRESS, FAR_ADDRESS, PEER_ADDRESS, Segment, sriov, wire
from vmtax.network.segment import PREFIX_LENGTH
from vmtax.plan.guests import guests_at_once
from vmtax.testbed.network import net_paths
from vmtax.testbed.session.examine import Examined
from vmtax.testbed.session.session import CannotMeasure, There

# MAC addresses of ends on a bridge that are not guests, which an uplink's card must know: the host layer's own end, the
# peer, and the end on a second host.
END_MAC, PEER_MAC, FAR_MAC = "52:54:00:76:76:01", "52:54:00:76:76:02", "52:54:00:76:76:03"
# Constant text: the namespace and the parameters of `ip address del` stay arguments.
DELETE_ADDRESS = (
    *("sh", "-c"),
    '! test -e "/run/netns/$1" || { space=$1; shift; ip -n "$space" address del "$@" 2> /dev/null; true; }',
    "sh",
)


@dataclass(frozen=True, slots=True)
class FarNetwork:
    """The network's part on the host to which guests are migrated."""

    segment: Segment
    functions: tuple[str, ...] = ()  # as on the host under test


@dataclass(frozen=True, slots=True)
class Network:
    """The private network under test on one host."""

    segment: Segment
    at: Machine  # where the other end is: the host, or what is behind its card
    tree: str  # the image's files there
    peer: str  # namespace of the other end
    end: str  # namespace of the host layer's own end
    functions: tuple[str, ...] = ()  # PCI addresses, one for each guest; empty if guests get no function
    far: FarNetwork | None = None  # None: guests stay on their host


def open_network(on: Examined, possible: Sequence[Treatment]) -> Network:
    """Set up the network: on the host alone, or over a wire if the user names one or guests get functions of a card.

    If guests are migrated to a second host, its bridge is connected. `possible`: the treatments that will be measured
    """
    token = on.session.local.token[:6]
    net_paths.load(on.host, possible)
    takes_function, wired = take_functions(possible), on.session.wired
    if on.destination is not None:
        return _between_hosts(on, on.destination, token, possible)
    if wired is None and not takes_function:
        return _on_bridge(on, token, possible)
    if wired:  # checked again: the user may have taken long to answer the question
        wire.refuse_cards(on.host, wired.wire.card, wired.peer, wired.wire.peer_card)
    card = wired.wire.card if wired else sriov.free_card(on.host, guests_at_once(on.plan))
    functions = net_paths.functions(on.host, on.plan, card) if takes_function else ()
    segment = Segment(on.host, token)
    segment.add_uplink(card)
    end = segment.add_end("end", END_ADDRESS, mac=END_MAC)
    segment.admit(END_MAC, "end")
    if wired is None:
        return Network(segment, on.session.local, str(on.session.image.tree), _peer_of_lab(on), end, functions)
    peer = wire.add_peer(wired.peer, token, wired.wire.peer_card)
    if not _answers(on.host, end, on.tree):
        raise CannotMeasure(
            f"{on.host.path}: no answer over the card {card} from the peer's card {wired.wire.peer_card} within"
            f" {wire.WAIT_SECONDS} s: are they on one wire, or on one VLAN of a switch?"
        )
    return Network(segment, wired.peer, wired.tree, peer, end, functions)


def _on_bridge(on: Examined, token: str, possible: Sequence[Treatment]) -> Network:
    """A network with the peer on the host's own bridge."""
    segment = Segment(on.host, token)
    mtu = net_paths.largest_mtu(possible)
    peer, end = segment.add_end("peer", PEER_ADDRESS, mtu=mtu), segment.add_end("end", END_ADDRESS)
    if takes(Path.MACVTAP, possible):
        segment.add_direct(peer)
    return Network(segment, on.host, on.tree, peer, end)


def _between_hosts(on: Examined, there: There, token: str, possible: Sequence[Treatment]) -> Network:
    """A network with a bridge on both hosts, and the peer on the bridge of the host under test.

    The bridges learn by themselves where a guest is. Cards with virtual functions do not: their tables must be changed.
    """
    there.refuse_cards(on.host)  # checked again: the user may have taken long to answer the question
    net_paths.load(there.machine, possible)
    assert there.placed.tree is not None, "an image on a host has its tree"
    takes_function = take_functions(possible)
    segment, functions = _on_card(on, on.host, there.wanted.card, token, takes_function=takes_function)
    peer = _end_on_card(segment, "peer", PEER_ADDRESS, PEER_MAC)
    end = _end_on_card(segment, "end", END_ADDRESS, END_MAC)
    far, far_functions = _on_card(on, there.machine, there.wanted.far_card, token, takes_function=takes_function)
    if not _answers(there.machine, _end_on_card(far, "end", FAR_ADDRESS, FAR_MAC), there.placed.tree):
        raise CannotMeasure(
            f"{there.machine.path}: no answer over the card {there.wanted.far_card} from the card {there.wanted.card}"
            f" of the host under test within {wire.WAIT_SECONDS} s: are they on one wire, or on one VLAN of a switch?"
        )
    return Network(segment, on.host, on.tree, peer, end, functions, FarNetwork(far, far_functions))


def _on_card(
    on: Examined, machine: Machine, card: str, token: str, *, takes_function: bool
) -> tuple[Segment, tuple[str, ...]]:
    """A bridge of one of two hosts with its card as a port, and the functions of that card."""
    functions = net_paths.functions(machine, on.plan, card) if takes_function else ()
    segment = Segment(machine, token)
    if takes_function:
        segment.add_uplink(card)
    else:
        segment.add_port(card)
    return segment, functions


def _end_on_card(segment: Segment, name: str, address: str, mac: str) -> str:
    """Add an end to a bridge whose card may have to know the end's address; returns its namespace."""
    namespace = segment.add_end(name, address, mac=mac)
    segment.admit(mac, name)
    return namespace


def _answers(machine: Machine, end: str, tree: str) -> bool:
    """Whether the peer answers a ping from this namespace of the machine."""
    enter = ("ip", "netns", "exec", end, *enter_tree(tree, root=True, network=True, capabilities=("CAP_NET_RAW",)))
    asked = (*enter, "--", *wire.ANSWERS, "sh", PEER_ADDRESS, str(wire.WAIT_SECONDS))
    return machine.succeeds(*asked, timeout=2 * wire.WAIT_SECONDS)


def _peer_of_lab(on: Examined) -> str:
    """The namespace that a lab's cards lead to, after giving it the peer's address."""
    namespace, local = net_paths.peer_behind_card(on.host), on.session.local
    if namespace is None:
        raise CannotMeasure(f"{on.host.path}: the peer behind its card is gone: is its lab still up?")
    address = (f"{PEER_ADDRESS}/{PREFIX_LENGTH}", "dev", "eth0")
    local.undo_later(*DELETE_ADDRESS, namespace, *address)
    local.run("ip", "-n", namespace, "address", "add", *address)
    return namespace
