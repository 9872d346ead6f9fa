"""The CPU model, clock, pinning and halt polling that a guest asks for, gets, and gives back."""

from __future__ import annotations

import contextlib
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fake_machine import FakeMachine, Reply
from tests.topologies import ALDER, files, listed, printed
from vmtax.core.records import Treatment
from vmtax.core.units import cpu_numbers
from vmtax.design.guest import GuestSettings
from vmtax.hypervisor import Qemu, QemuError, Thread
from vmtax.hypervisor.qemu.cpu import missing_features, nearest_models
from vmtax.hypervisor.qemu.threads import parse_threads
from vmtax.machine.local import LocalMachine
from vmtax.meter.text import parse_files
from vmtax.plan.schema import Plan, parse
from vmtax.testbed.host.cpus import QUESTION, apart, in_pairs, read
from vmtax.testbed.host.cpus import parse as cpus_of
from vmtax.testbed.host.obtained import why_no_clock, why_no_hpet, why_not
from vmtax.testbed.parts import Request, pinning, polling
from vmtax.testbed.parts.pinning import Pinning
from vmtax.testbed.parts.polling import Polling
from vmtax.testbed.parts.processors import Processors

UNKNOWN_MODEL = "qemu-system-x86_64: unable to find CPU model 'haswel'\n"
LACKS = """\
qemu-system-x86_64: warning: TCG doesn't support requested feature: CPUID.01H:ECX.pcid [bit 17]
qemu-system-x86_64: warning: TCG doesn't support requested feature: CPUID.07H:EBX.avx512f [bit 16]
qemu-system-x86_64: warning: TCG doesn't support requested feature: CPUID.07H:EBX.avx512f [bit 16]
qemu-system-x86_64: TCG doesn't support requested features
"""


def test_what_qemu_says_of_a_cpu_is_understood() -> None:
    assert missing_features(LACKS) == ["pcid", "avx512f"]
    old, new = "Available CPUs:\nx86 Haswell-v1   Intel\nx86 host", "Available CPUs:\n  Haswell-v1   Intel\n  host"
    for models in (old, new):
        assert nearest_models("haswel", "/opt/qemu", f"{models}\n\nRecognized CPUID") == (
            "knows no CPU 'haswel'; nearest: Haswell-v1; `/opt/qemu -cpu help` lists its own"
        )
    assert "nearest: x86-64-v4" in nearest_models("x86-64-v9", "/opt/qemu", new), "vmtax's own names count"


def plan(factors: str, vcpus: int = 2) -> Plan:
    guest = f"guest: {{vcpus: {vcpus}, memory: 1GiB}}\n"
    return parse(f"name: x\nlayers: [vm]\n{guest}factors: {{{factors}}}\nworkloads: [chess]\n")


def qemu_that(refuses: str) -> FakeMachine:
    def is_asked(argv: tuple[str, ...]) -> bool:
        return "qemu" in argv[0] and "help" not in argv

    return FakeMachine(
        "host", {is_asked: Reply(code=1, stderr=refuses), lambda argv: "help" in argv: "x86 Haswell  x\n"}
    )


def test_a_model_that_qemu_cannot_give_is_impossible_and_one_that_it_does_not_know_is_an_error() -> None:
    qemu, asked = Qemu(("qemu-system-x86_64",), "10.0", ""), plan("cpu.model: [host, haswel]")
    kept: list[Treatment] = asked.treatments()[0]
    said = Processors().lacking(Request(qemu_that(LACKS), asked, kept, qemu, "tcg"))
    assert said == {"vm cpu.model=haswel": "cpu.model=haswel: emulation (TCG) lacks pcid, avx512f"}
    with pytest.raises(QemuError, match=r"^host: cpu.model: QEMU 10.0 knows no CPU 'haswel'; nearest: Haswell; "):
        Processors().lacking(Request(qemu_that(UNKNOWN_MODEL), asked, kept, qemu, "tcg"))


def test_threads_take_an_even_number_of_cpus() -> None:
    asked = plan("cpu.topology: [cores, threads]", vcpus=3)
    assert asked.treatments()[1] == [
        "vm cpu.topology=threads: cpu.topology=threads takes an even number of CPUs, and guest.vcpus is 3"
    ]


def test_a_clock_that_kvm_or_qemu_does_not_give_is_impossible() -> None:
    qemu, asked = Qemu(("qemu-system-x86_64",), "10.0", ""), plan("cpu.timer: [auto, kvm-clock, hpet, tsc]")
    assert Processors().lacking(Request(FakeMachine("host"), asked, asked.treatments()[0], accelerator="tcg")) == {
        "vm cpu.timer=kvm-clock": "cpu.timer=kvm-clock needs KVM, and the guests here are emulated"
    }
    without = qemu_that("qemu: Property 'q35.hpet' not found\n")
    said = Processors().lacking(Request(without, asked, asked.treatments()[0], qemu, "kvm"))
    assert said == {
        "vm cpu.timer=hpet": "cpu.timer=hpet: QEMU 10.0 refuses it: qemu: Property 'q35.hpet' not found",
    }


def test_a_guest_whose_kernel_reads_another_clock_has_not_got_its_level() -> None:
    timer = GuestSettings(timer="hpet")
    assert why_no_clock(timer, "hpet", ["cpu.timer"]) is None
    assert why_no_clock(timer, "tsc", ["cpu.timer"]) == (
        "cpu.timer=hpet was not obtained: the clock that the guest's kernel reads is tsc"
    )
    assert why_no_clock(GuestSettings(), "tsc", ["cpu.timer"]) is None


@pytest.mark.parametrize(
    ("level", "clocks", "why"),
    [
        ("on", "kvm-clock tsc hpet acpi_pm", None),
        ("off", "kvm-clock tsc acpi_pm", None),
        ("auto", "kvm-clock tsc hpet acpi_pm", None),
        ("on", "tsc acpi_pm", "guest.hpet=on was not obtained: the guest's kernel has the clocks tsc acpi_pm"),
        ("off", "tsc hpet", "guest.hpet=off was not obtained: the guest's kernel has the clocks tsc hpet"),
    ],
)
def test_a_guest_has_got_an_hpet_if_its_kernel_has_it_for_a_clock(level: str, clocks: str, why: str | None) -> None:
    assert why_no_hpet(GuestSettings.of({"guest.hpet": level}), clocks, ["guest.hpet"]) == why


# Pinning

# What THREADS prints of bubblewrap, and of a QEMU that counts from 1 in its own namespace: 9 and 10 run a guest's CPUs.
LISTED = """\
/proc/40/task/40/status:Cpus_allowed_list:\t0-3
/proc/40/task/40/status:NSpid:\t40
/proc/41/task/41/status:Cpus_allowed_list:\t{rest}
/proc/41/task/41/status:NSpid:\t41\t2
/proc/41/task/48/status:Cpus_allowed_list:\t{first}
/proc/41/task/48/status:NSpid:\t48\t9
/proc/41/task/49/status:Cpus_allowed_list:\t{second}
/proc/41/task/49/status:NSpid:\t49\t10
"""


def test_a_thread_is_known_by_its_number_in_qemu_s_own_namespace() -> None:
    found = parse_threads(LISTED.format(rest="2-3", first="0", second="0-3"), {9: 0, 10: 1})
    assert found == (Thread(41, None, "2-3"), Thread(48, 0, "0"), Thread(49, 1, "0-3"))
    assert parse_threads(LISTED, {9: 0, 77: 1}) == (), "no process has them all"


@pytest.mark.parametrize(("text", "wanted"), [("0-3", 3), ("0-2", 3), ("0-1", 3)])
def test_pinned_guests_take_one_cpu_more_than_they_have(text: str, wanted: int) -> None:
    asked = plan("cpu.pinning: [none, one-to-one]", vcpus=2)
    machine = FakeMachine("host", {QUESTION: listed(text)})
    said = Pinning().lacking(Request(machine, asked, asked.treatments()[0]))
    has = len(cpu_numbers(text))
    line = f"takes {wanted} CPUs, 2 for guests and one or more for QEMU's other threads, and host has {has}"
    assert [line in why for why in said.values()] == ([True] if has < wanted else [])
    assert list(said) == (["vm cpu.pinning=one-to-one"] if has < wanted else [])


def test_guests_are_pinned_beside_each_other_and_what_is_not_pinned_is_counted() -> None:
    allowed = {48: "0-4", 49: "0-4", 41: "0-4"}

    def taskset(argv: tuple[str, ...]) -> bool:
        if argv[0] == "taskset":
            allowed[int(argv[-1])] = argv[3]
        return argv[0] == "taskset"

    def threads(parent: Any) -> tuple[Thread, ...]:
        return tuple(Thread(each, {48: 0, 49: 1}.get(each), where) for each, where in allowed.items())

    machine = FakeMachine("host", {QUESTION: listed("0-4"), taskset: ""})
    guest: Any = SimpleNamespace(threads=threads, spec=SimpleNamespace(vcpus=2, settings=GuestSettings(pinned=True)))
    assert pinning.readings(machine, read(machine), guest, 2, 2) == {
        "pinned_cpus": 0,
        "pinned_cores": 0,
        "threads_astray": 3,
    }
    pinning.pin(machine, read(machine), guest, 2, 2)
    assert allowed == {48: "2", 49: "3", 41: "4"}, "the first guest has 0 and 1"
    assert pinning.readings(machine, read(machine), guest, 2, 2) == {
        "pinned_cpus": 2,
        "pinned_cores": 2,
        "threads_astray": 0,
    }
    found = {"cpu.pinned_cpus": 1.0, "cpu.threads_astray": 2.0}
    pinned = GuestSettings(pinned=True)
    assert why_not(pinned, 2, found, ["cpu.pinning"]) == (
        "cpu.pinning=one-to-one was not obtained: 1 of 2 CPUs are pinned, and 2 threads of QEMU may run elsewhere than"
        " they should"
    )
    assert why_not(pinned, 1, {"cpu.pinned_cpus": 1.0, "cpu.threads_astray": 0.0}, ["cpu.pinning"]) is None


FAR, NEAR = "0,4\n1,5\n2,6\n3,7\n" * 2, "0-1\n0-1\n2-3\n2-3\n4-5\n4-5\n6-7\n6-7\n"  # how hosts number siblings


@pytest.mark.parametrize(
    ("allowed", "siblings", "apart_first", "pairs"),
    [
        ("0-7", FAR, "0,1,2,3,4,5,6,7", "0,4,1,5,2,6,3,7"),
        ("0-7", NEAR, "0,2,4,6,1,3,5,7", "0,1,2,3,4,5,6,7"),
        ("1-5", NEAR, "1,2,4,3,5", "2,3,4,5,1"),  # the sibling of 1 is not ours: 1 has no pair, and is a core
        ("0-3", "", "0,1,2,3", "0,1,2,3"),
        ("0-3", "0\n1\n2\n3\n", "0,1,2,3", "0,1,2,3"),
        ("0-3", "?\n1-\n", "0,1,2,3", "0,1,2,3"),
    ],
)
def test_cpus_of_different_cores_come_first_or_in_pairs(
    allowed: str, siblings: str, apart_first: str, pairs: str
) -> None:
    each = cpus_of(parse_files(listed(allowed, siblings))).cores
    assert (apart(each), in_pairs(each)) == (cpu_numbers(apart_first), cpu_numbers(pairs))


@pytest.mark.parametrize(
    ("siblings", "taken", "paired", "own", "others"),
    [
        (NEAR, 2, False, [0, 2], [4, 5, 6, 7]),  # the siblings of a guest's CPUs stay idle
        (NEAR, 2, True, [0, 1], [2, 3, 4, 5, 6, 7]),
        (FAR, 2, True, [0, 4], [1, 2, 3, 5, 6, 7]),
        (FAR, 4, False, [0, 1, 2, 3], [4, 5, 6, 7]),  # no core is left: their siblings
        (NEAR, 6, False, [0, 2, 4, 6, 1, 3], [5, 7]),
        ("", 6, True, [0, 1, 2, 3, 4, 5], [6, 7]),
    ],
)
def test_other_threads_of_qemu_keep_off_the_cores_of_guests_where_they_can(
    siblings: str, taken: int, paired: bool, own: list[int], others: list[int]
) -> None:
    assert pinning.places(cpus_of(parse_files(listed("0-7", siblings))).cores, taken, paired=paired) == (own, others)


@pytest.mark.parametrize(
    ("taken", "own", "others"),
    [(2, [0, 2], range(4, 16)), (16, [*range(0, 16, 2), *range(1, 16, 2)], range(16, 20))],
)
def test_pinned_cpus_are_of_the_type_that_every_layer_gets(taken: int, own: list[int], others: Sequence[int]) -> None:
    hybrid = FakeMachine("host", {QUESTION: printed(files(*ALDER))})
    assert pinning._places_on(read(hybrid), taken, paired=False) == (own, [*others])


def test_two_threads_of_a_guest_s_core_are_pinned_to_one_core_of_the_host() -> None:
    machine = FakeMachine("host", {QUESTION: listed("0-7", FAR)})

    def guest(topology: str, *pins: str) -> Any:
        settings = GuestSettings(pinned=True, topology=topology)
        threads = tuple(Thread(number, number, cpus) for number, cpus in enumerate(pins))
        return SimpleNamespace(threads=lambda parent: threads, spec=SimpleNamespace(vcpus=2, settings=settings))

    two = {"pinned_cpus": 2, "pinned_cores": 2, "threads_astray": 0}
    assert pinning.readings(machine, read(machine), guest("cores", "2", "3"), 2, 2) == two
    assert pinning.readings(machine, read(machine), guest("threads", "1", "5"), 2, 2) == {**two, "pinned_cores": 1}
    assert pinning.readings(machine, read(machine), guest("threads", "2", "3"), 2, 2)["threads_astray"] == 2


# Halt polling


def test_halt_polling_is_kvm_s_and_takes_root() -> None:
    asked = plan("cpu.halt_polling: [default, off, 50us]")
    kept, names = asked.treatments()[0], ["vm cpu.halt_polling=off", "vm cpu.halt_polling=50us"]
    read, may_write = ("cat", polling.PARAMETER), ("test", "-w", polling.PARAMETER)
    there = FakeMachine("host", {read: "200000\n", may_write: ""})
    assert Polling().lacking(Request(there, asked, kept, accelerator="kvm")) == {}
    emulated = Polling().lacking(Request(there, asked, kept, accelerator="tcg"))
    assert list(emulated) == names and "=off needs KVM, and the guests here are emulated" in emulated[names[0]]
    for machine, why in (
        (FakeMachine("host", {read: Reply(code=1)}), "which is not there"),
        (FakeMachine("host", {read: "0\n", may_write: Reply(code=1)}), "needs root, to write"),
    ):
        said = Polling().lacking(Request(machine, asked, kept, accelerator="kvm"))
        assert list(said) == names and why in said[names[0]]
    off = GuestSettings.of({"cpu.halt_polling": "off"})
    assert why_not(off, 2, {"cpu.halt_poll_ns": 0}, ["cpu.halt_polling"]) is None
    assert "kvm.halt_poll_ns is 200000" in (why_not(off, 2, {"cpu.halt_poll_ns": 200000}, ["cpu.halt_polling"]) or "")


@pytest.mark.parametrize(("since", "left"), [(None, "200000"), ("7", "7")])
def test_halt_polling_is_put_back_however_a_run_ends(since: str | None, left: str, tmp_path: Path) -> None:
    parameter = tmp_path / "halt_poll_ns"
    parameter.write_text("200000\n")
    with contextlib.closing(LocalMachine()) as machine:
        assert polling.set_polling(machine, 200_000, str(parameter)) is None, "nothing is to be undone"
        polling.set_polling(machine, 0, str(parameter))
        assert polling.readings(machine, str(parameter)) == {"halt_poll_ns": 0}
        if since is not None:
            parameter.write_text(since)
    assert parameter.read_text().strip() == left


KILLED = """\
import os, signal, sys
from vmtax.machine.local import LocalMachine
from vmtax.testbed.parts import polling
machine = LocalMachine()
polling.set_polling(machine, 0, sys.argv[1])
print(polling.readings(machine, sys.argv[1])["halt_poll_ns"], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_halt_polling_is_put_back_after_sigkill(tmp_path: Path) -> None:
    parameter = tmp_path / "halt_poll_ns"
    parameter.write_text("200000\n")
    argv = [sys.executable, "-c", KILLED, str(parameter)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "0\n"), "it was set when the program was killed"
    deadline = time.monotonic() + 60
    while parameter.read_text().strip() != "200000" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert parameter.read_text() == "200000\n"


def test_qemu_is_asked_without_a_guest() -> None:
    machine = qemu_that(LACKS)
    Qemu(("qemu-system-x86_64",), "10.0", "").why_no_cpu(machine, "x86-64-v3", "tcg")
    words = shlex.join(machine.calls[0])
    assert " -S " in words and ",+avx2,+bmi1," in words and words.endswith(",enforce -qmp stdio")
