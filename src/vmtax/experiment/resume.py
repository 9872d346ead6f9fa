"""Resume a stopped experiment: what it has already, and whether the host is still comparable."""

from __future__ import annotations

import itertools
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vmtax.core.errors import BadInput
from vmtax.core.records import Experiment, Json, Trial
from vmtax.core.units import format_duration
from vmtax.design.host import boots_asked
from vmtax.experiment.activity import BOOT
from vmtax.experiment.trial import TrialKey
from vmtax.image.cache import SHORT
from vmtax.plan.schema import Plan
from vmtax.plan.stored import plan_of
from vmtax.testbed.session.session import TestbedOptions

# Host facts, by dotted name, that must be unchanged, or the rounds before and after would not be comparable.
LOGGED = "disk.logged"  # by a lab, which logs all of its spare disks or none
SAME = (
    *("cpu_model", "microcode", "mitigations", "smt_active", "governor", "turbo"),
    *("kernel_release", "kernel_command_line", "cpus_measured", "measured_as_root"),
    *("windows_power_plan", "windows_vbs", "windows_hvci", "windows_defender_real_time"),
    *("image.identity", "qemu.version", "accelerator.name", "disk.device", "disk.named", LOGGED),
)
# What packs were used for; their digests are facts too.
PACKS = {"kernel_pack": "built kernels", "postgresql_pack": "wrote databases"}
# Facts that depend on how the host is booted: a run that compares boots compares them boot by boot.
OF_BOOT = ("kernel_command_line", "mitigations", "smt_active", "governor", "turbo", "cpus_measured")
UNFINISHED = "that round was not finished"


class CannotResume(BadInput):
    """The experiment is not one that can be resumed; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Before:
    """What earlier sessions of the same experiment have committed."""

    round: int = 1  # of its newest trial: the first round that may have work left
    position: int = 0  # of its newest trial; everything before it in the round is over, failures included
    trials: frozenset[tuple[int, str, str, str, int]] = frozenset()  # round, treatment, workload, case, iteration
    # Round, treatment, workload, case: not run again in this boot
    failed: frozenset[tuple[int, str, str, str]] = frozenset()
    refused: frozenset[tuple[int, str, str]] = frozenset()  # round, treatment, workload: its other cases are over too
    repeats: frozenset[tuple[int, str]] = frozenset()  # round, treatment: its newest case will be repeated once

    @staticmethod
    def of(trials: Iterable[Trial], *, same_boot: bool = True) -> Before:
        """Made from trials in the order in which they were committed.

        If the host was rebooted since, its unfinished round is over, because only trials within one round are compared.
        """
        known = tuple(trials)
        if not known:
            return Before()
        newest = known[-1]
        again = _to_be_repeated(known)
        kept = [trial for trial in known if trial not in again]
        done = frozenset((t.round, t.treatment, t.workload, t.case, t.iteration) for t in kept)
        failed = frozenset((t.round, t.treatment, t.workload, t.case) for t in kept if t.status == "failed")
        refused = frozenset((t.round, t.treatment, t.workload) for t in kept if t.status == "refused")
        repeats = frozenset((t.round, t.treatment) for t in again)
        return Before(newest.round, newest.position if same_boot else sys.maxsize, done, failed, refused, repeats)

    def has(self, key: TrialKey, workload: str, case: str, iteration: int = 1) -> bool:
        """Whether this need not be done again."""
        if (key.round, key.position) < (self.round, self.position):
            return True
        # The boot trial is recorded last: whatever it says, this treatment's turn is over.
        over = (key.round, key.treatment, *BOOT, 1) in self.trials
        over = over or (key.round, key.treatment, workload, case) in self.failed
        over = over or (key.round, key.treatment, workload) in self.refused
        return over or (key.round, key.treatment, workload, case, iteration) in self.trials


def _to_be_repeated(trials: Sequence[Trial]) -> Sequence[Trial]:
    """The trials of the newest case, if several guests failed in it once: one may be lost, and then it gets a second
    boot.

    A boot that failed counts for none of its guests in particular, and is not repeated.
    """
    newest = trials[-1]
    case = [t for t in trials if _case_of(t) == _case_of(newest)]
    failed = Counter(t.machine for t in case if t.status == "failed" and (t.workload, t.case) != BOOT)
    guests = [machine for machine in failed if "/" in machine]
    return case if newest.status == "failed" and len(guests) > 1 and max(failed.values()) == 1 else ()


def _case_of(trial: Trial) -> tuple[int, str, str, str]:
    return trial.round, trial.treatment, trial.workload, trial.case


def resumable(experiment: Experiment) -> tuple[Plan, TestbedOptions]:
    """How the experiment was started. Raises CannotResume if it is in progress, or is complete."""
    if experiment.options.get("imported"):
        raise CannotResume(f"{experiment.id} was imported: it can be resumed only where it was measured")
    if experiment.state == "running":
        raise CannotResume(f"{experiment.id} is running: `vmtax watch {experiment.id}` shows it")
    if experiment.state == "complete":
        raise CannotResume(f"{experiment.id} is complete: `vmtax show {experiment.id}`; `vmtax run` starts another")
    plan = plan_of(experiment)
    if (name := _means_other(plan, experiment)) is not None:
        raise CannotResume(
            f"{experiment.id} was begun by another version of vmtax, in which {name!r} had other levels than its plan"
            " means now: begin it anew"
        )
    return plan, TestbedOptions.from_json(experiment.options)


def _means_other(plan: Plan, experiment: Experiment) -> str | None:
    """A configuration that has other levels in the plan than in the run; None if there is none."""
    means = {treatment.name: treatment.levels for treatment in plan.treatments()[0]}
    for treatment in experiment.treatments:
        now = means.get(treatment.name, treatment.levels)
        if any(now.get(factor, level) != level for factor, level in treatment.levels.items()):
            return treatment.name
    return None


def refuse_other_host(experiment: Experiment, facts_by_path: Mapping[str, Json]) -> None:
    """Raises CannotResume if a host under test, or its QEMU, has changed."""
    changing = OF_BOOT if boots_asked(experiment.treatments) else ()
    differing = [
        f"{name} was {fact(then, name)}, is {fact(facts, name)}{'' if path == 'host' else f' ({path})'}"
        for path, facts in facts_by_path.items()
        # Without facts, it was stopped before they were stored, and so before any trial.
        if (then := experiment.facts.get(path)) is not None
        for name in SAME
        if name not in changing and fact(then, name) != fact(facts, name)
    ]
    if differing:
        cure = _log_cure(experiment) if [one.split()[0] for one in differing] == [LOGGED] else "undo the change"
        raise CannotResume(
            f"{experiment.id} cannot be resumed: the host has changed since ({'; '.join(differing)}), so its rounds "
            f"would not be comparable; {cure}, or start a new run"
        )
    for (path, facts), (pack, used) in itertools.product(facts_by_path.items(), PACKS.items()):
        digest = f"{pack}.digest"
        then, now = fact(experiment.facts.get(path) or {}, digest), fact(facts, digest)
        if then not in (None, now):
            instead = "the cache has another one" if now else "it is not in the cache any more"
            raise CannotResume(
                f"{experiment.id} cannot be resumed: it {used} with pack {then[:SHORT]}, and {instead}; start a new run"
            )


def _log_cure(experiment: Experiment) -> str:
    """What to do if the only difference is whether a lab logs the writes to its disks."""
    name, was_logged = experiment.host.partition(":")[2], fact(experiment.facts, f"host.{LOGGED}")
    stop, start = (" ".join(filter(None, ("vmtax lab", word, name))) for word in ("stop", "start"))
    return f"{stop} && {start}{' --log-writes' if was_logged else ''}"


def refuse_impossible(experiment: Experiment, impossible: Mapping[str, str]) -> None:
    """Raises CannotResume if a treatment of the experiment is no longer possible here; `impossible`: name -> why."""
    for treatment in experiment.treatments:
        why = impossible.get(treatment.repeats or treatment.name)
        if why is not None:
            raise CannotResume(
                f"{experiment.id} cannot be resumed: {treatment.name}: {why}; fix that, or start a new run"
            )


def image_of(experiment: Experiment) -> str | None:
    """The identity of the image that it used; None if it was stopped before that was stored."""
    found = fact(experiment.facts, "host.image.identity")
    return found if isinstance(found, str) else None


def resumed_note(experiment: Experiment, facts_by_path: Mapping[str, Json]) -> str:
    """What a reader of the report must know about the gap."""
    newest = max((trial.started + trial.wall_seconds for trial in experiment.trials), default=experiment.created)
    after = format_duration(max(0.0, time.time() - newest))
    cost = "what was left of a boot's work was done in another" if boots_asked(experiment.treatments) else UNFINISHED
    whose = "the host" if len(facts_by_path) == 1 else "a host"
    rebooted = f"; {whose} was rebooted in between, so {cost}"
    boot = "" if same_boot(experiment, facts_by_path) else rebooted
    number = max((trial.round for trial in experiment.trials), default=1)
    return f"The run was stopped ({experiment.state}) in round {number} and resumed after {after}{boot}."


def worked_seconds(experiment: Experiment) -> float:
    """How long a stopped experiment was worked on; if it was killed, until its newest trial.

    Earlier versions stored no time for one that was killed: then it is the time since its beginning.
    """
    if experiment.seconds is not None:
        return experiment.seconds
    newest = max((trial.started + trial.wall_seconds for trial in experiment.trials), default=experiment.created)
    return max(0.0, newest - experiment.created)


def cuts_power(experiment: Experiment) -> bool:
    """Whether its host loses power again and again: then a reboot is no reason to leave anything out."""
    return bool(experiment.options.get("power_cut"))


def same_boot(experiment: Experiment, facts_by_path: Mapping[str, Json]) -> bool:
    """Whether every host under test is still in the boot in which the experiment stopped, or whether that is
    irrelevant.
    """
    return cuts_power(experiment) or all(
        fact(experiment.facts.get(path) or facts, "boot_id") == fact(facts, "boot_id")
        for path, facts in facts_by_path.items()
    )


def fact(facts: Json, dotted: str) -> Any:
    """A fact by its dotted name; None if there is none."""
    found: Any = facts
    for part in dotted.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found
