"""What the command line asks of stored results: its options, in groups."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from vmtax.cli.options import (
    PART,
    AcceptLoss,
    AsJson,
    ForProfile,
    Needs,
    Part,
    Redact,
    TextName,
    Weights,
    complete_feature,
    format_option,
)
from vmtax.report.render.formats import CHANGE_FORMATS, FLEET_CHANGE_FORMATS


def complete_label(incomplete: str) -> list[str]:
    """Labels of the stored runs."""
    from vmtax.store.listing import listed

    return [label for label in dict.fromkeys(run.label for run in listed()) if label and label.startswith(incomplete)]


Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file; - prints. Default: -.")
]
LabelName = Annotated[
    str,
    typer.Option("--label", metavar="LABEL", help="Only runs that have this label.", autocompletion=complete_label),
]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for besides the run."""

    for_: ForProfile = ""
    weights: Weights = ""
    needs: Needs = ""
    accept_loss: AcceptLoss = False

    @property
    def needs_option(self) -> str:
        """The option that asks something of a choice; "" if there is none."""
        return "--needs" if self.needs else "--accept-loss" if self.accept_loss else ""


@dataclass(frozen=True, slots=True)
class ShowOptions:
    """What is shown of a run, and how."""

    full: Annotated[bool, typer.Option("--full", help="Show every metric, setting and warning.")] = False
    apply: Annotated[
        bool,
        typer.Option(
            "--apply", help="Print what is recommended as commands and settings for QEMU, libvirt and Proxmox."
        ),
    ] = False
    why: Annotated[
        str,
        typer.Option(
            "--why",
            metavar="FEATURE",
            help="List what shows that each choice has this feature of --needs, or not: durable, say.",
            autocompletion=complete_feature,
        ),
    ] = ""
    json: Annotated[
        bool, typer.Option("--json", help=f"Print JSON (schema vmtax/1); --json={PART} prints only the first screen.")
    ] = False
    part: Part = ""
    format: TextName = ""
    no_pager: Annotated[
        bool, typer.Option("--no-pager", help="Print without a pager, even if the answer is longer than the screen.")
    ] = False


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """How two sides, or many runs, are compared."""

    fail_if_worse: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="Exit with 3 if a primary metric is worse by more than this, with 4 if that is undecided.",
        ),
    ] = None
    same_within: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="Differences up to this count as the same. Default: as --fail-if-worse, otherwise 3%.",
        ),
    ] = None
    full: Annotated[bool, typer.Option("--full", help="Show every metric and every fact.")] = False
    format: Annotated[str, format_option(tuple(CHANGE_FORMATS))] = "terminal"
    json: AsJson = False
    output: Output = None


@dataclass(frozen=True, slots=True)
class FleetCompareOptions:
    """How a fleet is compared with itself."""

    plan: Annotated[
        str, typer.Option("--plan", metavar="PLAN", help="The plan, by name. Default: that of the newest run after.")
    ] = ""
    same_within: Annotated[
        str | None,
        typer.Option(metavar="PERCENT", help="Mean changes up to this count as the same. Default: 3%."),
    ] = None
    redact: Redact = False
    full: Annotated[bool, typer.Option("--full", help="Show every time and cost.")] = False
    format: Annotated[str, format_option(tuple(FLEET_CHANGE_FORMATS))] = "terminal"
    json: AsJson = False
    output: Output = None


@dataclass(frozen=True, slots=True)
class ManyOptions:
    """Which runs are meant, and how the answer over them is written."""

    label: LabelName = ""
    redact: Redact = False
    full: Annotated[bool, typer.Option("--full", help="Show every cost.")] = False
    json: AsJson = False
    output: Output = None
