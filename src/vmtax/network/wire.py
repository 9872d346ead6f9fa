"""A wire between two network cards that the user names: check that the cards may be taken, and make the peer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import Field, StringConstraints

from vmtax.core.errors import CannotDo
from vmtax.machine import Machine
from vmtax.machine.answer import boot_id_of, json_of
from vmtax.network.segment import DELETE_NAMESPACE, PEER_ADDRESS, PREFIX_LENGTH, bring_back

BUILT_ON = ("vlan", "macvlan", "macvtap", "ipvlan", "ipvtap")  # kinds of interfaces that are built on another one
OWN = ("fe80:", "ff00:")  # IPv6 routes that every card has while it is up
BOOT_ID = "/proc/sys/kernel/random/boot_id"
T = TypeVar("T")
LOGIN = ("sh", "-c", 'echo "$SSH_CONNECTION"')
WAIT_SECONDS = 40  # for a link to come up: a switch may spend thirty on learning
# Exits when the peer at this address answers; tries once a second. Constant text, run in the image.
ANSWERS = (
    *("sh", "-c"),
    'up() { read -r seconds rest < /proc/uptime && echo "${seconds%.*}"; }; end=$(($(up) + $2)); '
    'until busybox ping -c 1 -W 1 "$1"; do test "$(up)" -lt "$end" || exit; done',
)


class CardInUse(CannotDo):
    """A card may not be taken; the text says what uses it."""


def refuse_cards(host: Machine, card: str, peer: Machine, peer_card: str) -> None:
    """Raises CardInUse unless each machine has its card, nothing uses the cards, and they can be two ends of one
    wire.
    """
    if card == peer_card and _place(host) == _place(peer):
        raise CardInUse(f"--peer-card {peer_card}: is the card of --card: a wire has two ends")
    here, there = refuse_card(host, card), refuse_card(peer, peer_card)
    if here != there:
        raise CardInUse(
            f"{host.path}: the card {card} has an MTU of {here}, and the peer's card {peer_card} of {there}:"
            " set both alike"
        )


def _place(machine: Machine) -> tuple[str, str]:
    """Identifies the machine and its network namespace."""
    boot = boot_id_of(machine, BOOT_ID, machine.read_text(BOOT_ID))
    return boot, machine.run("readlink", "/proc/self/ns/net").strip()


Name = Annotated[str, StringConstraints(min_length=1, max_length=15)]  # the kernel's limit


@dataclass(frozen=True, slots=True)
class _Kind:
    info_kind: str = "veth"  # hardware has none


@dataclass(frozen=True, slots=True)
class _Link:
    """An entry of `ip -d -j link`."""

    ifname: Name
    mtu: Annotated[int, Field(ge=0, lt=2**32)]  # bytes; at most 0: without a limit
    link_type: str
    master: Name | None = None
    link: Name | None = None  # the interface that it is built on
    linkinfo: _Kind = _Kind()
    vfinfo_list: tuple[Any, ...] = ()

    @property
    def is_card(self) -> bool:
        """Whether it is hardware or one end of a veth pair; bridges, bonds and the like stay in their namespace."""
        return self.link_type == "ether" and self.linkinfo.info_kind == "veth"

    def is_on(self, card: str) -> bool:
        return self.link == card and self.linkinfo.info_kind in BUILT_ON


@dataclass(frozen=True, slots=True)
class _Address:
    family: str
    scope: str
    local: str


@dataclass(frozen=True, slots=True)
class _Addresses:
    """An entry of `ip -j address`."""

    addr_info: tuple[_Address, ...]


@dataclass(frozen=True, slots=True)
class _Route:
    dst: str


def refuse_card(machine: Machine, card: str) -> int:
    """Raises CardInUse unless the machine has this Ethernet card, and nothing uses it; returns its MTU in bytes."""
    links = _of_ip(machine, list[_Link], "-d", "-j", "link")
    cards = [each for each in links if each.is_card]
    link = next((each for each in cards if each.ifname == card), None)
    if link is None or machine.succeeds("test", "-e", f"/sys/class/net/{card}/phy80211"):
        names = ", ".join(each.ifname for each in cards if each is not link)
        raise CardInUse(f"{machine.path}: no Ethernet card {card}; there are {names or 'none'}")
    if used := link.master or next((each.ifname for each in links if each.is_on(card)), None):
        raise CardInUse(f"{machine.path}: the card {card} is in use by {used}: name one that nothing uses")
    if link.vfinfo_list:
        raise CardInUse(
            f"{machine.path}: virtual functions of the card {card} are in use: name one with sriov_numvfs 0"
        )
    if any(word.endswith(f"%{card}") for word in machine.run(*LOGIN).split()):
        raise CardInUse(f"{machine.path}: your own login goes over the card {card}: name another")
    (shown,) = _of_ip(machine, tuple[_Addresses], "-j", "address", "show", "dev", card)
    addresses = [each for each in shown.addr_info if (each.family, each.scope) != ("inet6", "link")]
    if addresses:
        raise CardInUse(f"{machine.path}: the card {card} has the address {addresses[0].local}: name one without")
    for family in ("-4", "-6"):
        routes = _of_ip(machine, list[_Route], family, "-j", "route", "show", "table", "all", "dev", card)
        if targets := [route.dst for route in routes if not route.dst.startswith(OWN)]:
            raise CardInUse(f"{machine.path}: a route goes over the card {card} (to {targets[0]}): name one without")
    return link.mtu


def _of_ip(machine: Machine, kind: type[T], *words: str) -> T:
    """What `ip` prints, which is nothing in place of an empty list."""
    return json_of(machine, f"ip {' '.join(words)}", machine.run("ip", *words) or "[]", kind)


def add_peer(machine: Machine, token: str, card: str) -> str:
    """Make a namespace on the machine that has this card, with the peer's address; returns its name. The guard undoes
    it.
    """
    namespace = f"vmtax-{token}-wire"
    machine.undo_later(*DELETE_NAMESPACE, namespace)
    machine.run("ip", "netns", "add", namespace)
    bring_back(machine, namespace, card)
    machine.run("ip", "link", "set", "dev", card, "netns", namespace)
    commands = ("link set lo up", f"address add {PEER_ADDRESS}/{PREFIX_LENGTH} dev {card}", f"link set {card} up")
    machine.run("ip", "-n", namespace, "-batch", "-", input="\n".join(commands) + "\n")
    return namespace
