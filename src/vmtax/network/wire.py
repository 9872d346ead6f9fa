"""A wire between two network cards that the user names: check that the cards may be taken, and make the peer."""

from __future__ import annotations

import json
from typing import Any

from vmtax.core.errors import CannotDo
from vmtax.machine import Machine
from vmtax.network.segment import DELETE_NAMESPACE, PEER_ADDRESS, PREFIX_LENGTH, bring_back

BUILT_ON = ("vlan", "macvlan", "macvtap", "ipvlan", "ipvtap")  # kinds of interfaces that are built on another one
OWN = ("fe80:", "ff00:")  # IPv6 routes that every card has while it is up
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


def _place(machine: Machine) -> str:
    """Identifies the machine and its network namespace."""
    return machine.read_text("/proc/sys/kernel/random/boot_id") + machine.run("readlink", "/proc/self/ns/net")


def refuse_card(machine: Machine, card: str) -> int:
    """Raises CardInUse unless the machine has this Ethernet card, and nothing uses it; returns its MTU in bytes."""
    links: list[dict[str, Any]] = json.loads(machine.run("ip", "-d", "-j", "link"))
    cards = [each for each in links if _is_card(each)]
    link = next((each for each in cards if each["ifname"] == card), None)
    if link is None or machine.succeeds("test", "-e", f"/sys/class/net/{card}/phy80211"):
        names = ", ".join(each["ifname"] for each in cards if each is not link)
        raise CardInUse(f"{machine.path}: no Ethernet card {card}; there are {names or 'none'}")
    if used := link.get("master") or next((each["ifname"] for each in links if _is_on(each, card)), None):
        raise CardInUse(f"{machine.path}: the card {card} is in use by {used}: name one that nothing uses")
    if link.get("vfinfo_list"):
        raise CardInUse(
            f"{machine.path}: virtual functions of the card {card} are in use: name one with sriov_numvfs 0"
        )
    if any(word.endswith(f"%{card}") for word in machine.run(*LOGIN).split()):
        raise CardInUse(f"{machine.path}: your own login goes over the card {card}: name another")
    (shown,) = json.loads(machine.run("ip", "-j", "address", "show", "dev", card))
    addresses = [one["local"] for one in shown["addr_info"] if (one["family"], one["scope"]) != ("inet6", "link")]
    if addresses:
        raise CardInUse(f"{machine.path}: the card {card} has the address {addresses[0]}: name one without")
    for family in ("-4", "-6"):
        routes = json.loads(machine.run("ip", family, "-j", "route", "show", "table", "all", "dev", card) or "[]")
        if targets := [route["dst"] for route in routes if not route["dst"].startswith(OWN)]:
            raise CardInUse(f"{machine.path}: a route goes over the card {card} (to {targets[0]}): name one without")
    return int(link["mtu"])


def _is_card(link: dict[str, Any]) -> bool:
    """Whether it is hardware or one end of a veth pair; bridges, bonds and the like cannot leave their namespace."""
    return link.get("link_type") == "ether" and link.get("linkinfo", {}).get("info_kind", "veth") == "veth"


def _is_on(link: dict[str, Any], card: str) -> bool:
    return link.get("link") == card and link.get("linkinfo", {}).get("info_kind") in BUILT_ON


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
