"""The commands `vmtax run` and `vmtax watch`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vmtax.cli.app import AsJson, BadUse, Emulate, Vary, Yes, app, complete_plan, fail, run_ids, say, warn
from vmtax.cli.cards import with_cards
from vmtax.cli.files import check_output, check_room
from vmtax.cli.measuring import Work, disk_target, going_on, measure, options_of, program
from vmtax.cli.options import (
    PLAN_HELP,
    AfterReboot,
    BackWithin,
    Budget,
    Card,
    DestinationCard,
    DestinationHost,
    DiskDevice,
    DiskDir,
    DiskGroup,
    DiskPool,
    Erase,
    Host,
    InterleaveWith,
    Label,
    Layers,
    OrDemo,
    Peer,
    PeerCard,
    PowerCut,
    Qemu,
    Report,
    Resume,
    Rounds,
)
from vmtax.cli.power import power_order, with_cuts, with_cuts_again
from vmtax.cli.results import shown, written
from vmtax.core.errors import FAILED
from vmtax.core.records import label_problem

if TYPE_CHECKING:
    from vmtax.plan.schema import Plan
    from vmtax.storage import Target
    from vmtax.store import Store

REPORT_ROOM = 8 * 2**20  # bytes of an HTML report, at most, while it is written


def complete_work(ctx: typer.Context, incomplete: str) -> list[str]:
    """Plans; after --resume and --after-reboot, stopped runs."""
    return (
        run_ids(incomplete, "interrupted", "failed", labels=True)
        if ctx.params.get("resume") or ctx.params.get("after_reboot")
        else complete_plan(incomplete)
    )


def complete_running(incomplete: str) -> list[str]:
    """Runs that can be watched."""
    return run_ids(incomplete, "running", labels=True)


@app.command()
def run(
    plan: Annotated[
        str,
        typer.Argument(
            metavar="[PLAN]",
            help=f"{PLAN_HELP} Default: quick. With --resume or --after-reboot, the run to finish.",
            autocompletion=complete_work,
        ),
    ] = "",
    host: Host = None,
    layers: Layers = None,
    budget: Budget = None,
    rounds: Rounds = None,
    vary: Vary = None,
    qemu: Qemu = None,
    disk_dir: DiskDir = None,
    disk_device: DiskDevice = None,
    disk_group: DiskGroup = None,
    disk_pool: DiskPool = None,
    erase: Erase = None,
    card: Card = None,
    peer: Peer = None,
    peer_card: PeerCard = None,
    destination: DestinationHost = None,
    destination_card: DestinationCard = None,
    interleave_with: InterleaveWith = None,
    label: Label = None,
    resume: Resume = False,
    after_reboot: AfterReboot = False,
    power_cut: PowerCut = None,
    back_within: BackWithin = None,
    output: Report = None,
    emulate: Emulate = False,
    or_demo: OrDemo = False,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Measure a machine, print the answer and write the report."""
    from vmtax.store import Store

    _refuse_both(emulate, or_demo, rounds, budget)
    if label is not None and (problem := label_problem(label)):
        raise BadUse(f"--label {label!r}: {problem}")
    _check_report(output or Path("vmtax-RUN.html"))
    overrides = {"host": host, "layers": layers, "budget": budget, "rounds": rounds, "vary": vary}
    disks = {"disk-dir": disk_dir, "disk-device": disk_device, "disk-group": disk_group, "disk-pool": disk_pool}
    cards = {"card": card, "peer": peer, "peer-card": peer_card}
    to = {"destination": destination, "destination-card": destination_card}
    rest = {"qemu": qemu, "interleave-with": interleave_with, "or-demo": or_demo, "label": label}
    if after_reboot:
        rest |= {"power-cut": power_cut, "back-within": back_within}
    again = _again(resume, after_reboot, {**overrides, **disks, **cards, **to, **rest})
    order = power_order(power_cut, back_within)
    target = (disk_dir, disk_device or (), disk_group, disk_pool, erase or ())
    with Store() as store:
        if again:
            work = with_cuts_again(_resumed(store, plan, erase or (), rebooted=after_reboot), order, yes=yes)
        else:
            work = _new(plan or "quick", overrides, qemu, lambda on: disk_target(on, *target), interleave_with)
            work = with_cuts(work, order)
            work = with_cards(work, {**cards, **to}, interleave_with)
            work = replace(work, options=replace(work.options, label=label or ""), or_demo=or_demo)
        if emulate:
            work = work.emulating()
        id = measure(store, work, yes=yes)
        worked = any(trial.status == "ok" for trial in store.load(id).trials)
    report = written(id, output)  # first, because the reader of stdout may be gone
    shown(id, "json" if json else "")
    say(f"report: {report}", file=sys.stderr)
    if not worked:
        warn("nothing could be measured: every trial failed, see the warnings")
        raise typer.Exit(FAILED)


def _refuse_both(emulate: bool, or_demo: bool, rounds: int | None, budget: str | None) -> None:
    """Raises BadUse for two options that contradict each other."""
    if emulate and or_demo:
        raise BadUse("--emulate measures as the plan says, --or-demo only demonstrates: leave out one of them")
    if rounds is not None and budget is not None:
        raise BadUse("--rounds says how many rounds there are, --budget how long they take: leave out one of them")


def _again(resume: bool, after_reboot: bool, others: Mapping[str, object]) -> bool:
    """Whether an earlier run is resumed. Raises BadUse for other options with it: it continues as it was begun."""
    if resume and after_reboot:
        raise BadUse("--after-reboot goes on where the host was rebooted, --resume where not: leave out one of them")
    given = [f"--{name}" for name, value in others.items() if value]
    if given and (resume or after_reboot):
        option = "--resume" if resume else "--after-reboot"
        raise BadUse(f"{option} goes on as the run was begun: leave out {' '.join(given)}")
    return resume or after_reboot


def _check_report(file: Path) -> None:
    """Raises BadUse if the report could not be written: it comes last, after hours of work."""
    check_output(file)
    if not file.exists() or file.is_file():
        check_room(file.absolute().parent, REPORT_ROOM, "name a file on a larger file system with --output")


def _new(
    plan: str,
    overrides: dict[str, Any],
    qemu: str | None,
    place: Callable[[str], Target],
    interleave_with: str | None,
) -> Work:
    from vmtax.design.interleaved import is_host
    from vmtax.plan.schema import load
    from vmtax.testbed.interleave import why_not
    from vmtax.testbed.session import TestbedOptions

    wanted = _overridden(load(plan), **overrides)
    qemu = program(wanted.host, qemu, "--qemu")
    if interleave_with is not None and not is_host(interleave_with):
        interleave_with = program(wanted.host, interleave_with, "--interleave-with")
    options = TestbedOptions(qemu, place(wanted.host), interleave_with)
    problem = why_not(wanted, options)
    if problem:
        raise BadUse(f"--interleave-with: {problem}")
    return Work(wanted, options_of(options))


def _resumed(store: Store, run: str, erase: Sequence[str], *, rebooted: bool = False) -> Work:
    """The named run, or the newest stopped one; `erase`: permission is asked for again, because it is not stored."""
    from vmtax.design.host import boots_asked
    from vmtax.experiment.archive import IMPORTED
    from vmtax.experiment.resume import CannotResume

    ours = [entry for entry in store.experiments() if not entry.host.endswith(IMPORTED)]
    stopped = [entry.id for entry in ours if entry.state in ("interrupted", "failed")]
    if not run and not stopped:
        raise CannotResume("no run was stopped: `vmtax runs` lists them all")
    experiment = store.load(run or stopped[0])
    work = going_on(experiment, erase, rebooted=rebooted)
    if rebooted and not boots_asked(experiment.treatments):
        raise CannotResume(f"{experiment.id} asks for no reboot of the host: vmtax run --resume {experiment.id}")
    return work


def _overridden(plan: Plan, **options: Any) -> Plan:
    """The plan with the values from the command line."""
    from vmtax.plan.schema import from_data
    from vmtax.plan.vary import varied

    data: dict[str, Any] = plan.model_dump(mode="json")
    if options["host"]:
        data["host"] = options["host"]
    if options["layers"] is not None:
        data["layers"] = [layer.strip() for layer in options["layers"].split(",")]
        _drop_workloads_without_layer(data)
    if options["budget"]:
        data["budget"] = options["budget"]
    if options["rounds"] is not None:  # exactly, whatever the plan's own budget
        data |= {"rounds": {"min": options["rounds"], "max": options["rounds"]}, "budget": None}
    given = {name: f"--{name}" for name, value in options.items() if value is not None}
    return varied(from_data(data, source="command line", options=given), options.get("vary") or ())


def _drop_workloads_without_layer(data: dict[str, Any]) -> None:
    """Workloads that need another layer are dropped: a host has no boot, for example."""
    from vmtax.workload import WORKLOADS

    fits = {name for name, kind in WORKLOADS.items() if kind.layers & set(data["layers"])}
    if not fits:
        return  # no valid layer: the plan's own check reports that better
    data["workloads"] = [entry for entry in data["workloads"] if entry["name"] in fits]
    data["primary"] = [metric for metric in data["primary"] if metric.partition(".")[0] in fits]


@app.command()
def watch(
    run: Annotated[
        str,
        typer.Argument(
            metavar="[RUN]",
            help="A run: its id, the beginning of the id, or its label. Default: the one that is running.",
            autocompletion=complete_running,
        ),
    ] = "",
) -> None:
    """Watch a run that is running in another terminal."""
    from vmtax.experiment import live, progress
    from vmtax.store import Store

    with Store() as store:
        meant = [entry for entry in store.experiments() if entry.label == run or entry.id.startswith(run)]
        running = [entry for entry in meant if entry.state == "running"]
        if not running:
            if run:
                raise BadUse(f"run {run} is not running: `vmtax runs` lists all runs")
            fail("no run is running: `vmtax run` starts one, `vmtax runs` lists all runs", FAILED)
        id = running[0].id

        def going_on() -> bool:
            return next(entry.state for entry in store.experiments() if entry.id == id) == "running"

        say(f"run {id}", file=sys.stderr)
        with contextlib.suppress(KeyboardInterrupt):
            progress.follow(live.states(id, going_on, every=0.5))
        state = next(entry.state for entry in store.experiments() if entry.id == id)
    say(f"run {id} is {state}: vmtax show {id}", file=sys.stderr)
