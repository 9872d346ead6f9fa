"""What the commands `vmtax runs` and `vmtax fleet status` do."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from vmtax.cli.app import agree, answer, printed, say
from vmtax.cli.kept_costs import COSTS
from vmtax.report.answers.others import Removed
from vmtax.report.answers.runs import Run
from vmtax.store import ExperimentSummary, Store


def list_runs(*, json: bool) -> None:
    """The newest first."""
    with Store(reads=True) as store:
        found = store.experiments()
    if json:
        answer("runs", [Run.made(entry) for entry in found])
    elif not found:
        say("no runs yet: vmtax run")
    else:
        _print_table(found)


def remove(wanted: Sequence[str], *, yes: bool, json: bool) -> None:
    """List them, ask, and remove them."""
    with Store() as store:
        ids = list(dict.fromkeys(store.resolve(run) for run in wanted))
        if not json:
            _print_table([entry for entry in store.experiments() if entry.id in ids])
        agree(yes, f"Remove {', '.join(ids) if json else 'these'} for good? [y/N]")
        removed = []
        for id in ids:
            removed.append(store.remove(id))
            COSTS.remove(id)
            if not json:
                say(f"removed {id}")
    if json:
        answer("removed", [Removed("run", id) for id in removed])


def fleet_status(fleet: str, *, json: bool) -> None:
    """The runs of a fleet, and whether it was stopped."""
    with Store(reads=True) as store:
        found = store.experiments(label=fleet)
        stopped = store.stops.stopped(fleet)
    if json:
        answer("runs", [Run.made(entry) for entry in found])
        return
    word = shlex.quote(fleet)
    if stopped:
        say(f"stopped by {stopped}: `vmtax fleet stop {word} --undo` lets it go on")
    if not found:
        say(f"no run has the label {fleet}: `vmtax fleet run PLAN -i INVENTORY --fleet {word}` measures")
        return
    _print_table(found)


def _print_table(runs: Sequence[ExperimentSummary]) -> None:
    from vmtax.report.runs import runs_table  # here, because --json takes no table

    printed(runs_table(runs))
