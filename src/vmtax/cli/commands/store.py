"""The command `vmtax store`: runs of one store in another one."""

from __future__ import annotations

from typing import Annotated

import typer

from vmtax.cli import later
from vmtax.cli.command import App

app = App(help="Copy runs between stores.", no_args_is_help=True)


@app.command("copy")
def store_copy(
    source: Annotated[
        str,
        typer.Argument(metavar="FROM", help="The store that is read: a file, or postgresql://USER@HOST/DATABASE."),
    ],
    target: Annotated[
        str, typer.Argument(metavar="TO", help="The store that gets what it lacks; it is made if there is none.")
    ],
) -> None:
    """Copy all runs with their raw outputs from one store to another, and compare what arrived."""
    later.store.copy_store(source, target)
