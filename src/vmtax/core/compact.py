"""Numbers of many records in little memory: their names are kept once, and the numbers themselves as bare bytes.

A run may have 100,000 trials, each with dozens of readings: as dictionaries and tuples of objects they take some times
as much. Trials from the store are packed: their readings are some mapping, and their latencies some sequence.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, overload

from vmtax.core.records import Trial

_Value = TypeVar("_Value")


class Compact(Mapping[str, _Value]):
    """A mapping that cannot be changed, and shares its names with others of the same shape."""

    __slots__ = ("_places", "_values")

    def __init__(self, places: Mapping[str, int], values: Sequence[_Value]) -> None:
        """`places`: name -> its place in `values`, in this order."""
        self._places, self._values = places, values

    def __getitem__(self, name: str) -> _Value:
        return self._values[self._places[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __repr__(self) -> str:
        return repr(dict(self))


class CompactPairs(Sequence[tuple[float, float]]):
    """Pairs that cannot be changed, and share the first of each with others of the same shape."""

    __slots__ = ("_firsts", "_seconds")

    def __init__(self, firsts: tuple[float, ...], seconds: array[float]) -> None:
        self._firsts, self._seconds = firsts, seconds

    @overload
    def __getitem__(self, place: int) -> tuple[float, float]: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[tuple[float, float], ...]: ...
    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return tuple(self)[place]
        return self._firsts[place], self._seconds[place]

    def __iter__(self) -> Iterator[tuple[float, float]]:
        return zip(self._firsts, self._seconds, strict=True)

    def __len__(self) -> int:
        return len(self._firsts)

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, (tuple, CompactPairs)) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


class Packer:
    """Makes the trials of a run compact; what several of them have in common is kept once."""

    TEXTS = ("treatment", "workload", "case", "status", "machine")

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._shapes: dict[tuple[str, ...], Mapping[str, int]] = {}
        self._shares: dict[tuple[float, ...], tuple[float, ...]] = {}

    def packed(self, trial: Trial) -> Trial:
        """An equal trial."""
        changes: dict[str, Any] = {name: self._one(getattr(trial, name)) for name in self.TEXTS}
        if trial.latencies:
            shares = tuple(share for share, _ in trial.latencies)
            seconds = array("d", [seconds for _, seconds in trial.latencies])
            changes["latencies"] = CompactPairs(self._shares.setdefault(shares, shares), seconds)
        if trial.readings:
            read = tuple(Compact(self._shape(rows), array("d", rows.values())) for rows in trial.readings.values())
            changes["readings"] = Compact(self._shape(trial.readings), read)
        return replace(trial, **changes)

    def _one(self, text: str) -> str:
        return self._texts.setdefault(text, text)

    def _shape(self, named: Mapping[str, object]) -> Mapping[str, int]:
        names = tuple(named)
        if names not in self._shapes:
            self._shapes[names] = {self._one(name): place for place, name in enumerate(names)}
        return self._shapes[names]


def unpacked(trial: Trial) -> Trial:
    """An equal trial of ordinary dictionaries and tuples, which can be written as JSON."""
    readings = {path: dict(rows) for path, rows in trial.readings.items()}
    return replace(trial, latencies=tuple(trial.latencies), readings=readings)
