"""The option `--notify`: a command of the user's that is run here when a run has ended."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence

from vmtax.cli.app import BadUse, warn
from vmtax.store import ExperimentSummary, Store


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


@contextlib.contextmanager
def notified(store: Store, words: Sequence[str]) -> Iterator[None]:
    """Run the command at the end, however that comes, if a run was begun or went on in between."""
    before = {(run.id, run.state, run.ok, run.failed) for run in store.experiments()} if words else set()
    try:
        yield
    finally:
        if words:
            changed = [run for run in store.experiments() if (run.id, run.state, run.ok, run.failed) not in before]
            if changed:
                _notify(words, changed[0])


def _notify(words: Sequence[str], run: ExperimentSummary) -> None:
    """What goes wrong with the command is a warning."""
    about = {"VMTAX_RUN": run.id, "VMTAX_STATE": run.state, "VMTAX_RESULT": run.result or ""}
    try:
        code = subprocess.run(words, env={**os.environ, **about}, stdin=subprocess.DEVNULL, check=False).returncode
    except OSError as error:
        warn(f"--notify: {words[0]}: {error.strerror}")
        return
    if code:
        warn(f"--notify: {words[0]} ended with {code}")
