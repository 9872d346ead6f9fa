"""CPUs of the host for guests alone: where that is possible, what is said of it, and that all is put back."""

from __future__ import annotations

import pytest

from tests.fake_machine import FakeMachine
from tests.topologies import Cores, files, printed
from vmtax.design.factors import why_illegal
from vmtax.design.guest import GuestSettings
from vmtax.plan.schema import Plan, parse
from vmtax.plan.vary import varied
from vmtax.testbed.host.cpus import QUESTION as CPUS
from vmtax.testbed.host.obtained import why_not as why_not_obtained
from vmtax.testbed.host.partition import numbers, put_back
from vmtax.testbed.parts import Request
from vmtax.testbed.parts.isolation import QUESTION, Isolation, why_not
from vmtax.testbed.parts.pinning import Pinning

NEW = "release: 6.12.1-amd64\nhas: cpuset cpu io memory\n"


def plan(*changes: str) -> Plan:
    text = "{name: x, layers: [host, vm], guest: {vcpus: 2, memory: 1GiB}, workloads: [chess]}"
    return varied(parse(text, "x"), changes or ("cpu.isolation=none,partition",))


def asked(said: str, *, isolated: str = "", user: str = "0") -> Request:
    cpus = printed(files(Cores(8), isolated=isolated))
    host = FakeMachine("host", {QUESTION: said, CPUS: cpus, ("id", "-u"): user})
    return Request(host, plan(), plan().treatments()[0])


@pytest.mark.parametrize(
    ("said", "root", "why"),
    [
        (NEW, True, ""),
        ("release: 6.2.0\nhas: cpuset\n", True, ""),
        ("release: 6.1.0-37-amd64\nhas: cpuset\n", True, "needs Linux 6.2, and the host has 6.1.0-37-amd64"),
        ("release: 5.15.0\nhas: cpuset\n", True, "needs Linux 6.2"),
        ("release: ?\nhas: cpuset\n", True, "needs Linux 6.2"),
        (
            "release: 6.18.4\n",
            True,
            "needs cgroup v2 with cpuset on the host, and its control groups are of version",
        ),
        ("release: 6.18.4\nhas: cpu io\n", True, "needs cgroup v2 with cpuset on the host, and it has no cpuset"),
        (
            "release: 6.18.4\nhas: cpuset cpu\npart: of them\n",
            True,
            "needs the host's own control groups, and a container sees only a part",
        ),
        (NEW, False, "needs root, to move other programs off those CPUs"),
        ("", True, "needs cgroup v2"),
    ],
)
def test_where_cpus_can_be_isolated(said: str, root: bool, why: str) -> None:
    found = why_not(said, root=root)
    assert found.startswith(why) and bool(found) == bool(why)


def test_pinning_goes_along_and_what_cannot_be_isolated_is_left_out_with_why() -> None:
    assert {each.levels.get("cpu.pinning") for each in plan().treatments()[0] if each.layer == "vm"} == {"one-to-one"}
    assert Isolation().lacking(asked(NEW)) == {}
    (line,) = Isolation().lacking(asked("release: 6.18.4\n")).items()
    assert line[0] == "vm cpu.isolation=partition" and line[1].startswith("cpu.isolation=partition needs cgroup v2")
    assert "needs root" in Isolation().lacking(asked(NEW, user="1000"))["vm cpu.isolation=partition"]
    assert why_illegal({"cpu.isolation": "partition", "disk.page_cache": "bounded"})
    assert not why_illegal({"cpu.isolation": "none", "disk.page_cache": "bounded"})


def test_what_is_done_to_the_host_is_said_before() -> None:
    (line,) = Isolation().announced(asked(NEW))
    assert line == (
        "2 of the 8 CPUs of host for guests with cpu.isolation=partition alone: while one runs, the kernel moves every"
        " other program off them; given back"
    )
    (line,) = Isolation().announced(asked(NEW, isolated="6-7"))
    assert line.endswith("Meanwhile it lets programs run on the CPUs of isolcpus= (6,7)")
    other = plan("cpu.pinning=none,one-to-one")
    host = asked(NEW).host
    assert Isolation().announced(Request(host, other, other.treatments()[0])) == ()


@pytest.mark.parametrize(
    ("isolated", "allowed", "said"),
    [
        ("", "0-7", None),
        ("6-7", "0-7", "the boot of host isolated CPUs 6,7 (isolcpus=): no guest is pinned to them"),
        ("6-7", "0-5", "the boot of host isolated CPUs 6,7 (isolcpus=): no guest is pinned to them"),
        ("5-7", "4-7", "the boot of host isolated CPUs 5,6,7 (isolcpus=): for lack of others, guests are pinned there"),
    ],
)
def test_whether_guests_are_pinned_to_cpus_isolated_at_boot_is_said(
    isolated: str, allowed: str, said: str | None
) -> None:
    host = FakeMachine("host", {CPUS: printed(files(Cores(8), isolated=isolated, allowed=allowed))})
    pinned = plan("cpu.pinning=none,one-to-one")
    request = Request(host, pinned, pinned.treatments()[0])
    assert Pinning().announced(request) == ([said] if said else [])
    assert Pinning().notes(request) == ([f"{said}."] if said else [])
    none = plan("cpu.pinning=none")
    assert Pinning().announced(Request(host, none, none.treatments()[0])) == []


def test_a_guest_that_has_not_its_cpus_alone_has_not_got_its_level() -> None:
    settings, named = GuestSettings(pinned=True, isolated=True), ["cpu.isolation"]
    assert why_not_obtained(settings, 2, {"cpu.isolated_cpus": 2, "cpu.strangers": 0}, named) is None
    for found, why in (
        ({}, "0 of 2 CPUs are isolated"),
        ({"cpu.isolated_cpus": 1, "cpu.strangers": 0}, "1 of 2 CPUs are isolated"),
        ({"cpu.isolated_cpus": 2, "cpu.strangers": 3}, "and 3 threads of other programs may run there"),
    ):
        said = why_not_obtained(settings, 2, found, named) or ""
        assert said.startswith("cpu.isolation=partition was not obtained: ") and why in said


def test_threads_get_back_the_cpus_that_they_had() -> None:
    every, most, held = [0, 1, 2, 3], [1, 2, 3], [2]
    before = {"1": ("5", most), "2": ("5", held), "3": ("5", every), "4": ("5", most), "9": ("5", held)}
    during = {"1": ("5", [0, 3]), "2": ("5", [0, 3]), "3": ("5", [0, 3]), "4": ("5", [0, 3])}
    last = {**during, "4": ("5", [3])}  # somebody moved it
    now = {"1": ("5", every), "2": ("5", held), "3": ("5", every), "4": ("5", [3]), "9": ("7", every)}
    assert put_back(before, during, last, now, []) == {"1": most}
    newer = {**now, "8": ("9", every), "7": ("9", [0]), "6": ("9", held)}
    assert put_back(before, during, last, newer, [0]) == {"1": most, "8": most, "9": most}
    assert put_back(before, {}, {}, now, []) == {"1": most, "4": most}, "killed before the partition was there"
    assert [numbers(text) for text in ("", "3\n", "0-2,5")] == [[], [3], [0, 1, 2, 5]]
