"""The option `--notify`: a command of the user's that is run here when a run has ended."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Set

from vmtax.cli.app import BadUse, warn
from vmtax.store import ExperimentSummary, Store, StoreError

STDERR = 2
SHELL = "/bin/sh"  # as system(3) takes it, whatever is in PATH
MOST_SECONDS = 60
# A program's name, without anything that a shell takes for syntax
WORD = re.compile(r"[A-Za-z0-9_./+-]+(?=\s+[^\s(]|\s*$)")


def checked_command(command: str | None) -> str:
    """The command, as a shell takes it; "" if there is none. Raises BadUse if it cannot be run: runs may take hours."""
    if command is None:
        return ""
    read = subprocess.run(
        [SHELL, "-n", "-c", command], stderr=subprocess.PIPE, text=True, errors="replace", check=False
    )
    said = [line for line in map(str.strip, command.splitlines()) if not line.startswith("#")]
    if read.returncode or not any(said):
        why = read.stderr.strip().rpartition("\n")[2] or "there is no program in it"
        raise BadUse(f"--notify {command!r}: {why}")
    name = WORD.match(command.lstrip())
    known = (SHELL, "-c", 'command -v -- "$1"', "sh")  # a program, or something of the shell's own
    if name and subprocess.run([*known, name[0]], stdout=subprocess.DEVNULL, check=False).returncode:
        raise BadUse(f"--notify: there is no program {name[0]}: name one by its path")
    return command


def seen(store: Store, host: str) -> set[tuple[object, ...]]:
    """The runs of a host and their states, to find out later which one went on: a host has one run at a time."""
    return {(run.id, run.state, run.ok, run.failed) for run in store.experiments() if run.host == host}


def notify(command: str, store: Store, host: str, before: Set[tuple[object, ...]]) -> None:
    """Run the command if a run of that host was begun, or went on, since `before`. What goes wrong is a warning."""
    if not command:
        return
    with contextlib.suppress(StoreError):  # which must not hide how the run ended
        now = [run for run in store.experiments() if run.host == host]
        changed = [run for run in now if (run.id, run.state, run.ok, run.failed) not in before]
        if changed:
            _run(command, changed[0])


def _run(command: str, run: ExperimentSummary) -> None:
    """Its output goes to stderr: stdout is the answer's."""
    about = {"VMTAX_RUN_ID": run.id, "VMTAX_RUN_STATE": run.state, "VMTAX_RUN_RESULT": run.result or ""}
    environment = {**os.environ, **about}
    with subprocess.Popen(
        [SHELL, "-c", command], env=environment, stdin=subprocess.DEVNULL, stdout=STDERR, start_new_session=True
    ) as process:
        try:
            code = process.wait(timeout=MOST_SECONDS)
        except subprocess.TimeoutExpired:
            warn(f"--notify had not ended after {MOST_SECONDS} s, and was ended")
        else:
            if code:
                warn(f"--notify ended with {code}")
        finally:  # also if Ctrl-C comes: all programs of a pipe
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
