"""Hyper-V's interface as a factor: its levels, what QEMU is told, and what a guest's CPUID shows of it."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from tests.fake_machine import FakeMachine, Reply
from vmtax.core.errors import CannotDo
from vmtax.core.records import Treatment
from vmtax.design.factors import FACTORS, why_illegal
from vmtax.design.guest import GuestSettings
from vmtax.design.hyperv import ENLIGHTENMENTS, LEVELS, cpu_options, level_of, parts_of, why_not
from vmtax.hypervisor import Qemu
from vmtax.plan.errors import PlanError
from vmtax.plan.schema import Plan, parse
from vmtax.testbed.parts import Request
from vmtax.testbed.parts.enlightenments import READ, Enlightened, why_not_obtained

QEMU = Qemu(("qemu-system-x86_64",), "10.0", "")
# What guests of KVM read from leaf 0x40000000 on (Linux 6.12 twice, QEMU 10.0, on AMD).
ZEROS = "00000000 00000000 00000000 00000000\n"
KVM = "40000001 4b4d564b 564b4d56 0000004d\n" + "01007efb 00000000 00000000 00000000\n" + ZEROS * 3
HIDDEN = ZEROS * 5
NAMED = (
    "40000005 7263694d 666f736f 76482074\n31237648 00000000 00000000 00000000\n00003839 000a0000 00000000 00000000\n"
)
ALL = NAMED + "00002a7f 00000030 00000000 00080108\n00000c2c 00001fff 00000000 00000000\n"
TIME = NAMED + "00000262 00000000 00000000 00000008\n00000000 ffffffff 00000000 00000000\n"


def plan(levels: str) -> Plan:
    guest = "guest: {vcpus: 2, memory: 1GiB}\n"
    return parse(f"name: x\nlayers: [vm]\n{guest}factors: {{cpu.hyperv: {levels}}}\nworkloads: [chess]\n")


def request(levels: str, accelerator: Any, machine: Any = None) -> Request:
    asked = plan(levels)
    kept: list[Treatment] = asked.treatments()[0]
    return Request(machine or FakeMachine("host"), asked, kept, QEMU, accelerator)


@pytest.mark.parametrize(
    ("level", "options"),
    [
        ("off", ""),
        ("hidden", "kvm=off"),
        ("relaxed", "kvm=off,hv-relaxed,hv-vpindex"),
        ("spinlocks", "kvm=off,hv-spinlocks=0x1fff,hv-vpindex"),
        ("stimer", "kvm=off,hv-vpindex,hv-time,hv-synic,hv-stimer"),
        ("vapic+time", "kvm=off,hv-vapic,hv-vpindex,hv-time"),
        (
            "all",
            "kvm=off,hv-relaxed,hv-vapic,hv-spinlocks=0x1fff,hv-vpindex,hv-runtime,hv-time,hv-synic,hv-stimer,"
            "hv-stimer-direct,hv-frequencies,hv-reenlightenment,hv-tlbflush,hv-ipi",
        ),
    ],
)
def test_a_level_is_what_qemu_is_told_with_all_that_it_needs(level: str, options: str) -> None:
    assert ",".join(cpu_options(level)) == options


def test_every_set_has_one_level_and_the_level_has_that_set() -> None:
    for size in (0, 1, 2, 3, len(ENLIGHTENMENTS)):
        for names in combinations(ENLIGHTENMENTS, size):
            level = level_of(names)
            assert FACTORS["cpu.hyperv"].takes(level)
            assert set(names) <= set(parts_of(level)) and level_of(parts_of(level)) == level
    assert [level_of(parts_of(level)) for level in LEVELS[1:]] == list(LEVELS[1:])


@pytest.mark.parametrize(
    "level", ["on", "time+vapic", "time+", "+time", "time+time", "vapic+evmcs", "all+time", "off+time", "timesynic", ""]
)
def test_what_is_no_level_is_refused(level: str) -> None:
    assert not FACTORS["cpu.hyperv"].takes(level)


def test_how_parts_are_joined_is_said_where_they_are_not() -> None:
    with pytest.raises(
        PlanError, match=r"'all\+time'.* or several of the parts after all, joined by \+, as vapic\+time"
    ):
        plan("[all+time]")


@pytest.mark.parametrize(("level", "is_legal"), [("off", True), ("hidden", False), ("all", False), ("time+ipi", False)])
def test_a_guest_that_does_not_see_kvm_cannot_have_its_clock(level: str, is_legal: bool) -> None:
    why = why_illegal({"cpu.hyperv": level, "cpu.timer": "kvm-clock"})
    assert why == (
        None if is_legal else f"cpu.hyperv={level} hides KVM from the guest, and with it cpu.timer=kvm-clock"
    )
    assert why_illegal({"cpu.timer": "kvm-clock"}) is None


def test_an_emulated_guest_has_none_of_it() -> None:
    said = Enlightened().lacking(request('["off", hidden, time]', "tcg"))
    assert said == {
        f"vm cpu.hyperv={level}": f"cpu.hyperv={level} needs KVM, and the guests here are emulated"
        for level in ("hidden", "time")
    }
    assert Enlightened().lacking(request('["off", all]', None)) == {}, "it is not known yet"


def test_what_the_host_s_kernel_does_not_offer_is_impossible_in_qemu_s_words() -> None:
    def asks_for_ipi(argv: tuple[str, ...]) -> bool:
        return any("hv-ipi" in word for word in argv)

    refusal = "qemu-system-x86_64: Hyper-V cluster IPI support (hv-ipi) is not supported by kernel\n"
    machine = FakeMachine("host", {asks_for_ipi: Reply(code=1, stderr=refusal), lambda argv: "qemu" in argv[0]: ""})
    said = Enlightened().lacking(request('["off", hidden, time, ipi, all]', "kvm", machine))
    assert list(said) == ["vm cpu.hyperv=ipi", "vm cpu.hyperv=all"]
    assert said["vm cpu.hyperv=ipi"] == f"cpu.hyperv=ipi: QEMU 10.0 refuses it: {refusal.strip()}"


def test_what_linux_does_with_it_is_said_beside_the_result() -> None:
    def said(levels: str) -> list[str]:
        return [note.partition(". ")[0] for note in Enlightened().notes(request(levels, "kvm"))]

    linux = "cpu.hyperv: the guests run Linux, with the devices and the interface that Windows guests get"
    of_kvm = (
        "cpu.hyperv: Linux takes KVM's own interface where it sees it, so at every level but off, KVM is hidden from it"
    )
    assert said('["off"]') == [linux], "KVM is not hidden from any guest"
    assert said("[hidden, all, time+ipi, vpindex]") == [linux, of_kvm]
    notes = Enlightened().notes(request("[hidden, time, spinlocks, runtime]", "kvm"))
    assert notes[2:] == ["cpu.hyperv=spinlocks, runtime: Windows uses it, Linux does not."]
    asked = parse("name: x\nlayers: [vm]\nworkloads: [chess]\n")
    assert not Enlightened().notes(Request(FakeMachine("host"), asked, asked.treatments()[0], QEMU, "kvm"))


SHOWN = {"off": KVM, "hidden": HIDDEN, "all": ALL, "time": TIME}


@pytest.mark.parametrize(
    ("asked", "printed", "why"),
    [
        *((level, printed, None) for level, printed in SHOWN.items()),
        ("off", HIDDEN, "shows hidden"),
        ("off", TIME, "shows time"),
        ("hidden", KVM, "shows off"),
        ("hidden", ALL, "shows all"),
        ("all", KVM, "shows off"),
        ("time", HIDDEN, "shows hidden"),
        ("vapic+time", TIME, "lacks vapic"),
        ("vapic", TIME, "lacks vapic, has time"),
        ("all", "", "cannot be read"),
        ("all", NAMED, "ends too early"),
    ],
)
def test_a_guest_has_got_the_level_that_its_cpuid_shows(asked: str, printed: str, why: str | None) -> None:
    guest: Any = FakeMachine("host/vm", {READ: printed})
    expected = f"cpu.hyperv={asked} was not obtained: the CPUID that the guest reads {why}" if why else None
    assert why_not_obtained(guest, GuestSettings.of({"cpu.hyperv": asked})) == expected


@pytest.mark.parametrize("name", ENLIGHTENMENTS)
def test_one_missing_bit_is_another_level(name: str) -> None:
    leaves = [[int(word, 16) for word in line.split()] for line in ALL.splitlines()]
    each = ENLIGHTENMENTS[name]
    leaves[each.leaf][each.register] &= ~each.mask
    assert why_not("all", [(eax, ebx, ecx, edx) for eax, ebx, ecx, edx in leaves]) == f"lacks {name}"


@pytest.mark.parametrize("printed", ["12 34\n", "x y z w\n", "1 2 3 100000000\n"])
def test_garbage_for_cpuid_is_named(printed: str) -> None:
    guest: Any = FakeMachine("host/vm", {READ: printed})
    with pytest.raises(CannotDo, match=r"^host/vm: cpuid"):
        why_not_obtained(guest, GuestSettings())
