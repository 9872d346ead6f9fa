"""The command `vmtax store`: runs of one store in another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from vmtax.cli.app import app, fail, say
from vmtax.cli.command import App
from vmtax.core.errors import FAILED

if TYPE_CHECKING:
    from vmtax.store.copying import CopiedRun

store_app = App(help="Copy runs between stores.", no_args_is_help=True)
app.add_typer(store_app, name="store")


@store_app.command("copy")
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
    from vmtax.cli.store_address import refuse_missing, typed_address
    from vmtax.store import Store
    from vmtax.store.copying import copy_runs

    read, written = typed_address(source), typed_address(target)
    refuse_missing(read)
    with Store(read, reads=True) as origin, Store(written) as copy:
        outcomes = copy_runs(origin, copy, _tell)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    say(f"{written}: {counts or 'no runs'}")
    if outcomes["different"]:
        fail(f"{outcomes['different']} runs are not there as they are in {read}", FAILED)


def _tell(run: CopiedRun) -> None:
    more = run.why or (f"{run.trials} trials" if run.trials else "")
    say(f"{run.outcome:>13}  {run.id}  {more}".rstrip())
