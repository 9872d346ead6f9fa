"""The command line. The only module that prints; heavy modules are imported by the command that needs them."""

from __future__ import annotations

import contextlib
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from vmtax import __version__

if TYPE_CHECKING:
    from vmtax.plan import Plan

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
RunId = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, the start of one, or 'last'.")]


def main() -> None:
    """Run the command; whatever stops it becomes clear lines on stderr and an exit code."""
    # An ended session or a stopped service unwinds as Ctrl-C does: nothing is left behind.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    with _explained():
        app(prog_name="vmtax")


def _interrupted(*_: object) -> NoReturn:
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


def _exit_code(error: Exception) -> int | None:
    """The exit code of a failure that explains itself; None for one that does not."""
    # By name, so that --help does not import what defines them.
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & {"PlanError", "BadUse"}:
        return BAD_INPUT
    if names & {"StoreError", "ImageError", "MachineError", "QemuError", "BootFailed", "CannotMeasure", "StorageError"}:
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
    plan: PlanName = "quick",
    host: Annotated[str | None, typer.Option(help="Measure this host: local or ssh://[user@]host.")] = None,
    layers: Annotated[str | None, typer.Option(help="Only these, such as host,vm.")] = None,
    budget: Annotated[str | None, typer.Option(help="Fit the rounds to this time: 20m, 1h30m.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Exactly so many rounds.")] = None,
    qemu: Annotated[str | None, typer.Option(help="Another QEMU than the host's own.")] = None,
    disk_dir: Annotated[
        str | None, typer.Option(help="Directory for the disk under test, on the host under test; /var/tmp.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where the HTML report goes.")] = None,
    json: AsJson = False,
) -> None:
    """Measure, print the table, write the report."""
    from vmtax import screen
    from vmtax.image import build
    from vmtax.plan import load
    from vmtax.runner import Options
    from vmtax.runner import run as carry_out
    from vmtax.store import Store

    wanted = _overridden(load(plan), host=host, layers=layers, budget=budget, rounds=rounds)
    options = Options(
        command=shlex.join(["vmtax", *sys.argv[1:]]),
        qemu=qemu,
        disk_directory=PurePosixPath(disk_dir) if disk_dir else None,
    )
    try:
        with Store() as store, screen.open_screen() as emit:
            image = build.ensure(emit)
            id = carry_out(wanted, image, store, options, emit)
    except KeyboardInterrupt:  # here, because typer ends silently on it
        _fail("interrupted; every result that was measured is kept: vmtax show", INTERRUPTED)
    target = output or Path(f"vmtax-{id}.html")
    _write_report(id, target)
    _show(id, as_json=json)
    print(f"report: {target}", file=sys.stderr)


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
def show(run: RunId = "last", json: AsJson = False) -> None:
    """Show one run's results."""
    _show(run, as_json=json)


@app.command()
def report(
    run: RunId = "last",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File; vmtax-RUN.html.")] = None,
) -> None:
    """Write one run's report: one HTML file that needs nothing else."""
    print(_write_report(run, output))


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


def _show(run: str, *, as_json: bool) -> None:
    from vmtax import compare
    from vmtax.store import Store

    with Store() as store:
        experiment = store.load(run)
    comparisons = compare.of(experiment)
    if as_json:
        from vmtax.report.json import envelope, experiment_data

        print(envelope("experiment", experiment_data(experiment, comparisons)))
        return
    from vmtax.report.terminal import render

    _print(render(experiment, comparisons))


def _write_report(run: str, target: Path | None) -> Path:
    from vmtax import compare
    from vmtax.report.html import render_html
    from vmtax.store import Store

    with Store() as store:
        experiment = store.load(run)
    file = target or Path(f"vmtax-{experiment.id}.html")
    try:
        file.write_text(render_html(experiment, compare.of(experiment)), encoding="utf-8")
    except OSError as error:
        raise BadUse(f"{file}: {error.strerror}; name another file with --output") from error
    return file


def _print(renderable: Any) -> None:
    from rich.console import Console

    Console(highlight=False).print(renderable)
