"""The end of a guest while it writes: what its disk then holds, and what it would hold had its host lost the power."""

from __future__ import annotations

import contextlib
import json
import os
import random
import selectors
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from vmtax.core.errors import CannotDo
from vmtax.core.events import Event, Step
from vmtax.core.machines import first_line
from vmtax.core.records import Json, Trial
from vmtax.experiment.trial import TrialKey, new_trial
from vmtax.hypervisor import Guest
from vmtax.machine import Machine, MachineError, Process
from vmtax.machine.pipes import read_line
from vmtax.storage.copies import fetch
from vmtax.storage.power_cut import Disk, History, Moment, known, opened
from vmtax.testbed.base import Cut, RunningSubject, RunningTreatment
from vmtax.testbed.cutting import CHECKED_ID, HOST_ID, MAKE_FILE_SYSTEM, MAKE_SECONDS
from vmtax.workload import Workload
from vmtax.workload.durability import HOST_CUT, KILLED, POWER_CUT, STACK_CUT, Counts, Durability
from vmtax.workload.durability.records import issued
from vmtax.workload.durability.stacks import Stack

WHAT = (Durability.name, "")  # workload and case
MOUNT = "/mnt"
READY_SECONDS = 300.0  # until the writers have prepared their files
STATE_SECONDS = 120.0  # to check one state
LISTEN_SECONDS = 0.05  # between two looks at how long the log is
MOST_BAD = 20  # states that are described in what is kept of a trial
Acknowledged = dict[str, int]  # writer -> its records


class EndWhileWriting:
    """Each guest is killed at a moment that is drawn for it, and its disk checked in the states that it may be in."""

    workload: ClassVar[str] = Durability.name

    def perform(
        self, key: TrialKey, running: RunningTreatment, workload: Workload[Any] | None, emit: Callable[[Event], None]
    ) -> Sequence[Trial]:
        if not isinstance(workload, Durability):
            return ()
        cuts = [(one, one.cut) for one in running.subjects if one.cut is not None]
        return [_trial(key, running, one, cut, workload, emit, self.ended) for one, cut in cuts]

    def ended(
        self,
        key: TrialKey,
        running: RunningTreatment,
        guest: Guest,
        cut: Cut,
        workload: Durability,
        raw: list[str],
        emit: Callable[[Event], None],
    ) -> Mapping[str, Counts]:
        """What was found after each end. `raw` gets what is kept of it. Raises CannotDo."""
        return _ended(key, running, guest, cut, workload, raw, emit)


@dataclass
class Witness:
    """What was acknowledged, as it is known outside of the power that is cut."""

    acknowledged: Acknowledged = field(default_factory=dict)
    heard: list[tuple[int, Acknowledged]] = field(default_factory=list)  # bytes of the log, and what was known then
    errors: list[str] = field(default_factory=list)  # of writers

    def hear(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        name, _, number = rest.partition(" ")
        if word == "ack" and number.isdecimal():
            self.acknowledged[name] = max(int(number), self.acknowledged.get(name, 0))
        elif word == "error":
            self.errors.append(rest)

    def note(self, log_bytes: int) -> None:
        """The log has that length now, after all that was heard."""
        self.heard.append((log_bytes, dict(self.acknowledged)))


def _trial(
    key: TrialKey,
    running: RunningTreatment,
    subject: RunningSubject,
    cut: Cut,
    workload: Durability,
    emit: Callable[[Event], None],
    ended: Callable[..., Mapping[str, Counts]],
) -> Trial:
    started, before = time.time(), time.monotonic()
    assert subject.guest is not None
    raw: list[str] = []
    rest: dict[str, Any]
    try:
        seen = ended(key, running, subject.guest, cut, workload, raw, emit)
        rest = {"measurements": tuple(workload.measured(seen))}
    except (CannotDo, OSError) as failure:  # the latter: no room here, or the checking guest is gone
        rest = {"status": "failed", "error": first_line(str(failure))}
        raw.append(f"{failure}\n{subject.guest.console.text()}")
    path = subject.guest.path
    return new_trial(key, WHAT, path, started, time.monotonic() - before, raw="\n".join(raw), **rest)


def _ended(
    key: TrialKey,
    running: RunningTreatment,
    guest: Guest,
    cut: Cut,
    workload: Durability,
    raw: list[str],
    emit: Callable[[Event], None],
) -> Mapping[str, Counts]:
    """What was found after each end. `raw` gets what is kept of it. Raises CannotDo."""
    seed = random.SystemRandom().getrandbits(64)
    draw = random.Random(seed)
    emit(Step(f"{key.treatment}: writing", ", ".join(workload.writers)))
    witness = _written(running.host, guest, cut, workload, draw)
    copies, host = cut.copies, cut.host_disk
    if host is None:
        fetch(running.host, copies.local, cut.log, copies.log)
    fetch(running.host, copies.local, cut.disk.path, copies.image)
    now, rebuilt = HOST_CUT if cut.inside else KILLED, POWER_CUT if host is None else STACK_CUT
    seen = {end: Counts(image_damaged=None if copies.is_raw else 0) for end in (now, rebuilt)}
    log, of_log = (copies.log, copies) if host is None else (host.log, host.copies)
    with (
        opened(log, 0 if host is None else host.since) as history,
        cut.boot_checker() as checker,
        contextlib.ExitStack() as ends,
    ):
        verifier = Verifier(checker, CHECKED_ID, workload, cut.inside, raw)
        ends.callback(verifier.end)
        verifier.verify(seen[now], now, witness.acknowledged, copies.check_and_convert())
        disk = Disk(history, of_log.before, of_log.flushed)
        ends.callback(disk.close)
        if host is not None:
            verifier = Verifier(checker, HOST_ID, workload, "", raw, host.stack)
            ends.callback(verifier.end)
            disk.write(Moment(history.place(host.whole), None), of_log.image)
            verifier.refuse_unread()
        first = history.place(witness.heard[0][0])
        moments = history.moments(first, workload.parameters.states, draw.getrandbits(32))
        acknowledged = known(history, witness.heard, lambda data: issued(data, workload.writers))
        for number, moment in enumerate(moments):
            done = number / len(moments)
            emit(Step(f"{key.treatment}: checking states", f"{number} of {len(moments)}", done))
            disk.write(moment, of_log.image)
            then, what = acknowledged[moment.place], f"{rebuilt} {_words(history, moment)}"
            verifier.verify(seen[rebuilt], what, then, of_log.check_and_convert())
    found = {"seed": seed, "acknowledged": witness.acknowledged, "log_entries": len(history.entries)}
    raw.insert(0, json.dumps(found))
    return seen


def _words(history: History, moment: Moment) -> str:
    partly = "" if moment.seed is None else f", without some of those since the last flush (seed {moment.seed})"
    return f"after {moment.place} of {len(history.entries)} requests{partly}"


def _written(host: Machine, guest: Guest, cut: Cut, workload: Durability, draw: random.Random) -> Witness:
    """Have the guest write until it is killed; what its witness heard. Raises CannotDo."""
    witness, failure = Witness(), None
    with contextlib.ExitStack() as ends:
        try:
            listen(host, guest, cut, workload, draw, witness, ends)
        except MachineError as error:
            failure = error
        # Paused, where there was no room for its disk or the log.
        why = guest.cause_of_death() or cut.ended.cause_of_death()
        cut.ended.kill(host)  # first: writers that end in order write
    if why:
        raise CannotDo(f"nothing counts: {why}")
    if witness.errors:
        raise CannotDo(f"{guest.path}: a writer failed, so nothing counts: {witness.errors[0]}")
    if failure is not None:
        raise failure
    if not witness.acknowledged:
        raise CannotDo(f"{guest.path}: nothing was acknowledged before the end; raise workloads.durability.seconds")
    return witness


def listen(
    host: Machine,
    guest: Guest,
    cut: Cut,
    workload: Durability,
    draw: random.Random,
    witness: Witness,
    ends: contextlib.ExitStack,
) -> Process:
    """Start the writers, and hear them until the moment that is drawn. `ends` gets their end. Raises MachineError."""
    machine, options = guest.machine, workload.parameters.mount_options
    machine.run(*MAKE_FILE_SYSTEM, cut.device, timeout=MAKE_SECONDS)
    mounted = machine.try_run("mount", "-t", "ext4", *(("-o", options) if options else ()), cut.device, MOUNT)
    if not mounted.ok:
        key = f"workloads.durability.mount_options: {options}: " if options else ""
        raise MachineError(f"{guest.path}: {key}{first_line(mounted.stderr)}")
    process = machine.start(*workload.writing(MOUNT))
    ends.callback(process.stop)
    while (line := _line(process, READY_SECONDS)) != "ready":
        witness.hear(line)
        if not line:
            raise MachineError(f"{guest.path}: its writers did not begin: {first_line(process.stderr_tail())}")
    witness.note(_log_bytes(host, cut))
    end = time.monotonic() + workload.parameters.seconds * draw.uniform(0.5, 1.0)
    for heard in lines_of(process, end):
        if heard is None:
            witness.note(_log_bytes(host, cut))
        else:
            witness.hear(heard)
    witness.note(_log_bytes(host, cut))
    return process


def _log_bytes(host: Machine, cut: Cut) -> int:
    if cut.power is not None:
        return 0  # there is none
    if cut.host_disk is not None:
        return cut.host_disk.log.stat().st_size
    return int(host.run("stat", "-c", "%s", str(cut.log)))


def _line(process: Process, seconds: float) -> str:
    """The next line. Raises MachineError where none comes."""
    try:
        return read_line(process.stdout, time.monotonic() + seconds).decode(errors="replace").strip()
    except TimeoutError:
        raise MachineError(f"no answer within {seconds:.0f} s: {first_line(process.stderr_tail())}") from None


def lines_of(process: Process, end: float) -> Iterator[str | None]:
    """What it prints until it ends or `end` (monotonic clock), line by line; None whenever some time has passed."""
    heard, noted = b"", time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while (now := time.monotonic()) < end:
            if selector.select(min(LISTEN_SECONDS, end - now)):
                data = os.read(process.stdout.fileno(), 65536)
                if not data:
                    return  # all have written what they were to write, or the line is cut: nothing more counts
                *lines, heard = (heard + data).split(b"\n")
                yield from (line.decode(errors="replace") for line in lines)
            if time.monotonic() - noted > LISTEN_SECONDS:
                yield None
                noted = time.monotonic()


class Verifier:
    """The program that checks states, in a guest of its own."""

    def __init__(
        self, guest: Guest, disk: str, workload: Durability, inside: str, raw: list[str], stack: Stack | None = None
    ) -> None:
        """`disk`: the name of the guest's disk that holds the states."""
        self._raw, self._number, self._bad, self._console = raw, 0, 0, guest.console
        device = guest.spec.device(disk)
        assert device is not None
        if inside or stack:
            guest.machine.run("modprobe", "loop")
        if stack is not None and stack.modules:
            guest.machine.run("modprobe", "-a", *stack.modules)
        self._process = guest.machine.start(*workload.checking(device, MOUNT, inside, stack))

    def refuse_unread(self) -> None:
        """Raises MachineError where a disk is not read that has all that was written to it."""
        state = self._asked({"state": 0, "acknowledged": {}, "whole": True})
        if wrong := state["file_system"] or state["image"]:
            raise MachineError(f"the host's disk cannot be read here as it was before anything was tried: {wrong}")

    def verify(self, seen: Counts, what: str, acknowledged: Mapping[str, int], image: str) -> None:
        """Add what one state is to `seen`. Raises MachineError."""
        self._number += 1
        state = self._asked({"state": self._number, "acknowledged": dict(acknowledged)})
        image = image or state.get("image", "")
        before = seen.lost
        seen.add(state, acknowledged, image)
        if seen.lost > before and self._bad < MOST_BAD:
            self._bad += 1
            self._raw.append(json.dumps({"what": what, "image": image, "acknowledged": dict(acknowledged), **state}))

    def _asked(self, wanted: Json) -> Json:
        self._process.stdin.write(json.dumps(wanted).encode() + b"\n")
        self._process.stdin.flush()
        try:
            answer = _line(self._process, STATE_SECONDS)
        except MachineError:
            self._raw.append(f"{wanted}\n{self._console.text()}")
            raise
        try:
            state: Json = json.loads(answer)
        except ValueError:
            raise MachineError(f"no state, but {answer[:100]!r}: {first_line(self._process.stderr_tail())}") from None
        if error := state.get("error"):
            raise MachineError(f"a state could not be checked: {error}")
        return state

    def end(self) -> None:
        self._process.stop()
