"""Migrate each guest while its network peer observes it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from vmtax.core.errors import CannotDo
from vmtax.core.events import Event
from vmtax.core.machines import first_line, last_words
from vmtax.core.records import Moved, Trial
from vmtax.core.stopwatch import Stopwatch
from vmtax.experiment.trial import TrialKey, new_trial, with_readings
from vmtax.hypervisor import Guest, Move, MoveFailed
from vmtax.machine import MachineError, Process
from vmtax.machine.pipes import TooMuch, listen
from vmtax.meter import MeteredCommand, Readings
from vmtax.testbed.session.base import Route, RunningSubject, RunningTreatment
from vmtax.workload import BadOutput, Workload
from vmtax.workload.migration import BEGIN, GRACE_SECONDS, LOAD_REPORT, STOP, Migration

WHAT = (Migration.name, "")  # workload and case
MIB = 2**20
LOAD_SECONDS = 120.0  # for a load to report how much it writes: it first touches all of its memory
PRINT_SECONDS = 30.0  # for the peer's report


class Migrate:
    """Each guest moves once, and continues at the destination."""

    workload: ClassVar[str] = Migration.name

    def perform(
        self, key: TrialKey, running: RunningTreatment, workload: Workload[Any] | None, emit: Callable[[Event], None]
    ) -> Sequence[Trial]:
        if not isinstance(workload, Migration):
            return ()
        moving = [subject for subject in running.subjects if subject.offer(Route) is not None]
        return [_trial(key, running, subject, workload) for subject in moving]


@dataclass(frozen=True, slots=True)
class _Watched:
    """A migration that was observed."""

    moved: Moved
    output: str  # from the peer's program
    readings: Sequence[tuple[str, Readings]]  # name of a meter, and its readings of the host


def _trial(key: TrialKey, running: RunningTreatment, subject: RunningSubject, workload: Migration) -> Trial:
    guest, route = subject.guest, subject.offer(Route)
    assert guest is not None and route is not None
    watch = Stopwatch()
    raw = ""
    readings: Sequence[tuple[str, Readings]] = ()
    rest: dict[str, Any]
    try:
        found = _watched(guest, route, workload.loaded(route.settings.load), running)
        raw, readings = f"query-migrate: {asdict(found.moved)}\n{found.output}", found.readings
        rest = {"measurements": workload.measured(found.moved, found.output)}
    except (CannotDo, BadOutput) as failure:
        rest = {"status": "failed", "error": first_line(str(failure))}
        raw = f"{raw}\n{failure}\n{guest.console.text()}"
    trial = new_trial(key, WHAT, guest.path, watch.started, watch.seconds, raw=raw, **rest)
    for name, each in readings:
        trial = with_readings(trial, name, running.host, each)
    return trial


def _watched(guest: Guest, route: Route, workload: Migration, running: RunningTreatment) -> _Watched:
    """Migrate the guest under observation. Meters read the host right before and after. Raises CannotDo and
    BadOutput.
    """
    parameters, meters = workload.parameters, [meter for meter in running.meters if meter.at != "seat"]
    bandwidth = None if parameters.bandwidth is None else parameters.bandwidth * MIB
    readings: list[tuple[str, Readings]] = []
    destination = route.wait()
    _load(guest, workload)
    peer = route.watch(workload.watching(route.address))
    try:
        time.sleep(parameters.seconds)
        if parameters.load:
            workload.check_load(_load_report(guest))
        for meter in meters:
            meter.before(running.host)
        move = Stopwatch()

        def arrived() -> None:
            route.handover.arrived(destination)
            work = MeteredCommand(workload.tool, True, move.seconds, emulated=running.emulated)
            readings.extend((meter.name, meter.after(running.host, [work])) for meter in reversed(meters))

        _say(peer, BEGIN)
        moved = _moved(guest, destination, route, Move(route.settings, parameters.limit, bandwidth), arrived)
        time.sleep(parameters.seconds)
        _say(peer, STOP)
        return _Watched(moved, _heard(peer), readings)
    finally:
        peer.stop()


def _moved(guest: Guest, destination: Guest, route: Route, how: Move, arrived: Callable[[], None]) -> Moved:
    """Carry out the move, and keep the guest's address reachable. Raises CannotDo."""
    try:
        moved = guest.move_to(destination, replace(how, fell_back=route.handover.fell_back), arrived)
    except MoveFailed:
        with contextlib.suppress(CannotDo):  # the failure of the move itself is what is reported
            route.handover.stayed(guest)
        raise
    route.handover.regain(guest)
    return moved


def _load(guest: Guest, workload: Migration) -> None:
    """Let the guest write to its memory until it ends, if the workload asks for that. Raises CannotDo."""
    program = workload.loading()
    if program is None:
        return
    process, deadline = guest.machine.start(*program), time.monotonic() + LOAD_SECONDS
    while not _load_report(guest):
        if process.poll() is not None or time.monotonic() > deadline:
            words = first_line(process.stderr_tail())
            raise CannotDo(f"{guest.path}: nothing writes to the guest's memory: {words}")
        time.sleep(0.5)


def _load_report(guest: Guest) -> str:
    return guest.machine.try_run("cat", LOAD_REPORT).stdout


def _say(peer: Process, mark: str) -> None:
    """Send the peer's program a line. Raises MachineError if the program has ended."""
    try:
        peer.stdin.write(f"{mark}\n".encode())
        peer.stdin.flush()
    except OSError:
        raise MachineError(f"the peer's program ended: {first_line(last_words(peer))}") from None


def _heard(peer: Process) -> str:
    """The rest of its output, until it ends. Raises MachineError."""
    heard = {peer.stdout: bytearray()}
    try:
        listen(heard, time.monotonic() + GRACE_SECONDS + PRINT_SECONDS)
    except (TimeoutError, TooMuch):
        raise MachineError(f"the peer's program does not end: {first_line(peer.stderr_tail())}") from None
    return heard[peer.stdout].decode(errors="replace")
