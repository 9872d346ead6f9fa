"""Run the commands of one trial, on one machine or on several at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from vmtax.core.stopwatch import Stopwatch
from vmtax.design.iterations import VOID
from vmtax.experiment.barrier import BarrierError, Held, wait_for
from vmtax.machine import Machine, MachineLost, Outcome
from vmtax.workload.repeated import COUNTS, Repetitions


@dataclass(frozen=True, slots=True)
class Job:
    """The command of one machine."""

    machine: Machine
    argv: tuple[str, ...]
    limit: float  # seconds for each repetition
    repeats: bool = False  # until each machine has finished the repetition that counts
    held: PurePosixPath | None = None  # directory in which the command expects the pipes of a barrier
    input: str | None = field(default=None, repr=False)  # for its standard input


@dataclass(frozen=True, slots=True)
class Done:
    """How a job ended: each repetition, up to the first that failed."""

    times: tuple[float, ...]  # at which each repetition began, then the end; seconds since the epoch
    outcomes: tuple[Outcome, ...]
    lost: MachineLost | None = None  # how the machine was lost
    not_started: str | None = None  # why; there are no outcomes then

    @property
    def started(self) -> float:
        return self.times[0]

    @property
    def seconds(self) -> float:
        """Altogether."""
        return self.times[-1] - self.times[0]

    @property
    def failed(self) -> Outcome | None:
        return next((outcome for outcome in self.outcomes if not outcome.ok), None)

    @property
    def raw(self) -> str:
        """What all repetitions printed, for `Repetitions.of`; if one failed, what that one printed."""
        outputs = self.outputs
        if self.failed is not None or len(outputs) <= COUNTS:
            return outputs[-1]
        return Repetitions(outputs, self.times).text

    @property
    def outputs(self) -> tuple[str, ...]:
        """The stdout, then the stderr, of each repetition."""
        return tuple(f"{outcome.stdout}\n{outcome.stderr}" for outcome in self.outcomes)


@dataclass(slots=True)
class _Progress:
    """What the machines of a trial know of each other."""

    machines: int
    watch: Stopwatch = field(default_factory=Stopwatch)  # one for all, so that their times can be compared
    finished: int = 0  # machines that have finished the repetition that counts
    over: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, repetition: int, *, ok: bool) -> None:
        """Note that a machine has ended a repetition; `repetition`: its index."""
        with self.lock:
            self.finished += repetition == COUNTS
            self.over = self.over or not ok or self.finished == self.machines


def run_at_once(jobs: Sequence[Job], before: Callable[[], None] = lambda: None) -> list[Done]:
    """Run all jobs, each started once all are ready to start. The result has their order.

    `before`: called once all are ready, so after the start of the commands that are held at a barrier
    """
    progress = _Progress(len(jobs))
    if len(jobs) == 1:
        before()
        return [_run(jobs[0], progress)]
    if all(job.held is not None for job in jobs):
        return _run_held(jobs, progress, before)
    before()
    barrier = threading.Barrier(len(jobs))

    def run_when_ready(job: Job) -> Done:
        barrier.wait()
        return _run(job, progress)

    pool = ThreadPoolExecutor(len(jobs), "subject")
    try:
        futures = [pool.submit(run_when_ready, job) for job in jobs]
        return [future.result() for future in futures]
    finally:
        # After Ctrl-C, commands are not waited for: they end with their guests.
        progress.over = True
        barrier.abort()
        pool.shutdown(wait=False, cancel_futures=True)


def _run_held(jobs: Sequence[Job], progress: _Progress, before: Callable[[], None]) -> list[Done]:
    """Run jobs whose commands wait at a barrier until those of all machines have started. They count from then on.

    If a barrier cannot be made on a machine, no command is started.
    """
    pool = ThreadPoolExecutor(len(jobs), "subject")
    try:
        began = progress.watch.now
        made = list(pool.map(_hold, jobs))
        held = [each for each in made if isinstance(each, Held)]
        problems = [each for each in made if not isinstance(each, Held)]
        if problems:
            times = (began, progress.watch.now)
            list(pool.map(Held.close, held))
            before()  # what is read afterwards is compared with it
            return [_not_started(times, own, problems[0]) for own in made]
        futures = [pool.submit(_run, job, progress) for job in jobs]
        # The other half of the time remains for the work. A command that is not ready by then begins when it is.
        wait_for(held, futures, time.monotonic() + min(job.limit for job in jobs) / 2)
        before()
        released = progress.watch.now
        for each in held:
            each.release()
        done = [_since(future, released) for future in futures]
        list(pool.map(Held.close, held))
        return done
    finally:
        # After Ctrl-C, commands are not waited for: they end with their guests.
        pool.shutdown(wait=False, cancel_futures=True)


def _hold(job: Job) -> Held | BarrierError | MachineLost:
    assert job.held is not None
    try:
        return Held(job.machine, job.held)
    except (BarrierError, MachineLost) as problem:
        return problem


def _not_started(times: tuple[float, float], own: Held | Exception, first: Exception) -> Done:
    """The result of a machine where a barrier was made, or not, after it could not be made on all of them."""
    if isinstance(own, MachineLost):
        return Done(times, (), lost=own)
    why = f"{VOID} its command was not started: {first}" if isinstance(own, Held) else f"not started: {own}"
    return Done(times, (), not_started=why)


def _since(future: Future[Done], released: float) -> Done:
    """The result, without the time before the release."""
    done = future.result()
    began, *rest = done.times
    return replace(done, times=(min(max(began, released), done.times[-1]), *rest))


def _run(job: Job, progress: _Progress) -> Done:
    watch = progress.watch
    times: list[float] = []
    outcomes: list[Outcome] = []
    lost, ended = None, watch.now
    try:
        while lost is None and (not outcomes or (job.repeats and not progress.over)):
            began = watch.now
            try:
                outcomes.append(job.machine.try_run(*job.argv, input=job.input, timeout=job.limit))
                ended = watch.now
                # Without the time in which a connection was opened for it
                began = max(began, ended - outcomes[-1].seconds)
            except MachineLost as failure:
                lost, ended = failure, watch.now
            times.append(began)
            progress.add(len(outcomes) - 1, ok=lost is None and outcomes[-1].ok)
    except BaseException:
        progress.over = True  # no machine may wait for this one
        raise
    return Done((*times, ended), tuple(outcomes), lost)
