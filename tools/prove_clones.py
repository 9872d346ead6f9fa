"""Clones of a VM of the user's, for tools/prove_guests.py: its settings are compared, and it is left as it was."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.owners_vm import wait_until

if TYPE_CHECKING:
    from tools.prove_guests import Bench

PLAN = """\
name: owners-clones
layers: [host, vm]
factors:
  disk.cache: [writethrough, none]
  disk.iothread: ["off", "on"]
  memory.backing: [thp, memfd]
design: one-at-a-time
workloads:
  - chess: {depth: 4, emulated_depth: 4}
  - disk: {patterns: [randread-4k-qd1, randwrite-4k-fsync], seconds: 1, size: 32MiB}
primary: [chess.nodes_per_second, disk.randread-4k-qd1.iops, disk.randwrite-4k-fsync.iops]
rounds: {min: 7, max: 7}
iterations: 1
"""
RESUMED = 3  # kills of one run
# Files and sockets of a run: its own, libvirt's log of a clone, and what lies in libvirt's directory for the VM's QEMU.
LEFT = "/var/tmp/vmtax-*-clone-* /var/log/libvirt/qemu/vmtax-*-clone-* /var/lib/libvirt/qemu/domain-*/vmtax-*"
FIGURE_SECONDS = 1800.0  # until a run has its next figure: it may wait for another one
FIGURES = 3 * 5  # of the host and four configurations of the clone
# Configuration -> what stands on the command line of its QEMU, and not on that of the first one.
LEVELS = {
    "clone disk.cache=none": '"cache":{"direct":true',
    "clone disk.iothread=on": '"iothread":"iothread1"',
    "clone memory.backing=memfd": "memory-backend-memfd",
}


def of_debian_11(bench: Bench) -> None:
    """Running, and shut off."""
    with bench.lv.domain("copied11", bench.old) as here:
        both(bench, here)


def of_debian_13(bench: Bench) -> None:
    """Running, and shut off."""
    with bench.lv.domain("copied13", bench.new) as here:
        both(bench, here)


def both(bench: Bench, name: str) -> None:
    """Three settings on clones of a domain that runs, and of the same one when it is off."""
    compared(bench, name, "running")
    shut_off(bench, name)
    compared(bench, name, "shut off")


def killed(bench: Bench) -> None:
    """Runs that clone are killed, while the domain runs and while it is off."""
    with bench.lv.domain("killed11", bench.old) as here:
        killed_in(bench, here, bench.kills // 2, "running")
        shut_off(bench, here)
        killed_in(bench, here, bench.kills - bench.kills // 2, "shut off")


def started(bench: Bench) -> None:
    """The owner starts what is cloned; a domain that cannot be cloned is refused."""
    with bench.lv.domain("started11", bench.old) as here:
        shut_off(bench, here)
        started_meanwhile(bench, here)
        refused(bench, here)


def resumed(bench: Bench) -> None:
    """One run is killed after each few figures and resumed, until it is whole: nothing is lost or measured twice."""
    bench = replace(bench, home=bench.home / "resumed")  # a store without other runs
    bench.home.mkdir()
    with bench.lv.domain("resumed11", bench.old) as here:
        shut_off(bench, here)
        before, disk = bench.definition(here), digest(bench, here)
        report, run = bench.home / "resumed.html", bench.start(here, "--clone", "--rounds", "1", plan=PLAN)
        try:
            for number in range(1, RESUMED + 1):
                goes_on = partial(has_more, bench, run, len(figures(bench)))
                wait_until(goes_on, "a figure", FIGURE_SECONDS)
                run.send_signal(signal.SIGKILL)
                run.communicate()
                bench.score.kills += 1
                is_untouched(bench, here, before, "shut off", f"kill {number} of one run")
                kept = figures(bench)
                argv = [sys.executable, "-m", "vmtax", "run", "--resume", "--yes", "--wait", "-o", str(report)]
                pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
                run = subprocess.Popen(argv, env=bench.environment, cwd=bench.home, **pipes)
            said, _ = run.communicate()
            bench.score.check(run.returncode == 0, f"a run of clones goes on after {RESUMED} kills: {said[-300:]}")
        finally:
            run.kill()  # it would go on without its libvirt
            run.wait()
        found = figures(bench)
        bench.score.check(len(found) == len(set(found)), "no figure is measured twice")
        bench.score.check(found[: len(kept)] == kept, "what was measured before a kill is kept")
        bench.score.check(len(set(found)) >= FIGURES, f"all of it is measured: {len(found)} figures")
        is_untouched(bench, here, before, "shut off", "a resumed run")
        bench.score.check(digest(bench, here) == disk, "a resumed run: its disk holds the same")


def has_more(bench: Bench, run: subprocess.Popen[str], had: int) -> bool:
    """Whether a run has ended, or has more figures than that."""
    return run.poll() is not None or len(figures(bench)) > had


def figures(bench: Bench) -> list[tuple[object, ...]]:
    """What the newest run has measured, in the order in which it did."""
    argv = [sys.executable, "-m", "vmtax", "show", "--json"]
    done = subprocess.run(argv, env=bench.environment, capture_output=True, text=True, cwd=bench.home)
    if done.returncode:
        return []
    found: list[dict[str, Any]] = json.loads(done.stdout)["data"]["measurements"]
    names = ("round", "treatment", "machine", "iteration", "case", "metric")
    return [tuple(one.get(name) for name in names) for one in found]


def shut_off(bench: Bench, name: str) -> None:
    """End a domain whose files are written."""
    bench.lv.shell(name, "sync")
    bench.lv.virsh("destroy", name)


def compared(bench: Bench, name: str, state: str) -> None:
    """Three settings; each clone really has its own."""
    what, before, disk = f"clones of {name}, {state}", bench.definition(name), digest(bench, name)
    code, said = bench.measured(name, "--clone", "--rounds", "1", plan=PLAN)
    print(said[said.find("\nowners-clones on") :], flush=True)
    bench.score.check(code == 0 and f"and {state}" in said and "defined as before" in said, f"{what}: {said[-300:]}")
    bench.score.check(said.count("virsh edit") == len(LEVELS), f"{what}: each setting has its change")
    lines = command_lines(bench)
    for treatment, words in LEVELS.items():
        bench.score.check(words in lines.get(treatment, ""), f"{what}: {treatment}: {lines.get(treatment)}")
        bench.score.check(words not in lines.get("clone", words), f"{what}: the first one has it too: {words}")
    is_untouched(bench, name, before, state, what)
    bench.score.check(state == "running" or digest(bench, name) == disk, f"{what}: its disk holds the same")


def command_lines(bench: Bench) -> dict[str, str]:
    """Configuration of the newest run -> the command line of its first QEMU."""
    argv = [sys.executable, "-m", "vmtax", "show", "--json"]
    done = subprocess.run(argv, env=bench.environment, capture_output=True, text=True, cwd=bench.home)
    boots: list[dict[str, Any]] = json.loads(done.stdout)["data"]["boots"]
    return {boot["treatment"]: " ".join(boot["argv"]) for boot in reversed(boots)}


def digest(bench: Bench, name: str) -> str:
    """Of the domain's disk."""
    return bench.lv.must("sha256sum", str(bench.lv.directory / f"{name}.raw")).split()[0]


def killed_in(bench: Bench, name: str, kills: int, state: str) -> None:
    """SIGKILL at random moments, from the first command on."""
    before, disk = bench.definition(name), digest(bench, name)
    for number in range(1, kills + 1):
        run = bench.start(name, "--clone", "--rounds", "1", plan=PLAN)
        seconds = bench.chance.uniform(0.5, 60.0)
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.communicate(timeout=seconds)
        run.send_signal(signal.SIGKILL)
        run.communicate()
        bench.score.kills += 1
        is_untouched(bench, name, before, state, f"kill {number} of clones after {seconds:.1f} s")
        print(f"{number} of {kills} kills, {state}; wrong: {len(bench.score.wrong)}", flush=True)
    bench.score.check(state == "running" or digest(bench, name) == disk, "kills: its disk holds the same")


def started_meanwhile(bench: Bench, name: str) -> None:
    """The owner starts a VM that is off while it is cloned: nothing keeps him from it, and the run ends with why."""
    run = bench.start(name, "--clone", "--rounds", "3", plan=PLAN)
    wait_until(lambda: "vmtax-" in bench.lv.virsh("list", "--name"), "a clone runs")
    bench.lv.virsh("start", name)
    said, _ = run.communicate()
    bench.score.check(run.returncode != 0 and "was started while it was cloned" in said, f"started: {said[-300:]}")
    bench.score.check("Traceback" not in said, f"started: {said[-300:]}")
    wait_until(lambda: bench.lv.agent(name, "guest-ping") is not None, "it boots as ever")
    is_untouched(bench, name, bench.definition(name), "running", "started meanwhile")
    bench.lv.virsh("destroy", name)


def refused(bench: Bench, name: str) -> None:
    """What cannot be cloned is said in one line, and nothing is done."""
    text = bench.lv.virsh("dumpxml", name, "--inactive")
    passed = "<hostdev mode='subsystem' type='usb'><source><vendor id='0x1'/><product id='0x1'/></source></hostdev>"
    other = text.replace(f"<name>{name}<", "<name>passed<").replace("<devices>", f"<devices>{passed}")
    file = bench.home / "passed.xml"
    uuid = text.partition("<uuid>")[2].partition("<")[0]
    file.write_text(other.replace(f"<uuid>{uuid}</uuid>", ""))
    bench.lv.virsh("define", str(file))
    code, said = bench.measured("passed", "--clone", "--rounds", "1", plan=PLAN)
    bench.score.check(code != 0 and "passed through (hostdev)" in said, f"a passed-through device: {said[-200:]}")
    bench.lv.virsh("undefine", "passed")


def is_untouched(bench: Bench, name: str, before: str, state: str, what: str) -> None:
    """Wait until the guard has undone a run, and check what is left of it."""

    def nothing_left() -> bool:
        others = [one for one in bench.lv.virsh("list", "--all", "--name").split() if one.startswith("vmtax-")]
        files = bench.lv.files(LEFT)
        job = state == "running" and "None" not in bench.lv.virsh("domjobinfo", name, check=False)
        return not (others or files or job) and bench.definition(name) == before

    try:
        wait_until(nothing_left, "clones, files and job of the run are gone", 120.0)
        bench.score.check(True, what)
    except AssertionError:
        bench.score.check(False, f"{what}: a clone, a file or a job is left, or the definition is another")
    bench.score.check(bench.lv.virsh("domstate", name).strip() == state, f"{what}: the domain's state")
    if state == "running":
        frozen = bench.lv.virsh("qemu-agent-command", name, '{"execute":"guest-fsfreeze-status"}', check=False)
        bench.score.check('"thawed"' in frozen, f"{what}: its file systems: {frozen}")
