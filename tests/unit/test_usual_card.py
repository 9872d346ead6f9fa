"""The card of guests whose plan names none: vhost wherever the network is measured and the hosts have it."""

from __future__ import annotations

import pytest

from tests.fake_machine import FakeMachine, Reply
from vmtax.plan.schema import load, parse
from vmtax.testbed.parts import Request
from vmtax.testbed.parts.network import HAS_VHOST, NetworkPart
from vmtax.testbed.parts.usual_card import with_usual_card

LAYERS = "name: x\nlayers: [host, vm, nested]\nworkloads: [net, chess]\n"


def host(*, user: int = 0, vhost: bool = True) -> FakeMachine:
    return FakeMachine("host", {("id", "-u"): f"{user}\n", HAS_VHOST: Reply(code=0 if vhost else 1)})


def test_guests_have_the_card_that_libvirt_and_proxmox_make() -> None:
    plan = with_usual_card(parse(LAYERS, "x"), [host()])
    kept = {one.name: one.levels.get("net.path") for one in plan.treatments()[0]}
    assert kept == {"host": None, "vm": "vhost", "nested": "vhost"}  # their names are what they were
    assert NetworkPart().lacking(Request(host(), plan, plan.treatments()[0])) == {}
    assert with_usual_card(plan, [host()]) == plan


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        (LAYERS, [host(user=1000)]),
        (LAYERS, [host(vhost=False)]),
        (LAYERS, [host(), host(vhost=False)]),  # of two hosts, both
        (LAYERS.replace("[net, chess]", "[chess]"), [host()]),
        (LAYERS.replace("[host, vm, nested]", "[host]"), [host()]),
        (f"{LAYERS}factors: {{net.path: [tap]}}\n", [host()]),
        (f"{LAYERS}combinations: [{{net.path: [e1000e]}}]\n".replace(", nested", ""), [host()]),
        # Its threads would run beside the CPUs that the guests share
        (f"{LAYERS}factors: {{cpu.overcommit: ['1', '2'], guest.count: ['4']}}\n".replace(", nested", ""), [host()]),
    ],
)
def test_where_it_cannot_be_had_or_another_is_named_the_plan_stays_as_it_is(
    text: str, hosts: list[FakeMachine]
) -> None:
    plan = parse(text, "x")
    assert with_usual_card(plan, hosts) is plan


def test_no_plan_that_names_its_paths_is_changed() -> None:
    for name in ("network", "sriov"):
        assert with_usual_card(load(name), [host()]) == load(name)


def test_a_nested_guest_has_no_other_path() -> None:
    plan = parse(f"{LAYERS}factors: {{net.path: [tap, vhost, rtl8139]}}\n", "x")
    lacking = NetworkPart().lacking(Request(host(), plan, plan.treatments()[0]))
    assert lacking == {"nested net.path=rtl8139": "net.path=rtl8139 is no path of a nested guest: it has tap or vhost"}
