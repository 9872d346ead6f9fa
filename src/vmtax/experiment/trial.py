"""One trial: one command of one workload on one opened layer, whatever becomes of it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vmtax.core.records import Measurement, Trial
from vmtax.machine import CommandFailed, Machine, MachineLost, Outcome
from vmtax.meter import clock, pressure
from vmtax.testbed.layers import Opened
from vmtax.workload import BadOutput, Workload
from vmtax.workload.base import CPU_PER_OPERATION
from vmtax.workload.boot import measured

GRACE_SECONDS = 60.0  # beyond the expected length, before a command is taken for hung
# What bubblewrap, timeout(1) in either locale, and a shell say of a program that is not there.
NOT_THERE = (
    "execvp {}: No such file",
    "failed to run command ‘{}’: No such file",
    "failed to run command '{}': No such file",
    " {}: command not found",
)
BOOT = ("boot", "")  # workload and case
LOST_SECONDS = 0.5  # a QEMU whose guest just vanished may still be ending
SLOWDOWN = 4.0  # of a layer against the expectation, in the time limit
EMULATED_SLOWDOWN = 60.0  # an emulated guest is 20 to 30 times slower, a nested one in it 1.5 times more


@dataclass
class Signatures:
    """What must be the same on every layer: the first layer that reports it sets it."""

    first: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)

    @staticmethod
    def of(workloads: Sequence[Workload[Any]], trials: Iterable[Trial]) -> Signatures:
        """What trials, read with their raw output, have set already."""
        by_name = {workload.name: workload for workload in workloads}
        known = Signatures()
        for trial in trials:
            workload = by_name.get(trial.workload)
            if trial.status != "ok" or workload is None or not trial.raw:
                continue
            signature = workload.signature(trial.case, trial.raw)
            if signature:
                known.first.setdefault((trial.workload, trial.case), (trial.treatment, signature))
        return known

    def disagreement(self, treatment: str, workload: str, case: str, signature: str) -> str | None:
        """Why the work was not the same, in one line; None when it was."""
        where, wanted = self.first.setdefault((workload, case), (treatment, signature))
        if signature == wanted:
            return None
        return f"not the same work: {signature} here, {wanted} on {where}; the result is refused"


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the experiment a trial stands."""

    round: int
    position: int
    treatment: str


def run_trial(
    place: Place,
    layer: Opened,
    workload: Workload[Any],
    case: str,
    signatures: Signatures,
    *,
    iteration: int,
    host: Machine,
    emulated: bool,
) -> Trial:
    """Run one case once. A failure is a trial too: status and error say so, and what the tool printed is kept.

    `host`: the host under test, which is watched meanwhile.
    """
    machine, _ = workload.seat(layer.site)
    layer.clocks.begin(machine)
    before = _reading(host)
    trial = replace(_run(place, layer, workload, case, signatures, emulated), iteration=iteration)
    after = _reading(host)
    if before is not None and after is not None:
        trial = replace(trial, disturbance=pressure.between(before, after))
        trial = _with_cpu(trial, workload)
    if trial.status != "ok":
        return trial  # there is no figure to doubt
    own = workload.own_seconds(case, trial.raw)
    doubts = clock.own_time(workload.tool, own, trial.wall_seconds, emulated=emulated)
    return replace(trial, warnings=(*layer.clocks.end(machine), *doubts))


def _with_cpu(trial: Trial, workload: Workload[Any]) -> Trial:
    """The host's CPU time for each operation, where the workload counts operations: of the whole trial, the part that
    its operations took of it. The rest is the tool's own start, which a short run would be charged with.
    """
    operations = workload.operations(trial.case, trial.raw) if trial.status == "ok" else None
    metric = next((m for m in workload.reports(trial.case) if m.measure == CPU_PER_OPERATION), None)
    if not operations or metric is None or trial.disturbance is None or trial.disturbance.busy_seconds <= 0:
        return trial
    wall, own = trial.disturbance.wall_seconds, workload.own_seconds(trial.case, trial.raw)
    share = min(1.0, own / wall) if own and wall > 0 else 1.0
    cost = Measurement(metric, trial.disturbance.busy_seconds * share / operations)
    return replace(trial, measurements=(*trial.measurements, cost))


def _reading(host: Machine) -> pressure.Reading | None:
    """None where the host does not tell."""
    try:
        return pressure.read(host)
    except CommandFailed:
        return None


def _run(
    place: Place, layer: Opened, workload: Workload[Any], case: str, signatures: Signatures, emulated: bool
) -> Trial:
    site = layer.site
    machine, prefix = workload.seat(site)
    argv = (*prefix, *workload.command(site, case))
    limit = workload.seconds(case) * (EMULATED_SLOWDOWN if emulated else SLOWDOWN) + GRACE_SECONDS
    started, clock = time.time(), time.monotonic()
    what = (workload.name, case)
    raw, seconds = "", 0.0
    try:
        outcome = machine.try_run(*argv, timeout=limit)
        raw, seconds = f"{outcome.stdout}\n{outcome.stderr}", outcome.seconds
        if not outcome.ok:
            raise BadOutput(_failure(outcome, workload, case, raw))
        measurements = workload.parse(case, raw)
        signature = workload.signature(case, raw)
    except BadOutput as failure:
        return _trial(place, what, started, seconds, status="failed", error=str(failure), raw=raw)
    except MachineLost as failure:
        error, raw = _why_lost(layer, failure)
        seconds = time.monotonic() - clock
        return _trial(place, what, started, seconds, status="failed", error=error, raw=raw)
    refusal = signatures.disagreement(place.treatment, workload.name, case, signature) if signature else None
    if refusal:
        return _trial(place, what, started, seconds, status="refused", error=refusal, raw=raw)
    latencies = workload.latencies(case, raw)
    return _trial(place, what, started, seconds, measurements=measurements, raw=raw, latencies=latencies)


def _failure(outcome: Outcome, workload: Workload[Any], case: str, raw: str) -> str:
    """How the command failed, in one line: its last word on stderr, or what its output says is wrong."""
    how = f"no end within {outcome.seconds:.0f} s" if outcome.timed_out else f"exit code {outcome.code}"
    words = outcome.stderr.strip().splitlines()
    program = workload.tool.partition(" ")[0]
    if words and any(found in words[-1] for found in (text.format(program) for text in NOT_THERE)):
        return f"{outcome.path}: {program} is not in the image; `vmtax image build` makes one that has it"
    if words:
        return f"{outcome.path}: {how}: {words[-1]}"
    try:
        workload.parse(case, raw)
    except BadOutput as complaint:
        return f"{outcome.path}: {how}: {complaint}"
    return f"{outcome.path}: {how}"


def _why_lost(layer: Opened, failure: MachineLost) -> tuple[str, str]:
    """One line with the cause as far as it can be seen from outside, and the consoles."""
    time.sleep(LOST_SECONDS)
    causes = [cause for guest in layer.guests if (cause := guest.cause_of_death())]
    consoles = "\n".join(f"console of {guest.path}:\n{guest.console.text()}" for guest in layer.guests)
    return "; ".join([str(failure).partition("\n")[0], *causes]), consoles


def boot_trial(place: Place, layer: Opened, shutdown_seconds: float | None) -> Trial:
    """The boot of the measured guest as a trial of its own."""
    guest = layer.guests[-1]
    seconds = guest.ready_seconds + (shutdown_seconds or 0.0)
    measurements = measured(guest.ready_seconds, guest.kernel_seconds, shutdown_seconds)
    warnings = tuple(guest.warnings)
    raw = guest.console.text()
    return _trial(place, BOOT, time.time() - seconds, seconds, measurements=measurements, warnings=warnings, raw=raw)


def failed_boot(place: Place, started: float, error: str) -> Trial:
    """A guest that did not come up, or was lost in mid-round."""
    first = error.partition("\n")[0]
    return _trial(place, BOOT, started, time.time() - started, status="failed", error=first, raw=error)


def _trial(place: Place, what: tuple[str, str], started: float, seconds: float, **rest: Any) -> Trial:
    """`what`: workload and case."""
    return Trial(
        round=place.round,
        position=place.position,
        treatment=place.treatment,
        workload=what[0],
        case=what[1],
        iteration=1,
        started=started,
        wall_seconds=seconds,
        **{"status": "ok", **rest},
    )
