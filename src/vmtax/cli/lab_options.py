"""What the command line asks of a lab."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from vmtax.core.errors import CannotDo

DEFAULT_NAME = "lab"
NEW = {"memory": "4GiB", "vcpus": "2", "spares": "4", "spare size": "4GiB"}  # as in lab.spec.Size; a test compares them


def complete_lab(incomplete: str) -> list[str]:
    """Labs on this host."""
    from vmtax.lab.names import lab_names

    try:
        return [name for name in lab_names() if name.startswith(incomplete)]
    except (CannotDo, OSError):
        return []  # the command itself will report the error


LabName = Annotated[
    str, typer.Argument(metavar="[NAME]", help=f"The lab's name. Default: {DEFAULT_NAME}.", autocompletion=complete_lab)
]


@dataclass(frozen=True, slots=True)
class LabOptions:
    """What a lab is started with."""

    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help=f"Memory, such as 6GiB. Default: {NEW['memory']}.")
    ] = None
    vcpus: Annotated[
        int | None, typer.Option(min=1, max=64, metavar="NUMBER", help=f"CPUs. Default: {NEW['vcpus']}.")
    ] = None
    smt: Annotated[bool | None, typer.Option("--smt/--no-smt", help="Two of its CPUs are the threads of a core.")] = (
        None
    )
    spares: Annotated[
        int | None,
        typer.Option(
            min=0, max=16, metavar="NUMBER", help=f"Empty disks for storage under test. Default: {NEW['spares']}."
        ),
    ] = None
    spare_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help=f"Size of each empty disk. Default: {NEW['spare size']}."),
    ] = None
    nvme: Annotated[
        bool | None, typer.Option("--nvme", help="One more empty disk, as NVMe. Such a lab cannot be saved.")
    ] = None
    kernel_arguments: Annotated[
        str,
        typer.Option(
            metavar="ARGUMENTS", help="Arguments for its kernel, in this start alone, such as mitigations=off."
        ),
    ] = ""
    log_writes: Annotated[
        bool,
        typer.Option(
            "--log-writes",
            help="Log all writes to the empty disks in this start; plan durability then tries power cuts of the whole"
            " lab.",
        ),
    ] = False
    link: Annotated[
        str,
        typer.Option(
            "--link",
            metavar="NAME",
            help="Share the network of this lab, which is up, in this start: two hosts on one switch.",
            autocompletion=complete_lab,
        ),
    ] = ""
    source: Annotated[str, typer.Option("--from", metavar="NAME", help="Start from the saved state of this lab.")] = ""
