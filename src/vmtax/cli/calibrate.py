"""The command `vmtax calibrate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from vmtax.cli.app import AsJson, BadUse, Emulate, Yes, answer, app, complete_plan, complete_run, printed, with_result
from vmtax.cli.options import PLAN_HELP, Budget, DiskDir, Host, Qemu

if TYPE_CHECKING:
    from vmtax.cli.work import RunWork

DEFAULT_BUDGET = "20m"


@app.command()
def calibrate(
    plan: Annotated[
        str,
        typer.Argument(metavar="[PLAN]", help=PLAN_HELP, autocompletion=complete_plan),
    ] = "quick",
    host: Host = None,
    budget: Budget = DEFAULT_BUDGET,
    qemu: Qemu = None,
    disk_dir: DiskDir = None,
    show: Annotated[
        str,
        typer.Option(
            metavar="RUN", help="Show this earlier calibration and measure nothing.", autocompletion=complete_run
        ),
    ] = "",
    emulate: Emulate = False,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Compare a guest with itself, to see what precision this machine reaches, in what time, and how much it varies."""
    from vmtax.analysis.calibration import calibration
    from vmtax.analysis.sessions import CALIBRATE
    from vmtax.cli.measuring import measure
    from vmtax.store import Store
    from vmtax.store.choice import has_result

    with Store(reads=bool(show)) as store:
        work = None if show else _work(plan, host, budget, qemu, disk_dir)
        id = (
            with_result(store, show, CALIBRATE)
            if work is None
            else measure(store, work.emulating() if emulate else work, yes=yes)
        )
        experiment = store.load(id)
        alike = store.load_all(lambda run: run.name == experiment.name and has_result(run))
        found = calibration(experiment, alike)
    if json:
        from vmtax.report.answers.calibration import CALIBRATION

        answer("calibration", CALIBRATION.made(found))
        return
    from vmtax.report.document import Detail
    from vmtax.report.render.terminal import whole
    from vmtax.report.sections.calibration import document

    printed(whole(document(found), Detail.BRIEF))


def _work(plan: str, host: str | None, budget: str | None, qemu: str | None, disk_dir: str | None) -> RunWork:
    from vmtax.analysis.calibration import plan_of
    from vmtax.cli.asked import DiskOptions
    from vmtax.cli.measuring import disk_target, options_of, program
    from vmtax.cli.work import RunWork
    from vmtax.core.units import parse_duration
    from vmtax.plan.schema import from_data, load
    from vmtax.testbed.session.session import TestbedOptions

    try:
        seconds = parse_duration(budget or DEFAULT_BUDGET)
    except ValueError as error:
        raise BadUse(f"--budget: {error}") from None
    if not 1 <= seconds <= 30 * 86400:
        raise BadUse(f"--budget: must be from 1s to 30d, not {budget}")
    wanted = load(plan)
    if host:
        wanted = from_data(wanted.model_dump(mode="json") | {"host": host}, options={"host": "--host"})
    derived = plan_of(wanted, seconds)
    target = disk_target(derived.host, DiskOptions(disk_dir))
    return RunWork(derived, options_of(TestbedOptions(program(derived.host, qemu, "--qemu"), target)))
