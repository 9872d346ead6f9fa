"""The command `vmtax history`: the costs of one host from run to run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vmtax.cli.app import AsJson, BadUse, Redact, app, format_option, warn
from vmtax.cli.files import STDOUT, check_output
from vmtax.cli.many import LabelName, PlanName, costs_of, meant, show_history
from vmtax.core.units import count_of
from vmtax.report.render.formats import HISTORY_FORMATS, find_history

if TYPE_CHECKING:
    from vmtax.analysis.many.costs import RunCosts

FormatName = Annotated[str, format_option(tuple(HISTORY_FORMATS))]


@app.command()
def history(
    plan: PlanName = "",
    label: LabelName = "",
    host: Annotated[
        str,
        typer.Option(
            "--host",
            metavar="HOST",
            help="The host, as it was given or as it calls itself. Default: that of the newest run.",
        ),
    ] = "",
    redact: Redact = False,
    full: Annotated[bool, typer.Option("--full", help="Show every cost.")] = False,
    format: FormatName = "terminal",
    json: AsJson = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file; - prints. Default: -.")
    ] = None,
) -> None:
    """Show the costs of one host from run to run: whether they changed, when, and how far they can have changed."""
    if output == STDOUT:
        output = None
    if output is not None:
        check_output(output)
    format = "json" if json else format
    find_history(format)  # before anything is read
    runs = _runs(plan, label, host)
    if redact:
        from vmtax.analysis.redaction import redacted_costs

        runs = [*map(redacted_costs, runs)]
    show_history(runs, label, format, output, full=full)


def _runs(plan: str, label: str, host: str) -> Sequence[RunCosts]:
    from vmtax.analysis.many.choose import by_machine
    from vmtax.store import Store

    with Store(reads=True) as store:
        runs = costs_of(store, meant(store, plan, label))
    if not runs:
        raise BadUse("no run has a plan that this version can read: vmtax run")
    machines = [*by_machine(runs).values()]  # that of the newest run first
    others = len(machines) - 1
    if others and not host:
        warn(
            f"{count_of(others, 'other host')} also ran {runs[0].plan}: --host shows another one,"
            " `vmtax fleet show` all of them"
        )
    return _of_host(machines, host)


def _of_host(machines: Sequence[Sequence[RunCosts]], host: str) -> Sequence[RunCosts]:
    found = [runs for runs in machines if not host or any(host in (run.host, run.host_name) for run in runs)]
    if not found:
        names = list(dict.fromkeys(runs[0].host_name for runs in machines))
        more = f" and {len(names) - 10} more" if names[10:] else ""
        raise BadUse(f"no such run on host {host!r}; there are: {', '.join(names[:10])}{more}")
    return found[0]
