"""What a machine itself runs on, told by the CPU's instruction and, where it cannot be asked, by what else there is."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fake_machine import FakeMachine, Reply
from vmtax.meter import below
from vmtax.meter.text import GREP

READ = (*GREP, "", *below.FILES)
FLAGS = "/proc/cpuinfo:model name\t: {model}\n/proc/cpuinfo:flags\t: fpu {flag}\n"
GUEST, METAL = FLAGS.format(model="AMD EPYC", flag="hypervisor"), FLAGS.format(model="AMD EPYC", flag="svm")
QEMU_DMI = f"{below.DMI}/sys_vendor:QEMU\n"
EC2 = f"{below.DMI}/sys_vendor:Amazon EC2\n"
KVM_CLOCK = f"{below.CLOCK}/available_clocksource:tsc kvm-clock\n"
ABSENT = Reply(code=127)


def told(*names: str) -> str:
    """What PROGRAM prints of signatures."""
    return "".join(f"{name.encode().ljust(12, bytes(1)).hex()}\n" for name in names)


def read(files: str, cpuid: str | Reply, detected: str | Reply = ABSENT) -> tuple[str | None, bool | None]:
    found = below.read_below(FakeMachine(answers={READ: files, below.CPUID: cpuid, below.DETECT: detected}))
    return found["hypervisor"], found["emulated_cpu"]


@pytest.mark.parametrize(
    ("files", "cpuid", "expected"),
    [
        (GUEST + QEMU_DMI, told("TCGTCGTCGTCG", ""), ("qemu", True)),
        (GUEST + QEMU_DMI, told("KVMKVMKVM", ""), ("kvm", False)),
        (GUEST, told("Linux KVM Hv", ""), ("kvm", False)),
        (GUEST, told("Microsoft Hv", "KVMKVMKVM"), ("kvm", False)),
        (GUEST, told("Microsoft Hv", ""), ("microsoft", False)),
        (GUEST + EC2, told("KVMKVMKVM", ""), ("amazon", False)),
        (GUEST + QEMU_DMI, told("", ""), ("qemu", None)),  # a KVM that hides itself, or a TCG that does
        (GUEST, told("AnyAnyAnyAny", ""), (None, None)),
        (FLAGS.format(model="QEMU TCG CPU version 2.5+", flag="hypervisor"), told("KVMKVMKVM", ""), ("kvm", True)),
    ],
)
def test_what_the_instruction_shows(files: str, cpuid: str, expected: tuple[str | None, bool | None]) -> None:
    assert read(files, cpuid) == expected


@pytest.mark.parametrize(
    ("files", "detected", "expected"),
    [
        (GUEST, "qemu\n", ("qemu", True)),
        (GUEST + QEMU_DMI, "kvm\n", ("kvm", False)),
        (GUEST + KVM_CLOCK, ABSENT, ("kvm", None)),
        (GUEST + QEMU_DMI, ABSENT, ("qemu", None)),
        (GUEST, "none\n", (None, None)),
    ],
)
def test_without_python_or_executable_memory(
    files: str, detected: str | Reply, expected: tuple[str | None, bool | None]
) -> None:
    assert read(files, Reply(code=1), detected) == expected


def test_bare_metal_is_not_asked_and_where_nothing_is_read_nothing_is_known() -> None:
    for files, virtualized, emulated in ((METAL, False, False), ("", None, None)):
        machine = FakeMachine(answers={READ: files})  # any other command fails the test
        assert below.read_below(machine) == {
            "virtualized": virtualized,
            "hypervisor": None,
            "emulated_cpu": emulated,
        }


@given(st.text())
def test_no_text_makes_the_parsers_raise(text: str) -> None:
    below.parse_below({"/proc/cpuinfo": text}, below.signatures(text), text)


def test_the_program_runs_here() -> None:
    """Where this machine is no guest, a leaf beyond the last tells something else: only its shape is looked at."""
    assert (platform.machine(), sys.maxsize > 2**32) == ("x86_64", True)
    done = subprocess.run((sys.executable, *below.CPUID[1:]), capture_output=True, text=True, check=True)
    assert [len(line) for line in done.stdout.split()] == [24, 24]
