"""What `vmtax watch` does."""

from __future__ import annotations

import contextlib
import sys

from vmtax.cli.app import BadUse, fail, say
from vmtax.core.errors import FAILED
from vmtax.experiment import live, progress
from vmtax.store import Store


def watch(run: str) -> None:
    """Until it ends, or Ctrl-C."""
    with Store(reads=True) as store:
        meant = [entry for entry in store.experiments() if entry.label == run or entry.id.startswith(run)]
        running = [entry for entry in meant if entry.state == "running"]
        if not running:
            if run:
                raise BadUse(f"run {run} is not running: `vmtax runs` lists all runs")
            fail("no run is running: `vmtax run` starts one, `vmtax runs` lists all runs", FAILED)
        id = running[0].id

        def going_on() -> bool:
            return next(entry.state for entry in store.experiments() if entry.id == id) == "running"

        say(f"run {id}", file=sys.stderr)
        with contextlib.suppress(KeyboardInterrupt):
            progress.follow(live.states(id, going_on, every=0.5))
        state = next(entry.state for entry in store.experiments() if entry.id == id)
    say(f"run {id} is {state}: vmtax show {id}", file=sys.stderr)
