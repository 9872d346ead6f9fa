"""The state of a run in progress, in one small private file that other terminals read; it is replaced with each
change.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from pydantic import TypeAdapter, ValidationError

from vmtax.core import events
from vmtax.experiment.progress import State
from vmtax.machine.local import LocalMachine
from vmtax.system.paths import make_private, private, state_home

WRITE_SECONDS = 0.5  # between two writes while only a detail of a step changes


class Journal:
    """Writes a run's events to its state file, which the guard removes together with the run's other files."""

    screen: Callable[[events.Event], None]  # also gets every event; replaced after the question was answered

    def __init__(self, local: LocalMachine) -> None:
        self._local = local
        self._state = State()
        self._path: Path | None = None
        self._written, self._step = 0.0, ""

    def emit(self, one: events.Event) -> None:
        self.screen(one)
        self._state.take(one)
        if isinstance(one, events.RunStarted):
            self._path = _path(one.experiment)
            for path in (self._path, _new(self._path)):
                self._local.remove_later(PurePosixPath(path))
        step = one.what if isinstance(one, events.Step) else ""
        detail = step and step == self._step
        if self._path is None or (detail and time.monotonic() - self._written < WRITE_SECONDS):
            return
        self._written, self._step = time.monotonic(), step
        with contextlib.suppress(OSError):  # a run continues even if nobody can watch it
            _write(self._path, self._state)


def read(experiment: str) -> State | None:
    """The present state of that run; None if it has no state file, or no longer."""
    try:
        return TypeAdapter(State).validate_python(json.loads(_path(experiment).read_text()))
    except (OSError, ValueError, RecursionError, ValidationError):
        return None


def states(experiment: str, going_on: Callable[[], bool], every: float) -> Iterator[State]:
    """The state every `every` seconds while the run is in progress."""
    while going_on():
        state = read(experiment)
        if state is not None:
            yield state
        time.sleep(every)


def live_directory() -> Path:
    return state_home() / "live"


def _path(experiment: str) -> Path:
    return live_directory() / f"{experiment}.json"


def _new(path: Path) -> Path:
    return path.with_suffix(".new")


def _write(path: Path, state: State) -> None:
    make_private(path.parent)
    temporary = _new(path)
    with open(temporary, "w", opener=private) as file:
        json.dump(dataclasses.asdict(state), file)  # NaN, which an early ratio may be, is written as NaN
    temporary.replace(path)
