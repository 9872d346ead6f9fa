"""The command line. The only module that prints; heavy modules are imported by the command that needs them."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from vmtax import __version__
from vmtax.report.formats import FORMATS, FormatError, find

if TYPE_CHECKING:
    from vmtax.doctor import Check, Readings
    from vmtax.plan import Plan
    from vmtax.result import Experiment
    from vmtax.runner import Options
    from vmtax.store import Store

app = typer.Typer(
    help="What virtualization costs you: host against VM against nested VM, with confidence intervals.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
plan_app = typer.Typer(help="Plans: what is measured.", no_args_is_help=True)
image_app = typer.Typer(help="Root images: the one userland of all layers.", no_args_is_help=True)
app.add_typer(plan_app, name="plan")
app.add_typer(image_app, name="image")

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130  # exit codes, besides 0; documented in README

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, schema vmtax/1.")]
PlanName = Annotated[str, typer.Argument(metavar="PLAN", help="A built-in plan's name, or a YAML file.")]
FormatName = Annotated[str, typer.Option("--format", metavar="FORMAT", help=f"One of {', '.join(FORMATS)}.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, the start of one, or 'last'.")]


def main() -> None:
    """Run the command; whatever stops it becomes clear lines on stderr and an exit code."""
    # An ended session or a stopped service unwinds as Ctrl-C does: nothing is left behind.
    for number in ENDING:
        signal.signal(number, _interrupted)
    with _explained():
        app(prog_name="vmtax")


ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _interrupted(*_: object) -> NoReturn:
    # Once is enough: a second Ctrl-C must not stop the tidying up. (Not SIG_IGN, which commands would inherit.)
    for number in ENDING:
        signal.signal(number, lambda *_: None)
    raise KeyboardInterrupt


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        code = _exit_code(error)
        if code is None:
            raise
        _fail(str(error), code)


CANNOT = {
    *("StoreError", "ImageError", "MachineError", "QemuError", "BootFailed", "CannotMeasure", "StorageError"),
    "ShareError",
}


def _exit_code(error: Exception) -> int | None:
    """The exit code of a failure that explains itself; None for one that does not."""
    # By name, so that --help does not import what defines them.
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & {"PlanError", "BadUse", "CannotResume", "FormatError"}:
        return BAD_INPUT
    if names & CANNOT:
        return FAILED
    return None


class BadUse(Exception):
    """Options that do not go together."""


def _fail(text: str, code: int) -> NoReturn:
    print(f"vmtax: {text}", file=sys.stderr)
    raise SystemExit(code)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"vmtax {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def run(
    plan: Annotated[
        str, typer.Argument(metavar="[PLAN]", help="A built-in plan's name, or a YAML file; with --resume, a run.")
    ] = "",
    host: Annotated[str | None, typer.Option(help="Measure this host: local or ssh://[user@]host.")] = None,
    layers: Annotated[str | None, typer.Option(help="Only these, such as host,vm.")] = None,
    budget: Annotated[str | None, typer.Option(help="Fit the rounds to this time: 20m, 1h30m.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Exactly so many rounds.")] = None,
    qemu: Annotated[str | None, typer.Option(help="Another QEMU than the host's own.")] = None,
    disk_dir: Annotated[
        str | None, typer.Option(help="Directory for the disk under test, on the host under test; /var/tmp.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Finish a run that was stopped: the last one, or the one named.")
    ] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where the HTML report goes.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Begin without asking; for scripts.")] = False,
    json: AsJson = False,
) -> None:
    """Measure, print the table, write the report."""
    from vmtax.store import Store

    _check_output(output)
    overrides = {"host": host, "layers": layers, "budget": budget, "rounds": rounds}
    with Store() as store:
        if resume:
            given = [
                f"--{name}" for name, value in (*overrides.items(), ("qemu", qemu), ("disk-dir", disk_dir)) if value
            ]
            if given:
                raise BadUse(f"--resume goes on as the run was begun: leave out {' '.join(given)}")
            work = _resumed(store, plan or "last")
        else:
            work = _new(plan or "quick", overrides, qemu, disk_dir)
        try:
            id = _carry_out(store, work, yes=yes)
        except KeyboardInterrupt:  # here, because typer ends silently on it
            _fail(f"interrupted; {KEPT}", INTERRUPTED)
        except Exception as error:
            newest = next(iter(store.experiments()), None)
            if _exit_code(error) == FAILED and newest is not None and newest.state == "failed" and newest.ok:
                _fail(f"{error}\n{KEPT}", FAILED)
            raise
        worked = any(trial.status == "ok" for trial in store.load(id).trials)
    _show(id, "json" if json else "")
    print(f"report: {_write_report(id, output)}", file=sys.stderr)
    if not worked:
        _fail("nothing could be measured: every trial failed, see the warnings", FAILED)


KEPT = "every result that was measured is kept: `vmtax show` shows them, `vmtax run --resume` goes on"


@dataclass(frozen=True, slots=True)
class Work:
    """What `run` is to do."""

    plan: Plan
    options: Options
    resumed: Experiment | None = None  # the experiment that is gone on with


def _new(plan: str, overrides: dict[str, Any], qemu: str | None, disk_dir: str | None) -> Work:
    from vmtax.environment import DISK_DIRECTORY, EnvironmentOptions
    from vmtax.plan import load
    from vmtax.runner import Options

    wanted = _overridden(load(plan), **overrides)
    directory = PurePosixPath(disk_dir) if disk_dir else DISK_DIRECTORY
    if not directory.is_absolute():
        if wanted.host != "local":
            raise BadUse(f"--disk-dir {disk_dir}: must be absolute, for it is on {wanted.host}")
        directory = PurePosixPath(Path(directory).absolute())
    return Work(wanted, Options(shlex.join(["vmtax", *sys.argv[1:]]), EnvironmentOptions(qemu, directory)))


def _resumed(store: Store, run: str) -> Work:
    from vmtax.resume import resumable
    from vmtax.runner import Options

    experiment = store.load(run)
    plan, options = resumable(experiment)
    return Work(plan, Options(experiment.command, options), experiment)


def _carry_out(store: Store, work: Work, *, yes: bool) -> str:
    """Say what will be done, do it, and tell how it goes; the experiment's id."""
    from vmtax import live, runner, screen
    from vmtax.environment import connected
    from vmtax.image import build, cache
    from vmtax.outlook import outlook

    plan, before = work.plan, work.resumed
    with connected(plan.host, _warn) as hosts:
        lines = outlook(
            plan,
            hosts.host,
            work.options.environment,
            earlier_seconds_per_round=store.seconds_per_round(plan.model_dump(mode="json"), plan.host),
            rounds_done=max((trial.round for trial in before.trials), default=1) - 1 if before else 0,
            builds_image=cache.current() is None,
        )
        for line in lines:
            print(f"{line.what:>10}  {line.text}", file=sys.stderr)
        _agree(yes)
        with screen.open_screen() as emit:
            journal = live.Journal(hosts.local, emit)
            image = build.ensure(emit, identity=before.facts["host"]["image"]["identity"] if before else None)
            if before:
                return runner.resume(hosts, before.id, image, store, journal.emit)
            return runner.run(hosts, plan, image, store, work.options, journal.emit)


NOBODY = "this asks before it begins, and nobody is there to answer: add --yes"


def _agree(yes: bool, question: str = "Begin? [Y/n]") -> None:
    """Go on only where somebody said so; the capital letter is what an empty answer means."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise BadUse(NOBODY)
    print(f"{question} ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline().strip().lower()
    if answer not in ("y", "yes") and (answer or "[Y" not in question):
        _fail("not begun; nothing was changed", 0)


def _warn(text: str) -> None:
    print(f"vmtax: {text}", file=sys.stderr)


def _check_output(output: Path | None) -> None:
    """Now, not after hours."""
    if output is not None and (output.is_dir() or not output.parent.is_dir()):
        what = "is a directory" if output.is_dir() else "its directory does not exist"
        raise BadUse(f"{output}: {what}; name another file with --output")


def _overridden(plan: Plan, **options: Any) -> Plan:
    """The plan with what the command line says instead."""
    from vmtax.plan import from_data

    data: dict[str, Any] = plan.model_dump(mode="json")
    if options["host"]:
        data["host"] = options["host"]
    if options["layers"]:
        data["layers"] = [layer.strip() for layer in options["layers"].split(",")]
        _drop_workloads_without_layer(data)
    if options["budget"]:
        data["budget"] = options["budget"]
    if options["rounds"] is not None:
        data["rounds"] = {"min": options["rounds"], "max": options["rounds"]}
    return from_data(data, source="command line")


def _drop_workloads_without_layer(data: dict[str, Any]) -> None:
    """A host has no boot: who asks for fewer layers of a plan asks for what is measured on those."""
    from vmtax.workload import WORKLOADS

    fits = {name for name, kind in WORKLOADS.items() if kind.layers & set(data["layers"])}
    if not fits:
        return  # no legal layer at all: the plan's own check says so better
    data["workloads"] = [entry for entry in data["workloads"] if entry["name"] in fits]
    data["primary"] = [metric for metric in data["primary"] if metric.partition(".")[0] in fits]


@app.command()
def doctor(
    host: Annotated[str, typer.Option(help="Examine this host: local or ssh://[user@]host.")] = "local",
    try_: Annotated[
        bool, typer.Option("--try", help="Also boot a guest, make a bridge and a file; all removed.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --try: begin without asking; for scripts.")] = False,
    json: AsJson = False,
) -> None:
    """Say what can be measured, what is missing and what will disturb. Reads only, unless --try."""
    from vmtax import plan_rules
    from vmtax.doctor import diagnose, examine
    from vmtax.report.doctor import diagnosis_data, render

    if yes and not try_:
        raise BadUse("--yes answers what --try asks; without --try nothing is asked")
    if try_ and not yes and not sys.stdin.isatty():
        raise BadUse(NOBODY)
    try:
        readings = examine(plan_rules.host(host))
    except ValueError as error:
        raise BadUse(f"--host {error}") from error
    tried: tuple[Check, ...] = ()
    if try_:
        readings, tried = _tried(readings, yes=yes)
    diagnosis = diagnose(readings, tried)
    if json:
        from vmtax.report.json import envelope

        print(envelope("doctor", diagnosis_data(diagnosis)))
    else:
        _print(render(diagnosis, shutil.get_terminal_size().columns), soft_wrap=True)
    raise SystemExit(FAILED if diagnosis.bad else 0)


def _tried(readings: Readings, *, yes: bool) -> tuple[Readings, tuple[Check, ...]]:
    """Say what will be made, make it and remove it again."""
    from vmtax import screen
    from vmtax.doctor.attempt import announce, attempt

    print(f"made on {readings.host}, and removed again:", file=sys.stderr)
    for line in announce(readings):
        print(f"  {line}", file=sys.stderr)
    _agree(yes)
    try:
        with screen.open_screen() as emit:
            return attempt(readings, emit)
    except KeyboardInterrupt:  # as in run
        _fail("interrupted; what was made is removed", INTERRUPTED)


@app.command()
def runs(json: AsJson = False) -> None:
    """List the runs in the store, newest first."""
    from dataclasses import asdict

    from vmtax.report.json import envelope
    from vmtax.store import Store

    with Store() as store:
        found = store.experiments()
    if json:
        print(envelope("runs", [asdict(entry) for entry in found]))
        return
    if not found:
        print("no runs yet: vmtax run")
        return
    from vmtax.report.terminal import runs_table

    _print(runs_table(found))


@app.command()
def watch(run: Annotated[str, typer.Argument(metavar="[RUN]", help="A run's id; the one that goes on.")] = "") -> None:
    """Watch a run that goes on in another terminal."""
    from vmtax import live, screen
    from vmtax.store import Store

    with Store() as store:
        running = [entry for entry in store.experiments() if entry.state == "running" and entry.id.startswith(run)]
        if not running:
            _fail(f"no run {run or 'goes on'}{' goes on' if run else ''}: `vmtax runs` lists them", FAILED)
        id = running[0].id

        def going_on() -> bool:
            return next(entry.state for entry in store.experiments() if entry.id == id) == "running"

        print(f"run {id}", file=sys.stderr)
        with contextlib.suppress(KeyboardInterrupt):
            screen.follow(live.states(id, going_on, every=0.5))
        state = next(entry.state for entry in store.experiments() if entry.id == id)
    print(f"run {id} is {state}: vmtax show {id}", file=sys.stderr)


@app.command()
def show(run: RunId = "last", json: AsJson = False, format: FormatName = "") -> None:
    """Show one run's results."""
    _show(run, "json" if json else format)


@app.command()
def report(
    run: RunId = "last",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File; vmtax-RUN and the format's ending.")
    ] = None,
    format: FormatName = "html",
) -> None:
    """Write one run's report: one HTML file that needs nothing else, or the measurements for other programs."""
    print(_write_report(run, output, format))


@app.command()
def export(
    run: RunId = "last",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File; vmtax-RUN.run.gz.")] = None,
) -> None:
    """Write one run to a file, for another machine to show and compare."""
    from vmtax import share
    from vmtax.store import Store

    with Store() as store:
        print(share.export(store, run, output))


@app.command("import")
def import_(file: Annotated[Path, typer.Argument(metavar="FILE", help="What `vmtax export` wrote.")]) -> None:
    """Add a run that was measured elsewhere to the store."""
    from vmtax import share
    from vmtax.store import Store

    with Store() as store:
        experiment = share.import_(store, file)
    print(f"{experiment.id}  {len(experiment.trials)} trials of {experiment.name} on {experiment.host}")


@app.command()
def clean(
    images: Annotated[bool, typer.Option("--images", help="Also images of another recipe.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove without asking; for scripts.")] = False,
) -> None:
    """Show what killed runs left on this host, and remove it. Never results."""
    from vmtax import clean as cleaning
    from vmtax.store import Store

    with Store() as store:
        leftovers = cleaning.found(store, images=images)
        for leftover in leftovers:
            print(f"{leftover.what:>19}  {leftover.text}")
        if not leftovers:
            print("nothing is left over")
            return
        _agree(yes, "Remove all of this? [y/N]")
        left = cleaning.remove(store, images=images)
    if left:
        _fail("\n".join(f"could not be removed: {line}" for line in left), FAILED)


@plan_app.command("list")
def plan_list(json: AsJson = False) -> None:
    """List the built-in plans."""
    from vmtax.plan import builtin_plans, describe

    plans = {name: describe(name) for name in builtin_plans()}
    if json:
        from vmtax.report.json import envelope

        print(envelope("plans", [{"name": name, "describe": text} for name, text in plans.items()]))
        return
    for name, text in plans.items():
        print(f"{name:<12} {text}")


@plan_app.command("show")
def plan_show(plan: PlanName, json: AsJson = False) -> None:
    """Show a plan with every default filled in."""
    import yaml

    from vmtax.plan import load

    data = load(plan).model_dump(mode="json")
    if json:
        from vmtax.report.json import envelope

        print(envelope("plan", data))
        return
    print(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), end="")


@plan_app.command("check")
def plan_check(plan: PlanName, json: AsJson = False) -> None:
    """Say what a plan compares, how long it takes, and what it cannot show."""
    from vmtax.plan import check, load

    lines = check(load(plan))
    if json:
        from vmtax.report.json import envelope

        print(envelope("plan-check", lines))
        return
    for line in lines:
        print(line)


@image_app.command("build")
def image_build(
    again: Annotated[bool, typer.Option(help="Also when there is one of the present recipe.")] = False,
) -> None:
    """Build the root image."""
    from vmtax import screen
    from vmtax.image import build

    with screen.open_screen() as emit:
        image = build.build(emit, again=again)
    print(f"{image.identity}  {image.directory}")


@image_app.command("list")
def image_list() -> None:
    """List the images of this host."""
    from vmtax.image import cache, recipe
    from vmtax.units import format_value

    for image in cache.images():
        mark = "current" if image.recipe == recipe.key() else "of another recipe"
        size = format_value(image.bytes, "B")
        print(f"{image.identity}  kernel {image.kernel}  {image.packages} packages  {size}  {mark}")


@image_app.command("remove")
def image_remove(identity: Annotated[str, typer.Argument(metavar="IDENTITY")]) -> None:
    """Remove an image from this host."""
    from vmtax.image import cache

    image = cache.find(identity)
    cache.remove(image)
    print(f"removed {image.identity}")


@image_app.command("export")
def image_export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Such as image.tar.zst.")],
    identity: Annotated[str, typer.Option(help="Which; the current one.")] = "",
) -> None:
    """Write an image to one file, for a host without a network."""
    from vmtax.image import cache, place

    image = cache.find(identity) if identity else cache.current()
    if image is None:
        raise cache.ImageError("there is no image yet: vmtax image build")
    place.export(image, file)
    print(f"{image.identity}  {file}")


@image_app.command("import")
def image_import(file: Annotated[Path, typer.Argument(metavar="FILE")]) -> None:
    """Install an image that `image export` wrote."""
    from vmtax.image import place

    image = place.import_(file)
    print(f"{image.identity}  {image.directory}")


def _show(run: str, format: str) -> None:
    """On the terminal, or as the text of one of FORMATS."""
    wanted = find(format) if format else None
    if wanted and not wanted.text:
        raise FormatError(f"{format} is no text: vmtax report {run} --format {format}")
    from vmtax import compare
    from vmtax.store import Store

    with Store() as store:
        experiment = store.load(run)
    comparisons = compare.of(experiment)
    if wanted:
        print(wanted.render(experiment, comparisons).decode(), end="")
        return
    from vmtax.report.terminal import render

    _print(render(experiment, comparisons))


def _write_report(run: str, target: Path | None, format: str = "html") -> Path:
    wanted = find(format)
    from vmtax import compare
    from vmtax.store import Store

    with Store() as store:
        experiment = store.load(run)
    file = target or Path(f"vmtax-{experiment.id}{wanted.suffix}")
    try:
        file.write_bytes(wanted.render(experiment, compare.of(experiment)))
    except OSError as error:
        raise BadUse(f"{file}: {error.strerror}; name another file with --output") from error
    return file


def _print(renderable: Any, *, soft_wrap: bool = False) -> None:
    from rich.console import Console

    Console(highlight=False).print(renderable, soft_wrap=soft_wrap)
