"""End a guest while it writes, then check its disk as it is, and as it would be had its host lost power."""

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
from vmtax.core.machines import first_line, last_words
from vmtax.core.records import Trial
from vmtax.core.stopwatch import Stopwatch
from vmtax.experiment.checkers import MOUNT, Checks, StateResult, read_answer
from vmtax.experiment.trial import TrialKey, new_trial
from vmtax.hypervisor import Guest
from vmtax.machine import Machine, MachineError, Process
from vmtax.machine.answer import counts_of, whole_of
from vmtax.storage.copies import fetch
from vmtax.storage.power_cut import opened
from vmtax.storage.power_cuts import Lengths, States, lengths
from vmtax.testbed.session.base import Cut, RunningTreatment
from vmtax.testbed.storage import host_disk
from vmtax.testbed.storage.cutting import MAKE_FILE_SYSTEM
from vmtax.workload import Workload
from vmtax.workload.durability import HOST_CUT, KILLED, POWER_CUT, STACK_CUT, Counts, Durability
from vmtax.workload.durability.records import issued

WHAT = (Durability.name, "")  # workload and case
READY_SECONDS = 300.0  # for the writers to prepare their files
LISTEN_SECONDS = 0.05  # between two readings of the log's length
LISTEN_OFTEN_SECONDS = 0.002  # if there are several logs: each reading in which none grows makes a state possible
MOST_BAD = 20  # most bad states that are described in a trial's raw output
Acknowledged = dict[str, int]  # writer -> its records


@dataclass(frozen=True, slots=True)
class Ending:
    """A guest that is ended while it writes."""

    key: TrialKey
    running: RunningTreatment
    guest: Guest
    cut: Cut
    workload: Durability
    raw: list[str]  # gets the raw output of the trial
    emit: Callable[[Event], None]

    def say(self, step: str, detail: str, share: float | None = None) -> None:
        """Report the present step."""
        self.emit(Step(f"{self.key.treatment}: {step}", detail, share))


class EndWhileWriting:
    """Kills each guest at a random moment, and checks its disk in the states that it may be in."""

    workload: ClassVar[str] = Durability.name

    def perform(
        self, key: TrialKey, running: RunningTreatment, workload: Workload[Any] | None, emit: Callable[[Event], None]
    ) -> Sequence[Trial]:
        if not isinstance(workload, Durability):
            return ()
        return [
            self._trial(Ending(key, running, one.guest, cut, workload, [], emit))
            for one in running.subjects
            if one.guest is not None and (cut := one.offer(Cut)) is not None
        ]

    def _trial(self, ending: Ending) -> Trial:
        watch = Stopwatch()
        rest: dict[str, Any]
        try:
            rest = {"measurements": tuple(ending.workload.measured(self.ended(ending)))}
        except (CannotDo, OSError) as failure:  # OSError: this machine has no room, or the checking guest is gone
            rest = {"status": "failed", "error": first_line(str(failure))}
            ending.raw.append(f"{failure}\n{ending.guest.console.text()}")
        took, raw = watch.seconds, "\n".join(ending.raw)
        return new_trial(ending.key, WHAT, ending.guest.path, watch.started, took, raw=raw, **rest)

    def ended(self, ending: Ending) -> Mapping[str, Counts]:
        """What was found after each kind of end. Raises CannotDo."""
        guest, cut, workload, host = ending.guest, ending.cut, ending.workload, ending.running.host
        seed = random.SystemRandom().getrandbits(64)
        draw = random.Random(seed)
        ending.say("writing", ", ".join(workload.writers))
        witness = _written(host, guest, cut, workload, draw)
        copies, below = cut.copies, cut.host_disks
        if below is None:
            fetch(host, copies.local, cut.log, copies.log)
        fetch(host, copies.local, cut.disk.path, copies.image)
        now, rebuilt = HOST_CUT if cut.inside else KILLED, POWER_CUT if below is None else STACK_CUT
        seen = {end: Counts(image_damaged=None if copies.is_raw else 0) for end in (now, rebuilt)}
        logs = [(copies.log, 0)] if below is None else [(disk.log, disk.since) for disk in below.disks]
        with contextlib.ExitStack() as ends:
            histories = [ends.enter_context(opened(log, since)) for log, since in logs]
            states = States(histories, witness.heard, lambda data: issued(data, workload.writers))
            checks = Checks(cut, workload, histories, states)
            checker = ends.enter_context(checks.opened())
            kept = Kept(ending.raw)
            kept.add(seen[now], now, witness.acknowledged, checker.check_ended(witness.acknowledged))
            checker.refuse_unread()
            drawn = states.draw(workload.parameters.states, draw.getrandbits(32))
            if not drawn:
                raise CannotDo(f"{guest.path}: the host's disks were never at rest together while it wrote")
            checked = ends.enter_context(contextlib.closing(checks.checked(checker, drawn)))
            for number, (state, result) in enumerate(checked, 1):
                ending.say("checking states", f"{number} of {len(drawn)}", number / len(drawn))
                then, what = states.acknowledged(state), f"{rebuilt} {states.words(state)}"
                kept.add(seen[rebuilt], what, then, result, without_disk=bool(state.gone))
            entries = sum(len(history.entries) for history in histories)
        if below is not None:
            host_disk.refuse_unlike(below)
        facts = {"seed": seed, "acknowledged": witness.acknowledged, "log_entries": entries}
        ending.raw.insert(0, json.dumps(facts))
        return seen


@dataclass
class Witness:
    """What was acknowledged, as recorded outside the machine whose power is cut."""

    acknowledged: Acknowledged = field(default_factory=dict)
    # Lengths of the logs, and what had been acknowledged by then
    heard: list[tuple[Lengths, Acknowledged]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)  # of writers

    def hear(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        name, _, number = rest.partition(" ")
        if word == "ack" and (counted := counts_of(number, ("ack",))):
            self.acknowledged[name] = max(int(counted["ack"]), self.acknowledged.get(name, 0))
        elif word == "error":
            self.errors.append(rest)

    def note(self, now: Lengths | None) -> None:
        """Record that the logs have these lengths now, after everything heard so far; None: the lengths are unknown."""
        if self.heard and self.heard[-1][0] == now:
            self.heard.pop()
        if now is not None:
            self.heard.append((now, dict(self.acknowledged)))


def _written(host: Machine, guest: Guest, cut: Cut, workload: Durability, draw: random.Random) -> Witness:
    """Let the guest write until it is killed; returns what its witness recorded. Raises CannotDo."""
    witness, failure = Witness(), None
    with contextlib.ExitStack() as ends:
        try:
            listen(host, guest, cut, workload, draw, witness, ends)
        except MachineError as error:
            failure = error
        # The guest is paused if there was no room for its disk or the log.
        why = guest.cause_of_death() or cut.ended.cause_of_death()
        cut.ended.kill(host)  # first of all, because writers that end in order write again
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
    """Start the writers, and record acknowledgements until a random moment. `ends` gets their end. Raises
    MachineError.
    """
    machine, options = guest.machine, workload.parameters.mount_options
    machine.run(*MAKE_FILE_SYSTEM, cut.device)
    mounted = machine.try_run("mount", "-t", "ext4", *(("-o", options) if options else ()), cut.device, MOUNT)
    if not mounted.ok:
        key = f"workloads.durability.mount_options: {options}: " if options else ""
        raise MachineError(f"{guest.path}: {key}{first_line(mounted.stderr)}")
    process = machine.start(*workload.writing(MOUNT))
    ends.callback(process.stop)
    while (line := read_answer(process, READY_SECONDS)) != "ready":
        witness.hear(line)
        if not line:
            raise MachineError(f"{guest.path}: its writers did not begin: {first_line(last_words(process))}")
    witness.note(_log_bytes(host, cut))
    end = time.monotonic() + workload.parameters.seconds * draw.uniform(0.5, 1.0)
    is_one = cut.host_disks is None or len(cut.host_disks.disks) == 1
    for heard in lines_of(process, end, LISTEN_SECONDS if is_one else LISTEN_OFTEN_SECONDS):
        if heard is None:
            witness.note(_log_bytes(host, cut))
        else:
            witness.hear(heard)
    witness.note(_log_bytes(host, cut))
    return process


def _log_bytes(host: Machine, cut: Cut) -> Lengths | None:
    if cut.power is not None:
        return None  # there is no acknowledgement in this line
    if cut.host_disks is not None:
        return lengths(cut.host_disks.logs)
    return (whole_of(host, f"bytes of {cut.log}", host.run("stat", "-c", "%s", str(cut.log))),)


def lines_of(process: Process, end: float, pause: float) -> Iterator[str | None]:
    """Yield its output lines until it ends or until `end` (monotonic clock); None about every `pause` seconds."""
    heard, noted = b"", time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while (now := time.monotonic()) < end:
            if selector.select(min(pause, end - now)):
                data = os.read(process.stdout.fileno(), 65536)
                if not data:
                    return  # all writers are done, or the connection is cut: nothing after this counts
                *lines, heard = (heard + data).split(b"\n")
                yield from (line.decode(errors="replace") for line in lines)
            if time.monotonic() - noted > pause:
                yield None
                noted = time.monotonic()


class Kept:
    """What is kept of states in which something was lost."""

    def __init__(self, raw: list[str]) -> None:
        self._raw, self._bad = raw, 0

    def add(
        self,
        seen: Counts,
        what: str,
        acknowledged: Mapping[str, int],
        result: StateResult,
        *,
        without_disk: bool = False,
    ) -> None:
        """Add the result of one state to `seen`."""
        before = seen.lost
        seen.add(result.answer, acknowledged, result.image, without_disk=without_disk)
        if seen.lost > before and self._bad < MOST_BAD:
            self._bad += 1
            told = {**result.answer, "image": result.image}
            self._raw.append(json.dumps({"what": what, "acknowledged": dict(acknowledged), **told}))
