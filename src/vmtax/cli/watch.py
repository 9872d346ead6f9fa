"""What `vmtax watch` does."""

from __future__ import annotations

import contextlib
import sys

from vmtax.cli.app import BadUse, fail, say
from vmtax.core.errors import FAILED
from vmtax.core.names import LAST
from vmtax.experiment import live, progress
from vmtax.store import Store
from vmtax.store.choice import is_running
from vmtax.store.failure import NoneFits


def watch(run: str) -> None:
    """Until it ends, or Ctrl-C."""
    with Store(reads=True) as store:
        try:
            chosen = store.choose(run or LAST, (is_running,)).run
        except NoneFits:
            fail("no run is running: `vmtax run` starts one, `vmtax runs` lists all runs", FAILED)
        id = chosen.id
        if not is_running(chosen):  # an id means its run
            raise BadUse(f"run {id} is not running: `vmtax runs` lists all runs")

        def going_on() -> bool:
            return next(entry.state for entry in store.experiments() if entry.id == id) == "running"

        say(f"run {id}", file=sys.stderr)
        with contextlib.suppress(KeyboardInterrupt):
            progress.follow(live.states(id, going_on, every=0.5))
        state = next(entry.state for entry in store.experiments() if entry.id == id)
    say(f"run {id} is {state}: vmtax show {id}", file=sys.stderr)
