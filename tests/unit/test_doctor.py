"""What the doctor says of hosts that are not here: scripted commands, exact findings."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import rights
from tests.answers import as_read
from tests.fake_machine import Answers, Argv, FakeMachine, Reply
from tests.mounts import only
from tests.topologies import ALDER, files, listed, printed
from tests.userland import asks_tools, programs
from vmtax.core.units import cpu_numbers
from vmtax.doctor import Check, Diagnosis, diagnose, readings
from vmtax.doctor.readings import HostReadings, free_bytes, read
from vmtax.hypervisor.confine import sandbox
from vmtax.hypervisor.qemu.detect import ELSEWHERE, FIRST, RIGHTS
from vmtax.image import cache, contents, place
from vmtax.image.cache import Image
from vmtax.machine.rights import parse
from vmtax.meter import below, disk, facts, mounts, pressure
from vmtax.meter.neighbours import PROCESSES, processes
from vmtax.meter.text import GREP
from vmtax.report.answers.others import DIAGNOSIS
from vmtax.report.document import Detail
from vmtax.report.render.terminal import whole
from vmtax.report.sections.doctor import document, verdict
from vmtax.system.console import console
from vmtax.testbed.host.cpus import QUESTION

CPU = "/sys/devices/system/cpu"
IMAGE = Image(Path("/images/abc"), "abc", "recipe", "6.12", packages=100, bytes=800_000_000, mark="", created=0.0)

INTEL_FILES = f"""\
/proc/cpuinfo:processor\t: 0
/proc/cpuinfo:vendor_id\t: GenuineIntel
/proc/cpuinfo:model name\t: Intel(R) Xeon(R) Gold 6230
/proc/cpuinfo:microcode\t: 0x5003604
/proc/cpuinfo:physical id\t: 0
/proc/cpuinfo:core id\t: 0
/proc/cpuinfo:flags\t: fpu vmx
/proc/self/status:Cpus_allowed_list:\t0-3
/proc/self/cgroup:0::/user.slice
/proc/sys/kernel/random/boot_id:b00t
/proc/sys/kernel/osrelease:6.18.1
/sys/kernel/mm/transparent_hugepage/enabled:[always] madvise never
/sys/module/kvm_intel/parameters/nested:N
{CPU}/intel_pstate/no_turbo:0
{CPU}/smt/active:1
{CPU}/vulnerabilities/old_microcode:Vulnerable
{CPU}/vulnerabilities/mds:Vulnerable: Clear CPU buffers attempted, no microcode
{CPU}/vulnerabilities/spec_store_bypass:Vulnerable
"""
INTEL_MORE = f"""\
{CPU}/cpufreq/policy0/scaling_governor:powersave
{CPU}/cpufreq/policy0/scaling_driver:intel_pstate
/sys/fs/cgroup/user.slice/cpu.max:150000 100000
"""
INTEL_EXTRA = f"""\
/proc/self/cgroup:0::/user.slice
/proc/meminfo:MemTotal:       16000000 kB
/proc/meminfo:MemAvailable:    1000000 kB
/proc/meminfo:SwapTotal:       8000000 kB
/proc/meminfo:SwapFree:        6000000 kB
/etc/os-release:ID=debian
{CPU}/cpu0/thermal_throttle/core_throttle_count:12
{CPU}/cpu0/thermal_throttle/package_throttle_count:41
"""
KVM_INTEL = "- /dev/kvm\nw /sys/module/kvm_intel\n- /sys/devices/system/cpu/cpufreq/policy0\n"
BEFORE = """\
/proc/uptime:100.00 100.00
/proc/stat:cpu  0 0 0 10000 0 0 0 0 0 0
/proc/stat:cpu0 0 0 0 5000 0 0 0 0 0 0
/proc/stat:cpu1 0 0 0 5000 0 0 0 0 0 0
/proc/pressure/cpu:some avg10=0.00 total=0
/proc/pressure/io:some avg10=0.00 total=0
"""
BUSY = (
    BEFORE.replace("100.00 100.00", "101.00 100.00")
    .replace("cpu  0 0 0 10000 0 0 0 0", "cpu  50 0 0 10100 0 0 0 10")
    .replace("cpu:some avg10=0.00 total=0", "cpu:some avg10=9.00 total=200000")
)
IDLE = BEFORE.replace("100.00 100.00", "101.00 100.00").replace("10000", "10200")
MOUNT = only("ext4", "/dev/sda1")
QEMU = ("qemu-system-x86_64", "--version")


def asks(start: Argv) -> Callable[[Argv], bool]:
    return lambda argv: argv[: len(start)] == start


def machine(
    files: str, found: str, more: str = "", extra: str = "", load: str = IDLE, **changed: str | Reply
) -> FakeMachine:
    """A host that has everything, but for what is given otherwise."""
    answers: Answers = {
        readings.SYSTEM: changed.get("system", "Linux x86_64\n0\n"),
        (*GREP, "", *facts.FILES): Reply(files, code=2),
        facts.FIND: found,
        asks((*GREP, *facts.INCLUDES)): more,
        below.CPUID: changed.get("cpuid", Reply(code=1)),
        below.DETECT: changed.get("virt", "none\n"),
        QUESTION: changed.get("cpus", listed("0-1", "0-1\n0-1\n")),
        rights.asked: changed.get("rights", rights.answer()),
        readings.MORE_FILES: extra,
        asks_tools: changed.get("tools", programs()),
        QEMU: changed.get("qemu", "QEMU emulator version 9.0.1 (Debian)\n"),
        (QEMU[0], *sandbox(), QEMU[1]): "QEMU emulator version 9.0.1 (Debian)\n",
        RIGHTS: "Seccomp:\t0\n",
        (*FIRST, *ELSEWHERE): changed.get("elsewhere", Reply(code=1)),
        ("cat", "/etc/os-release"): "ID=debian\n",
        (*mounts.READ, "/var/tmp"): changed.get("mount", MOUNT),
        (*disk.LSBLK, "/dev/sda1"): Reply(code=1),
        readings.CACHE_SPACE: changed.get("space", "10000000 4096\n"),
        PROCESSES: changed.get("processes", Reply(code=1)),
        pressure.COMMAND: [BEFORE, load],
        ("cat", f"/{cache.IDENTITY}"): Reply(code=1),
        ("sh", "-c", place.FIND_IMAGE, "sh", "abc", contents.NAME): Reply(code=1),
    }
    return FakeMachine(answers=answers)


@pytest.fixture(autouse=True)
def _with_an_image(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cache, "current", lambda: IMAGE)
    monkeypatch.setattr(readings, "rights_here", lambda: parse(rights.answer()))


def examined(host: FakeMachine, name: str = "local") -> HostReadings:
    return read(host, name, sleep=host.clock.sleep)


def on_terminal(diagnosis: Diagnosis, width: int = 80) -> str:
    writer = console(width=width, color=False)
    with writer.capture() as captured:
        writer.print(whole(document(diagnosis), Detail.BRIEF), crop=False)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def by_name(diagnosis: Diagnosis, area: str) -> dict[str, Check]:
    return {check.name: check for check in diagnosis.checks if check.area == area}


@pytest.mark.parametrize(
    ("listed", "vmms"),
    [
        (Reply("/proc/99/comm:kvm\n"), ("kvm (pid 99)",)),
        (Reply("/proc/99/comm:kvm\n", code=2), ("kvm (pid 99)",)),
        (Reply(code=2), ()),
        (Reply(code=1), ()),
        (Reply(code=126), None),
        (Reply("/proc/99/comm:kvm\n", code=127), None),
    ],
    ids=["found", "found while another process ended", "one ended", "none", "not run", "no grep"],
)
def test_other_vms_are_known_where_processes_end_while_they_are_listed(
    listed: Reply, vmms: tuple[str, ...] | None
) -> None:
    assert examined(machine(INTEL_FILES, KVM_INTEL, processes=listed)).vmms == vmms


def test_an_intel_host_with_everything_wrong() -> None:
    processes = "/proc/812/comm:qemu-system-x86\n/proc/99/comm:kvm\n"
    host = machine(INTEL_FILES, KVM_INTEL, INTEL_MORE, INTEL_EXTRA, BUSY, processes=processes)
    diagnosis = diagnose(examined(host))
    found = by_name(diagnosis, "disturbance")
    assert host.undo_list == [] and host.processes == [], "reading sets nothing up"
    disturbing = {name: check.remedy for name, check in found.items() if check.status == "disturbs"}
    assert disturbing == {
        "neighbours": "top   # shows the process: end it, or wait",
        "pressure": "top   # shows the process: end it, or wait",
        "steal": "ask for dedicated CPUs where this VM runs",
        "other VMs": "shut them down or pause them while you measure",
        "governor": f"echo performance | tee {CPU}/cpufreq/policy*/scaling_governor",
        "turbo": f"echo 1 > {CPU}/intel_pstate/no_turbo",
        "heat": f"better cooling; or:\necho 1 > {CPU}/intel_pstate/no_turbo",
        "SMT": f"echo off > {CPU}/smt/control",
        "CPU quota": "systemd-run --scope --slice=-.slice vmtax run   # in a container: raise its limit",
        "swap": "end what fills the memory: top -o %MEM",
        "microcode": "apt-get install intel-microcode && reboot",
    }
    assert found["neighbours"].text == "45% of 2 CPUs busy during one second", "what was stolen is told by itself"
    assert found["other VMs"].text == "2 run: qemu-system-x86 (pid 812), kvm (pid 99)"
    assert found["SMT"].text.startswith("on, and the measured CPUs 0,1 are siblings")
    assert "old_microcode: Vulnerable" in found["microcode"].text, "the kernel's own words"
    assert "spec_store_bypass" not in found["microcode"].text, "of which the kernel does not blame the microcode"
    assert "41 times" in found["heat"].text
    layers = by_name(diagnosis, "measurable")
    assert "nesting" in layers["nested VM"].text
    assert (
        layers["nested VM"].remedy.splitlines()[-1].startswith("modprobe -r kvm_intel && modprobe kvm_intel nested=1")
    )
    assert layers["VM"].text == "lacking: VM RAM"
    assert layers["host"].status == "ok", "which takes no guest's memory"
    assert [check.name for check in diagnosis.bad] == ["VM"]


@pytest.mark.parametrize(("available", "fits"), [(2_000_001, False), (3_000_000, False), (3_000_001, True), (0, False)])
def test_swap_is_brought_back_into_memory_only_where_half_as_much_again_is_free(available: int, fits: bool) -> None:
    """Two of eight million kB are in use."""
    memory = INTEL_EXTRA.replace("MemAvailable:    1000000", f"MemAvailable:    {available}")
    found = by_name(diagnose(examined(machine(INTEL_FILES, KVM_INTEL, extra=memory))), "disturbance")["swap"]
    assert found.status == "disturbs"
    assert found.remedy.startswith("swapoff -a && swapon -a" if fits else "end what fills the memory")


AMD_FILES = (
    INTEL_FILES.replace("GenuineIntel", "AuthenticAMD")
    .replace("vmx", "svm")
    .replace("kvm_intel/parameters/nested:N", "kvm_amd/parameters/nested:1")
    .replace(f"{CPU}/intel_pstate/no_turbo:0\n", "")
    .replace("old_microcode:Vulnerable", "old_microcode:Not affected")
    .replace("Clear CPU buffers attempted, no microcode", "whatever")
)
AMD_MORE = f"""\
{CPU}/cpufreq/boost:1
{CPU}/cpufreq/policy0/scaling_governor:performance
{CPU}/cpufreq/policy0/scaling_driver:acpi-cpufreq
"""
AMD_EXTRA = (
    INTEL_EXTRA.replace("MemAvailable:    1000000", "MemAvailable:   12000000")
    .replace("SwapFree:        6000000", "SwapFree:        8000000")
    .replace("count:12", "count:0")
    .replace("count:41", "count:0")
)
APART = listed("0-3", "0,64\n1,65\n2,66\n3,67\n")
KVM_AMD = KVM_INTEL.replace("intel", "amd")


def test_an_amd_host_that_is_nearly_fine() -> None:
    diagnosis = diagnose(examined(machine(AMD_FILES, KVM_AMD, AMD_MORE, AMD_EXTRA, cpus=APART)))
    found = by_name(diagnosis, "disturbance")
    assert {name: check.remedy for name, check in found.items() if check.status == "disturbs"} == {
        "turbo": f"echo 0 > {CPU}/cpufreq/boost"
    }
    assert found["SMT"].text.startswith("on; the measured CPUs have cores of their own")
    needs = by_name(diagnosis, "need")
    assert needs["KVM"].status == "unknown" and "--try boots a guest on it" in needs["KVM"].text
    assert needs["nesting"].text == "kvm_amd has nested=1"
    assert by_name(diagnosis, "measurable")["VM"].status == "unknown"
    assert not diagnosis.bad and verdict(diagnosis).startswith("Host and VM can probably be measured")


def test_the_verdict_on_threads_is_about_the_cpus_that_a_run_uses() -> None:
    """Eight cores of two threads, then four of one: a run uses 0 and 2, which are cores of their own."""
    hybrid = machine(AMD_FILES, KVM_AMD, AMD_MORE, AMD_EXTRA, cpus=printed(files(*ALDER)))
    found = by_name(diagnose(examined(hybrid)), "disturbance")
    assert found["SMT"].status == "ok" and "cores of their own" in found["SMT"].text
    assert found["equal CPUs"].status == "ok" and "CPUs 0,2 (cpu_core, up to 5.0 GHz)" in found["equal CPUs"].text
    mixed = machine(AMD_FILES, KVM_AMD, AMD_MORE, AMD_EXTRA, cpus=printed(files(*ALDER, allowed="0,16")))
    found = by_name(diagnose(examined(mixed)), "disturbance")
    assert found["equal CPUs"].status == "disturbs" and "no 2 CPUs are alike" in found["equal CPUs"].text
    assert found["isolated CPUs"].text == "none"
    kept = machine(AMD_FILES, KVM_AMD, AMD_MORE, AMD_EXTRA, cpus=printed(files(*ALDER, isolated="16-19")))
    assert "CPUs 16,17,18,19, by isolcpus=" in by_name(diagnose(examined(kept)), "disturbance")["isolated CPUs"].text


def test_what_the_probe_remembers_decides() -> None:
    fine = examined(machine(AMD_FILES, KVM_AMD, AMD_MORE, AMD_EXTRA, cpus=APART))
    proved = diagnose(replace(fine, kvm_failure=""))
    assert [check.status for check in proved.of("measurable")] == ["ok"] * 5
    assert verdict(proved) == "Host and VM can be measured: vmtax run"
    broken = diagnose(replace(fine, kvm_failure="failed to set MSR"))
    assert by_name(broken, "need")["KVM"].status == "failed"
    assert [check.name for check in broken.bad] == ["VM"]
    assert broken.bad[0].status == "failed", "one cause, one word"
    assert broken.bad[0].text.startswith("not working: KVM; a run would emulate it")
    tried = diagnose(replace(fine, kvm_failure=""), (Check("tried", "bridge", "failed", "no veth"),))
    assert verdict(tried) == "What was tried failed, so a run would fail too: see above."


def test_a_cloud_vm_as_a_user_over_ssh() -> None:
    files = AMD_FILES.replace("svm", "hypervisor").replace("kvm_amd/parameters", "x/parameters")
    changed = {
        "system": "Linux x86_64\n1000\n",
        "virt": "amazon\n",
        "rights": rights.answer(
            {"user": 1000, "capabilities": 0, "system": "ID=fedora"},
            kvm=rights.NO_KVM,
            command=("start", "ENOENT", "No such file or directory"),
        ),
        "tools": "/usr/bin/python3\t0\tPython 3.9.2\nip\t0\tip utility\ntaskset\t0\t\n",
    }
    host = machine(files, "", AMD_MORE, AMD_EXTRA.replace("debian", "fedora"), **changed)
    diagnosis = diagnose(examined(host, "ssh://admin@cloud"))
    assert by_name(diagnosis, "disturbance")["hypervisor"].text.startswith("this host is itself a VM (amazon)")
    assert by_name(diagnosis, "disturbance")["hypervisor"].text.endswith("what is measured is what nesting costs")
    needs = by_name(diagnosis, "need")
    assert needs["KVM"].text == "no /dev/kvm, and the CPU shows neither vmx nor svm"
    assert needs["KVM"].remedy == "enable nested virtualization where this VM runs, or use bare metal"
    assert needs["root"].remedy == "vmtax run --host ssh://root@cloud"
    assert needs["bubblewrap"].remedy == "dnf install bubblewrap"
    assert {check.name for check in diagnosis.bad} == {"host", "VM"}
    shown = on_terminal(diagnosis)
    assert shown.count("dnf install bubblewrap") == 1, "a remedy is shown once"


def test_an_emulated_host_is_called_so() -> None:
    files = AMD_FILES.replace("svm", "svm hypervisor")
    host = machine(files, KVM_AMD, AMD_MORE, AMD_EXTRA, cpuid=f"{b'TCGTCGTCGTCG'.hex()}\n{bytes(12).hex()}\n")
    check = by_name(diagnose(examined(host)), "disturbance")["hypervisor"]
    assert (check.status, check.text) == (
        "disturbs",
        "this host is itself emulated (QEMU's TCG): its figures are marked so, and say nothing about hardware",
    )


@pytest.mark.parametrize(
    ("changed", "need", "text", "remedy"),
    [
        ({"system": "Linux aarch64\n0\n"}, "system", "Linux aarch64; vmtax measures Linux on x86-64", ""),
        (
            {"qemu": "QEMU emulator version 5.2.0\n"},
            "QEMU",
            "qemu-system-x86_64 is QEMU emulator version 5.2.0; 7.2 or newer is needed",
            "apt-get install qemu-system-x86",
        ),
        (
            {"rights": rights.answer({"container": "docker"}, kvm=("open", "EPERM", "Operation not permitted"))},
            "KVM",
            "/dev/kvm: opening it: Operation not permitted",
            "docker run --device /dev/kvm",
        ),
        ({"mount": only("tmpfs", "tmpfs")}, "disk space", "memory, not a disk", "vmtax run --disk-dir"),
        ({"mount": only("ext4", "/dev/sda1", free=99000)}, "disk space", "0.0 GiB free on", "--disk-dir"),
        (
            {"rights": rights.answer(tun=("open", "ENODEV", "No such device"))},
            "tun",
            "a tap on /dev/net/tun: opening it: No such device",
            "modprobe tun",
        ),
    ],
)
def test_what_is_missing_comes_with_its_remedy(
    changed: dict[str, str | Reply], need: str, text: str, remedy: str
) -> None:
    diagnosis = diagnose(examined(machine(AMD_FILES, KVM_AMD, AMD_MORE, AMD_EXTRA, **changed)))
    check = by_name(diagnosis, "need")[need]
    assert check.status == "missing"
    assert text in check.text and remedy in check.remedy


def test_what_could_not_be_tried_is_not_said_to_be_missing() -> None:
    """A Python that lacks what the tries take."""
    words = "/usr/bin/python3\t1\tits standard library is not whole: No module named 'ctypes'\n"
    tried = Reply(stderr="ModuleNotFoundError: No module named 'ctypes'", code=1)
    host = machine(AMD_FILES, KVM_AMD, AMD_MORE, AMD_EXTRA, rights=tried, tools=words)
    reading = examined(host)
    needs = by_name(diagnose(replace(reading, facts={**reading.facts, "kvm_device": True})), "need")
    assert (needs["KVM"].status, needs["KVM"].text) == ("unknown", "/dev/kvm is there; it could not be tried")
    assert needs["python3"].status == "missing" and needs["python3"].remedy == "apt-get install python3"


def test_without_an_image_its_build_is_what_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "current", lambda: None)
    host = machine(AMD_FILES, KVM_AMD, AMD_MORE, AMD_EXTRA)
    none = replace(examined(host), tools_here=frozenset({"tar"}))
    check = by_name(diagnose(none), "need")["image"]
    assert check.remedy.startswith("apt-get install mmdebstrap util-linux erofs-utils zstd\nvmtax image import")
    tools = frozenset({"mmdebstrap", "unshare", "mkfs.erofs", "zstd", "tar"})
    assert by_name(diagnose(replace(none, tools_here=tools)), "need")["image"].status == "ok"


def test_nothing_can_be_read_and_nothing_is_claimed() -> None:
    nothing = FakeMachine(answers={lambda _: True: Reply(code=127)})
    diagnosis = diagnose(examined(nothing))
    assert {check.status for check in diagnosis.of("disturbance")} == {"unknown"}
    assert diagnosis.bad
    assert as_read(DIAGNOSIS.made(diagnosis))


def test_eighty_columns_and_no_control_characters() -> None:
    evil = INTEL_FILES.replace("Gold 6230", "\x1b[2JGold\x07")
    shown = on_terminal(diagnose(examined(machine(evil, KVM_INTEL, INTEL_MORE, INTEL_EXTRA, BUSY))))
    assert "\x1b" not in shown and "\x07" not in shown
    assert [line for line in shown.splitlines() if len(line) > 80 and "→" not in line] == []
    assert f"    → echo performance | tee {CPU}/cpufreq/policy*/scaling_governor\n" in shown, "whole, to be copied"


@pytest.mark.parametrize(
    ("text", "expected"), [("0-3,8", [0, 1, 2, 3, 8]), ("5", [5]), ("", []), (None, []), ("0-x", []), ("-1", [])]
)
def test_cpu_lists(text: str | None, expected: list[int]) -> None:
    assert cpu_numbers(text) == expected


LINES = st.sampled_from(
    [line.partition(":")[0] + ":" for line in (INTEL_FILES + INTEL_EXTRA + INTEL_MORE + BUSY).splitlines()]
)
GARBAGE = st.lists(st.tuples(LINES, st.text()).map("".join)).map("\n".join) | st.text()


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.lists(GARBAGE, min_size=1), st.integers(20, 200))
def test_no_output_whatever_makes_the_doctor_fail(texts: list[str], width: int) -> None:
    turns = itertools.cycle(texts)
    host = FakeMachine(answers={lambda _: True: [next(turns) for _ in range(40)]})
    diagnosis = diagnose(examined(host))
    on_terminal(diagnosis, width)
    assert as_read(DIAGNOSIS.made(diagnosis))
    free_bytes(texts[0])
    processes(texts[0])
