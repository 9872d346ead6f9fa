"""A run under way, as other terminals see it: its state in one small private file, replaced as it goes on."""

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
    """Follows a run's events into its file, which the guard removes with everything else."""

    screen: Callable[[events.Event], None]  # what also gets every event; another one after the question

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
        with contextlib.suppress(OSError):  # a run goes on if it cannot be watched
            _write(self._path, self._state)


def read(experiment: str) -> State | None:
    """Where that run is now; None if it has no state file (any more)."""
    try:
        return TypeAdapter(State).validate_python(json.loads(_path(experiment).read_text()))
    except (OSError, ValueError, ValidationError):
        return None


def states(experiment: str, going_on: Callable[[], bool], every: float) -> Iterator[State]:
    """The state every `every` seconds, as long as the run goes on."""
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
        json.dump(dataclasses.asdict(state), file)  # NaN, which an early ratio may be, stays NaN
    temporary.replace(path)
