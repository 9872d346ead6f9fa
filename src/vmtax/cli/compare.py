"""`vmtax compare`: runs before a change against runs after it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vmtax.cli.app import AsJson, BadUse, app, complete_run, document, format_option, printed, say, write_file
from vmtax.cli.files import STDOUT, check_output
from vmtax.core.errors import DONE, UNDECIDED, WORSE
from vmtax.core.units import parse_percent
from vmtax.report.change import FORMATS, renderer

if TYPE_CHECKING:
    from vmtax.analysis.sessions import Change
    from vmtax.core.records import Experiment
    from vmtax.store import Store

SAME_WITHIN = 0.03

FormatName = Annotated[str, format_option(FORMATS)]


def complete_runs(incomplete: str) -> list[str]:
    """A further id after a comma."""
    named, comma, last = incomplete.rpartition(",")
    return [f"{named}{comma}{id}" for id in complete_run(last)]


@app.command()
def compare(
    before: Annotated[
        str,
        typer.Argument(
            metavar="BEFORE",
            help="A run's id, the start of one, a label, or 'last'; several sessions are separated by commas.",
            autocompletion=complete_runs,
        ),
    ],
    after: Annotated[
        str, typer.Argument(metavar="AFTER", help="The same, after the change.", autocompletion=complete_runs)
    ],
    fail_if_worse: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="End with 3 where a primary metric is worse by more, 4 where that is undecided.",
        ),
    ] = None,
    same_within: Annotated[
        str | None,
        typer.Option(metavar="PERCENT", help="What counts as the same; as --fail-if-worse, else 3%."),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Every metric, every fact.")] = False,
    format: FormatName = "terminal",
    json: AsJson = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it there; - prints it.")
    ] = None,
) -> None:
    """Compare runs before a change with runs after it: an upgrade of kernel, QEMU or firmware, or two hosts."""
    from vmtax.analysis.sessions import compared
    from vmtax.store import Store

    if output == STDOUT:
        output = None
    if output is not None:
        check_output(output)
    format = "json" if json else format
    render = renderer(format, full=full)
    limit = _fraction("--fail-if-worse", fail_if_worse)
    same = _fraction("--same-within", same_within)
    ids = [_ids(runs) for runs in (before, after)]
    with Store() as store:
        first, second = ([store.load(id) for id in side] for side in ids)
        change = compared(
            first,
            second,
            _calibrations(store, {experiment.host for experiment in (*first, *second)}),
            same_within=same if same is not None else limit or SAME_WITHIN,
            limit=limit,
        )
    if output is not None:
        write_file(output, render(change).encode())
        say(output)
    elif format == "terminal":
        from vmtax.report.change.terminal import render as on_terminal

        printed(on_terminal(change, full=full))
    else:
        document(render(change))
    raise typer.Exit(_code(change))


def _ids(runs: str) -> list[str]:
    ids = [run.strip() for run in runs.split(",")]
    if not all(ids):
        raise BadUse(f"{runs!r}: a run's id is missing beside a comma; write them as A1,A2,A3")
    return ids


def _fraction(option: str, text: str | None) -> float | None:
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
    """What the store knows of how these machines change by themselves."""
    from vmtax.analysis.sessions import CALIBRATE

    return store.load_all(lambda run: run.name == CALIBRATE and run.state == "complete" and run.host in hosts)


def _code(change: Change) -> int:
    return {"failed": WORSE, "undecided": UNDECIDED}.get(change.gate or "", DONE)
