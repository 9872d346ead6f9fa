"""Check the states of cut disks in guests: several at once, each with its own files that hold the states.

A fault of the checking guest must not be mistaken for a fault of the disk. So before a guest's first loss counts, the
same state is rebuilt from the log in other files, and another guest, booted for this, must find the same.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import queue
import shutil
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NotRequired

from typing_extensions import TypedDict

from vmtax.core.errors import CannotDo
from vmtax.core.machines import first_line
from vmtax.core.records import Json
from vmtax.hypervisor import Guest
from vmtax.machine import MachineError, Process
from vmtax.machine.answer import json_or_none
from vmtax.machine.pipes import read_line
from vmtax.storage.copies import Copies
from vmtax.storage.power_cut import History, ReplayedDisk
from vmtax.storage.power_cuts import DiskState, ReplayedDisks, States
from vmtax.testbed.session.base import Cut
from vmtax.testbed.storage.cutting import CHECKED_ID, HOST_ID
from vmtax.workload.durability import Counts, Durability
from vmtax.workload.durability.stacks import Stack

MOUNT = "/mnt"
STATE_SECONDS = 120.0  # to check one state
WORTH = 20  # states that another guest must take over to be worth the seconds of its boot


class CheckedWriter(TypedDict):
    """What is wrong with the records of one writer."""

    lost: int  # number of records
    torn: int  # number of records
    words: str  # the first error


class CheckedState(TypedDict):
    """What the program in the guest says of one state."""

    state: int | None
    file_system: str  # what is wrong with it
    writers: dict[str, CheckedWriter]
    image: NotRequired[str]
    error: NotRequired[str]


@dataclass(frozen=True, slots=True)
class StateResult:
    """What a guest found in one state of a disk."""

    answer: Json  # from the program in the guest
    image: str  # qemu-img's complaint about the image; "" if there is none

    def is_loss(self, acknowledged: Mapping[str, int]) -> bool:
        counts = Counts()
        counts.add(self.answer, acknowledged, self.image)
        return counts.lost > 0

    @property
    def verdict(self) -> object:
        """The part of the result on which two guests must agree."""
        writers = self.answer.get("writers") or {}
        hurt = {name: (one["lost"] > 0, one["torn"] > 0) for name, one in writers.items()}
        return bool(self.answer["file_system"]), bool(self.image), hurt

    def words(self) -> str:
        return json.dumps({**self.answer, "image": self.image})


class Verifier:
    """The program that checks states, in a guest of its own."""

    def __init__(
        self, guest: Guest, disks: Sequence[str], workload: Durability, inside: str, stack: Stack | None = None
    ) -> None:
        """`disks`: the guest's names of the disks that hold the states."""
        self._number, self._console = 0, guest.console
        device, *beside = filter(None, map(guest.spec.device, disks))
        assert len(beside) + 1 == len(disks)
        if inside or stack:
            guest.machine.run("modprobe", "loop")
        if stack is not None and stack.modules:
            guest.machine.run("modprobe", "-a", *stack.modules)
        self._process = guest.machine.start(*workload.checking(device, MOUNT, inside, stack, beside))

    def refuse_unread(self) -> None:
        """Raises MachineError if the guest's disk cannot be found in a state in which it must be there."""
        state = self._asked({"state": 0, "acknowledged": {}, "whole": True})
        if wrong := state["file_system"] or state.get("image"):
            raise MachineError(f"the host's disk cannot be read here as it was before anything was tried: {wrong}")

    def verify(self, acknowledged: Mapping[str, int], image: str) -> StateResult:
        """Check the state that the disks now hold. `image`: qemu-img's complaint. Raises MachineError."""
        self._number += 1
        answer = self._asked({"state": self._number, "acknowledged": dict(acknowledged)})
        return StateResult({**answer}, image or answer.get("image", ""))

    def _asked(self, wanted: Json) -> CheckedState:
        self._process.stdin.write(json.dumps(wanted).encode() + b"\n")
        self._process.stdin.flush()
        try:
            answer = read_answer(self._process, STATE_SECONDS)
        except MachineError as failure:
            raise MachineError(f"{failure}\n{wanted}\n{self._console.text()}") from None
        state = json_or_none(answer, CheckedState)
        if state is None:
            raise MachineError(f"no state, but {answer[:100]!r}: {first_line(self._process.stderr_tail())}")
        if error := state.get("error"):
            raise MachineError(f"a state could not be checked: {error}")
        return state

    def end(self) -> None:
        self._process.stop()


class Checker:
    """A guest and the files that hold the states for it."""

    def __init__(self, checks: Checks, number: int, guest: Guest, guests: Copies, disks: ReplayedDisks) -> None:
        """`guests`: copies of the disk of the guest that was ended."""
        self._checks, self._guests, self._disks = checks, guests, disks
        self._is_confirmed = False
        cut, workload, host = checks.cut, checks.workload, checks.cut.host_disks
        self._of_guest = Verifier(guest, [CHECKED_ID], workload, cut.inside) if host is None or not number else None
        names = [HOST_ID.format(place) for place in range(1, len(host.disks) + 1)] if host else []
        self._of_host = Verifier(guest, names, workload, "", host.stack) if host else None

    def check_ended(self, acknowledged: Mapping[str, int]) -> StateResult:
        """Check the disk as the ended guest left it; the files hold a copy. Raises MachineError."""
        assert self._of_guest is not None
        return self._of_guest.verify(acknowledged, self._guests.check_and_convert())

    def refuse_unread(self) -> None:
        """Raises MachineError if the host's disks cannot be read as they were before the guest wrote."""
        if self._of_host is not None:
            self._disks.write(self._checks.states.before)
            self._of_host.refuse_unread()

    def check(self, state: DiskState) -> StateResult:
        """Check one state. Raises MachineError, also if another guest comes to a different result."""
        result = self._result(state)
        if not self._is_confirmed and result.is_loss(self._checks.states.acknowledged(state)):
            with self._checks.confirming, self._checks.opened() as other:
                again = other._result(state)
            if again.verdict != result.verdict:
                raise MachineError(
                    "two guests checked the same state and do not agree, so nothing counts:"
                    f" {self._checks.states.words(state)}: {result.words()}, then {again.words()}"
                )
            self._is_confirmed = True
        return result

    def _result(self, state: DiskState) -> StateResult:
        self._disks.write(state)
        then = self._checks.states.acknowledged(state)
        if self._of_host is not None:
            return self._of_host.verify(then, "")
        assert self._of_guest is not None
        return self._of_guest.verify(then, self._guests.check_and_convert())

    def end(self) -> None:
        for verifier in filter(None, (self._of_guest, self._of_host)):
            verifier.end()


@dataclass
class Checks:
    """The states of one trial's disks, and the guests that check them."""

    cut: Cut
    workload: Durability
    histories: Sequence[History]  # of the disks that are rebuilt
    states: States
    # Only one guest at a time: there is memory and disk space for one such guest beside the regular ones.
    confirming: threading.Lock = field(default_factory=threading.Lock, init=False)
    _numbers: Iterator[int] = field(default_factory=itertools.count, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    @contextlib.contextmanager
    def opened(self) -> Iterator[Checker]:
        """Boot a checking guest; the first one uses the trial's own copies, the others copies of their own.

        Raises BootFailed, MachineError.
        """
        with self._lock:
            number = next(self._numbers)
        host = self.cut.host_disks
        with contextlib.ExitStack() as ends:
            guests = _of_checker(self.cut.copies, number, ends)
            below = [_of_checker(disk.copies, number, ends) for disk in host.disks] if host else []
            rebuilt = below or [guests]
            each = [
                ReplayedDisk(history, of.before, of.flushed)
                for history, of in zip(self.histories, rebuilt, strict=True)
            ]
            disks = ReplayedDisks(each, [of.image for of in rebuilt])
            ends.callback(disks.close)
            guest = ends.enter_context(self.cut.boot_checker(guests, below))
            checker = Checker(self, number, guest, guests, disks)
            ends.callback(checker.end)
            yield checker

    def checked(
        self, first: Checker, drawn: Sequence[DiskState]
    ) -> Generator[tuple[DiskState, StateResult], None, None]:
        """Yield each state with its result as it becomes known; uses several guests if that saves time.

        Raises the exception of the first guest that failed.
        """
        todo, results = iter(drawn), queue.SimpleQueue[tuple[DiskState, StateResult] | Exception | None]()

        def following() -> DiskState | None:
            with self._lock:
                return next(todo, None)

        def work() -> None:
            try:
                with contextlib.ExitStack() as ends:
                    try:
                        checker = ends.enter_context(self.opened())
                    except CannotDo:
                        return  # an additional guest would only have saved time
                    while (state := following()) is not None:
                        results.put((state, checker.check(state)))
            except Exception as error:
                results.put(error)
            finally:
                results.put(None)

        working = min(self.cut.checkers, len(drawn) // WORTH) - 1
        if working < 1:
            yield from ((state, first.check(state)) for state in drawn)
            return
        # The pool's threads must live as long as the guests: the kernel kills a bubblewrap when the thread that started
        # it ends.
        pool, waits = ThreadPoolExecutor(working, "checker"), True
        try:
            for _ in range(working):
                pool.submit(work)
            while working:
                state = following()
                if state is not None:
                    yield state, first.check(state)
                while working and (state is None or not results.empty()):
                    one = results.get()
                    if isinstance(one, Exception):
                        raise one
                    if one is None:
                        working -= 1
                    else:
                        yield one
            # The other guests may have ended before the first one took the last states.
            while (state := following()) is not None:
                yield state, first.check(state)
        except KeyboardInterrupt:
            waits = False  # the guard ends the guests
            raise
        finally:
            with self._lock:
                todo = iter(())
            pool.shutdown(wait=waits)


def _of_checker(copies: Copies, number: int, ends: contextlib.ExitStack) -> Copies:
    """The given copies for the first guest; for any other its own, which `ends` removes."""
    if not number:
        return copies
    own = copies.twin(number)
    ends.callback(shutil.rmtree, own.directory)
    return own


def read_answer(process: Process, seconds: float) -> str:
    """The next line of the answer. Raises MachineError if none comes in time."""
    try:
        return read_line(process.stdout, time.monotonic() + seconds).decode(errors="replace").strip()
    except TimeoutError:
        raise MachineError(f"no answer within {seconds:.0f} s: {first_line(process.stderr_tail())}") from None
