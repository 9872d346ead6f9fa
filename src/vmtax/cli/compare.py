"""The command `vmtax compare`: runs before a change against runs after it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vmtax.cli.app import (
    AsJson,
    BadUse,
    app,
    complete_run,
    document,
    format_option,
    printed,
    say,
    with_result,
    write_file,
)
from vmtax.cli.files import STDOUT, check_output
from vmtax.cli.many import compare_many
from vmtax.core.errors import DONE, UNDECIDED, WORSE
from vmtax.core.units import parse_percent
from vmtax.report.render.formats import CHANGE_FORMATS, find_change

if TYPE_CHECKING:
    from vmtax.analysis.sessions import Change
    from vmtax.core.records import Experiment
    from vmtax.store import Store

SAME_WITHIN = 0.03
NOT_COMPARED = ("latencies", "disturbance", "readings")  # of trials

FormatName = Annotated[str, format_option(tuple(CHANGE_FORMATS))]


def complete_runs(incomplete: str) -> list[str]:
    """Ids of runs, after those that are typed already."""
    named, comma, last = incomplete.rpartition(",")
    return [f"{named}{comma}{id}" for id in complete_run(last)]


@app.command()
def compare(
    before: Annotated[
        str,
        typer.Argument(
            metavar="BEFORE",
            help="Runs before the change: ids, beginnings of ids, labels or last (newest with a result), with commas.",
            autocompletion=complete_runs,
        ),
    ],
    after: Annotated[
        str,
        typer.Argument(
            metavar="AFTER", help="The runs after the change, in the same way.", autocompletion=complete_runs
        ),
    ],
    more: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MORE...",
            help="More runs: then each is one of many, and what is odd, and how they change, is shown.",
            show_default=False,
        ),
    ] = None,
    fail_if_worse: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="Exit with 3 if a primary metric is worse by more than this, with 4 if that is undecided.",
        ),
    ] = None,
    same_within: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="Differences up to this count as the same. Default: as --fail-if-worse, otherwise 3%.",
        ),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Show every metric and every fact.")] = False,
    format: FormatName = "terminal",
    json: AsJson = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file; - prints. Default: -.")
    ] = None,
) -> None:
    """Compare runs before a change with runs after it, such as an upgrade of the kernel, QEMU or firmware.

    Three runs or more, each an argument of its own, are compared as `vmtax history` does if they are of one host, and
    as `vmtax fleet show` does otherwise.
    """
    if output == STDOUT:
        output = None
    if output is not None:
        check_output(output)
    if more:
        if fail_if_worse or same_within:
            raise BadUse(
                "--fail-if-worse and --same-within compare two sides: separate the runs of a side by commas, as in"
                " A1,A2,A3 B1,B2,B3"
            )
        compare_many((before, after, *more), "json" if json else format, output, full=full)
        return
    format = "json" if json else format
    render = find_change(format)
    limit = fraction("--fail-if-worse", fail_if_worse)
    same = fraction("--same-within", same_within)
    change = _compared(_ids(before), _ids(after), same if same is not None else limit or SAME_WITHIN, limit)
    if output is not None:
        write_file(output, render(change, full).encode())
        say(output)
    elif format == "terminal":
        from vmtax.report.document import Detail
        from vmtax.report.render.terminal import whole
        from vmtax.report.sections import change as section

        detail = Detail.FULL if full else Detail.BRIEF
        printed(whole(section.document(change, detail), detail))
    else:
        document(render(change, full))
    raise typer.Exit(_code(change))


def _compared(before: Sequence[str], after: Sequence[str], same_within: float, limit: float | None) -> Change:
    from vmtax.analysis.sessions import compared
    from vmtax.store import Store

    with Store(reads=True) as store:
        first, second = (
            [store.load(with_result(store, id), without=NOT_COMPARED) for id in side] for side in (before, after)
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
    from vmtax.analysis.sessions import CALIBRATE

    return store.load_all(lambda run: run.name == CALIBRATE and run.state == "complete" and run.host in hosts)


def _code(change: Change) -> int:
    return {"failed": WORSE, "undecided": UNDECIDED}.get(change.gate or "", DONE)
