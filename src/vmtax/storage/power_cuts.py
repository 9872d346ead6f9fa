"""States in which several disks may be found after their host lost power: all of them at the same instant.

Each disk has its own log, and the logs do not show which of two writes on different disks came first. So the lengths of
the logs are watched while they grow. If all lengths are read twice with the same result, then all logs had these
lengths at the moment between the last reading of the first pass and the first of the second, because a log never
becomes shorter. QEMU carries a request out, writes its log entry and then completes it, so a request that was waited
for is in its log before the next one begins. The power may have failed at that moment. What is not in a log then was
not completed; of what is in it, everything up to the last flush is on the disk. The rest may or may not be there, on
each disk independently, as each disk has its own cache (power_cut.py).

With a single disk, each entry of its log is such an instant, so nothing has to be watched.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vmtax.storage.power_cut import TRIES, Acknowledged, CutMoment, History, ReplayedDisk, known, most

Lengths = tuple[int, ...]  # bytes, of each log
Heard = Sequence[tuple[Lengths, Acknowledged]]  # in order: an instant, and what was known to be acknowledged by then
PAUSE_SECONDS = 0.001
STILL_SECONDS = 0.5  # without growth of a log: writing has ended


def lengths(logs: Sequence[Path]) -> Lengths | None:
    """The lengths of the logs at the same instant; None if one of them grew meanwhile."""
    found = tuple(log.stat().st_size for log in logs)
    return found if len(logs) == 1 or tuple(log.stat().st_size for log in logs) == found else None


def at_rest(logs: Sequence[Path], seconds: float) -> Lengths | None:
    """The lengths of the logs, once none has grown for STILL_SECONDS; None if one keeps growing for `seconds`."""
    end = time.monotonic() + seconds
    latest, since = lengths(logs), time.monotonic()
    while (now := time.monotonic()) < end:
        if (found := lengths(logs)) is None or found != latest:
            latest, since = found, now
        elif now - since > STILL_SECONDS:
            return found
        time.sleep(PAUSE_SECONDS)
    return None


@dataclass(frozen=True, slots=True)
class DiskState:
    """A state of all disks."""

    moments: tuple[CutMoment, ...]  # one for each disk
    gone: tuple[int, ...] = ()  # disks that are missing, by their index in `moments`


class States:
    """The possible states, and what had been acknowledged in each."""

    def __init__(
        self, histories: Sequence[History], heard: Heard, written: Callable[[memoryview], Acknowledged]
    ) -> None:
        """`heard` and `written`: as in power_cut.known()."""
        self._histories, self._heard = histories, heard
        one = [(each[0], then) for each, then in heard] if self._is_one else []
        self._known = [known(history, one, written) for history in histories]
        # Several instants with the same requests carried out are one; the latest has the most acknowledgements.
        self._instants = {} if self._is_one else {self._places(each): then for each, then in heard}

    @property
    def _is_one(self) -> bool:
        return len(self._histories) == 1

    def _places(self, at: Lengths) -> tuple[int, ...]:
        return tuple(history.place(each) for history, each in zip(self._histories, at, strict=True))

    @property
    def before(self) -> DiskState:
        """The disks before anything was written."""
        return DiskState(tuple(CutMoment(0, None) for _ in self._histories))

    def draw(self, count: int, seed: int) -> list[DiskState]:
        """At most `count` different states in their order, the last instant among them.

        Up to half of them have all writes; fewer if there are not enough instants. The others lack some writes that
        were not flushed. If there are several disks, a random one is missing in half of all states.
        """
        if self._is_one:
            first = self._histories[0].place(self._heard[0][0][0])
            return [DiskState((moment,)) for moment in self._histories[0].moments(first, count, seed)]
        draw, found = random.Random(seed), dict[object, DiskState]()
        for lacks, room in ((False, count - count // 2), (True, count // 2)):
            some: dict[object, DiskState] = {}
            for state in self._drawn(draw, room, lacks=lacks):
                some.setdefault(self._content(state), state)
                if len(some) == room:
                    break
            found |= some
        return sorted(found.values(), key=lambda state: ([each.place for each in state.moments], state.gone))

    def _drawn(self, draw: random.Random, room: int, *, lacks: bool) -> Iterator[DiskState]:
        """Candidates, with duplicates: up to half of `room` with all writes, the last instant first; then others.

        lacks: whether a disk is missing
        """
        instants, disks = list(self._instants), range(len(self._histories))
        if not instants or not room:
            return
        gone: list[tuple[int, ...]] = [(number,) for number in disks] if lacks else [()]
        last = (instants[-1], draw.choice(gone))
        whole = [each for each in itertools.product(instants, gone) if each != last]
        for places, without in (last, *draw.sample(whole, min(len(whole), (room + 1) // 2 - 1))):
            yield DiskState(tuple(CutMoment(place, None) for place in places), without)
        for _ in range(TRIES * room):
            places, without = draw.choice(instants), draw.choice(gone)
            may_lack = [
                number
                for number, (history, place) in enumerate(zip(self._histories, places, strict=True))
                if number not in without and any(entry.length for entry in history.unflushed(place))
            ]
            if may_lack:
                lack = draw.sample(may_lack, draw.randint(1, len(may_lack)))
                seeds = (draw.getrandbits(32) if number in lack else None for number in disks)
                yield DiskState(tuple(map(CutMoment, places, seeds)), without)

    def _content(self, state: DiskState) -> object:
        """What distinguishes a state from others."""
        return state.gone, tuple(
            (moment.place, tuple(sorted(history.missing(moment).items())))
            for history, moment in zip(self._histories, state.moments, strict=True)
        )

    def acknowledged(self, state: DiskState) -> Acknowledged:
        """What had certainly been acknowledged by then."""
        places = tuple(moment.place for moment in state.moments)
        found = {} if self._is_one else self._instants[places]
        for each, place in zip(self._known, places, strict=True):
            found = most(found, each[place])
        return found

    def words(self, state: DiskState) -> str:
        """The state as text that is stored: the state can be rebuilt from it."""
        places = ", ".join(str(moment.place) for moment in state.moments)
        entries = ", ".join(str(len(history.entries)) for history in self._histories)
        seeds = ", ".join("none" if moment.seed is None else str(moment.seed) for moment in state.moments)
        lacks = any(moment.seed is not None for moment in state.moments)
        partly = f", without some of those since the last flush (seed {seeds})" if lacks else ""
        gone = "".join(f", disk {number + 1} gone" for number in state.gone)
        return f"after {places} of {entries} requests{partly}{gone}"


class ReplayedDisks:
    """The disks of several histories at one moment after another."""

    def __init__(self, disks: Sequence[ReplayedDisk], targets: Sequence[Path]) -> None:
        """`targets`: existing files, one for each disk"""
        self._disks, self._targets = disks, targets

    def close(self) -> None:
        for disk in self._disks:
            disk.close()

    def write(self, state: DiskState) -> None:
        """Write the disks' contents at that moment to the targets; a missing disk becomes empty."""
        for number, (disk, moment, target) in enumerate(zip(self._disks, state.moments, self._targets, strict=True)):
            if number in state.gone:
                size = target.stat().st_size
                with target.open("r+b") as file:
                    file.truncate(0)
                    file.truncate(size)
            else:
                disk.write(moment, target)
