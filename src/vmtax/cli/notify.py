"""The option `--notify`: a command of the user's that is run here when a run has ended."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence, Set

from vmtax.cli.app import BadUse, warn
from vmtax.store import ExperimentSummary, Store, StoreError

STDERR = 2
MOST_SECONDS = 60


def words_of(command: str | None) -> list[str]:
    """The command's words; [] if there is none. Raises BadUse if it cannot be run: a run may take hours."""
    if command is None:
        return []
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise BadUse(f"--notify {command!r}: {error}") from error
    if not words or shutil.which(words[0]) is None:
        raise BadUse(f"--notify: there is no program {words[0] if words else command!r}: name one by its path")
    return words


def seen(store: Store, host: str) -> set[tuple[object, ...]]:
    """The runs of a host and their states, to find out later which one went on: a host has one run at a time."""
    return {(run.id, run.state, run.ok, run.failed) for run in store.experiments() if run.host == host}


def notify(words: Sequence[str], store: Store, host: str, before: Set[tuple[object, ...]]) -> None:
    """Run the command if a run of that host was begun, or went on, since `before`. What goes wrong is a warning."""
    if not words:
        return
    with contextlib.suppress(StoreError):  # which must not hide how the run ended
        now = [run for run in store.experiments() if run.host == host]
        changed = [run for run in now if (run.id, run.state, run.ok, run.failed) not in before]
        if changed:
            _run(words, changed[0])


def _run(words: Sequence[str], run: ExperimentSummary) -> None:
    """Its output goes to stderr: stdout is the answer's."""
    about = {"VMTAX_RUN_ID": run.id, "VMTAX_RUN_STATE": run.state, "VMTAX_RUN_RESULT": run.result or ""}
    environment = {**os.environ, **about}
    try:
        done = subprocess.run(
            words, env=environment, stdin=subprocess.DEVNULL, stdout=STDERR, timeout=MOST_SECONDS, check=False
        )
    except OSError as error:
        warn(f"--notify: {words[0]}: {error.strerror}")
    except subprocess.TimeoutExpired:
        warn(f"--notify: {words[0]} had not ended after {MOST_SECONDS} s, and was ended")
    else:
        if done.returncode:
            warn(f"--notify: {words[0]} ended with {done.returncode}")
