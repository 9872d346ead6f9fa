"""What `vmtax calibrate` does."""

from __future__ import annotations

from vmtax.analysis.calibration import calibration, plan_of
from vmtax.analysis.sessions import CALIBRATE
from vmtax.cli.app import BadUse, answer, with_result
from vmtax.cli.asked import DEFAULT_BUDGET, CalibrateOptions, DiskOptions
from vmtax.cli.measuring import disk_target, measure, options_of, program
from vmtax.cli.output import printed_document
from vmtax.cli.work import RunWork
from vmtax.core.units import parse_duration
from vmtax.plan.schema import from_data, load
from vmtax.report.answers.calibration import CALIBRATION
from vmtax.report.sections.calibration import document
from vmtax.store import Store
from vmtax.store.choice import has_result
from vmtax.testbed.session.session import TestbedOptions


def calibrate(plan: str, asked: CalibrateOptions) -> None:
    """Measure, unless an earlier calibration is to be shown."""
    with Store(reads=bool(asked.show)) as store:
        if asked.show:
            id = with_result(store, asked.show, CALIBRATE)
        else:
            work = _work(plan, asked)
            id = measure(store, work.emulating() if asked.emulate else work, yes=asked.yes)
        experiment = store.load(id)
        alike = store.load_all(lambda run: run.name == experiment.name and has_result(run))
        found = calibration(experiment, alike)
    if asked.json:
        answer("calibration", CALIBRATION.made(found))
    else:
        printed_document(document(found))


def _work(plan: str, asked: CalibrateOptions) -> RunWork:
    budget, host = asked.budget, asked.host
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
    target = disk_target(derived.host, DiskOptions(asked.disk_dir))
    return RunWork(derived, options_of(TestbedOptions(program(derived.host, asked.qemu, "--qemu"), target)))
