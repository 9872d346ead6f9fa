"""What the command `vmtax store` does."""

from __future__ import annotations

from vmtax.cli.app import fail, say
from vmtax.cli.store_address import refuse_missing, typed_address
from vmtax.core.errors import FAILED
from vmtax.store import Store
from vmtax.store.copying import CopiedRun, copy_runs


def copy_store(source: str, target: str) -> None:
    """Say what became of each run."""
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
