"""What KVM itself says of guests, in a lab, whose KVM is genuine: how often they exit and why, and their pages.

The ledger, too: there it separates guest code from what KVM does for the guest.
"""

from __future__ import annotations

import json
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import HANGS, VMTAX, leftovers
from vmtax.image.cache import Image
from vmtax.lab.home import lab
from vmtax.meter.ledger import COMMAND, LedgerReading, parse, reckon

pytestmark = pytest.mark.machines

NAME = "kvm"
HOST = f"lab:{NAME}"
PLAN = """\
name: kvm
layers: [vm]
guest: {vcpus: 1, memory: 2GiB}
factors: {guest.exit_trace: ["on"], memory.backing: [4k, thp, 2MiB, 1GiB]}
workloads:
  - cpuid: {seconds: 3}
  - tlb: {cases: [chase-1m], seconds: 3}
  - net: {cases: [tcp-in], rate: 10, seconds: 3}
primary: [cpuid.instruction_seconds]
rounds: {min: 1, max: 1}
"""
SLEEPING = """\
name: sleeping
layers: [vm]
guest: {vcpus: 1, memory: 512MiB}
factors: {cpu.halt_polling: ["off"], memory.backing: [2MiB]}
workloads: [{wakeup: {seconds: 30}}]
rounds: {min: 1, max: 1}
"""
# A running guest exits for these whatever it does: ticks of the host's clock and of its own.
CLOCK = ("interrupt", "msr", "vintr", "hlt")
# All that a run may change of a host's memory and of its KVM.
HALT_POLLING = "/sys/module/kvm/parameters/halt_poll_ns"
SETTINGS = f"grep . /sys/kernel/mm/hugepages/*/nr_*hugepages /sys/kernel/mm/ksm/run {HALT_POLLING}"
# tracefs is mounted for the look alone.
INSTANCES = "unshare -m sh -c 'mount -t tracefs tracefs /sys/kernel/tracing; ls /sys/kernel/tracing/instances'"


@pytest.fixture(scope="module", autouse=True)
def directory(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where this module's lab, which is up, and its results are."""
    path = tmp_path_factory.mktemp("kvm")
    with pytest.MonkeyPatch.context() as patch:
        for kind in ("DATA", "STATE"):
            patch.setenv(f"XDG_{kind}_HOME", str(path / kind.lower()))
        patch.chdir(path)
        vmtax("lab", "start", NAME, "--memory", "6GiB", "--spares", "1", "--spare-size", "1GiB")
        yield path
        up = lab(NAME).up()
        vmtax("lab", "stop", NAME)
        assert up is not None and leftovers(up.token) == []
        vmtax("lab", "remove", NAME, "--yes")


def vmtax(*argv: str) -> str:
    done = subprocess.run([*VMTAX, *argv], capture_output=True, text=True, timeout=HANGS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def inside(command: str) -> str:
    return vmtax("lab", "ssh", NAME, "--", command)


@pytest.fixture(scope="module")
def data(directory: Path) -> Any:
    """Of one run in the lab, in which nothing failed, and which left the lab's settings as they were."""
    before = inside(SETTINGS)
    path = directory / "plan.yaml"
    path.write_text(PLAN)
    data = json.loads(vmtax("run", str(path), "--host", HOST, "--yes", "--emulate", "--json"))["data"]
    assert data["failures"] == []
    assert inside(SETTINGS) == before
    assert inside(INSTANCES).strip() == ""
    return data


def test_a_cpuid_instruction_is_one_exit_and_a_loop_is_none(data: Any) -> None:
    """How many operations a loop completes depends on the machine; how often its clock interrupts it does not."""
    for each in data["exits"]:
        clock = sum(each["reasons"].get(reason, 0.0) for reason in CLOCK)
        own = each["per_operation"] * (1 - clock)
        print(
            f"{each['treatment']}, {each['workload']}: {each['per_operation']:.6f} exits per operation,"
            f" {own:.6f} without the clock's; {each['per_second']:.0f} per second"
        )
        if each["workload"] == "cpuid":
            # What any running guest exits for, as for its clock, is not cpuid's.
            assert each["per_operation"] * each["reasons"]["cpuid"] == pytest.approx(1, abs=0.02)
        elif each["workload"] == "tlb":
            assert own < 0.0005 and each["per_second"] < 2000


def test_the_reasons_are_those_of_all_exits(data: Any) -> None:
    """Added up, for both are read one after the other, and any guest exits in between."""
    rows = [one["readings"]["host/vm"] for one in data["measurements"]]
    counted = sum(row["kvm.exits"] for row in rows)
    traced = sum(value for row in rows for name, value in row.items() if name.startswith("kvm.reason."))
    print(f"KVM counts {counted:.0f} exits, the histogram {traced:.0f}")
    assert traced == pytest.approx(counted, rel=0.01)


def test_each_backing_is_what_kvm_maps(data: Any) -> None:
    got = {boot["treatment"].partition("memory.backing=")[2] or "4k": boot["obtained"] for boot in data["boots"]}
    pages = {level: [each[f"memory.kvm_pages_{size}"] for size in ("4k", "2m", "1g")] for level, each in got.items()}
    print("pages of 4 KiB, 2 MiB, 1 GiB that KVM maps:", pages)
    assert pages["4k"][0] > 0 and pages["4k"][1:] == [0, 0]
    assert pages["thp"][1] > 0 and pages["thp"][2] == 0
    assert pages["2MiB"][1] > 0 and pages["2MiB"][2] == 0
    assert pages["1GiB"][2] > 0


def test_the_ledger_of_genuine_kvm_adds_up_and_little_of_it_is_unexplained(data: Any) -> None:
    shares = {
        (one["machine"], one["treatment"], one["workload"]): abs(one["entries"]["remainder"]) / one["busy"]
        for one in data["ledger"]
    }
    print("unexplained:", {where: f"{100 * share:.1f} %" for where, share in shares.items()})
    assert max(shares.values()) <= 0.10 and statistics.median(shares.values()) <= 0.05
    on_host = [one for one in data["ledger"] if one["machine"] == "host"]
    assert all(one["entries"]["guest"] > 0 for one in on_host), on_host
    # At most what nothing else explains, so it may be 0 where ticks found interrupts; not everywhere.
    idle = {(one["treatment"], one["workload"]): one["entries"]["idle_irq"] / one["busy"] for one in on_host}
    print("interrupts of idle CPUs:", {where: f"{100 * share:.1f} %" for where, share in idle.items()})
    assert any(share > 0 for share in idle.values())
    # Reads of memory hardly exit, and ticks split their time: these may find nothing but guest code.
    exits = [one for one in on_host if one["workload"] != "tlb"]
    assert all(one["entries"]["vcpu_kernel"] > 0 for one in exits), exits
    sampled = {one["treatment"]: one["samples"] for one in on_host if one["samples"]}
    print("samples:", sampled)
    assert sampled.keys() == {one["treatment"] for one in on_host if one["workload"] == "net"}
    assert min(sampled.values()) > 50, "samples, not ticks, split what host_side_seconds is computed from"
    # The first workload also reads its program from the disk, which the main loop serves.
    served = [one["entries"]["main_loop"] / one["busy"] for one in on_host if one["workload"] == "tlb"]
    print("QEMU's main loop:", [f"{100 * share:.1f} %" for share in served])
    assert max(served) < 0.06, "with an HPET it wakes 250 times a second, for a tenth of a core"


def look() -> LedgerReading:
    reading = parse(inside(shlex.join(COMMAND)))
    assert reading
    return reading


def test_a_process_that_spins_is_among_the_other_processes_to_two_percent() -> None:
    spin = (
        "import os, time\nwhile time.process_time() < 2.0: pass\n"
        "print(time.process_time(), os.getpid(), flush=True)\ntime.sleep(60)"
    )
    before = look()
    begin = f"setsid python3 -I -S -c {shlex.quote(spin)} > /tmp/spun 2>&1 < /dev/null &"
    said = inside(f"{begin} until test -s /tmp/spun; do sleep 0.2; done; cat /tmp/spun")
    used, pid = said.split()
    after = look()
    inside(f"kill {pid}")
    own = next(one.own for one in after.processes.values() if one.pid == int(pid))
    assert own == pytest.approx(float(used), rel=0.02)
    rows = reckon(before, after)
    # The kernel of a lab counts an interrupt as time of the process that it stops; the ledger counts it apart.
    assert rows["other"] + rows["hard_irq"] + rows["soft_irq"] >= 0.98 * float(used), rows


def test_a_flood_of_packets_from_the_peer_is_soft_irq() -> None:
    up = lab(NAME).up()
    assert up is not None and up.peer_namespace is not None
    address = inside("ip -o -4 address show dev eth1").split()[3].partition("/")[0]
    flood = (
        "import socket, sys, time\nend = time.monotonic() + 3\nto = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "while time.monotonic() < end: to.sendto(b'x' * 64, (sys.argv[1], 9))"
    )
    quiet = look()
    time.sleep(3)
    before = look()
    subprocess.run(["ip", "netns", "exec", up.peer_namespace, sys.executable, "-c", flood, address], check=True)
    without, rows = reckon(quiet, before), reckon(before, look())
    assert rows["soft_irq"] / rows["seconds"] > without["soft_irq"] / without["seconds"] + 0.05, (without, rows)


def test_after_sigkill_the_host_has_its_settings_as_before(directory: Path) -> None:
    before = inside(SETTINGS)
    plan = directory / "sleeping.yaml"
    plan.write_text(SLEEPING)
    argv = [*VMTAX, "run", str(plan), "--host", HOST, "--yes", "--emulate"]
    with subprocess.Popen(argv, cwd=directory, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + HANGS
        while process.poll() is None and time.monotonic() < deadline:
            if int(inside(f"cat {HALT_POLLING}")) == 0:
                break
        assert process.poll() is None and inside(SETTINGS) != before
        process.kill()
    while inside(SETTINGS) != before and time.monotonic() < deadline:
        time.sleep(0.5)
    assert inside(SETTINGS) == before
