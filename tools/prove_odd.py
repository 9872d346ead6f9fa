"""VMs of the user's in a state that nobody wishes to find them in, for tools/prove_guests.py: each ends in a sentence.

A guest is rebooted by its owner while it is measured, or saved and started again, as when its host goes down; the root
file system of one is full, then read-only; one has a block job. Where a run refuses, nothing is done to the domain;
where it measures, the domain is as before afterwards.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tests.owners_vm import wait_until
from tools import prove_clones

if TYPE_CHECKING:
    from tools.prove_guests import Bench

FILL = "dd if=/dev/zero of=/fills bs=1M 2> /dev/null; dd if=/dev/zero of=/fills-too bs=512 2> /dev/null; sync; true"
READ_ONLY = "rm -f /fills /fills-too; echo u > /proc/sysrq-trigger"
ROOT_IS_READ_ONLY = "grep -q '^[^ ]* / [^ ]* ro[, ]' /proc/mounts"


def odd(bench: Bench) -> None:
    """All of them in one domain, one after the other."""
    bench = replace(bench, home=bench.home / "odd")  # a store without other runs
    bench.home.mkdir()
    with bench.lv.domain("odd", bench.new) as here:
        has_a_job(bench, here)
        rebooted(bench, here)
        saved(bench, here)
        filled(bench, here)


def has_a_job(bench: Bench, name: str) -> None:
    """A copy of its disk is being made: nothing is measured meanwhile, or it is said."""
    before = bench.definition(name)
    copy = bench.home / "copy.raw"
    bench.lv.virsh("blockcopy", name, "vda", str(copy), "--transient-job", "--bandwidth", "1")
    code, said = bench.measured(name, "--rounds", "1")
    print(f"a copy of its disk is being made: exit code {code}: {last_line(said)}", flush=True)
    bench.score.check(code != 0 and "job" in said and "Traceback" not in said, f"a block job: {said[-300:]}")
    bench.lv.virsh("blockjob", name, "vda", "--abort")
    wait_until(lambda: "No current block job" in bench.lv.virsh("blockjob", name, "vda"), "the copy is given up")
    bench.is_left_alone(name, before, "a block job")


def rebooted(bench: Bench, name: str) -> None:
    """Its owner reboots it after the first figure: what was under way is void, and the run ends with a sentence."""
    before = bench.definition(name)
    run = bench.start(name, "--rounds", "3")
    bench.score.runs += 1
    wait_until(partial(prove_clones.has_more, bench, run, 0), "a figure", prove_clones.FIGURE_SECONDS)
    bench.score.check(run.poll() is None, "a run goes on after its first figure")
    bench.lv.virsh("reboot", name, "--mode", "agent")
    said, _ = run.communicate()
    print(f"rebooted while it was measured: exit code {run.returncode}: {last_line(said)}", flush=True)
    bench.score.check("Traceback" not in said and "reboot" in said, f"rebooted while measured: {said[-600:]}")
    wait_until(lambda: bench.lv.agent(name, "guest-ping") is not None, "it is up again")
    bench.is_left_alone(name, before, "rebooted while measured")


def saved(bench: Bench, name: str) -> None:
    """Its owner saves it after the first figure, with what was plugged into it, and starts it again when the run has
    ended: what it needs to start is still there then, and the next run takes it away, as the first one says.
    """
    before = bench.definition(name)
    run = bench.start(name, "--rounds", "3")
    bench.score.runs += 1
    wait_until(partial(prove_clones.has_more, bench, run, 0), "a figure", prove_clones.FIGURE_SECONDS)
    bench.score.check(run.poll() is None, "a run goes on after its first figure")
    bench.lv.virsh("managedsave", name)
    said, _ = run.communicate()
    print(f"saved while it was measured: exit code {run.returncode}: {last_line(said)}", flush=True)
    bench.score.check("Traceback" not in said and run.returncode != 0, f"saved while measured: {said[-600:]}")
    bench.lv.virsh("start", name)
    wait_until(lambda: bench.lv.agent(name, "guest-ping") is not None, "it has been started again")
    code, said = bench.measured(name, "--rounds", "1")
    bench.score.check(code == 0, f"the run after one in which it was saved: {said[-300:]}")
    again = bench.definition(name)  # it has another number since its owner started it
    bench.score.check("vmtax" not in again, "saved while measured: something of ours is in it")
    inactive = bench.lv.virsh("dumpxml", name, "--inactive")
    bench.score.check(before.endswith(inactive), "saved while measured: its definition")
    bench.is_left_alone(name, again, "saved while measured")


def filled(bench: Bench, name: str) -> None:
    """Without room on its root, and when that cannot be written: what is measured needs neither."""
    before = bench.definition(name)
    for what, script in (("full", FILL), ("read-only", READ_ONLY)):
        bench.score.check(bench.lv.shell(name, script) == 0, f"its root is made {what}")
        if what == "read-only":
            wait_until(lambda: bench.lv.shell(name, ROOT_IS_READ_ONLY) == 0, "its root is read-only")
        code, said = bench.measured(name, "--rounds", "1")
        print(f"its root is {what}: exit code {code}: {last_line(said)}", flush=True)
        bench.score.check(code == 0 and "Traceback" not in said, f"its root is {what}: {said[-600:]}")
        bench.is_left_alone(name, before, f"its root is {what}")


def last_line(said: str) -> str:
    return (said.strip().splitlines() or [""])[-1][:200]
