"""Run trials: one command of one workload on each subject of a running treatment; a failure is a trial too."""

from __future__ import annotations

import contextlib
import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from vmtax.core.notices import recorded
from vmtax.core.records import Measurement, Metric, Trial
from vmtax.design.iterations import VOID
from vmtax.design.topology import COUNTED, Worked, overlap
from vmtax.experiment.at_once import Done, Job, run_at_once
from vmtax.experiment.beside import beside
from vmtax.experiment.signatures import Signatures
from vmtax.hypervisor import Guest
from vmtax.machine import CommandStuck, Machine, MachineError, MachineLost, Outcome
from vmtax.meter import GuestMeter, Meter, MeteredCommand, Readings
from vmtax.meter.exits import ExitCounts
from vmtax.meter.ledger import SERVING, HostLedger, of_qemus, split_by_samples
from vmtax.testbed.session.base import Overdue, RunningSubject, RunningTreatment
from vmtax.testbed.session.copying import NAME as COPYING
from vmtax.testbed.session.observed import Observed, Watched
from vmtax.workload import BadOutput, Command
from vmtax.workload.base import CPU_PER_OPERATION, HOST_SIDE
from vmtax.workload.output import reading
from vmtax.workload.repeated import Repetitions

SAMPLES = f"{ExitCounts.name}.samples."
GRACE_SECONDS = 60.0  # beyond the expected duration, before a command counts as hung
# Error texts for a missing program, from bubblewrap, a shell, and timeout(1) in either locale.
NOT_THERE = (
    "execvp {}: No such file",
    "failed to run command ‘{}’: No such file",
    "failed to run command '{}': No such file",
    " {}: command not found",
)
LEAST_OVERLAP = 0.95  # required share of the time during which all machines measured at once work
LOST_SECONDS = 0.5  # the QEMU of a guest that just vanished may still be ending
SLOWDOWN = 4.0  # of a layer against the expected duration, for the time limit
EMULATED_SLOWDOWN = 60.0  # an emulated guest is 20 to 30 times slower, a nested one in it another 1.5 times


@dataclass(frozen=True, slots=True)
class TrialKey:
    """Where a treatment's trials belong in the experiment."""

    round: int
    position: int
    treatment: str


def run_trials(
    key: TrialKey,
    running: RunningTreatment,
    workload: Command[Any],
    case: str,
    signatures: Signatures,
    *,
    iteration: int,
) -> tuple[Trial, ...]:
    """Run one case once on all subjects at the same time; a trial for each, in their order.

    A failure is a trial too: it has a status and an error, and the tool's output is kept. Meters read the host under
    test and the machines before and after.
    """
    with beside(running, workload, case) as accompanied:
        seats = [subject.site.machine for subject in running.subjects]
        if len(seats) > 1 and iteration == 1:
            _warm_up(running, workload)
        unsampled = _sample(running, workload.reports(case))

        def read_meters() -> None:
            for meter in running.meters:
                for machine, _ in _looked_at(meter, running, seats):
                    meter.before(machine)
            for guest_meter in running.guest_meters:
                for guest in running.guests:
                    guest_meter.before(guest)
            accompanied.begin()

        commands = [_command(key, running, subject, workload, case) for subject in running.subjects]
        ended = run_at_once([command.job for command in commands], read_meters)
        copied = accompanied.end()
        _end_overdue(running, ended)
        done = [_judged(*pair, running, signatures) for pair in zip(commands, ended, strict=True)]
        if len(done) > 1:
            done = [_with_counted(trial, workload) for trial in done]
        done = _void(done)
        warnings = (*_apart(done), *unsampled)
        trials = [replace(trial, iteration=iteration, warnings=(*trial.warnings, *warnings)) for trial in done]
        works = [_work(trial, workload, emulated=running.emulated) for trial in trials]
        for guest_meter in reversed(running.guest_meters):
            trials = _metered_guests(trials, guest_meter, running, works)
        for meter in reversed(running.meters):
            for machine, places in _looked_at(meter, running, seats):
                found = meter.after(machine, [works[place] for place in places])
                for place in places:
                    trials[place] = with_readings(trials[place], meter.name, machine, found)
        trials = _with_sampled_split(trials, running)
        for place, (subject, beside_it) in enumerate(zip(running.subjects, copied, strict=True)):
            if beside_it is not None and subject.guest is not None:
                trials[place] = with_readings(trials[place], COPYING, subject.guest, beside_it)
        seen = [subject.offer(Observed) for subject in running.subjects]
        trials = [voided(trial, each.why_void()) if each else trial for trial, each in zip(trials, seen, strict=True)]
        is_alone = running.subjects[0].offer(Watched) is not None
        return tuple(_with_cpu(_void(trials), workload, running.host.path, is_alone=is_alone))


def _end_overdue(running: RunningTreatment, ended: Sequence[Done]) -> None:
    """End what goes on after its limit, so that it does not disturb the next trial."""
    for subject, done in zip(running.subjects, ended, strict=True):
        overdue = subject.offer(Overdue)
        if overdue is not None and any(outcome.timed_out for outcome in done.outcomes):
            with contextlib.suppress(MachineError):  # the next command there will report the problem
                overdue.end()


def _sample(running: RunningTreatment, metrics: Sequence[Metric]) -> list[str]:
    """Sample vCPUs for metrics that need to know how their time is split, and for no others: it delays wake-ups.

    Returns a warning for each guest that cannot be sampled and should be.
    """
    wanted = any(metric.measure == HOST_SIDE for metric in metrics)
    found = [(guest.path, guest.sample(wanted)) for guest in running.guests]
    return [recorded("ticks", f"{path}: its vCPUs were not sampled: {why}") for path, why in found if wanted and why]


def _with_sampled_split(trials: Sequence[Trial], running: RunningTreatment) -> list[Trial]:
    """The trials with the time of vCPUs in each machine's ledger split by samples, if all its guests are sampled."""
    known = {path: rows for trial in trials for path, rows in trial.readings.items()}
    found = list(trials)
    machines: tuple[Machine | Guest, ...] = (running.host, *running.outer)
    for machine in machines:
        guests = [guest.path for guest in running.guests if guest.path.rpartition("/")[0] == machine.path]
        counted = [_under(SAMPLES, known.get(path, {})) for path in guests]
        if not counted or not all(counted):
            continue
        samples = {name: math.fsum(rows[name] for rows in counted) for name in counted[0]}
        for place, trial in enumerate(found):
            if rows := _under(f"{HostLedger.name}.", trial.readings.get(machine.path, {})):
                found[place] = with_readings(trial, HostLedger.name, machine, Readings(split_by_samples(rows, samples)))
    return found


def _under(prefix: str, rows: Mapping[str, float]) -> dict[str, float]:
    """The rows whose names begin with the prefix, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in rows.items() if name.startswith(prefix)}


def _looked_at(
    meter: Meter, running: RunningTreatment, seats: Sequence[Machine]
) -> Sequence[tuple[Machine, Sequence[int]]]:
    """The machines that a meter reads, each with the indices of the trials that its readings belong to."""
    if meter.at == "seat":
        return [(seat, [place]) for place, seat in enumerate(seats)]
    hosts = [(running.host, range(len(seats)))]
    return [*hosts, *((guest.machine, _inside(guest, running)) for guest in running.outer if meter.at == "hosts")]


def _inside(guest: Guest, running: RunningTreatment) -> Sequence[int]:
    """The indices of the subjects that are this guest, or are nested in it."""
    paths = [f"{subject.machine}/" for subject in running.subjects]
    return [place for place, path in enumerate(paths) if path.startswith(f"{guest.path}/")]


def _warm_up(running: RunningTreatment, workload: Command[Any]) -> None:
    """Let each machine read the tool's program from its disk: in several guests, first starts take unequal time."""

    def warm_up(subject: RunningSubject) -> None:
        machine, prefix = workload.seat(subject.site)
        with contextlib.suppress(MachineError):  # its trial will report the problem
            machine.try_run(*prefix, workload.tool.partition(" ")[0], "--version")

    # All at once, so that a host over SSH has enough connections
    with ThreadPoolExecutor(len(running.subjects), "warm-up") as pool:
        list(pool.map(warm_up, running.subjects))


def _void(trials: Sequence[Trial]) -> list[Trial]:
    """All of them as failed if one failed: the others had more of the host than they would have had with it."""
    failed = next((trial for trial in trials if trial.status != "ok"), None)
    if failed is None:
        return list(trials)
    why = f"{VOID} {failed.machine} did not do the same at the same time"
    rest: dict[str, Any] = {"status": "failed", "error": why, "measurements": (), "latencies": ()}
    return [replace(trial, **rest) if trial.status == "ok" else trial for trial in trials]


def _apart(trials: Sequence[Trial]) -> tuple[str, ...]:
    """A warning if the machines did not work at the same time for almost all of the time that counts."""
    share = overlap(map(Worked.of, trials))
    if share >= LEAST_OVERLAP or any(trial.status != "ok" for trial in trials):
        return ()
    return (recorded("apart", f"{len(trials)} machines worked at the same time for {100 * share:.0f} % of the time"),)


def _with_counted(trial: Trial, workload: Command[Any]) -> Trial:
    """The trial with the part of its time that its figures cover, which is compared with that of the others."""
    found = None
    with contextlib.suppress(BadOutput), reading(workload.tool):
        found = Repetitions.of(trial.raw).counted(workload, trial.case) if trial.status == "ok" else None
    if found is None:
        return trial
    return replace(trial, readings={trial.machine: {COUNTED + name: value for name, value in asdict(found).items()}})


def _work(trial: Trial, workload: Command[Any], *, emulated: bool) -> MeteredCommand:
    def around(case: str, output: str) -> float | None:
        counted = workload.counted(case, output)
        return None if counted is None else counted.before + counted.after + counted.rest

    return MeteredCommand(
        tool=workload.tool,
        ok=trial.status == "ok",
        seconds=trial.wall_seconds,
        own_seconds=_sum(trial, workload.tool, workload.own_seconds),
        around_seconds=_sum(trial, workload.tool, around) or 0.0,
        emulated=emulated,
        operations=_sum(trial, workload.tool, workload.operations),
        starts=len(Repetitions.of(trial.raw).outputs),
    )


def _sum(trial: Trial, tool: str, read: Callable[[str, str], float | None]) -> float | None:
    """A figure of a command for all its repetitions together, because meters read before and after all of them.

    None if one does not report it: the first may have been too short to report, because it took long to start.
    """
    if trial.status != "ok":
        return None
    try:
        with reading(tool):
            values = [read(trial.case, output) for output in Repetitions.of(trial.raw).outputs]
    except BadOutput:
        return None
    known = [value for value in values if value is not None]
    return math.fsum(known) if len(known) == len(values) else None


def _metered_guests(
    trials: Sequence[Trial], meter: GuestMeter, running: RunningTreatment, works: Sequence[MeteredCommand]
) -> list[Trial]:
    """Each trial with the readings of its own guest, and of the guest that carries it."""
    metered = list(trials)
    for guest in running.guests:
        inside = _inside(guest, running)
        found = meter.after(guest, [works[place] for place in inside])
        for place in inside:
            metered[place] = with_readings(metered[place], meter.name, guest, found)
    return metered


def voided(trial: Trial, why: str) -> Trial:
    """The trial as failed if there is a reason why it does not count."""
    if not why or trial.status != "ok":
        return trial
    return replace(trial, status="failed", error=why, measurements=(), latencies=())


def with_readings(trial: Trial, name: str, machine: Machine | Guest, found: Readings) -> Trial:
    """The trial with one meter's readings of one machine; failed if the meter says that the trial is void."""
    trial = voided(trial, found.void)
    readings = dict(trial.readings)
    if found.rows:
        rows = {f"{name}.{row}": value for row, value in found.rows.items()}
        readings[machine.path] = {**readings.get(machine.path, {}), **rows}
    return replace(
        trial,
        readings=readings,
        warnings=(*trial.warnings, *found.warnings),
        disturbance=found.disturbance or trial.disturbance,
    )


def _with_cpu(trials: Sequence[Trial], workload: Command[Any], host: str, *, is_alone: bool) -> list[Trial]:
    """Add the host's CPU time per operation of all subjects together, if the workload counts operations; `is_alone`:
    that of the QEMU that is watched.

    Only the share of the trial's CPU time that falls to its operations counts: the rest is the tool's own start, which
    would distort short runs.
    """
    first = trials[0]
    metric = next((m for m in workload.reports(first.case) if m.measure == CPU_PER_OPERATION), None)
    counted = [_sum(trial, workload.tool, workload.operations) for trial in trials]
    operations = sum(filter(None, counted)) if all(counted) else 0
    rows = first.readings.get(host, {})
    used = _of_qemus(rows) if is_alone else _of_host(first)
    if not operations or metric is None or used is None:
        return list(trials)
    busy, wall = used
    own = _sum(first, workload.tool, workload.own_seconds)
    share = min(1.0, own / wall) if own and wall > 0 else 1.0
    cost = Measurement(metric, busy * share / operations)
    serving = _host_side(rows, workload.reports(first.case), operations, own)
    costs = (cost, *serving)
    return [replace(trial, measurements=(*trial.measurements, *costs)) for trial in trials]


def _of_host(trial: Trial) -> tuple[float, float] | None:
    """CPU time of the host and the time in which it was taken, in seconds; None: not known, for a host that works
    takes some.
    """
    seen = trial.disturbance
    return (seen.busy_seconds, seen.wall_seconds) if seen and seen.busy_seconds > 0 else None


def _of_qemus(rows: Mapping[str, float]) -> tuple[float, float] | None:
    """The same of QEMUs alone, which may take less than a tick, and then none; `rows`: readings of their host"""
    ledger = _under(f"{HostLedger.name}.", rows)
    seconds = ledger.get("seconds", 0.0)
    return (of_qemus(ledger), seconds) if seconds > 0 else None


def _host_side(
    rows: Mapping[str, float], metrics: Sequence[Metric], operations: float, own: float | None
) -> Iterator[Measurement]:
    """The host's own part of it, which serves guests: the host's ledger separates it from guest code if KVM runs the
    guests.
    """
    metric = next((m for m in metrics if m.measure == HOST_SIDE), None)
    seconds = rows.get(f"{HostLedger.name}.seconds", 0.0)
    if metric is not None and f"{HostLedger.name}.guest" in rows and seconds > 0:
        share = min(1.0, own / seconds) if own else 1.0
        serving = math.fsum(rows.get(f"{HostLedger.name}.{name}", 0.0) for name in SERVING)
        yield Measurement(metric, serving * share / operations)


@dataclass(frozen=True, slots=True)
class _Command:
    """One subject's part of a trial."""

    key: TrialKey
    workload: Command[Any]
    case: str
    subject: str  # path of the machine whose work is measured
    job: Job

    def trial(self, started: float, seconds: float, **rest: Any) -> Trial:
        return new_trial(self.key, (self.workload.name, self.case), self.subject, started, seconds, **rest)


def _command(
    key: TrialKey, running: RunningTreatment, subject: RunningSubject, workload: Command[Any], case: str
) -> _Command:
    machine, prefix = workload.seat(subject.site)
    limit = workload.limit(case, EMULATED_SLOWDOWN if running.emulated else SLOWDOWN) + GRACE_SECONDS
    argv = (*prefix, *workload.command(subject.site, case))
    has_lead = subject.site.lead > 0  # if several machines may work at once
    repeats = has_lead and workload.repeats_at_once
    is_guest = subject.guest is not None and machine is subject.site.machine
    held = None
    if has_lead and not repeats and is_guest and len(running.subjects) > 1:
        held = PurePosixPath(f"/tmp/vmtax-start-{secrets.token_hex(8)}")
        argv = tuple(workload.held(case, argv, held))
    job = Job(machine, argv, limit * len(running.subjects), repeats, held, workload.input(subject.site))
    return _Command(key, workload, case, subject.machine, job)


def _judged(command: _Command, done: Done, running: RunningTreatment, signatures: Signatures) -> Trial:
    """The trial that results from a command. Every repetition must succeed and do the same work, also one that does not
    count.
    """
    workload, case, started, seconds = command.workload, command.case, done.started, done.seconds
    if done.lost is not None:
        error, raw = _why_lost(running, done.lost)
        return command.trial(started, seconds, status="failed", error=error, raw=raw)
    if done.not_started is not None:
        return command.trial(started, seconds, status="failed", error=done.not_started)
    raw, counting = done.raw, Repetitions.of(done.raw).counting
    try:
        if done.failed is not None:
            raise BadOutput(_failure(done.failed, workload, case, raw))
        measurements = workload.parse(case, counting)
        with reading(workload.tool):
            signed = {signature for output in done.outputs if (signature := workload.signature(case, output))}
    except BadOutput as failure:
        return command.trial(started, seconds, status="failed", error=str(failure), raw=raw)
    for signature in sorted(signed):
        refusal = signatures.disagreement(command.key.treatment, workload.name, case, signature)
        if refusal:
            return command.trial(started, seconds, status="refused", error=refusal, raw=raw)
    latencies = workload.latencies(case, counting)
    return command.trial(started, seconds, measurements=measurements, raw=raw, latencies=latencies)


def _failure(outcome: Outcome, workload: Command[Any], case: str, raw: str) -> str:
    """How the command failed, in one line: its last line on stderr, or what its output says is wrong."""
    how = f"no end within {outcome.seconds:.0f} s" if outcome.timed_out else f"exit code {outcome.code}"
    words = outcome.stderr.strip().splitlines()
    program = workload.tool.partition(" ")[0]
    if words and any(found in words[-1] for found in (text.format(program) for text in NOT_THERE)):
        return f"{outcome.path}: {program} is not in the image; `vmtax image build` makes one that has it"
    if words:
        return f"{outcome.path}: {how}: {workload.explained(case, words[-1]) or words[-1]}"
    try:
        workload.parse(case, raw)
    except BadOutput as complaint:
        return f"{outcome.path}: {how}: {complaint}"
    return f"{outcome.path}: {how}"


def _why_lost(running: RunningTreatment, failure: MachineLost) -> tuple[str, str]:
    """The cause in one line, as far as it is visible from outside; and the consoles, and what a stuck command waits
    for.
    """
    time.sleep(LOST_SECONDS)
    causes = [cause for guest in running.guests if (cause := guest.cause_of_death())]
    consoles = "\n".join(f"console of {guest.path}:\n{guest.console.text()}" for guest in running.guests)
    waiting = f"waiting uninterruptibly:\n{failure.waiting}\n" if isinstance(failure, CommandStuck) else ""
    return "; ".join([str(failure).partition("\n")[0], *causes]), waiting + consoles


def new_trial(key: TrialKey, what: tuple[str, str], machine: str, started: float, seconds: float, **rest: Any) -> Trial:
    """The first iteration of `what` (workload and case) on the machine with this path; its status is "ok" by default.

    `started`: seconds since the epoch
    """
    return Trial(
        round=key.round,
        position=key.position,
        treatment=key.treatment,
        workload=what[0],
        case=what[1],
        iteration=1,
        started=started,
        wall_seconds=seconds,
        machine=machine,
        **{"status": "ok", **rest},
    )
