"""What of a guest's memory and CPU is asked for, granted and proved."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fake_machine import FakeMachine, Reply
from vmtax.design.guest import GuestSettings
from vmtax.hypervisor import BootFailed
from vmtax.hypervisor.qemu.memory import parse_smaps
from vmtax.plan.schema import Plan, parse
from vmtax.testbed.host.obtained import parse_shape, why_not
from vmtax.testbed.layers import proof
from vmtax.testbed.parts import Request, pages
from vmtax.testbed.parts.pages import Pages
from vmtax.testbed.session.base import RunningSubject, RunningTreatment
from vmtax.workload import Site

GIB = 2**30
MIB = 2**20
# Lines of /proc/PID/smaps as MAPPINGS prints them, of QEMU 7.2 with a guest of 128 MiB: code, memory, a small mapping.
MAPPED = """\
7f0000000000-7f0010000000 rwxp 00000000 00:00 0
Size:             262144 kB
KernelPageSize:        4 kB
Rss:               10000 kB
Pss:                9000 kB
AnonHugePages:      8192 kB
VmFlags: rd wr ex mr mw me ac
{range} {permissions} 00000000 00:00 0
Size:             131072 kB
KernelPageSize: {page:>8} kB
Rss:            {rss:>8} kB
Pss:            {rss:>8} kB
AnonHugePages:  {huge:>8} kB
ShmemPmdMapped:        0 kB
FilePmdMapped:         0 kB
Shared_Hugetlb:        0 kB
Private_Hugetlb: {pool:>7} kB
VmFlags: rd wr mr mw me dc ac hg {flags}
7f5000000000-7f5000021000 rw-p 00000000 00:00 0
Size:                132 kB
Rss:                 100 kB
Pss:                  50 kB
"""


def mapped(
    permissions: str = "rw-p", page: int = 4, rss: int = 0, huge: int = 0, pool: int = 0, flags: str = ""
) -> str:
    where = "7f456be00000-7f4573e00000"
    return MAPPED.format(range=where, permissions=permissions, page=page, rss=rss, huge=huge, pool=pool, flags=flags)


def found(**what: Any) -> dict[str, float]:
    return {f"memory.{name}": value for name, value in parse_smaps(mapped(**what), 128 * MIB).items()}


def settings(backing: str = "thp", **more: str) -> GuestSettings:
    return GuestSettings.of({"memory.backing": backing, **more})


def test_the_mapping_of_the_guests_memory_is_read_and_no_other() -> None:
    assert parse_smaps(mapped(rss=65536, huge=63488, flags="mg"), 128 * MIB) == {
        "resident_bytes": 64 * MIB,
        "huge_bytes": 62 * MIB,
        "hugetlb_bytes": 0,
        "page_bytes": 4096,
        "shared": 0,
        "mergeable": 1,
        "beyond_bytes": (9000 + 50) * 1024,
    }
    assert parse_smaps("", 128 * MIB) == parse_smaps("no smaps\n" * 5, MIB) == {}


ON_SMALL: dict[str, Any] = {"rss": 65536}
ON_THP: dict[str, Any] = {"rss": 65536, "huge": 65536}
ON_HALF: dict[str, Any] = {"rss": 65536, "huge": 32768}
ON_MEMFD: dict[str, Any] = {"rss": 65536, "permissions": "rw-s"}
ON_2M: dict[str, Any] = {"permissions": "rw-s", "page": 2048, "pool": 131072}
ON_1G: dict[str, Any] = {"permissions": "rw-s", "page": 2**20, "pool": 131072}


@pytest.mark.parametrize(
    ("backing", "is_on", "why"),
    [
        ("thp", ON_THP, None),
        ("thp", ON_HALF, "32 MiB of the 64 MiB that the guest has touched are in huge pages"),
        ("thp", ON_MEMFD, "it is a file in memory"),
        ("4k", ON_SMALL, None),
        ("4k", ON_HALF, "32 MiB of it are in huge pages"),
        ("memfd", ON_MEMFD, None),
        ("memfd", ON_THP, "it is anonymous memory"),
        ("2MiB", ON_2M, None),
        ("2MiB", ON_MEMFD, "its pages are of 4 KiB"),
        ("1GiB", ON_1G, None),
        ("1GiB", ON_2M, "its pages are of 2048 KiB"),
    ],
)
def test_a_backing_that_was_not_obtained_is_named(backing: str, is_on: dict[str, Any], why: str | None) -> None:
    said = why_not(settings(backing), 2, found(**is_on), ["memory.backing"])
    assert said == (None if why is None else f"memory.backing={backing} was not obtained: {why}")


def test_kvm_is_asked_too_where_there_is_one() -> None:
    named = ["memory.backing"]
    assert why_not(settings("2MiB"), 2, {**found(**ON_2M), "memory.kvm_pages_2m": 400}, named) is None
    none = why_not(settings("2MiB"), 2, {**found(**ON_2M), "memory.kvm_pages_2m": 0}, named)
    assert none is not None and "KVM maps none of it" in none


def test_only_factors_that_the_plan_names_are_held_to() -> None:
    assert why_not(settings("thp"), 2, {}, []) is None
    assert "cannot be read in /proc" in (why_not(settings("thp"), 2, {}, ["memory.backing"]) or "")


def test_merging_and_the_shape_of_the_cpus_are_proved_too() -> None:
    assert why_not(settings(), 2, found(), ["memory.merge"]) is None
    assert "ksmd may merge" in (why_not(settings(), 2, found(flags="mg"), ["memory.merge"]) or "")
    shape = {
        f"cpu.{name}": value for name, value in parse_shape("/sys/x/core_cpus:3\n/sys/x/package_cpus:0,3\n").items()
    }
    assert why_not(settings(**{"cpu.topology": "threads"}), 2, shape, ["cpu.topology"]) is None
    assert "2 threads a core" in (why_not(settings(**{"cpu.topology": "sockets"}), 2, shape, ["cpu.topology"]) or "")


# Treatments that cannot be


def plan(factors: str, memory: str = "1GiB") -> Plan:
    guest = f"guest: {{vcpus: 2, memory: {memory}}}\n"
    return parse(f"name: x\nlayers: [vm]\n{guest}factors: {{{factors}}}\nworkloads: [chess]\n")


def host(
    free: int = 0,
    available_mib: int = 8192,
    thp: str = "[madvise] never",
    ksm: str = "0",
    user: str = "0",
    page_kib: int = 2048,
) -> FakeMachine:
    pool = f"/sys/kernel/mm/hugepages/hugepages-{page_kib}kB"
    names = {"nr_hugepages": free, "nr_overcommit_hugepages": 5, "surplus_hugepages": 0, "free_hugepages": free}
    files = [f"{pool}/{name}:{number}" for name, number in {**names, "resv_hugepages": 0}.items()]
    files += [f"/sys/kernel/mm/transparent_hugepage/enabled:{thp}", f"/sys/kernel/mm/ksm/run:{ksm}"]
    answers: dict[Any, Any] = {
        lambda argv: argv[0] == "grep": "\n".join(files),
        lambda argv: argv[:1] == ("cat",) and argv[-1] == "/proc/meminfo": f"MemAvailable: {available_mib * 1024} kB\n",
        lambda argv: argv[0] == "tee": Reply(code=int(user != "0")),
        lambda argv: argv[0] == "id": user,
    }
    return FakeMachine("host", answers)


def refused(machine: FakeMachine, asked: Plan) -> dict[str, str]:
    return Pages().lacking(Request(machine, asked, asked.treatments()[0]))


def test_a_plan_that_names_no_such_factor_asks_the_host_nothing() -> None:
    machine = host(thp="always madvise [never]")
    assert refused(machine, plan("cpu.mitigations: [auto, off]")) == {} and machine.calls == []


@pytest.mark.parametrize(
    ("factors", "machine", "why"),
    [
        ("memory.backing: [4k, thp]", host(thp="always madvise [never]"), "transparent huge pages turned off: `echo"),
        (
            "memory.backing: [4k, 1GiB], guest.memory: 2GiB",
            host(),
            "the host's CPU or kernel has no pages of 1.0 GiB",
        ),
        (
            "memory.backing: [4k, 2MiB]",
            host(available_mib=700),
            "takes 512 pages (1 x 1.0 GiB), of which the host has 0",
        ),
        ("memory.merge: [off, on]", host(), "ksmd, which does not run: `echo 1 > /sys/kernel/mm/ksm/run`"),
    ],
)
def test_what_a_host_lacks_is_said_before_the_first_boot(factors: str, machine: FakeMachine, why: str) -> None:
    (said,) = refused(machine, plan(factors)).values()
    assert why in said


def test_a_guest_of_one_gibibyte_has_no_pages_of_that_size() -> None:
    (said,) = plan("memory.backing: [4k, 1GiB]").treatments()[1]
    assert "guest.memory must be 2GiB or more, and is 1GiB: the first GiB" in said


def test_pages_that_are_there_need_no_memory() -> None:
    assert refused(host(free=512, available_mib=100), plan("memory.backing: [4k, 2MiB]")) == {}


def test_surplus_pages_are_listed_for_undoing_before_they_are_allowed() -> None:
    machine, asked = host(free=100), plan("memory.backing: [4k, 2MiB]")
    assert Pages().take(Request(machine, asked, asked.treatments()[0])) == {}
    directory = "/sys/kernel/mm/hugepages/hugepages-2048kB"
    setting = f"{directory}/nr_overcommit_hugepages"
    kept, entry = machine.undo_list
    assert entry.what == (*pages.GIVE_BACK, setting, "5", "412")
    assert kept.what == (*pages.KEPT, directory, "100", "412"), "after that: the kernel may have kept those"
    assert machine.inputs == [(("tee", setting), "412")]


def test_what_is_taken_is_said_beforehand() -> None:
    asked = plan("memory.backing: [4k, 2MiB]", memory="512MiB")
    said = ["256 pages of 2MiB (0.5 GiB) from the host's memory, while its guests run; given back"]
    assert Pages().announced(Request(FakeMachine("host"), asked, asked.treatments()[0])) == said
    assert Pages().announced(Request(FakeMachine("host"), asked, asked.treatments()[0][:1])) == []


def test_only_root_may_have_pages_made_and_that_is_known_before_the_first_boot() -> None:
    asked = plan("memory.backing: [4k, 2MiB]")
    (said,) = refused(host(user="1000"), asked).values()
    assert "only root may have huge pages made" in said
    assert refused(host(free=512, user="1000"), asked) == {}, "the host has them already"


def test_a_setting_that_cannot_be_written_is_not_listed_for_undoing() -> None:
    denied = host(user="1000")
    asked = plan("memory.backing: [4k, 2MiB]")
    (said,) = Pages().take(Request(denied, asked, asked.treatments()[0])).values()
    assert "only root may have huge pages made" in said and denied.undo_list == []


@pytest.mark.parametrize(
    ("now", "left"), [("412", "5"), ("5", "5"), ("413", "413"), ("3", "3")], ids=["ours", "undone", "theirs", "less"]
)
def test_giving_back_leaves_alone_what_somebody_else_set(now: str, left: str, tmp_path: Path) -> None:
    (tmp_path / "setting").write_text(now)
    subprocess.run([*pages.GIVE_BACK, str(tmp_path / "setting"), "5", "412"], check=True, timeout=60)
    assert (tmp_path / "setting").read_text().strip() == left


@pytest.mark.parametrize(
    ("counts", "left"),
    [
        ((512, 0, 412, 0), "100"),
        ((512, 412, 0, 0), "512"),
        ((100, 0, 100, 0), "100"),
        ((513, 0, 413, 0), "513"),
        ((512, 0, 411, 0), "512"),
        ((512, 0, 412, 1), "512"),
        ((300, 50, 150, 0), "100"),
    ],
    ids=["kept", "surplus", "given back", "more than ours", "in use", "promised", "a part"],
)
def test_pages_that_the_kernel_kept_are_given_back(counts: tuple[int, ...], left: str, tmp_path: Path) -> None:
    """Of a pool that had 100, and got 412 for a QEMU."""
    for name, count in zip(("nr", "surplus", "free", "resv"), counts, strict=True):
        (tmp_path / f"{name}_hugepages").write_text(f"{count}\n")
    subprocess.run([*pages.KEPT, str(tmp_path), "100", "412"], check=True, timeout=60)
    assert (tmp_path / "nr_hugepages").read_text().strip() == left


# Boots


def running(guest: Any) -> RunningTreatment:
    site = Site(machine=FakeMachine("host/vm"), layer="vm", vcpus=2, prefix=())
    return RunningTreatment((RunningSubject(site, guest),), FakeMachine("host"))


def checked(asked: Plan, name: str, mapping: dict[str, Any]) -> Any:
    """A guest of that treatment whose memory is mapped so, after it was looked at."""
    treatment = next(each for each in asked.treatments()[0] if each.name == name)
    guest = SimpleNamespace(
        path="host/vm",
        spec=SimpleNamespace(vcpus=2),
        obtained={},
        memory_readings=lambda parent: parse_smaps(mapped(**mapping), 128 * MIB),
    )
    on: Any = SimpleNamespace(plan=asked, host=FakeMachine("host"))
    proof.check(on, treatment, running(guest))
    return guest


def test_a_boot_keeps_what_it_obtained_and_fails_where_that_is_something_else() -> None:
    asked = plan("memory.backing: [4k, thp]")
    assert checked(asked, "vm", ON_SMALL).obtained["memory.resident_bytes"] == 64 * MIB
    with pytest.raises(BootFailed, match=r"^host/vm: memory.backing=thp was not obtained: 32 MiB of the 64 MiB that"):
        checked(asked, "vm memory.backing=thp", ON_HALF)


def test_a_plan_that_does_not_ask_takes_whatever_memory_the_host_gives() -> None:
    assert checked(plan("cpu.mitigations: [auto]"), "vm", ON_HALF).obtained["memory.huge_bytes"] == 32 * MIB
