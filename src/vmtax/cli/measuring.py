"""Measuring as every command does it that measures: say what will be done, ask, do it, tell how it goes."""

from __future__ import annotations

import contextlib
import functools
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from vmtax.cli.app import NOBODY, BadUse, agree, agree_to_erase, fail, warn
from vmtax.core.errors import FAILED, INTERRUPTED, CannotDo

if TYPE_CHECKING:
    from vmtax.core.records import Experiment
    from vmtax.experiment.runner import Options
    from vmtax.plan.schema import Plan
    from vmtax.storage import Target
    from vmtax.store import Store
    from vmtax.testbed.session import TestbedOptions

KEPT = "every result that was measured is kept: `vmtax show` shows them, `vmtax run --resume` goes on"


@dataclass(frozen=True, slots=True)
class Work:
    """What `run` is to do."""

    plan: Plan
    options: Options
    resumed: Experiment | None = None  # the experiment that is resumed


def options_of(environment: TestbedOptions) -> Options:
    """What the command line adds to the plan, this command line included."""
    from vmtax.experiment.runner import Options

    return Options(shlex.join(["vmtax", *sys.argv[1:]]), environment)


def program(host: str, name: str | None, option: str) -> str | None:
    """A QEMU on `host`, as the command line names it; a path from the current directory as one from the root."""
    if name is None or "/" not in name or name.startswith("/"):
        return name
    if host != "local":
        raise BadUse(f"{option} {name}: must be absolute, for it is on {host}")
    return str(Path(name).absolute())


def disk_target(
    host: str,
    directory: str | None,
    devices: Sequence[str] = (),
    group: str | None = None,
    pool: str | None = None,
    erase: Sequence[str] = (),
) -> Target:
    """Where the disks under test are to lie on `host`, as the command line says."""
    from vmtax.storage import DISK_DIRECTORY, Target

    where = PurePosixPath(directory) if directory else DISK_DIRECTORY
    if not where.is_absolute():
        if host != "local":
            raise BadUse(f"--disk-dir {directory}: must be absolute, for it is on {host}")
        where = PurePosixPath(Path(where).absolute())
    for option, names in (("--disk-device", devices), ("--erase", erase)):
        for name in names:
            if not name.startswith("/dev/"):
                raise BadUse(f"{option} {name}: must be a device, such as /dev/sdb")
            if names.count(name) > 1:
                raise BadUse(f"{option} {name}: is given twice")
    for name in erase:
        if name not in devices:
            raise BadUse(f"--erase {name}: is about a device of --disk-device, and it is none of them")
    if group is not None and not re.fullmatch(r"[\w+.][\w+.-]{0,126}", group, re.ASCII):
        raise BadUse(f"--disk-group {group}: no volume group can be called that; `vgs` lists those that are there")
    if pool is not None and not re.fullmatch(r"[A-Za-z][\w.:/-]{0,199}", pool, re.ASCII):
        raise BadUse(f"--disk-pool {pool}: no pool can be called that; `zfs list` lists pools and datasets")
    return Target(where, tuple(devices), group, pool, frozenset(erase))


def measure(store: Store, work: Work, *, yes: bool) -> str:
    """The experiment's id; ends the program where it cannot be finished, with every result kept."""
    _alone(store, work)
    known = {entry.id for entry in store.experiments() if not work.resumed or entry.id != work.resumed.id}
    try:
        id = _carry_out(store, work, yes=yes)
    except KeyboardInterrupt:  # here, because typer ends silently on it
        fail(f"interrupted; {KEPT if _measured(store, known) else 'nothing was measured yet'}", INTERRUPTED)
    except CannotDo as error:
        fail(f"{error}\n{KEPT}" if _measured(store, known) else str(error), FAILED)
    keep_results(store, id)
    return id


def keep_results(store: Store, id: str) -> None:
    """Computes what every report of this run needs, and keeps it with the run.

    Here, for this is where both wings meet: the run does not know the reports, and the store computes nothing.
    """
    from vmtax.analysis import results
    from vmtax.analysis.analysis import Analysis
    from vmtax.store import StoreError

    experiment = store.load(id)
    with contextlib.suppress(StoreError):  # as where the disk is full: it is computed again where it is shown
        store.keep_results(experiment, results.written(Analysis(experiment).results))


def _alone(store: Store, work: Work) -> None:
    """Two runs at once would measure each other."""
    from vmtax.testbed.interleave import other_host
    from vmtax.testbed.session import TestbedOptions

    ours = {work.plan.host, other_host(work.options.testbed)} - {None}
    for entry in store.experiments():
        if entry.state == "running":
            second = other_host(TestbedOptions.from_json(store.load(entry.id).options))
            if host := next((host for host in (entry.host, second) if host in ours), None):
                busy = f"run {entry.id} measures {host} just now"
                raise BadUse(f"{busy}: wait until it has ended, vmtax watch {entry.id}")


def _measured(store: Store, known: set[str]) -> bool:
    """Whether there is anything of a run that ended early; `known`: the runs that are not meant."""
    return any(entry.ok for entry in store.experiments() if entry.id not in known)


def _carry_out(store: Store, work: Work, *, yes: bool) -> str:
    """Say what will be done, do it, and tell how it goes; the experiment's id."""
    from vmtax.experiment import live, progress, runner
    from vmtax.experiment.preview import Line, outlook
    from vmtax.experiment.resume import image_of
    from vmtax.image import build, cache
    from vmtax.testbed.interleave import other_host
    from vmtax.testbed.machines import set_up
    from vmtax.testbed.session import connected

    if not yes and not sys.stdin.isatty():
        raise BadUse(NOBODY)
    plan, before = work.plan, work.resumed
    options = work.options.testbed
    with connected(plan.host, warn, other_host(options)) as hosts:
        lines = outlook(
            plan,
            hosts.host,
            options,
            emit=lambda what: progress.tell([("looks at", what)]),
            other=hosts.other,
            earlier_seconds_per_round=store.seconds_per_round(
                plan.model_dump(mode="json"), plan.host, options.interleave_with
            ),
            rounds_done=max((trial.round for trial in before.trials), default=1) - 1 if before else 0,
            builds_image=cache.current() is None,
        )
        if before:
            lines.insert(0, Line("resumes", f"{before.id}, whose {len(before.trials)} trials are kept"))
        progress.tell((line.what, line.text) for line in lines)
        if options.target.erase:
            agree_to_erase(yes, sorted(options.target.erase))
        else:
            agree(yes)
        with progress.open_screen() as emit:
            journal = live.Journal(hosts.local, emit)
            image = build.ensure(emit, identity=image_of(before) if before else None)
            make = functools.partial(set_up, hosts, image, journal.emit)
            if before:
                return runner.resume(before.id, store, journal.emit, make, options.target.erase)
            return runner.run(plan, store, work.options, journal.emit, make)
