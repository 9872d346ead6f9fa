"""What `vmtax compare` does: runs before a change against runs after it."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from vmtax.analysis.sessions import CALIBRATE, Change, compared
from vmtax.cli.app import BadUse, with_result
from vmtax.cli.asked_results import CompareOptions
from vmtax.cli.files import file_of
from vmtax.cli.many import NOT_READ, compare_many, show
from vmtax.core.errors import DONE, UNDECIDED, WORSE
from vmtax.core.records import Experiment
from vmtax.core.units import parse_percent
from vmtax.report.render.formats import find_change
from vmtax.report.sections import change as section
from vmtax.store import Store

SAME_WITHIN = 0.03


def compare(before: str, after: str, more: Sequence[str], asked: CompareOptions) -> None:
    """Two sides, or many runs. Raises typer.Exit with the verdict of two sides."""
    file, format = file_of(asked.output), "json" if asked.json else asked.format
    if more:
        if asked.fail_if_worse or asked.same_within:
            raise BadUse(
                "--fail-if-worse and --same-within compare two sides: separate the runs of a side by commas, as in"
                " A1,A2,A3 B1,B2,B3"
            )
        compare_many((before, after, *more), format, file, full=asked.full)
        return
    render = find_change(format)
    limit = fraction("--fail-if-worse", asked.fail_if_worse)
    same = fraction("--same-within", asked.same_within)
    change = _compared(_ids(before), _ids(after), same if same is not None else limit or SAME_WITHIN, limit)
    show(
        lambda detail: section.document(change, detail),
        lambda: render(change, asked.full),
        format,
        file,
        full=asked.full,
    )
    raise typer.Exit(_code(change))


def _compared(before: Sequence[str], after: Sequence[str], same_within: float, limit: float | None) -> Change:
    with Store(reads=True) as store:
        first, second = (
            [store.load(with_result(store, id), without=NOT_READ) for id in side] for side in (before, after)
        )
        calibrations = _calibrations(store, {experiment.host for experiment in (*first, *second)})
        return compared(first, second, calibrations, same_within=same_within, limit=limit)


def _ids(runs: str) -> list[str]:
    ids = [run.strip() for run in runs.split(",")]
    if not all(ids):
        raise BadUse(f"{runs!r}: a run's id is missing beside a comma; separate ids as in A1,A2,A3")
    return ids


def fraction(option: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        fraction = parse_percent(text)
    except ValueError as error:
        raise BadUse(f"{option}: {error}") from None
    if fraction >= 1:
        raise BadUse(f"{option}: {text} is not below 100%; write one such as 3%")
    return fraction


def _calibrations(store: Store, hosts: set[str]) -> list[Experiment]:
    """The stored calibrations of these hosts, which show how much the machines change by themselves."""
    return store.load_all(lambda run: run.name == CALIBRATE and run.state == "complete" and run.host in hosts)


def _code(change: Change) -> int:
    return {"failed": WORSE, "undecided": UNDECIDED}.get(change.gate or "", DONE)
