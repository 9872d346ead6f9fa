"""A second host to which guests are migrated: what is refused beforehand, and the way of a guest's memory to it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests import rights
from tests.fake_machine import FakeMachine, Reply
from tests.topologies import listed
from tests.userland import asks_tools, programs
from vmtax.cli.app import BadUse
from vmtax.cli.asked import CardOptions
from vmtax.cli.cards import destination_of
from vmtax.hypervisor import Qemu
from vmtax.machine import MachineError
from vmtax.machine.ssh import SshMachine
from vmtax.network.wire import LOGIN, CardInUse
from vmtax.plan.schema import Plan, parse
from vmtax.testbed.host import needs
from vmtax.testbed.host.cpus import QUESTION
from vmtax.testbed.parts import Request, destination
from vmtax.testbed.parts.arrival import Arrival
from vmtax.testbed.parts.migration import USERFAULTFD
from vmtax.testbed.parts.network import NetworkPart
from vmtax.testbed.parts.processors import Processors
from vmtax.testbed.session.examine import Platform
from vmtax.testbed.session.session import CannotMeasure, Destination, TestbedOptions
from vmtax.testbed.subjects import host_facts

TO = Destination("ssh://b", "eth2", "eth3")
PLAN = "{name: x, layers: [vm], workloads: [migration]}"
CPU = "model name : EPYC\nflags : fpu svm\n"


def plan(text: str = PLAN) -> Plan:
    return parse(text, "x")


BARE = {"emulated_cpu": False, "virtualized": False, "hypervisor": None}
VIRTUAL = BARE | {"virtualized": True, "hypervisor": "kvm"}
UNKNOWN = {"emulated_cpu": None, "virtualized": True, "hypervisor": None}
EMULATED = {"emulated_cpu": True, "virtualized": True, "hypervisor": "qemu"}


def machine(path: str, card: str, mtu: int = 1500, boot: str = "", **answers: Any) -> FakeMachine:
    return FakeMachine(
        path,
        {
            ("id", "-u"): "0\n",
            ("uname", "-sm"): "Linux x86_64\n",
            rights.asked: rights.answer(),
            QUESTION: listed("0-1"),
            asks_tools: programs(),
            ("ip", "-d", "-j", "link"): json.dumps([{"ifname": card, "link_type": "ether", "mtu": mtu}]),
            ("ip", "-j", "address", "show", "dev", card): '[{"addr_info": []}]',
            ("ip", "-4", "-j", "route", "show", "table", "all", "dev", card): "[]",
            ("ip", "-6", "-j", "route", "show", "table", "all", "dev", card): "[]",
            LOGIN: "\n",
            ("test", "-e", f"/sys/class/net/{card}/phy80211"): Reply(code=1),
            ("cat", destination.BOOT_ID): f"{boot or path}\n",
            ("cat", "/proc/meminfo"): f"MemAvailable: {answers.get('room', 1300000)} kB\n",
            ("cat", USERFAULTFD): "0\n",
            destination.FLAGS: CPU,
            **answers.get("more", {}),
        },
    )


def look(there: FakeMachine, text: str = PLAN) -> Mapping[str, str]:
    """What is seen before the question: treatments that cannot move there -> why."""
    here, asked = machine("host", "eth2"), plan(text)
    destination.look(here, there, asked, TO)
    return Arrival().lacking(Request(here, asked, asked.treatments()[0], destination=there, far_card=TO.far_card))


def test_a_host_that_can_take_a_guest_needs_room_for_it_once() -> None:
    assert look(machine("ssh://b", "eth3")) == {}
    assert 2 * needs.memory_bytes(plan(), "vm", leaves=True) == needs.memory_bytes(plan(), "vm")


@pytest.mark.parametrize(
    ("there", "text", "why"),
    [
        (machine("ssh://b", "eth3", boot="host"), PLAN, "--destination ssh://b: is the machine that local is"),
        (machine("ssh://b", "eth3", room=900000), PLAN, "ssh://b: 0.9 GiB of memory are available, the largest guest"),
        (machine("ssh://b", "eth3", more={("id", "-u"): "7\n"}), PLAN, "take root there: run as root"),
        (
            machine("ssh://b", "eth3", mtu=9000),
            PLAN,
            "host: the card eth2 has an MTU of 1500, and the card eth3 of ssh",
        ),
        (machine("ssh://b", "eth4"), PLAN, "ssh://b: no Ethernet card eth3; there are eth4"),
        (machine("ssh://b", "eth3"), PLAN.replace("migration", "net"), "the plan x has no workload migration"),
        (machine("ssh://b", "eth3"), PLAN.replace("[mig", "[chess, mig"), "leave chess out of the plan"),
    ],
)
def test_a_host_that_cannot_take_a_guest_is_refused_beforehand(there: FakeMachine, text: str, why: str) -> None:
    with pytest.raises((CannotMeasure, CardInUse)) as refused:
        look(there, text)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("factors", "why"),
    [
        ("memory.backing: [2MiB]", "memory.backing=2MiB: is set on the host under test, and not at the destination"),
        ("cpu.halt_polling: [50us]", "is set on the host under test, and not at the destination"),
        ("migration.mode: [postcopy]", "ssh://b: migration.mode=postcopy needs userfaultfd"),
    ],
)
def test_what_the_destination_cannot_have_is_left_out(factors: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NetworkPart, "lacking", lambda *arguments: {})
    (found,) = look(
        machine("ssh://b", "eth3"), PLAN.replace("workloads", f"factors: {{{factors}}}, workloads")
    ).values()
    assert why in found


def platform(version: str = "10.0.2", accelerator: str = "kvm") -> Platform:
    runs = SimpleNamespace(name=accelerator, reason="it is so")
    return Platform(Qemu(("qemu-system-x86_64",), version, ""), cast(Any, runs))


@pytest.mark.parametrize(
    ("theirs", "cpu", "text", "why"),
    [
        (platform(version="9.2.1"), CPU, PLAN, "ssh://b: QEMU is 9.2.1 there, and 10.0.2 on the host under test"),
        (platform(accelerator="tcg"), CPU, PLAN, "ssh://b: guests are emulated there (it is so), and run on KVM on"),
        (
            platform(),
            CPU.replace("EPYC", "Xeon"),
            PLAN,
            "another CPU than that of the host under test (Xeon, not EPYC)",
        ),
        (platform(), CPU.replace(" svm", ""), PLAN, "(not both have svm)"),
        (platform(), CPU, PLAN, ""),
        (
            platform(),
            CPU.replace("EPYC", "Xeon"),
            PLAN.replace("workl", "factors: {cpu.model: [x86-64-v2]}, workl"),
            "",
        ),
    ],
)
def test_what_runs_guests_there_is_what_runs_them_here(
    theirs: Platform, cpu: str, text: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(destination, "place", lambda *arguments: None)
    monkeypatch.setattr(destination, "choose_platform", lambda *arguments: theirs)
    monkeypatch.setattr(destination, "read_below", lambda machine: BARE)
    monkeypatch.setattr(Processors, "lacking", lambda *arguments: {})
    there = machine("ssh://b", "eth3", more={destination.FLAGS: cpu})
    session = SimpleNamespace(local=None, image=None, emit=None)
    own: Any = SimpleNamespace(
        session=session, host=machine("host", "eth2"), plan=plan(text), guests=platform(), host_emulated=False
    )
    with pytest.raises(CannotMeasure) if why else contextlib.nullcontext() as refused:
        destination.examined(own, there, TestbedOptions(destination=TO))
    assert refused is None or why in str(refused.value)


def side(*, host_emulated: bool) -> Any:
    session = SimpleNamespace(local=None, image=None, emit=None)
    host = machine("host", "eth2")
    return SimpleNamespace(session=session, host=host, plan=plan(), guests=platform(), host_emulated=host_emulated)


@pytest.mark.parametrize(
    ("below", "emulated", "note", "why"),
    [
        (BARE, False, "", ""),
        (UNKNOWN, False, "The destination ssh://b is itself a VM (under an unknown hypervisor).", ""),
        (VIRTUAL, False, "The destination ssh://b is itself a VM (under kvm).", ""),
        (EMULATED, True, "", ""),
        (EMULATED, False, "", "ssh://b is itself emulated (TCG), and the host under test is not: "),
        (BARE, True, "", "the host under test is itself emulated (TCG), and ssh://b is not: "),
    ],
)
def test_what_the_destination_runs_on_is_said(
    below: Any, emulated: bool, note: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(destination, "place", lambda *arguments: None)
    monkeypatch.setattr(destination, "choose_platform", lambda *arguments: platform())
    monkeypatch.setattr(destination, "read_below", lambda machine: below)
    monkeypatch.setattr(Processors, "lacking", lambda *arguments: {})
    monkeypatch.setattr(host_facts, "read_facts", lambda machine: {"kernel_release": f"{machine.path}'s"})
    own, there = side(host_emulated=emulated), machine("ssh://b", "eth3")
    if why:
        with pytest.raises(CannotMeasure) as refused:
            destination.examined(own, there, TestbedOptions(destination=TO))
        assert str(refused.value).startswith(why)
        return
    found = destination.examined(own, there, TestbedOptions(destination=TO))
    assert found.note == note
    facts = host_facts.facts_of_destination(found)
    assert facts["kernel_release"] == "ssh://b's" and facts["accelerator"] == {"name": "kvm"}


@pytest.mark.parametrize("lacking", [{"ssh://b"}, {"ssh://b", "host"}])
def test_a_level_that_only_the_destination_lacks_is_refused_before_the_question(
    lacking: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacks(_: Processors, request: Request) -> dict[str, str]:
        return {"vm": "cpu.model=x86-64-v4: no AVX-512"} if request.host.path in lacking else {}

    monkeypatch.setattr(destination, "place", lambda *arguments: None)
    monkeypatch.setattr(destination, "choose_platform", lambda *arguments: platform())
    monkeypatch.setattr(destination, "read_below", lambda machine: BARE)
    monkeypatch.setattr(Processors, "lacking", lacks)
    own = side(host_emulated=False)
    alone = lacking == {"ssh://b"}
    with pytest.raises(CannotMeasure, match=r"^ssh://b: .* leave that level") if alone else contextlib.nullcontext():
        destination.examined(own, machine("ssh://b", "eth3"), TestbedOptions(destination=TO))


class Far(SshMachine):
    """Has no guard and no connection, and says what it is to forward."""

    def __init__(self, path: str, said: list[str], *, fails: bool = False) -> None:
        self.path, self.said, self.fails = path, said, fails

    def forward(self, here: PurePosixPath, there: PurePosixPath, *, back: bool = False) -> Callable[[], None]:
        if self.fails:
            raise MachineError("refused")
        self.said.append(f"{self.path}: {there} -> {here}" if back else f"{here} -> {self.path}: {there}")
        return lambda: self.said.append(f"end {self.path}")

    def run(self, *argv: str, **rest: Any) -> str:
        self.said.append(f"{self.path}: {' '.join(argv)}")
        return ""


def leading(source: Any, there: Any, said: list[str], *, keeps_user: bool = False) -> list[str]:
    local = SimpleNamespace(scratch=PurePosixPath("/s"), fresh_name=lambda what: what)
    session = SimpleNamespace(local=local)
    qemu = SimpleNamespace(qemu=SimpleNamespace(user=7))
    on: Any = SimpleNamespace(host=source, session=session, guests=qemu, destination=SimpleNamespace(machine=there))
    near, far = (cast(Any, SimpleNamespace(meeting=each)) for each in ("/near", "/far"))
    with destination.lead(on, near, far, keeps_user=keeps_user):
        said.append("moves")
    return said


def test_a_guest_s_memory_goes_over_the_connections_of_vmtax() -> None:
    said: list[str] = []
    assert leading(Far("a", said), Far("b", said), said) == [
        "/s/moves -> b: /far/migration",
        "a: /near/migration -> /s/moves",
        "a: chown 7 /near/migration",
        "moves",
        *("end a", "end b"),
    ]
    local = FakeMachine("host", {("chown", "7", "/near/migration"): ""})
    assert leading(local, Far("b", again := list[str]()), again) == [
        *("/near/migration -> b: /far/migration", "moves", "end b")
    ]
    leading(Far("a", kept := list[str]()), Far("b", kept), kept, keeps_user=True)
    assert "moves" in kept and not [line for line in kept if "chown" in line]
    with pytest.raises(MachineError, match="refused"):
        leading(Far("a", failed := list[str](), fails=True), Far("b", failed), failed)
    assert failed == ["/s/moves -> b: /far/migration", "end b"]


def test_the_command_line_names_both_cards_or_says_so() -> None:
    assert destination_of("local", CardOptions(destination="ssh://b", card="eth2", destination_card="eth3"), []) == TO
    assert destination_of("local", CardOptions(card="eth2"), []) is None, "that is a wire's"
    for given, why in (
        (("local", "ssh://b", "eth2", None, []), "--destination takes --card and --destination-card"),
        (("local", "ftp://b", "eth2", "eth3", []), "--destination: "),
        (("local", "ssh://b", "eth2", "a/b", []), "--destination-card 'a/b': no network card can be called that"),
        (("ssh://b", "ssh://b", "eth2", "eth3", []), "is the plan's own host"),
        (("local", "ssh://b", "eth2", "eth3", ["--peer"]), "leave out --peer"),
    ):
        with pytest.raises(BadUse) as refused:
            host, to, card, far_card, others = given
            destination_of(host, CardOptions(destination=to, card=card, destination_card=far_card), others)
        assert why in str(refused.value)


def test_a_resumed_run_moves_guests_to_the_same_host() -> None:
    options = TestbedOptions(destination=TO)
    assert TestbedOptions.from_json(json.loads(json.dumps(options.to_json()))) == options
    assert "destination" not in TestbedOptions().to_json()
