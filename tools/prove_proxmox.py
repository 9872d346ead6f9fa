"""A VM of Proxmox VE as it runs, for tools/prove_guests.py: on a stand-in for its node with a real QEMU and agent."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.owners_vm import wait_until
from tests.proxmox import Node, proxmox_node

if TYPE_CHECKING:
    from tools.prove_guests import Bench

PLAN = """\
name: owners-proxmox
workloads:
  - disk: {patterns: [randread-4k-qd1], seconds: 1, size: 16MiB}
primary: [disk.randread-4k-qd1.iops]
rounds: {min: 1, max: 1}
iterations: 1
"""
# VMID -> words of the configuration: each bus and controller that matters.
VMS: dict[str, dict[str, object]] = {
    "101": {"options": "cache=writethrough,iothread=1,"},
    "102": {"scsihw": "virtio-scsi-pci", "options": "discard=on,"},
    "103": {"disk": "virtio0", "root": "vda", "options": "iothread=1,"},
    "104": {"disk": "sata0", "options": "cache=writeback,"},
}
STATE = ("info qtree", "info chardev", "info block", "info iothreads")


def proxmox(bench: Bench) -> None:
    """Each of these VMs is measured; then one is refused in its states, and runs of it are killed."""
    directory = bench.home / "proxmox"
    directory.mkdir()
    files = bench.old
    with proxmox_node(directory) as node:
        for vmid, words in VMS.items():
            node.define(vmid, files.disk, kernel=files.kernel, initrd=files.initrd, **words)
            booted(node, vmid)
            measured(bench, node, vmid)
            if vmid != "101":
                node.qm("stop", vmid)
        killed(bench, node, "101")
        refused(bench, node, "101")
        patched(bench, node, "101")


def booted(node: Node, vmid: str) -> None:
    node.qm("start", vmid)
    wait_until(lambda: '"exited" : 1' in node.qm("guest", "exec", vmid, "--", "true", check=False), f"{vmid} answers")


def start(bench: Bench, node: Node, vmid: str) -> subprocess.Popen[str]:
    file = bench.home / "proxmox.yaml"
    file.write_text(PLAN)
    argv = [
        sys.executable,
        "-m",
        "vmtax",
        "run",
        str(file),
        "--guest",
        f"proxmox:{vmid}",
        "--yes",
        "--emulate",
        "--wait",
    ]
    places = {name: value for name, value in bench.environment.items() if name.startswith("XDG_")}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    words = [*argv, "-o", str(bench.home / "proxmox.html")]
    return subprocess.Popen(words, env={**node.environment, **places}, cwd=bench.home, **pipes)


def whole(bench: Bench, node: Node, vmid: str) -> tuple[int, str]:
    """Exit code and output of a whole run."""
    bench.score.runs += 1
    run = start(bench, node, vmid)
    said, _ = run.communicate()
    return run.returncode, said


def seen(node: Node, vmid: str) -> list[str]:
    """What the VM has as it runs, and its configuration."""
    place = f"/nodes/pve1/qemu/{vmid}/monitor"
    argv = ("pvesh", "create", place, "--command")
    said = [
        subprocess.run([*argv, each], env=node.environment, capture_output=True, text=True).stdout for each in STATE
    ]
    return [*said, node.qm("config", vmid)]


def measured(bench: Bench, node: Node, vmid: str) -> None:
    before, what = seen(node, vmid), f"proxmox:{vmid}"
    code, said = whole(bench, node, vmid)
    good = code == 0 and "is defined as before, and running" in said and "Traceback" not in said
    bench.score.check(good, f"{what}: {said[-500:]}")
    bench.score.check("not measured" not in said, f"{what}: every figure is there")
    bench.score.check("never run on Proxmox VE itself" in said, f"{what}: what nobody tried is said")
    is_left(bench, node, vmid, before, what)


def is_left(bench: Bench, node: Node, vmid: str, before: list[str], what: str) -> None:
    """Wait until the guard has undone a run, and check what is left of it."""

    def same() -> bool:
        return seen(node, vmid) == before and bench.images() <= bench.others

    try:
        wait_until(same, "the VM is as before", 120.0)
        left = "grep -q erofs /proc/mounts || ls /dev/virtio-ports | grep -q vmtax && exit 1; exit 0"
        said = node.qm("guest", "exec", vmid, "--", "sh", "-c", left)
        assert '"exitcode" : 0' in said, "a mount or a port of the run is left in the guest"
        bench.score.check(True, what)
    except AssertionError as error:
        bench.score.check(False, f"{what}: {error}")


def killed(bench: Bench, node: Node, vmid: str) -> None:
    """SIGKILL at random moments, from the first command on."""
    before, kills = seen(node, vmid), max(1, bench.kills // 4)
    for number in range(1, kills + 1):
        run = start(bench, node, vmid)
        seconds = bench.chance.uniform(0.5, 60.0)
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.communicate(timeout=seconds)
        run.send_signal(signal.SIGKILL)
        run.communicate()
        bench.score.kills += 1
        is_left(bench, node, vmid, before, f"proxmox:{vmid}, kill {number} after {seconds:.1f} s")
        print(f"{number} of {kills} kills, proxmox:{vmid}; wrong: {len(bench.score.wrong)}", flush=True)


def refused(bench: Bench, node: Node, vmid: str) -> None:
    """States in which nothing can be measured: one line, and nothing done."""

    def locked(is_locked: bool) -> None:
        file = node.directory / "etc" / f"{vmid}.conf"
        text = file.read_text()
        file.write_text(f"{text}lock: backup\n" if is_locked else text.replace("lock: backup\n", ""))

    def paused(is_paused: bool) -> None:
        node.qm("suspend" if is_paused else "resume", vmid)

    states: dict[str, Callable[[bool], None]] = {"a job runs on it (backup)": locked, "is paused: qm resume": paused}
    for words, change in states.items():
        before = seen(node, vmid)
        change(True)
        code, said = whole(bench, node, vmid)
        change(False)
        bench.score.check(code != 0 and words in said and "Traceback" not in said, f"{words}: {said[-200:]}")
        bench.score.check(seen(node, vmid) == before, f"{words}: it is as before")
    code, said = whole(bench, node, "999")
    bench.score.check(code != 0 and "there are: 101" in said, f"no such VM: {said[-200:]}")
    node.qm("stop", vmid)
    code, said = whole(bench, node, vmid)
    bench.score.check(code != 0 and f"is stopped: qm start {vmid}" in said, f"stopped: {said[-200:]}")


def patched(bench: Bench, node: Node, vmid: str) -> None:
    """What `doctor` says to type is typed; then it does not say it any more."""
    argv = [sys.executable, "-m", "vmtax", "doctor", f"proxmox:{vmid}", "--json"]

    def advised() -> dict[str, str]:
        done = subprocess.run(argv, env=node.environment, cwd=bench.home, capture_output=True, text=True, check=True)
        return {each["factor"]: each["patch"] for each in json.loads(done.stdout)["data"]["advice"]}

    patch = advised().get("disk.cache", "")
    bench.score.check(patch.startswith("qm set VMID --scsi0 "), f"doctor: the cache mode's patch: {patch!r}")
    node.qm(*patch.replace("VMID", vmid).split()[1:])
    bench.score.check("disk.cache" not in advised(), "doctor: the patch, applied, is the end of it")
