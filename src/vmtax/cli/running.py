"""What `vmtax run` does: a plan, changed as the command line says, becomes work, is carried out and reported."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from vmtax.cli.app import BadUse, say, warn
from vmtax.cli.asked import Continued, Measured, PlanChanges, PowerOptions, RunOptions, WithoutKvm
from vmtax.cli.cards import with_cards
from vmtax.cli.existing_vm import existing_vm, on_existing, refuse_budget, watches, without_existing
from vmtax.cli.files import check_output, check_room
from vmtax.cli.measuring import disk_target, going_on, measure, options_of, program
from vmtax.cli.notify import checked_command, notify, seen
from vmtax.cli.option_groups import given
from vmtax.cli.own_program import own_plan, with_values
from vmtax.cli.power import power_order, with_cuts, with_cuts_again
from vmtax.cli.results import written
from vmtax.cli.show import shown
from vmtax.cli.work import RunWork
from vmtax.core.errors import FAILED
from vmtax.core.names import label_problem
from vmtax.design.host import boots_asked
from vmtax.design.interleaved import is_host
from vmtax.experiment.resume import CannotResume
from vmtax.plan.asked import (
    refuse_idle_layers,
    refuse_left_out,
    refuse_lone,
    refuse_unmeasured,
    refuse_without_work,
    typed_in,
)
from vmtax.plan.cuts import not_ended
from vmtax.plan.schema import Plan, from_data, load
from vmtax.plan.vary import typed_levels, varied
from vmtax.store import ExperimentSummary, Store
from vmtax.store.choice import was_stopped
from vmtax.store.failure import NoneFits
from vmtax.testbed.machines.interleave import why_not
from vmtax.testbed.session.session import TestbedOptions
from vmtax.testbed.subjects.existing import refuse_factors
from vmtax.workload import WORKLOADS

_KEYS = {"--vcpus": "guest.vcpus", "--memory": "guest.memory"}  # options whose key in a plan has another name
DEFAULT_PLAN = "quick"
REPORT_ROOM = 8 * 2**20  # bytes of an HTML report, at most, while it is written


def carry_out(plan: str, asked: RunOptions) -> str:
    """Measure, print the answer and write the report; returns the run's id. `plan`: the plan's name, or that of a run
    that goes on.
    """
    results, yes = asked.results, asked.yes
    if results.label is not None and (problem := label_problem(results.label)):
        raise BadUse(f"--label {results.label!r}: {problem}")
    check_report(results.output)
    continues = _continues(asked)
    begun = asked.measured
    checked_command(results.notify)  # refuses what is no command before anything else
    with Store() as store:
        if continues:
            work = _resumed(store, plan, begun.disks.erase or (), rebooted=asked.continued.after_reboot)
            work = with_cuts_again(work, power_order(begun.power), yes=yes)
            work = work.emulating() if begun.without_kvm.emulate else work
        else:
            work = new_work(plan, begun)
            work = replace(work, options=replace(work.options, label=results.label or ""))
        done = measured(store, work, asked)
    answered(done, asked)
    return done.id


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A run that has just ended."""

    id: str
    report: Path
    worked: bool  # whether any trial succeeded


def measured(store: Store, work: RunWork, asked: RunOptions) -> MeasuredRun:
    """Measure and write the report."""
    work, command = replace(work, waits=asked.wait), checked_command(asked.results.notify)
    before = seen(store, work.plan.host)
    try:
        id = measure(store, work, yes=asked.yes)
    except BaseException:
        notify(command, store, work.plan.host, before)
        raise
    worked = any(trial.status == "ok" for trial in store.load(id).trials)
    report = written(id, asked.results.output)  # first, because the reader of stdout may be gone
    notify(command, store, work.plan.host, before)
    return MeasuredRun(id, report, worked)


def answered(done: MeasuredRun, asked: RunOptions) -> None:
    """Print what a run found. Ends the program if that is nothing."""
    shown(done.id, "json" if asked.results.json else "")
    say(f"report: {done.report}", file=sys.stderr)
    if not done.worked:
        warn("nothing could be measured: every trial failed, see the warnings")
        raise typer.Exit(FAILED)


def _refuse_both(without_kvm: WithoutKvm, changes: PlanChanges) -> None:
    """Raises BadUse for two options that contradict each other."""
    if without_kvm.emulate and without_kvm.or_demo:
        raise BadUse("--emulate measures as the plan says, --or-demo only demonstrates: leave out one of them")
    if changes.rounds is not None and changes.budget is not None:
        raise BadUse("--rounds says how many rounds there are, --budget how long they take: leave out one of them")


def _continues(asked: RunOptions) -> bool:
    """Whether an earlier run is resumed. Raises BadUse for other options with it: it continues as it was begun."""
    resume, after_reboot = asked.continued.resume, asked.continued.after_reboot
    if resume and after_reboot:
        raise BadUse("--after-reboot goes on where the host was rebooted, --resume where not: leave out one of them")
    if not (resume or after_reboot):
        return False
    begun = asked.measured
    power = begun.power if after_reboot else PowerOptions()
    without_kvm = replace(begun.without_kvm, emulate=False)
    begun = replace(begun, disks=replace(begun.disks, erase=None), power=power, without_kvm=without_kvm)
    others = given(begun, replace(asked.results, output=None, json=False, notify=None))
    if others:
        option = given(Continued(resume, after_reboot))[0]
        raise BadUse(f"{option} goes on as the run was begun: leave out {' '.join(others)}")
    return True


def check_report(output: Path | None) -> None:
    """Raises BadUse if the report could not be written: it comes last, after hours of work."""
    file = output or Path("vmtax-RUN.html")
    check_output(file)
    if not file.exists() or file.is_file():
        check_room(file.absolute().parent, REPORT_ROOM, "name a file on a larger file system with --output")


def new_work(plan: str, asked: Measured) -> RunWork:
    """The work of a new run, or of `plan check`; `plan`: "" is quick. Raises BadUse and PlanError."""
    _refuse_both(asked.without_kvm, asked.changes)
    vm = existing_vm(asked)
    begun, asked = with_values(own_plan(asked.program, plan) or load(plan or DEFAULT_PLAN), asked)
    before = overridden(begun, replace(asked.changes, vary=None))
    before = on_existing(before, asked.changes.layers, vm.layer, vm.name) if vm else without_existing(before)
    vm = replace(vm, watched=watches(before)) if vm else None
    by_option = typed_levels(before, asked.changes.vary or ())
    typed = {**typed_in(plan or DEFAULT_PLAN, before), **by_option}
    refuse_idle_layers(before)
    refuse_without_work(before, typed)
    wanted = varied(before, asked.changes.vary or ())
    if vm:
        refuse_budget(vm, asked.changes)
        refuse_factors(wanted, vm)
    refuse_unmeasured(wanted, wanted.space, typed, by_option.keys())
    refuse_left_out(wanted, typed, not_ended(wanted, wanted.treatments()[0]))
    qemu = program(wanted.host, asked.versions.qemu, "--qemu")
    other = asked.versions.interleave_with
    if other is not None and not is_host(other):
        other = program(wanted.host, other, "--interleave-with")
    options = TestbedOptions(qemu, disk_target(wanted.host, asked.disks), other)
    problem = why_not(wanted, options)
    if problem:
        raise BadUse(f"--interleave-with: {problem}")
    work = RunWork(wanted, options_of(options), or_demo=asked.without_kvm.or_demo, typed=typed)
    if other is None:
        refuse_lone(wanted, before, by_option)
    work = with_cards(with_cuts(work, power_order(asked.power)), asked.cards, asked.versions).inside(vm)
    return work.emulating() if asked.without_kvm.emulate else work


def _resumed(store: Store, run: str, erase: Sequence[str], *, rebooted: bool = False) -> RunWork:
    """The named run, or the newest stopped one; `erase`: permission is asked for again, because it is not stored."""

    def asks_for_reboot(entry: ExperimentSummary) -> bool:
        return was_stopped(entry) and bool(boots_asked(store.load(entry.id).treatments))

    found = None
    for fits in (asks_for_reboot, was_stopped) if rebooted else (was_stopped,):
        with contextlib.suppress(NoneFits):
            found = found or store.choose(run or "last", (fits,)).run
    if found is None:
        raise CannotResume("no run was stopped: `vmtax runs` lists them all")
    experiment = store.load(found.id)
    work = going_on(experiment, erase, rebooted=rebooted)
    if rebooted and not boots_asked(experiment.treatments):
        raise CannotResume(f"{experiment.id} asks for no reboot of the host: vmtax run --resume {experiment.id}")
    return work


def overridden(plan: Plan, changes: PlanChanges) -> Plan:
    """The plan with the values from the command line."""
    data: dict[str, Any] = plan.model_dump(mode="json")
    if changes.host:
        data["host"] = changes.host
    if changes.layers is not None:
        data["layers"] = [layer.strip() for layer in changes.layers.split(",")]
        _drop_workloads_without_layer(data)
    if changes.budget:
        data["budget"] = changes.budget
    if changes.max_writes:
        data["max_writes"] = changes.max_writes
    size = {"vcpus": changes.vcpus, "memory": changes.memory}
    data["guest"] |= {key: value for key, value in size.items() if value is not None}
    if changes.rounds is not None:  # exactly, whatever the plan's own budget
        data |= {"rounds": {"min": changes.rounds, "max": changes.rounds}, "budget": None}
    options = {_KEYS.get(option, option.removeprefix("--").replace("-", "_")): option for option in given(changes)}
    return varied(from_data(data, source="command line", options=options), changes.vary or ())


def _drop_workloads_without_layer(data: dict[str, Any]) -> None:
    """Workloads that need another layer are dropped: a host has no boot, for example."""
    fits = {name for name, kind in WORKLOADS.items() if kind.layers & set(data["layers"])}
    if not fits:
        return  # no valid layer: the plan's own check reports that better
    data["workloads"] = [entry for entry in data["workloads"] if entry["name"] in fits]
    data["primary"] = [metric for metric in data["primary"] if metric.partition(".")[0] in fits]
