"""The output of `vmtax runs`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from vmtax.core.units import format_duration
from vmtax.report.render.terminal import headed_grid, plain_text

if TYPE_CHECKING:
    from vmtax.store import ExperimentSummary

STATE_STYLES = {"complete": "green", "running": "cyan", "interrupted": "yellow", "failed": "red", "damaged": "red"}


def runs_table(runs: Iterable[ExperimentSummary]) -> RenderableType:
    """One line per stored experiment; a column for labels if some run has one, for hosts if one is not `local`."""
    listed = list(runs)
    labelled, elsewhere = any(run.label for run in listed), any(run.host != "local" for run in listed)
    names = [*(["label"] if labelled else []), *(["host"] if elsewhere else [])]
    table = headed_grid("id", *names, "rounds", "took", "guests", "result")
    table.columns[0].no_wrap = True  # so that it can be copied
    for number in (-4, -3):
        table.columns[number].justify = "right"
        table.columns[number].no_wrap = True
    for run in listed:
        guests = {None: Text("–", style="dim"), True: plain_text("emulated", "yellow"), False: Text("KVM")}[
            run.emulated
        ]
        table.add_row(
            plain_text(run.id),
            *([plain_text(run.label)] if labelled else []),
            *([plain_text(run.host)] if elsewhere else []),
            str(run.rounds),
            plain_text("" if run.seconds is None else format_duration(run.seconds)),
            guests,
            _result(run),
        )
    return table if table.row_count else Text("no runs yet: `vmtax run` makes the first")


def _result(run: ExperimentSummary) -> Text:
    """Its headline; its state if that is not "complete" or there is no headline; and the number of failed trials."""
    parts = [plain_text(run.result)] if run.result else []
    if run.state != "complete" or not parts:
        parts.insert(0, Text(run.state, style=STATE_STYLES[run.state]))
    if run.failed:
        parts.append(Text(f"{run.failed} failed", style="red"))
    return Text(", ").join(parts)
