"""A balloon takes memory back from a guest, or the boot has failed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fake_machine import FakeMachine
from tests.unit.test_spec import PLAIN
from vmtax.design.guest import GuestSettings
from vmtax.hypervisor import BootFailed
from vmtax.hypervisor.qemu.argv import arguments
from vmtax.plan.errors import PlanError
from vmtax.plan.schema import parse
from vmtax.plan.vary import varied
from vmtax.testbed.parts import Request
from vmtax.testbed.parts.balloon import Balloon, inflate

MIB = 2**20
PLAN = "{name: x, layers: [vm], guest: {memory: 1GiB}, workloads: [memory: {cases: [faults]}]}"


class Ballooned:
    """A guest of 1 GiB whose balloon leaves it these many MiB, look after look; the last again and again."""

    path = "host/vm"

    def __init__(self, *left: int, total: tuple[int, int]) -> None:
        totals = [f"MemTotal: {each * 1024} kB\n" for each in total]
        answers: Any = {("modprobe", "virtio_balloon"): "", ("cat", "/proc/meminfo"): totals}
        self.machine, self.spec = FakeMachine("host/vm", answers), SimpleNamespace(memory_bytes=1024 * MIB)
        self.left, self.asked = list(left), 0

    def balloon_to(self, size: int) -> None:
        self.asked = size

    def ballooned(self) -> int:
        return MIB * (self.left.pop(0) if len(self.left) > 1 else self.left[0])


def inflated(guest: Ballooned) -> float:
    """How long it took."""
    naps: list[float] = []
    inflate(guest, naps.append)  # type: ignore[arg-type]
    return sum(naps)


def test_it_waits_until_the_guest_gave_half_of_its_memory() -> None:
    guest = Ballooned(1000, 800, 800, 600, 512, total=(980, 468))
    assert inflated(guest) == pytest.approx(0.5) and guest.asked == 512 * MIB


def test_a_guest_that_is_slow_is_waited_for_as_long_as_it_gives_something() -> None:
    assert inflated(Ballooned(*range(1024, 511, -1), total=(980, 468))) > 49


@pytest.mark.parametrize(
    ("guest", "why"),
    [
        (Ballooned(1024, total=(980, 980)), "the guest keeps 1.0 GiB"),
        (Ballooned(1024, 700, total=(980, 656)), "the guest keeps 0.7 GiB"),
        (Ballooned(512, total=(980, 980)), "its kernel gave 0 MiB up"),
    ],
)
def test_a_guest_that_keeps_its_memory_was_not_booted_as_asked(guest: Ballooned, why: str) -> None:
    with pytest.raises(BootFailed, match="guest.balloon=half was not obtained: " + why):
        inflated(guest)


@pytest.mark.parametrize(("level", "count"), [("none", 0), ("deflated", 1), ("half", 1)])
def test_only_guests_that_ask_for_one_have_a_balloon(level: str, count: int) -> None:
    spec = replace(PLAIN, settings=GuestSettings.of({"guest.balloon": level}))
    assert arguments(spec, PurePosixPath("/i"), PurePosixPath("/c")).count("virtio-balloon-pci") == count


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (("guest.balloon=half",), ""),
        (("guest.balloon=half", "guest.memory=512MiB"), ""),
        (("guest.balloon=half", "guest.memory=256MiB"), "guest.balloon=half takes a guest with 512 MiB or more"),
        (("guest.balloon=deflated", "guest.memory=256MiB"), ""),
    ],
)
def test_a_guest_must_keep_enough_for_its_kernel(changes: tuple[str, ...], why: str) -> None:
    plan = varied(parse(PLAN, "x"), changes)
    reasons = list(Balloon().lacking(Request(FakeMachine("host"), plan, plan.treatments()[0])).values())
    assert len(reasons) == bool(why) and all(reason.startswith(why) for reason in reasons)


@pytest.mark.parametrize(
    ("workload", "memory", "least"),
    [
        ("memory", "512MiB", "640 MiB"),  # 192 MiB of arrays and 128 MiB for the kernel, twice
        ("memory", "640MiB", ""),
        ("tlb", "512MiB", "768 MiB"),
        ("tlb: {cases: [shootdown]}", "512MiB", ""),
        ("build", "1GiB", r"\d{4} MiB"),
        ("durability: {writers: [postgresql], size: 1GiB}", "512MiB", "768 MiB"),
        ("chess", "512MiB", ""),
    ],
)
def test_what_is_measured_fits_in_the_half_that_is_left(workload: str, memory: str, least: str) -> None:
    plan = varied(
        parse(f"{{name: x, layers: [vm], guest: {{memory: {memory}}}, workloads: [{workload}]}}", "x"),
        ("guest.balloon=none,half",),
    )
    found = Balloon().lacking(Request(FakeMachine("host"), plan, plan.treatments()[0]))
    assert list(found) == (["vm guest.balloon=half"] if least else [])
    assert all(re.match(f"guest.balloon=half takes a guest with {least} or more", why) for why in found.values())


def test_huge_pages_are_not_given_back() -> None:
    with pytest.raises(PlanError, match=r"guest.balloon=half.*memory.backing"):
        varied(parse(PLAN, "x"), ("guest.balloon=half", "memory.backing=2MiB"))
