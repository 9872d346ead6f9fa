"""The ledger for real: what is planted on this host appears under its entry, and an emulated run adds up."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import measured
from vmtax.image.cache import Image
from vmtax.machine.local import LocalMachine
from vmtax.meter.ledger import COMMAND, HostLedger, parse, reckon

# Nobody's child, so that nothing but itself is charged with it; it says its number, and spins for two seconds of CPU.
SPIN = """\
import os, sys, time
if os.fork():
    os._exit(0)
os.setsid()
print(os.getpid(), flush=True)
while time.process_time() < 2.0:
    pass
print(time.process_time(), flush=True)
time.sleep(600)
"""
FLOOD = """\
import socket, time
end = time.monotonic() + 3
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while time.monotonic() < end:
    for _ in range(100):
        sender.sendto(b"x" * 64, ("192.0.2.1", 9))
"""
IRQ_TIME = Path("/proc/pressure/irq")
PLAN = """\
name: ledger-tiny
layers: [host, vm]
guest: {vcpus: 1, memory: 512MiB}
workloads:
  - chess: {depth: 9}
  - disk: {size: 64MiB, seconds: 3, patterns: [randwrite-4k-qd32]}
rounds: {min: 1, max: 1}
"""


def test_a_process_that_spins_is_among_the_other_processes_to_two_percent(local: LocalMachine) -> None:
    before = parse(local.run(*COMMAND))
    with subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE, text=True) as spin:
        assert spin.stdout and before
        pid = int(spin.stdout.readline())
        try:
            used = float(spin.stdout.readline())
            after = parse(local.run(*COMMAND))
        finally:
            os.kill(pid, signal.SIGKILL)
    assert after
    own = next(one.own for one in after.processes.values() if one.pid == pid)
    assert own == pytest.approx(used, rel=0.02)
    rows = reckon(before, after)
    # Without IRQ_TIME_ACCOUNTING an interrupt is time of the process that it stops; the ledger counts it apart.
    apart = 0.0 if after.is_irq_apart else rows["hard_irq"] + rows["soft_irq"]
    assert rows["other"] + apart >= 0.98 * used, rows


def test_the_threads_of_a_qemu_that_we_started_are_recognised(local: LocalMachine) -> None:
    """Its CPU is paused: the names of its threads are all that is looked at."""
    words = "-name vm,debug-threads=on -nodefaults -display none -accel tcg -object iothread,id=io0 -S -m 64"
    process = local.start("qemu-system-x86_64", *words.split())
    try:
        names: set[str] = set()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not {"CPU 0/TCG", "IO io0"} <= names:
            seen = parse(local.run(*COMMAND))
            assert seen
            names = {thread.name for threads in seen.threads.values() for thread in threads.values()}
    finally:
        process.stop()
    assert {"CPU 0/TCG", "IO io0", "qemu-system-x86"} <= names


@pytest.fixture
def namespace() -> Iterator[str]:
    """A network of its own, with a cable to a second one; nothing of the host's network is touched."""
    near, far = (f"ledger{os.getpid()}-{end}" for end in ("near", "far"))
    made: list[str] = []
    try:
        for name in (near, far):
            subprocess.run(["ip", "netns", "add", name], check=True)
            made.append(name)
        subprocess.run(f"ip -n {near} link add cable type veth peer name cable netns {far}".split(), check=True)
        for name, address in ((near, "192.0.2.2/30"), (far, "192.0.2.1/30")):
            subprocess.run(["ip", "-n", name, "address", "add", address, "dev", "cable"], check=True)
            subprocess.run(["ip", "-n", name, "link", "set", "cable", "up"], check=True)
        yield near
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=True)


def test_a_flood_of_packets_is_soft_irq(local: LocalMachine, namespace: str) -> None:
    quiet, flooded = HostLedger(), HostLedger()
    quiet.before(local)
    time.sleep(3)
    without = quiet.after(local, []).rows
    flooded.before(local)
    subprocess.run(["ip", "netns", "exec", namespace, sys.executable, "-c", FLOOD], check=True)
    rows = flooded.after(local, []).rows
    assert rows["soft_irq"] / rows["seconds"] > without["soft_irq"] / without["seconds"] + 0.02, (without, rows)


# Beside it another test's compiler, whose processes come and go between two readings, was two thirds of a row.
@pytest.mark.alone
def test_an_emulated_run_adds_up_and_little_of_it_is_unexplained(image: Image, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN)
    ledger = measured(str(plan), directory=tmp_path)["ledger"]
    shares = {
        (one["treatment"], one["machine"], one["case"]): abs(one["entries"]["remainder"]) / one["busy"]
        for one in ledger
    }
    assert {where[:2] for where in shares} == {("host", "host"), ("vm", "host"), ("vm", "host/vm")}
    # On kernels with neither, interrupts of an idle CPU are in no counter: the host layer is idle between them.
    counted = IRQ_TIME.exists() or Path("/proc/schedstat").exists()
    few = [share for (layer, *_), share in shares.items() if layer == "vm" or counted]
    assert max(few) <= 0.10 and statistics.median(few) <= 0.05, shares
    assert max(shares.values()) <= 0.50, shares
    assert all(sum(one["entries"].values()) == pytest.approx(one["busy"]) for one in ledger)
    # Where a guest works, the host's own part of the workload is no more than the programs that send its commands.
    for entry, layer, least in (("workload", "host", 0.01), ("emulator", "vm", 0.1)):
        of_layer = [one["entries"] for one in ledger if (one["treatment"], one["machine"]) == (layer, "host")]
        assert all(entries[entry] > least for entries in of_layer), (entry, of_layer)
