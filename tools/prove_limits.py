"""A limit of I/O that somebody set for a VM, for tools/prove_guests.py: it is named first, and what `doctor` says to
type ends what it costs the guest's own reads, while the VM runs.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tools.prove_guests import Bench

PER_SECOND = 50  # operations, as planted
READS = 1000
READ = f"dd if=/dev/vda of=/dev/null bs=4k count={READS} iflag=direct"
BURST = 0.9  # of that time at least: QEMU lets a tenth of a second's operations pass at once


def limited(bench: Bench) -> None:
    """Reads of a running guest: without a limit, with one, and when the limit is lifted as `doctor` says."""
    limit = f"<iotune><total_iops_sec>{PER_SECOND}</total_iops_sec></iotune>"
    with bench.lv.domain("limited", bench.old, more="") as here:
        without = seconds(bench, here)
        bench.lv.virsh("blkdeviotune", here, "vda", "--total-iops-sec", str(PER_SECOND), "--live", "--config")
        bench.score.check("<total_iops_sec>" in bench.definition(here), f"planted: {limit}")
        within = seconds(bench, here)
        expected = READS / PER_SECOND * BURST
        bench.score.check(within > expected, f"the limit is one: {within:.1f} s, not {expected:.1f} s or more")
        (first, *_), said = advised(bench, here)
        bench.score.check(first["where"] == "vda" and "total_iops_sec" in first["text"], f"doctor: {first}")
        begins = [line.split()[0] for line in said.splitlines() if line[:2] == "  " and line[2:3].strip()]
        bench.score.check(begins[:1] == ["limit"], f"doctor: the limit stands first: {said[:300]}")
        command = shlex.split(first["change"], comments=True)
        bench.score.check(command[:1] == ["virsh"], f"doctor: a command: {command}")
        bench.lv.virsh(*command[1:])
        after = seconds(bench, here)
        print(f"{READS} reads: {without:.1f} s, with a limit {within:.1f} s, without it {after:.1f} s", flush=True)
        bench.score.check(after < within / 2, f"the cost is gone: {after:.1f} s of {within:.1f} s")
        left, said = advised(bench, here)
        bench.score.check(not left and "  limit  " not in said, f"doctor: nothing of it is left: {left}")
        bench.score.check("iotune" not in bench.definition(here), "the running VM's definition, and the next start's")


def seconds(bench: Bench, name: str) -> float:
    """How long the guest takes to read READS blocks of its own disk, one after another."""
    began = time.monotonic()
    bench.score.check(bench.lv.shell(name, f"{READ} 2> /dev/null") == 0, f"{name}: {READ}")
    return time.monotonic() - began


def advised(bench: Bench, name: str) -> tuple[list[dict[str, Any]], str]:
    """The limits that `doctor` lists, and what it prints."""
    argv = [sys.executable, "-m", "vmtax", "doctor", f"libvirt:{name}"]
    pipes: dict[str, Any] = {"env": bench.environment, "cwd": bench.home, "capture_output": True, "text": True}
    answer = json.loads(subprocess.run([*argv, "--json"], **pipes).stdout)["data"]["limits"]
    return answer or [], subprocess.run(argv, **pipes).stdout
