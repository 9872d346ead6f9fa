"""What a list of runs has of each run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

from vmtax.core.records import State


@dataclass(frozen=True, slots=True)
class ExperimentSummary:
    """One line of `vmtax runs`."""

    id: str  # id of the run; it is unique, and ids sort by time
    name: str  # name of the plan; "" if the run is damaged
    host: str  # the host, as given: "local" or "ssh://user@host"; "" if the run is damaged
    created: float  # time of the start, in seconds since the epoch; 0 if the run is damaged
    finished: float | None  # time of the end, in seconds since the epoch; None: not finished
    state: State | Literal["damaged"]  # "interrupted" also if the process that ran it is gone
    treatments: int  # number of treatments that are compared
    rounds: int  # number of rounds in which every treatment has a trial; the last one of a running run may still be in
    # progress
    ok: int  # number of trials that succeeded
    failed: int  # number of trials that failed or were refused
    label: str = ""  # label that the user gave to the run; "": none
    seconds: float | None = None  # duration, including set-up but not pauses; None: the run is in progress, or its
    # duration is unknown
    emulated: bool | None = None  # whether a guest, or a machine below one, was emulated; None: the run booted no guest
    result: str = ""  # the headline of the results in a few words; "": there is none


class Summaries(Sequence[ExperimentSummary]):
    """Summaries that are read when they are asked for: most questions are about the newest run, of many."""

    def __init__(self, rows: Sequence[Any], read: Callable[[Any], ExperimentSummary]) -> None:
        self._rows, self._read, self._known = rows, read, dict[int, ExperimentSummary]()

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> ExperimentSummary: ...
    @overload
    def __getitem__(self, place: slice) -> Summaries: ...
    def __getitem__(self, place: int | slice) -> ExperimentSummary | Summaries:
        if isinstance(place, slice):
            return Summaries(self._rows[place], self._read)
        if place not in self._known:
            self._known[place] = self._read(self._rows[place])
        return self._known[place]
