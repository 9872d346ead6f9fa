"""Runs for the answers over many of them: which are meant, and their costs, which are kept once they are computed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from vmtax.analysis.many.choose import by_machine
from vmtax.analysis.many.costs import RunCosts, run_costs
from vmtax.analysis.many.costs import read as read_costs
from vmtax.analysis.many.costs import written as costs_text
from vmtax.analysis.many.fleet import fleet
from vmtax.analysis.many.history import history
from vmtax.analysis.redaction import redacted_costs
from vmtax.cli.app import BadUse, document, say, write_file
from vmtax.cli.asked_results import ManyOptions
from vmtax.cli.files import file_of
from vmtax.cli.kept_costs import COSTS
from vmtax.cli.output import printed_document
from vmtax.core.records import Experiment
from vmtax.report.document import Detail, Document
from vmtax.report.render.formats import find_fleet, find_history
from vmtax.report.sections import fleet as fleet_section
from vmtax.report.sections import history as history_section
from vmtax.store import ExperimentSummary, Store, StoreError
from vmtax.store.choice import RESULTS, has_result, is_whole
from vmtax.store.failure import DamagedRun

NOT_READ = ("latencies", "disturbance", "readings")  # of trials


def costs_asked(plan: str, asked: ManyOptions) -> list[RunCosts]:
    """The costs of the runs that are meant, with their names. Raises BadUse if there are none."""
    with Store(reads=True) as store:
        runs = costs_of(store, meant(store, plan, asked.label))
    if not runs:
        raise BadUse("no run has a plan that this version can read: vmtax run")
    return runs


def without_names(runs: Sequence[RunCosts], asked: ManyOptions) -> Sequence[RunCosts]:
    """The same, redacted if that is asked for."""
    return [*map(redacted_costs, runs)] if asked.redact else runs


def meant(store: Store, plan: str, label: str) -> list[ExperimentSummary]:
    """The runs with a result of a plan, a label, or both; newest first. Neither: of the plan of the newest run."""
    stored = [run for run in store.experiments() if run.state != "running" and has_result(run)]
    if not stored:
        raise BadUse("no run has a result yet: vmtax run")
    labelled = [run for run in stored if not label or run.label == label]
    if not labelled:
        raise BadUse(f"no run has the label {label!r}{_known(run.label for run in stored)}")
    wanted = plan or labelled[0].name
    found = [run for run in labelled if run.name == wanted]
    if not found:
        of = f" with the label {label!r}" if label else ""
        raise BadUse(f"no run of plan {wanted!r}{of}{_known(run.name for run in labelled)}")
    return found


def _known(names: Iterable[str]) -> str:
    known = [name for name in dict.fromkeys(names) if name]
    return (
        f"; there are: {', '.join(known[:10])}{f' and {len(known) - 10} more' if known[10:] else ''}" if known else ""
    )


def compare_many(names: Sequence[str], format: str, output: Path | None, *, full: bool) -> None:
    """Print or write these runs as a history if they are of one host, otherwise as a fleet."""
    find_history(format)  # before anything is read
    with Store(reads=True) as store:
        chosen = [store.choose(name, RESULTS).run for name in names]
        if len({run.id for run in chosen}) < len(chosen):
            twice = next(run.id for run in chosen if [one.id for one in chosen].count(run.id) > 1)
            raise BadUse(f"{twice} is named twice: name each run once")
        runs = costs_of(store, chosen)
    if not runs:
        raise BadUse("none of these runs has a plan that this version can read")
    if len(by_machine(runs)) == 1:
        show_history(runs, "", format, output, full=full)
    else:
        show_fleet(runs, "", format, output, full=full)


def show_history(runs: Sequence[RunCosts], label: str, format: str, output: Path | None, *, full: bool) -> None:
    """Print the history of runs of one host, or write it to a file."""
    render = find_history(format)
    found = history(runs, label)
    show(lambda detail: history_section.document(found, detail), lambda: render(found, full), format, output, full=full)


def show_fleet(runs: Sequence[RunCosts], label: str, format: str, output: Path | None, *, full: bool) -> None:
    """Print the costs of many hosts, or write them to a file."""
    render = find_fleet(format)
    found = fleet(runs, label)
    show(lambda detail: fleet_section.document(found, detail), lambda: render(found, full), format, output, full=full)


def fleet_show(plan: str, format: str, asked: ManyOptions) -> None:
    """What `vmtax fleet show` does."""
    file, format = file_of(asked.output), "json" if asked.json else format
    find_fleet(format)  # before anything is read
    runs = without_names(costs_asked(plan, asked), asked)
    show_fleet(runs, asked.label, format, file, full=asked.full)


def show(
    made: Callable[[Detail], Document], render: Callable[[], str], format: str, output: Path | None, *, full: bool
) -> None:
    if output is not None:
        write_file(output, render().encode())
        say(output)
    elif format == "terminal":
        detail = Detail.FULL if full else Detail.BRIEF
        printed_document(made(detail), detail)
    else:
        document(render())


def costs_of(store: Store, runs: Sequence[ExperimentSummary]) -> list[RunCosts]:
    """Their costs, in their order; without those whose plan this version cannot read, and damaged ones."""
    here = {run.id: kept(run) for run in runs}
    shared = store.costs([id for id, costs in here.items() if costs is None])
    found = []
    for run in runs:
        try:
            costs = (
                here[run.id]
                or _as_others_keep(shared.get(run.id, ""), run)
                or computed(store.load(run.id, without=NOT_READ), run)
            )
        except DamagedRun:  # `vmtax show` explains it
            continue
        if costs is not None:
            found.append(costs)
    return found


def kept(run: ExperimentSummary) -> RunCosts | None:
    """The costs as they were kept; None if they were not, or if the run has changed since."""
    text = COSTS.read(run.id, _state(run))
    return None if text is None else read_costs(text)


def _as_others_keep(shared: str, run: ExperimentSummary) -> RunCosts | None:
    """The costs as they are in a shared store, kept here from now on; None as of `kept`."""
    state, _, text = shared.partition("\n")
    found = read_costs(text) if state == _state(run) else None
    if found is not None:
        COSTS.write(run.id, state, text)
    return found


def computed(experiment: Experiment, run: ExperimentSummary) -> RunCosts | None:
    """Compute them, and keep them; None: its plan is one of an older vmtax."""
    found = run_costs(experiment)
    if found is not None:
        COSTS.write(run.id, _state(run), costs_text(found))
    return found


def keep_costs(store: Store, experiment: Experiment) -> None:
    """Compute the costs of a run that has just ended or arrived, and keep them here and for those who share the store:
    of a thousand runs, reading them takes seconds, and computing them minutes.
    """
    run = store.choose(experiment.id, (is_whole,)).run
    if run.state != "running" and (found := computed(experiment, run)) is not None:
        with contextlib.suppress(StoreError):  # they are computed where they are missing
            store.keep_costs(run.id, f"{_state(run)}\n{costs_text(found)}")


def _state(run: ExperimentSummary) -> str:
    """What is different if the run has changed."""
    return repr((run.id, run.name, run.host, run.created, run.finished, run.state, run.ok, run.failed, run.label))
