"""A Windows as a host of Hyper-V, by the documented shapes of its answers. None was printed by a Windows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from tests.unit.test_windows_doctor import facts as windows_facts
from vmtax.core.checks import Check
from vmtax.doctor.hyper_v import diagnose_hyper_v, verdict
from vmtax.machine.windows.command import WindowsOutcome
from vmtax.machine.windows.command_line import MOST_CHARACTERS
from vmtax.meter.hyper_v import HOST_QUESTIONS, HyperVCard, HyperVFacts, HyperVGuest, names_in, parse_hyper_v

NOW = datetime(2026, 11, 27, 14, 0, 3, tzinfo=UTC)
ANSWERS = {
    "vms": "vms=2\nvm=Running|2|2|4294967296|True|web|1: a\nvm=Off|1|4|0|False|old\n",
    "cards": "card=100|0|LAN|web|1: a\ncard=0|0|LAN|old\n",
    "metered": "metered=412|2048|web|1: a\n",
    "used": "hypervisor=3\nidle=60\ndpc=1\ninterrupt=0\nvp=0|0|_Total\n"
    "vp=50|10|web|1: a:Hv VP 0\nvp=70|20|web|1: a:Hv VP 1\n",
}


def hyper_v(changes: Mapping[str, str] | None = None, stderr: str = "", code: int = 0) -> HyperVFacts:
    return parse_hyper_v(
        {name: WindowsOutcome(text, stderr, code) for name, text in {**ANSWERS, **(changes or {})}.items()}
    )


def checks(found: HyperVFacts) -> dict[str, Check]:
    return {check.name: check for check in diagnose_hyper_v("ssh://hv", "cmd.exe", windows_facts(), found, NOW).checks}


def test_vms_and_their_work_are_read() -> None:
    found = hyper_v()
    assert found == HyperVFacts(
        guests=(
            HyperVGuest(
                *("web|1: a", "Running", 2, 2, 2**32, True, (HyperVCard("LAN", 100, has_function=False),)),
                busy=pytest.approx(1.2),
                hypervisor_busy=pytest.approx(0.3),
                metered_mhz=412,
            ),
            HyperVGuest("old", "Off", 1, 4, 0, False, (HyperVCard("LAN", 0, has_function=False),)),
        ),
        is_host=True,
        hypervisor=0.03,
        idle=0.6,
        deferred=0.01,
        interrupts=0.0,
    )


def test_names_are_known_that_only_a_counter_says() -> None:
    """They are hidden in the file that is sent to others."""
    assert names_in(ANSWERS) >= {"web|1: a", "old", "LAN"}
    assert names_in({"used": "vp=1|2|secret: b:Hv VP 0\n"}) == {"secret: b"}
    assert names_in({"cards": "card=0|0|LAN|old\n", "metered": "metered=1|2|other\n"}) == {"LAN", "old", "other"}


def test_what_is_said_of_them() -> None:
    found = checks(hyper_v())
    assert found["VM web|1: a"].text == (
        "Running, generation 2, 2 CPUs, 4.0 GiB, nesting allowed, SR-IOV asked for, 0 of 1 card with a function,"
        " 1.20 CPUs busy and 0.30 in the hypervisor for it, 412 MHz on average by its metering"
    )
    assert found["VM old"].text == "Off, generation 1, 4 CPUs, nesting not allowed"
    assert found["VM"].text == "2 VMs, 1 of them running"
    assert (found["VMs at work"].status, found["VMs at work"].text) == ("disturbs", "VMs use 38 % of its CPUs")
    assert found["CPUs"].text == "3 % in the hypervisor, 1 % in deferred calls (DPC), 0 % in interrupts, 60 % idle"
    assert found["SR-IOV of web|1: a"].text == "it asks for SR-IOV at switch LAN, and has no virtual function"
    assert "never run on Windows" in found["host"].text
    diagnosis = diagnose_hyper_v("ssh://hv", "cmd.exe", windows_facts(), hyper_v(), NOW)
    assert not diagnosis.bad and "never run on Windows" in verdict(diagnosis)


def test_what_is_said_of_a_vm_s_devices_is_not_said_of_a_host() -> None:
    names = checks(hyper_v()).keys()
    assert "power plan" in names and not names & {"administrator", "clock", "virtio drivers", "disk 1"}


def test_a_host_without_vms_is_one() -> None:
    found = hyper_v({"vms": "vms=0\n", "cards": "", "metered": "", "used": ""})
    assert found.is_host and checks(found)["VM"].text == "0 VMs, 0 of them running"


@pytest.mark.parametrize(
    ("stderr", "code", "why"),
    [
        ("+ FullyQualifiedErrorId : CommandNotFoundException\n", 1, "lacks a cmdlet"),
        ("+ FullyQualifiedErrorId : CommandNotFoundException\n", 0, "lacks a cmdlet"),
        ("", 1, "powershell ended with exit code 1 when asked about vms"),
        ("", 0, ""),
    ],
)
def test_a_windows_that_is_no_host_is_told_what_to_do(stderr: str, code: int, why: str) -> None:
    found = checks(hyper_v(dict.fromkeys(ANSWERS, ""), stderr, code))
    assert found["host"].status == "missing"
    assert "Hyper-V Administrators" in found["host"].remedy
    assert not why or why in found["of VMs"].text


@pytest.mark.parametrize("name", HOST_QUESTIONS)
@pytest.mark.parametrize(
    "text", ["garbage\n", "vm=|\nvm=a|b|c|d|e|f\n", "vp=x|y|z\nvp=1|1|a\n", "hypervisor=101\n", "\0|" * 50]
)
@pytest.mark.varied(8)
def test_an_answer_that_is_not_understood_is_unknown(name: str, text: str) -> None:
    found = hyper_v({name: text})
    assert checks(found)["host"].status in ("unknown", "missing")
    assert found.hypervisor in (0.03, None)


def test_each_question_fits_a_line() -> None:
    assert all(len(line) < MOST_CHARACTERS for line in HOST_QUESTIONS.values())
