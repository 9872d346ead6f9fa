"""States in which several disks may be found after their host lost the power: all of them at the same instant.

Each disk has a log of its own, and no log says what came first on two disks. So somebody watches how long the logs are
while they grow. Where all lengths are read, and read again and are the same, then all logs had these lengths at the
moment between the last of the first readings and the first of the second: a log never becomes shorter. QEMU carries a
request out, writes its entry and then completes it, so whoever waited for one request before the next has the entry of
the first in its log by then. The power may have gone at that moment. What a log does not have then was not completed,
and of what it has, everything up to its last flush is on its disk. Of the rest anything may be, on each disk
independently, as each has a cache of its own (power_cut.py).

Of one disk alone each entry of its log is such an instant, so nobody need have watched.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vmtax.storage.power_cut import TRIES, Acknowledged, Disk, History, Moment, known, most

Lengths = tuple[int, ...]  # bytes, of each log
Heard = Sequence[tuple[Lengths, Acknowledged]]  # in order: an instant, and what was known to be acknowledged by then
PAUSE_SECONDS = 0.001
STILL_SECONDS = 0.5  # in which a log does not grow, when nobody writes


def lengths(logs: Sequence[Path]) -> Lengths | None:
    """How long they are, all at the same instant; None if one of them grew meanwhile."""
    found = tuple(log.stat().st_size for log in logs)
    return found if len(logs) == 1 or tuple(log.stat().st_size for log in logs) == found else None


def at_rest(logs: Sequence[Path], seconds: float) -> Lengths | None:
    """How long they are, once none has grown for STILL_SECONDS; None if one grows again and again for `seconds`."""
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
class State:
    """A state of all disks."""

    moments: tuple[Moment, ...]  # of each disk
    gone: tuple[int, ...] = ()  # disks that are not there any more, by their place in `moments`


class States:
    """The states that may be found, and what had been acknowledged in each."""

    def __init__(
        self, histories: Sequence[History], heard: Heard, written: Callable[[memoryview], Acknowledged]
    ) -> None:
        """`heard` and `written` as of power_cut.known()."""
        self._histories, self._heard = histories, heard
        one = [(each[0], then) for each, then in heard] if self._is_one else []
        self._known = [known(history, one, written) for history in histories]
        # Several at which no request more was carried out are one, and the latest knows most.
        self._instants = {} if self._is_one else {self._places(each): then for each, then in heard}

    @property
    def _is_one(self) -> bool:
        return len(self._histories) == 1

    def _places(self, at: Lengths) -> tuple[int, ...]:
        return tuple(history.place(each) for history, each in zip(self._histories, at, strict=True))

    @property
    def before(self) -> State:
        """The disks as they were before all this was written."""
        return State(tuple(Moment(0, None) for _ in self._histories))

    def draw(self, count: int, seed: int) -> list[State]:
        """At most `count` different ones in their order, the last instant among them.

        In half of them all writes have arrived, or in fewer where there are not so many instants. In the others some
        writes are missing that were not flushed. Of several disks, one that is drawn is gone in half of all states.
        """
        if self._is_one:
            first = self._histories[0].place(self._heard[0][0][0])
            return [State((moment,)) for moment in self._histories[0].moments(first, count, seed)]
        draw, found = random.Random(seed), dict[object, State]()
        for lacks, room in ((False, count - count // 2), (True, count // 2)):
            some: dict[object, State] = {}
            for state in self._drawn(draw, room, lacks=lacks):
                some.setdefault(self._content(state), state)
                if len(some) == room:
                    break
            found |= some
        return sorted(found.values(), key=lambda state: ([each.place for each in state.moments], state.gone))

    def _drawn(self, draw: random.Random, room: int, *, lacks: bool) -> Iterator[State]:
        """Candidates, some of them equal: half of `room` or fewer with all writes, the last instant first; then others.

        lacks: whether a disk is gone
        """
        instants, disks = list(self._instants), range(len(self._histories))
        if not instants or not room:
            return
        gone: list[tuple[int, ...]] = [(number,) for number in disks] if lacks else [()]
        last = (instants[-1], draw.choice(gone))
        whole = [each for each in itertools.product(instants, gone) if each != last]
        for places, without in (last, *draw.sample(whole, min(len(whole), (room + 1) // 2 - 1))):
            yield State(tuple(Moment(place, None) for place in places), without)
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
                yield State(tuple(map(Moment, places, seeds)), without)

    def _content(self, state: State) -> object:
        """What makes it another state than others."""
        return state.gone, tuple(
            (moment.place, tuple(sorted(history.missing(moment).items())))
            for history, moment in zip(self._histories, state.moments, strict=True)
        )

    def acknowledged(self, state: State) -> Acknowledged:
        """What had been acknowledged by then, at least."""
        places = tuple(moment.place for moment in state.moments)
        found = {} if self._is_one else self._instants[places]
        for each, place in zip(self._known, places, strict=True):
            found = most(found, each[place])
        return found

    def words(self, state: State) -> str:
        """The state, as it is kept: it can be made again from this."""
        places = ", ".join(str(moment.place) for moment in state.moments)
        entries = ", ".join(str(len(history.entries)) for history in self._histories)
        seeds = ", ".join("none" if moment.seed is None else str(moment.seed) for moment in state.moments)
        lacks = any(moment.seed is not None for moment in state.moments)
        partly = f", without some of those since the last flush (seed {seeds})" if lacks else ""
        gone = "".join(f", disk {number + 1} gone" for number in state.gone)
        return f"after {places} of {entries} requests{partly}{gone}"


class Disks:
    """The disks of some histories, at one moment after the other."""

    def __init__(self, disks: Sequence[Disk], targets: Sequence[Path]) -> None:
        """`targets`: files that are there, each of which is to hold one of the disks"""
        self._disks, self._targets = disks, targets

    def close(self) -> None:
        for disk in self._disks:
            disk.close()

    def write(self, state: State) -> None:
        """Have the targets hold the disks at that moment, and nothing of a disk that is gone."""
        for number, (disk, moment, target) in enumerate(zip(self._disks, state.moments, self._targets, strict=True)):
            if number in state.gone:
                size = target.stat().st_size
                with target.open("r+b") as file:
                    file.truncate(0)
                    file.truncate(size)
            else:
                disk.write(moment, target)
