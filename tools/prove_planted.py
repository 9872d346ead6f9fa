"""Bad settings that are planted in a VM, for tools/prove_guests.py: each is named first, with what it was measured to
cost; once what `doctor` says to change is changed, `doctor` names it no more, and the cost that was measured is gone.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.owners_vm import OF_START, wait_until, without_systemd

if TYPE_CHECKING:
    from tools.prove_guests import Bench

PLAN = """\
name: {name}
layers: [host, vm]
workloads:
  - {workload}
primary: [{metric}]
rounds: {{min: {rounds}, max: {rounds}}}
budget: 4h
iterations: 1
"""
GONE = 0.7  # of a cost, in logarithms of times, at least
AFTER_ROUNDS = 6  # of a run that shows that it is gone
# The cache mode of a disk of ours in a domain's XML.
OURS = re.compile(r"cache='(\w+)'/?>(?:(?!</disk>).)*?<alias name='ua-vmtax-\w+-data'/>", re.DOTALL)


@dataclass(frozen=True)
class Planted:
    """One bad setting."""

    factor: str
    bad: str  # its level
    good: str  # the level that is measured beside it
    advised: str  # the level that `doctor` recommends
    has: str  # the part of a domain's XML that plants it
    better: str  # what `doctor` says to put there; "": no part of a definition
    metric: str  # the figure that it costs most
    rounds: int = 8  # that show it

    @property
    def name(self) -> str:
        return f"planted {self.factor}={self.bad}"

    @property
    def vary(self) -> tuple[str, str]:
        return "--vary", f"{self.factor}={self.bad},{self.good}"

    def plan(self) -> str:
        """Only what the setting costs most."""
        workload, case, _ = self.metric.split(".")
        entry = f"disk: {{patterns: [{case}], seconds: 1, size: 32MiB}}"
        entry = f"net: {{cases: [{case}], seconds: 1}}" if workload == "net" else entry
        words = {"name": f"planted-{self.bad}", "workload": entry, "metric": self.metric, "rounds": self.rounds}
        return PLAN.format(**words)


# What writethrough costs most are writes that nobody flushes, one at a time: the flushes of many become one.
CACHE = Planted(
    *("disk.cache", "writethrough", "none", "none", "cache='writethrough'", "cache='none'"),
    "disk.randwrite-4k-qd1.iops",
    rounds=12,
)
BUS = Planted(*("disk.bus", "ide", "virtio", "virtio", "bus='ide'", "bus='virtio'"), "disk.randread-4k-qd32.iops")
# A host without vhost_net, as most that emulate are, carries a virtio card by a tap.
CARD = Planted(
    *("net.path", "e1000e", "tap", "vhost", "<model type='e1000'/>", "<model type='virtio'/>"),
    "net.tcp-in.bits_per_second",
)
LIMIT = Planted(
    *("limit", "iotune", "", "", "<iotune><total_iops_sec>50</total_iops_sec></iotune>", ""),
    "disk.randread-4k-qd1.iops",
)
NAMED = (LIMIT, CACHE, BUS, CARD)


def named(bench: Bench) -> None:
    """All of them in one domain are named, a limit first; a setting whose patch is applied is not named any more."""
    card, here = "<interface type='user'><model type='virtio'/></interface>", "planted"
    bench.lv.define(here, bench.old, machine="pc", more=card, driver=" cache='none'")
    text = without_addresses(bench.lv.virsh("dumpxml", here, "--inactive"))
    for each in NAMED:
        has = each.has if each.better else f"{each.has}<target dev='vda'"
        text = text.replace(each.better or "<target dev='vda'", has, 1)
    define(bench, text)
    left = [each.factor for each in NAMED]
    for patched in (None, *NAMED):
        if patched is not None:
            patch(bench, here, patched)
            left.remove(patched.factor)
        said = doctor(bench, here)
        found = [each.factor for each in NAMED if f"{each.factor}={each.bad}" in said]
        found = ["limit", *found] if "  limit  vda: " in said else found
        bench.score.check(found == left, f"planted, after {patched}: {found}, not {left}: {said[:600]}")
        bench.score.check(patched is not None or first_words(said) == ["limit", "vda:"], f"planted: {said[:300]}")
    bench.lv.virsh("undefine", here)


def cache(bench: Bench) -> None:
    """Two cache modes of a VM as it runs: its disk under test really has each of them."""
    bench = with_store(bench, "planted-cache")
    with bench.lv.domain("compared", bench.new, driver=f" {CACHE.has}") as here:
        before, modes = bench.definition(here), set[str]()
        run = bench.start(here, *CACHE.vary, plan=CACHE.plan())
        bench.score.runs += 1
        while run.poll() is None:
            modes |= {*OURS.findall(bench.lv.virsh("dumpxml", here))}
            time.sleep(0.5)
        said = run.stdout.read() if run.stdout else ""
        bench.score.check(run.returncode == 0, f"two cache modes: {said[-300:]}")
        bench.score.check(modes == {"writethrough", "none"}, f"two cache modes: the disk had {modes}")
        bench.is_left_alone(here, before, "two cache modes")
        bad, good = is_shown(bench, CACHE, "existing", f"libvirt:{here}", said)
        bench.lv.shell(here, "sync")
        bench.lv.virsh("destroy", here)
        patch(bench, here, CACHE)
        bench.lv.virsh("start", here)
        wait_until(lambda: bench.lv.agent(here, "guest-ping") is not None, "it boots with another cache mode")
        words = (*patched(bench, here, CACHE), "--rounds", str(AFTER_ROUNDS))
        code, said = bench.measured(here, *words, plan=CACHE.plan())
        bench.score.check(code == 0, f"{CACHE.name}, after the patch: {said[-300:]}")
        is_gone(bench, CACHE, "existing", bad, good)


def bus(bench: Bench) -> None:
    """A disk on IDE, and on virtio, in clones of a VM that is off."""
    bench, here = with_store(bench, "planted-bus"), "planted-ide"
    files = without_systemd(bench.old, bench.lv.directory)
    bench.lv.define(here, files, machine="pc", bus=BUS.bad, root="hda", words=OF_START)
    code, said = bench.measured(here, "--clone", *BUS.vary, plan=BUS.plan())
    bench.score.check(code == 0, f"{BUS.name}: {said[-300:]}")
    bad, good = is_shown(bench, BUS, "clone", f"libvirt:{here}", said)
    patch(bench, here, BUS)
    after_the_patch(bench, BUS, here, bad, good)


def limit(bench: Bench) -> None:
    """A limit of I/O of a VM that is off: its clones have it too, until what `doctor` says to type is typed."""
    bench, here = with_store(bench, "planted-limit"), "planted-limit"
    files = without_systemd(bench.old, bench.lv.directory)
    bench.lv.define(here, files, words=OF_START)
    text = bench.lv.virsh("dumpxml", here, "--inactive")
    define(bench, text.replace("<target dev='vda'", f"{LIMIT.has}<target dev='vda'", 1))
    found = []
    for words in ("as planted", "after the patch"):
        code, said = bench.measured(here, "--clone", "--rounds", str(AFTER_ROUNDS), plan=LIMIT.plan())
        bench.score.check(code == 0, f"{LIMIT.name}, {words}: {said[-300:]}")
        found.append(times(bench, LIMIT.metric, "host").get("clone", math.nan))
        advised = doctor(bench, here)
        if words == "as planted":
            bench.score.check(first_words(advised) == ["limit", "vda:"], f"{LIMIT.name}: {advised[:300]}")
            patch(bench, here, LIMIT)
    bench.score.check("  limit  " not in advised, f"{LIMIT.name}, after the patch: {advised[:300]}")
    print(f"{LIMIT.name}: {found[0]:.2f} × the host's time, {found[1]:.2f} × without it", flush=True)
    bench.score.check(found[1] < found[0] / 2, f"{LIMIT.name}: the cost is gone: {found}")
    bench.lv.virsh("undefine", here)


def card(bench: Bench) -> None:
    """An e1000, measured in a guest of ours with the domain's settings: a clone meets no network."""
    bench, here = with_store(bench, "planted-card"), "planted-e1000"
    interface = f"<interface type='bridge'><source bridge='br0'/>{CARD.has}</interface>"
    bench.lv.define(here, bench.old, more=interface, driver=" cache='none' io='native' discard='unmap' iothread='1'")
    plan = bench.home / "from.yaml"
    made = vmtax(bench, "plan", "from", f"libvirt:{here}", "-o", str(plan))
    bench.score.check("  net.path: [e1000e, vhost]" in plan.read_text(), f"{CARD.name}: its plan: {made}")
    said = vmtax(bench, "run", str(file_of(bench, CARD)), *CARD.vary, "--yes", "--emulate", "--wait")
    bench.score.runs += 1
    bad, good = is_shown(bench, CARD, "vm", f"libvirt:{here}", said)
    patch(bench, here, CARD)
    vmtax(bench, "plan", "from", f"libvirt:{here}", "-o", str(plan))
    bench.score.check("  net.path: [vhost]" in plan.read_text(), f"{CARD.name}: its plan after the patch")
    vary = ("--vary", f"{CARD.factor}={CARD.good},{CARD.bad}")  # the path that this host has for what is there now
    words = (*vary, "--rounds", str(AFTER_ROUNDS), "--yes", "--emulate", "--wait")
    vmtax(bench, "run", str(file_of(bench, CARD)), *words)
    bench.score.runs += 1
    is_gone(bench, CARD, "vm", bad, good)
    bench.lv.virsh("undefine", here)


def file_of(bench: Bench, planted: Planted) -> Path:
    """Its plan."""
    file = bench.home / "planted.yaml"
    file.write_text(planted.plan())
    return file


def with_store(bench: Bench, name: str) -> Bench:
    """The same with a store without other runs."""
    home = bench.home / name
    home.mkdir()
    return replace(bench, home=home)


def vmtax(bench: Bench, *words: str) -> str:
    """What a command prints."""
    done = subprocess.run(bench.command(*words), env=bench.environment, cwd=bench.home, capture_output=True, text=True)
    bench.score.check(done.returncode == 0, f"vmtax {' '.join(words)}: {done.stderr[-300:]}")
    return done.stdout


def doctor(bench: Bench, name: str) -> str:
    return vmtax(bench, "doctor", f"libvirt:{name}")


def first_words(said: str) -> list[str]:
    """Kind and device of the first thing that `doctor` names."""
    named = [line.split()[:2] for line in said.splitlines() if re.match(r"  (limit|unsafe|slow|space) ", line)]
    return named[0] if named else []


def times(bench: Bench, metric: str, baseline: str) -> dict[str, float]:
    """Configuration of the newest run -> the time of the same work there, as a multiple of the baseline's."""
    found: dict[str, float] = {}
    for one in bench.comparisons():
        if one["metric"] == metric and one["baseline"] == baseline:
            found[str(one["treatment"])] = 1 / float(str(one["ratio"]))
    return found


def is_shown(bench: Bench, planted: Planted, layer: str, name: str, said: str) -> tuple[float, float]:
    """The setting is named first, with its cost; the times with and without it, as multiples of the host's."""
    bad = times(bench, planted.metric, "host").get(layer, math.nan)
    good = bad * times(bench, planted.metric, layer).get(f"{layer} {planted.factor}={planted.good}", math.nan)
    print(f"{planted.name}: {bad:.2f} × the host's time, {good:.2f} × with {planted.good}", flush=True)
    bench.score.check(bad > good, f"{planted.name}: {bad} and {good} × the host's time")
    advised = json.loads(vmtax(bench, "doctor", name, "--json"))["data"]["advice"]
    first = advised[0] if advised else {}
    bench.score.check((first.get("factor"), first.get("level")) == (planted.factor, planted.bad), f"first: {advised}")
    if planted.good == planted.advised:
        cost = first.get("measured") or {}
        bench.score.check(cost.get("shown") is True and cost["ratio"] > 1, f"{planted.name}: measured: {cost}")
        line = f"{planted.factor}={planted.good} in place of {planted.bad}: "
        bench.score.check(line in " ".join(said.split()), f"{planted.name}: its price: {said[-600:]}")
    return bad, good


def patch(bench: Bench, name: str, planted: Planted) -> None:
    """Change in the domain what `doctor` says to change."""
    answer = json.loads(vmtax(bench, "doctor", f"libvirt:{name}", "--json"))["data"]
    text = without_addresses(bench.lv.virsh("dumpxml", name, "--inactive"))
    if not planted.better:
        change = answer["limits"][0]["change"]
        bench.score.check(change.startswith(f"virsh blkdeviotune {name} vda "), f"{planted.name}: {change}")
        bench.lv.virsh(*[word for word in change.split()[1:] if word != "--live"])
        return
    changes = [each["patch"] for each in answer["advice"] if each["factor"] == planted.factor]
    bench.score.check(len(changes) == 1 and planted.better in changes[0], f"{planted.name}: {changes}")
    define(bench, text.replace(planted.has, planted.better, 1))


def define(bench: Bench, text: str) -> None:
    file = bench.home / "planted.xml"
    file.write_text(text)
    bench.lv.virsh("define", str(file))


def without_addresses(text: str) -> str:
    """A definition whose disks can have another bus."""
    return re.sub(r"(<target dev='[vh]da'[^>]*>\s*)<address[^>]*/>", r"\1", text)


def after_the_patch(bench: Bench, planted: Planted, name: str, bad: float, good: float) -> None:
    """Clones of the domain as it is now."""
    words = (*patched(bench, name, planted), "--rounds", str(AFTER_ROUNDS))
    code, said = bench.measured(name, "--clone", *words, plan=planted.plan())
    bench.score.check(code == 0, f"{planted.name}, after the patch: {said[-300:]}")
    is_gone(bench, planted, "clone", bad, good)
    bench.lv.virsh("undefine", name)


def patched(bench: Bench, name: str, planted: Planted) -> tuple[str, str]:
    """What compares the level that a domain has after the patch, as its plan says, with the one that was planted."""
    plan = bench.home / "patched.yaml"
    vmtax(bench, "plan", "from", f"libvirt:{name}", "-o", str(plan))
    levels = re.findall(rf"^  {re.escape(planted.factor)}: \[(\w+)", plan.read_text(), re.MULTILINE)
    bench.score.check(levels == [planted.advised], f"{planted.name}, after the patch: {levels}: {plan.read_text()}")
    advised = doctor(bench, name)
    bench.score.check(f"{planted.factor}={planted.bad}" not in advised, f"{planted.name}, after the patch: {advised}")
    return "--vary", f"{planted.factor}={','.join([*levels, planted.bad])}"


def is_gone(bench: Bench, planted: Planted, layer: str, bad: float, good: float) -> None:
    """What the patch gained, in the newest run, is near what the run before it said that the setting costs.

    Each is a ratio of one run: what a VM costs against its host differs from run to run, with the load of the machine.
    """
    after = times(bench, planted.metric, "host").get(layer, math.nan)
    again = after * times(bench, planted.metric, layer).get(f"{layer} {planted.factor}={planted.bad}", math.nan)
    gone = math.log(again / after) / math.log(bad / good)
    print(
        f"{planted.name}: {after:.2f} × after the patch, {again:.2f} × with {planted.bad} beside it: {gone:.0%} of its"
        " cost is gone",
        flush=True,
    )
    shown = f"{bad} and {good}, after the patch {again} and {after} × the host's time"
    bench.score.check(gone >= GONE, f"{planted.name}: {shown}")
