"""A network card and a peer that the user names: what is refused beforehand, and what is kept of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests import rights
from tests.fake_machine import FakeMachine, Reply
from tests.userland import asks_tools, programs
from vmtax.cli.app import BadUse
from vmtax.cli.asked import CardOptions
from vmtax.cli.cards import wire
from vmtax.machine import MachineError
from vmtax.network.wire import LOGIN, CardInUse, refuse_card, refuse_cards
from vmtax.plan.schema import parse
from vmtax.testbed.parts import Request
from vmtax.testbed.parts.network import NetworkPart
from vmtax.testbed.session.examine import check_peer
from vmtax.testbed.session.session import CannotMeasure, TestbedOptions, Wire

CARD = {"ifname": "eth2", "link_type": "ether", "mtu": 1500}
LOOPBACK = {"ifname": "lo", "link_type": "loopback", "mtu": 65536}
LINK_LOCAL = {"family": "inet6", "scope": "link", "local": "fe80::1"}
OWN_ROUTES = '[{"dst": "fe80::/64"}, {"dst": "ff00::/8"}]'
WIRE = Wire("eth2", "ssh://b", "eth3")


def machine(
    links: list[dict[str, Any]],
    addresses: list[dict[str, str]],
    routes: str = "[ ]",
    login: str = "",
    wifi: int = 1,
    **odd: str,
) -> FakeMachine:
    """`odd`: what a command says instead, with its words joined by blanks."""
    return FakeMachine(
        "host",
        {
            ("id", "-u"): "0\n",
            asks_tools: programs(),
            ("uname", "-sm"): "Linux x86_64\n",
            rights.asked: rights.answer(),
            ("ip", "-d", "-j", "link"): json.dumps(links),
            ("ip", "-j", "address", "show", "dev", "eth2"): json.dumps([{"addr_info": addresses}]),
            ("ip", "-4", "-j", "route", "show", "table", "all", "dev", "eth2"): routes,
            ("ip", "-6", "-j", "route", "show", "table", "all", "dev", "eth2"): OWN_ROUTES,
            LOGIN: f"{login}\n",
            ("test", "-e", "/sys/class/net/eth2/phy80211"): Reply(code=wifi),
            ("cat", "/proc/sys/kernel/random/boot_id"): "8d9a4c3c-28b5-4b6e-9d0a-3f0f2f3c8f51\n",
            ("readlink", "/proc/self/ns/net"): "net:[1]\n",
            **{tuple(command.split()): said for command, said in odd.items()},
        },
    )


def test_a_card_that_nothing_uses_may_be_taken() -> None:
    veth = {**CARD, "ifname": "eth9", "link": "eth2", "linkinfo": {"info_kind": "veth"}}
    refuse_card(machine([LOOPBACK, CARD, veth], [LINK_LOCAL]), "eth2")


@pytest.mark.parametrize(
    ("links", "addresses", "routes", "why"),
    [
        ([LOOPBACK, {**CARD, "ifname": "eth0"}], [], "[]", "host: no Ethernet card eth2; there are eth0"),
        ([LOOPBACK], [], "[]", "no Ethernet card eth2; there are none"),
        ([{**CARD, "master": "bond0"}], [], "[]", "the card eth2 is in use by bond0"),
        (
            [CARD, {**CARD, "ifname": "eth2.7", "link": "eth2", "linkinfo": {"info_kind": "vlan"}}],
            *([], "[]", "the card eth2 is in use by eth2.7"),
        ),
        (
            [CARD],
            *([LINK_LOCAL, {"family": "inet", "scope": "global", "local": "192.0.2.1"}], "[]"),
            "the card eth2 has the address 192.0.2.1: name one without",
        ),
        ([CARD], [], '[{"dst": "default"}]', r"a route goes over the card eth2 \(to default\)"),
    ],
)
def test_a_card_in_use_is_refused_by_name(links: Any, addresses: Any, routes: str, why: str) -> None:
    with pytest.raises(CardInUse, match=why):
        refuse_card(machine(links, addresses, routes), "eth2")


LINK, SHOWN = json.dumps([CARD]), json.dumps([{"addr_info": [LINK_LOCAL]}])
NOT_IP = ("", "not json", "null", "3", '"x"', "[3]", "[null]", "[[]]", "{}", "[" * 100_000, "\x1b[2J")
ODD_LINKS = (
    *('[{"ifname": "eth2"}]', '[{"mtu": 1500, "link_type": "ether"}]', LINK.replace("1500", '"1500"'), "[{}]"),
    *(LINK.replace("1500", "-1"), LINK.replace("1500", "9" * 5000), LINK.replace('"eth2"', "7"), f"[{LINK}]"),
    *(LINK.replace("}", ', "linkinfo": []}'), LINK.replace("}", ', "vfinfo_list": 3}'), LINK[:-2]),
    LINK.replace("eth2", "e" * 70_000),
)
ODD_ADDRESSES = ("[]", f"[{SHOWN[1:-1]}, {SHOWN[1:-1]}]", "[{}]", '[{"addr_info": 3}]', '[{"addr_info": [{}]}]')
ODD_ROUTES = ("[{}]", '[{"dst": 3}]', '[{"dst": null}]', '{"dst": "default"}')


ODD = (
    *((("-d", "-j", "link"), said) for said in (*NOT_IP[1:], *ODD_LINKS)),
    *((("-j", "address", "show", "dev", "eth2"), said) for said in (*NOT_IP, *ODD_ADDRESSES)),
    *((("-4", "-j", "route", "show", "table", "all", "dev", "eth2"), said) for said in (*NOT_IP[1:], *ODD_ROUTES)),
    *((("-6", "-j", "route", "show", "table", "all", "dev", "eth2"), said) for said in (*NOT_IP[1:], *ODD_ROUTES)),
)


@pytest.mark.parametrize(("which", "said"), ODD, ids=range(len(ODD)))
@pytest.mark.varied(15)
def test_whatever_a_peer_prints_as_ip_is_one_line_that_names_it(which: tuple[str, ...], said: str) -> None:
    odd = machine([CARD], [LINK_LOCAL], **{" ".join(("ip", *which)): said})
    with pytest.raises(MachineError, match=rf"^host: ip {' '.join(which)}: its usual JSON must stand there") as caught:
        refuse_card(odd, "eth2")
    assert len(str(caught.value)) < 400 and "\n" not in str(caught.value)


def test_a_machine_that_does_not_tell_its_boot_is_no_other_machine() -> None:
    odd = machine([CARD], [], **{"cat /proc/sys/kernel/random/boot_id": "x"})
    with pytest.raises(MachineError, match=r"^host: /proc/sys/kernel/random/boot_id: the id of a boot"):
        refuse_cards(machine([CARD], []), "eth2", odd, "eth2")


@pytest.mark.parametrize(
    ("named", "why"),
    [
        (("eth2", None, None, None), "--card: a wire takes --card and --peer-card"),
        (("eth2", "ssh://b", None, None), "--card and --peer: a wire takes"),
        (("eth2", "b", "eth3", None), r"--peer: must be local, ssh://\[user@\]host"),
        (("eth 2", "ssh://b", "eth3", None), "--card 'eth 2': no network card can be called that"),
        (("eth2", "ssh://b", "../x", None), "--peer-card '../x': no network card can be called that"),
        (("eth2", "ssh://b", "eth3", "ssh://c"), "--peer: the wire leads from one host, and --interleave-with ssh://c"),
    ],
)
def test_a_wire_that_is_named_in_part_or_wrongly_is_one_line(named: tuple[str | None, ...], why: str) -> None:
    with pytest.raises(BadUse, match=why):
        card, peer, peer_card, interleave_with = named
        wire(CardOptions(card, peer, peer_card), interleave_with)


def test_the_card_of_a_login_a_bridge_and_wireless_are_refused() -> None:
    with pytest.raises(CardInUse, match="your own login goes over the card eth2"):
        refuse_card(machine([CARD], [LINK_LOCAL], login="fe80::2%eth2 5 fe80::1%eth2 22"), "eth2")
    with pytest.raises(CardInUse, match="virtual functions of the card eth2 are in use: name one with sriov_numvfs 0"):
        refuse_card(machine([{**CARD, "vfinfo_list": [{"vf": 0}]}], []), "eth2")
    bridge = {**CARD, "linkinfo": {"info_kind": "bridge"}}
    with pytest.raises(CardInUse, match="no Ethernet card eth2; there are none"):
        refuse_card(machine([bridge], []), "eth2")
    with pytest.raises(CardInUse, match="no Ethernet card eth2; there are none"):
        refuse_card(machine([CARD], [], wifi=0), "eth2")


def test_the_ends_of_a_wire_are_two_and_alike(monkeypatch: Any) -> None:
    """Another connection to the same machine is the same machine."""
    with pytest.raises(CardInUse, match="--peer-card eth2: is the card of --card"):
        refuse_cards(machine([CARD], []), "eth2", machine([CARD], []), "eth2")
    monkeypatch.setattr("vmtax.network.wire.refuse_card", lambda machine, card: {"eth2": 1500, "eth3": 9000}[card])
    with pytest.raises(CardInUse, match="the card eth2 has an MTU of 1500, and the peer's card eth3 of 9000: set both"):
        refuse_cards(machine([], []), "eth2", machine([], []), "eth3")


def test_a_resumed_run_has_its_wire() -> None:
    assert wire(CardOptions("eth2", "ssh://b", "eth3"), "/opt/qemu") == WIRE
    assert wire(CardOptions(), "ssh://c") is None
    assert TestbedOptions.from_json(TestbedOptions(wire=WIRE).to_json()).wire == WIRE
    assert "wire" not in TestbedOptions().to_json()


def test_a_wire_takes_a_workload_that_uses_it_and_two_ends() -> None:
    host = machine([CARD], [])
    idle, busy = (parse(f"{{name: x, layers: [vm], workloads: [{name}]}}", "x") for name in ("chess", "net"))
    with pytest.raises(CannotMeasure, match="--peer ssh://b: the plan x has no workload that uses the network"):
        check_peer(host, host, idle, WIRE)
    with pytest.raises(CardInUse, match="--peer-card eth2: is the card of --card"):
        check_peer(host, host, busy, Wire("eth2", "local", "eth2"))


def test_what_is_taken_is_announced_and_other_sizes_of_packets_are_left_out() -> None:
    plan = parse("{name: x, layers: [vm], factors: {net.mtu: [1500, 9000]}, workloads: [net]}", "x")
    every = plan.treatments()[0]
    request = Request(machine([], []), plan, every, card=WIRE.card, wire=WIRE)
    assert NetworkPart().announced(request) == [
        "the network card eth2, for host and guests",
        "the network card eth3 of the peer, ssh://b",
    ]
    (why,) = NetworkPart().lacking(request).values()
    assert why == "net.mtu=9000 cannot be measured with --card: a real card keeps its MTU"
