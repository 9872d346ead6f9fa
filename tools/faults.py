"""Faults that `make prove-tests` plants, each alone: a mistake in a decision that somebody might make, in one line.

Where such a line changes, its fault changes with it; a unit test says so.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """One line of a module with a mistake in it."""

    path: str  # of the module, below src/vmtax
    line: str  # as it is, without its indentation; exactly one line of the module
    fault: str  # the line with the mistake
    meaning: str  # what a user would see of it
    acts: str = ""  # the line that uses it, if it runs only when its module is imported


FAULTS = (
    Fault(
        "recommend/choose.py",
        "return better and scale.place[other] - scale.place[one] > math.log1p(self.within)",
        "return better and scale.place[other] - scale.place[one] > 0",
        "a choice is dropped as wasteful for a difference that counts as the same",
    ),
    Fault(
        "recommend/choose.py",
        "self.beats(other.treatment, one.treatment, second) and set(other.features) >= set(one.features)",
        "self.beats(other.treatment, one.treatment, second) and other is not one",
        "a choice is dropped as wasteful although it can do more than the other one",
    ),
    Fault(
        "recommend/choose.py",
        "self.beats(other.treatment, one.treatment, second) and set(other.features) >= set(one.features)",
        "self.beats(other.treatment, one.treatment, second) and len(other.features) >= len(one.features)",
        "a choice is dropped as wasteful although it can do what the other one cannot",
    ),
    Fault(
        "recommend/eligibility.py",
        "if not rounds or len(rounds) * 2 < most",
        "if not rounds",
        "a choice that was measured in a few of the rounds is ranked",
    ),
    Fault(
        "storage/power_cut.py",
        "several = draw.choice((1, draw.randint(1, len(writes)), len(writes))) if writes else 0",
        "several = 1 if writes else 0",
        "no state lacks several writes, or all of them",
    ),
    Fault(
        "storage/ground.py",
        'above = [row for row in rows[1:] if row.get("type") != "part"]',
        "above: list[Json] = []",
        "a device that carries a volume is taken as free",
    ),
    Fault(
        "hypervisor/qemu/boot.py",
        "return code is not None and (code < 0 or code > 128)",
        "return code is not None and code < 0",
        "a boot is not repeated where QEMU was killed on another host",
    ),
    Fault(
        "hypervisor/qemu/boot.py",
        "elif patience.silence is not None and now - spoke > patience.silence:",
        "elif patience.silence is not None and now - launched > patience.silence:",
        "silence counts from the launch, not from the last line of the console",
    ),
    Fault(
        "hypervisor/qemu/detect.py",
        "if _numbers(match[1]) < MINIMUM:",
        "if _numbers(match[1]) < MINIMUM[:1]:",
        "a QEMU is taken that is a little too old",
    ),
    Fault(
        "store/failure.py",
        'if code == sqlite3.SQLITE_CONSTRAINT and "FOREIGN KEY" in reason:',
        "if code == sqlite3.SQLITE_CONSTRAINT:",
        "any value that the store refuses is explained by a missing experiment",
    ),
    Fault(
        "store/owner.py",
        "return isinstance(self.pid, int) and self.boot == _boot_id() and self.start == _start(self.pid)",
        "return isinstance(self.pid, int) and self.boot == _boot_id() and _start(self.pid) is not None",
        "a run belongs to another process, which was given the number of the one that died",
    ),
    Fault(
        "meter/neighbours.py",
        "return processes(outcome.stdout) if outcome.code in (0, 1, 2) else None",
        "return processes(outcome.stdout) if outcome.code in (0, 1) else None",
        "other VMs are unknown if any process ends while they are listed",
    ),
    Fault(
        "doctor/disturbances.py",
        "fits = available is not None and available > 1.5 * used",
        "fits = available is not None and available > used",
        "it is advised to turn swap off where memory hardly holds what is in it",
    ),
    Fault(
        "report/sections/first.py",
        "return frozenset(code for code, times in counts.items() if 2 * times <= len(costs))",
        "return frozenset(code for code, times in counts.items() if times <= len(costs))",
        "doubts about every cost are numbered at each of them",
    ),
    Fault(
        "report/sections/first.py",
        '(1.1, "a little slower"),',
        '(1.2, "a little slower"),',
        "a cost of 15 % is called little",
        acts="return next(word for limit, word in WORDS if found.ratio < limit)",
    ),
    Fault(
        "experiment/runner.py",
        'return experiment.state != "running" and (reboots is None or reboots.cut_short)',
        'return experiment.state != "running" or reboots is None or reboots.cut_short',
        "a run that waited for its reboot is noted as stopped and resumed",
    ),
    Fault(
        "experiment/resume.py",
        'return case if newest.status == "failed" and len(guests) > 1 and max(failed.values()) == 1 else ()',
        'return case if newest.status == "failed" and len(guests) > 1 else ()',
        "a case that failed is measured a second time",
    ),
    Fault(
        "testbed/layers/opening.py",
        "if reason is None or not treatment.boots:",
        "if reason is None:",
        "a lost host is set up once more",
    ),
    Fault(
        "testbed/parts/disks.py",
        "return replace(order, spec=replace(order.spec, within=bound.enter, preallocated=True)).then(limit)",
        "return replace(order, spec=replace(order.spec, within=bound.enter)).then(limit)",
        "a guest's own memory counts against its bounded page cache",
    ),
    Fault(
        "testbed/parts/pages.py",
        "if page >= GIGANTIC and plan.guest.memory < 2 * page:",
        "if page >= GIGANTIC and plan.guest.memory < page:",
        "a guest of a single page of 1 GiB is begun, and does not boot",
    ),
    Fault(
        "testbed/obtained.py",
        "if POLLING in named and wanted_polls is not None and polls != wanted_polls:",
        "if POLLING in named and wanted_polls and polls != wanted_polls:",
        "polling that was to be off, and is on, is not noticed",
    ),
    Fault(
        "core/machines.py",
        "return code >= 124 and seconds >= limit",
        "return code == 124 and seconds >= limit",
        "a command that had to be killed at its limit has ended by itself",
    ),
    Fault(
        "machine/guard.py",
        "return pid is not None and is_marked(pid, token) and started in (None, start_of(pid))",
        "return pid is not None and is_marked(pid, token) and started == start_of(pid)",
        "what an older list's process still uses is undone",
    ),
    Fault(
        "container/seccomp.py",
        'if not capabilities.issuperset(wanted.get("caps") or []) or capabilities & set(unwanted.get("caps") or []):',
        'if not capabilities.issuperset(wanted.get("caps") or []):',
        "a call is refused that a container's capabilities allow",
    ),
    Fault(
        "container/run.py",
        "if difference is not None:",
        'if difference == "":',
        "a container that is not confined is measured",
    ),
    Fault(
        "network/wire.py",
        'if link is None or machine.succeeds("test", "-e", f"/sys/class/net/{card}/phy80211"):',
        "if link is None:",
        "a wireless card is taken as one end of a wire",
    ),
    Fault(
        "network/segment.py",
        "if not 1 <= number <= MOST_GUESTS:",
        "if not 1 <= number < MOST_GUESTS:",
        "the last guest of a full network has no address",
    ),
    Fault(
        "image/cache.py",
        "if len(matching) != 1:",
        "if not matching:",
        "of several images that begin so, the first is removed",
    ),
    Fault(
        "image/packs.py",
        "pack = next((pack for pack in self.all() if pack.key == key and pack.kernel == kernel), None)",
        "pack = next((pack for pack in self.all() if pack.key == key), None)",
        "modules of another kernel are taken",
    ),
    Fault(
        "lab/memory.py",
        "if available is not None and available - others < takes:",
        "if available is not None and available < takes:",
        "memory that other labs may still take is given away twice",
    ),
    Fault(
        "lab/home.py",
        "if self.zfs == other.zfs and self.zfs_build and other.zfs_build and self.zfs_build != other.zfs_build:",
        "if self.zfs == other.zfs and self.zfs_build != other.zfs_build:",
        "a lab of an earlier version cannot be restored",
    ),
    Fault(
        "meter/disk.py",
        'disks = [row for row in rows if not row["on"] and row["name"]]',
        'disks = [row for row in rows if row["name"]]',
        "a disk is counted once more for each part of it",
    ),
    Fault(
        "meter/ledger.py",
        "if before.tasks is not None and after.tasks is not None and not after.is_irq_apart:",
        "if before.tasks is not None and after.tasks is not None:",
        "interrupts that the kernel counts apart are also charged to processes",
    ),
    Fault(
        "workload/fio.py",
        "if count >= MINIMUM_TAIL / (1 - share):",
        "if count >= MINIMUM_TAIL:",
        "a percentile is reported of a few requests, which is that of the slowest of them",
    ),
    Fault(
        "workload/durability/checks.py",
        "if len(data) == last * size and right.startswith(data):",
        "if right.startswith(data):",
        "a log that lacks its last records is whole",
    ),
    Fault(
        "design/stopping.py",
        "if bounds is None or bounds[0] <= margin <= bounds[1]:",
        "if bounds is None or bounds[0] < 0 < bounds[1]:",
        "whether a cost is beyond the limit is decided by whether there is one",
    ),
    Fault(
        "design/iterations.py",
        "if round <= PILOT_ROUNDS:",
        "if round < PILOT_ROUNDS:",
        "the last round of the pilot has the iterations that the pilot is to find",
    ),
    Fault(
        "plan/estimate.py",
        "if plan.budget is None or plan.budget >= plan.rounds.max * seconds_per_round + setup_seconds:",
        "if plan.budget is None or plan.budget >= plan.rounds.max * seconds_per_round:",
        "setting up is not part of the budget",
    ),
    Fault(
        "plan/rules.py",
        "if count <= MOST_CONFIGURATIONS:",
        "if count < MOST_CONFIGURATIONS:",
        "the largest plan that is allowed is refused",
    ),
    Fault(
        "cli/ending.py",
        "if error.errno == errno.EPIPE:",
        "if error.errno in CAUSES:",
        "a full disk ends a command in silence",
    ),
    Fault(
        "core/units.py",
        "if seconds < 0.9995:",
        "if seconds < 1:",
        "0.9999 s is 1000 ms",
    ),
    Fault(
        "system/output_file.py",
        "if others_could and status.st_uid not in (0, os.geteuid()):",
        "if others_could:",
        "one's own link in a directory that others can write to is refused",
    ),
    Fault(
        "stats/stopping.py",
        "return pairs >= self.most or (pairs >= self.first and (pairs - self.first) % self.every == 0)",
        "return pairs >= self.most or pairs >= self.first",
        "looking after each pair, the rule ends too early too often",
    ),
    Fault(
        "stats/steady.py",
        "if warm_up >= MOST_WARM_UP * length:",
        "if warm_up >= length:",
        "a series that changes until its end has a steady state",
    ),
    Fault(
        "analysis/durability.py",
        'return self.documented.state == "no" and end is not None and end.count.states >= NEEDED_STATES',
        'return self.documented.state == "no" and end is not None',
        "what had to lose data, and did not in a few states, casts doubt on all others",
    ),
    Fault(
        "analysis/at_once.py",
        "return [t for t in experiment.treatments if t.repeats is None and machines_at_once(t) not in (None, 1)]",
        "return [t for t in experiment.treatments if machines_at_once(t) not in (None, 1)]",
        "a repeated configuration is compared as one more",
    ),
    Fault(
        "recommend/give_ups.py",
        "return tuple((factor, kept) for factor, kept in levels.items() if len(kept) < len(_levels(factor, field)))",
        "return tuple((factor, kept) for factor, kept in levels.items() if len(kept) <= len(_levels(factor, field)))",
        "a factor is named at whose every level a feature is lost",
    ),
)
