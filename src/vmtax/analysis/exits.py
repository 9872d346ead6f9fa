"""How often guests exited to KVM, per operation and per second, and why; and their CPU cycles. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vmtax.core.records import Experiment, Treatment, Trial

METER = "kvm."  # prefix of the readings of the meter of exits
REASON = "reason."
CYCLES = ("cycles.guest", "cycles.host")


@dataclass(frozen=True, slots=True)
class Exits:
    """How often one guest exited to KVM in all trials of one case; all its vCPUs are counted together."""

    treatment: Treatment
    machine: str  # path of the guest that exits; a nested treatment also has an entry for its outer VM
    workload: str  # name of the workload
    case: str  # part of the workload; empty: there is only one
    per_operation: float | None  # exits per operation; None: they are not counted, or the workload counts no operations
    per_second: float | None  # exits per second of the trials; None: they are not counted
    reasons: Mapping[str, float]  # KVM's reason -> share of the exits, 0 to 1, most frequent first; empty without
    # guest.exit_trace
    why_not: str | None  # why exits are not counted; None: they are counted
    host_cycles: float | None = None  # share of the CPU cycles of the guest's QEMU that are outside of guest code, 0 to
    # 1; None without guest.cycles


def exits(experiment: Experiment, trials: Sequence[Trial]) -> tuple[Exits, ...]:
    """In the order of treatments, guests and cases; guests that work at the same time are listed separately.

    trials: those that count
    """
    guests = {(boot.treatment, boot.path): boot for boot in experiment.boots}
    found: dict[tuple[str, str, str, str], list[Mapping[str, float]]] = defaultdict(list)
    for trial in trials:
        if trial.status == "ok" and trial.workload != "boot":
            own = trial.machine
            for path in (path for name, path in guests if name == trial.treatment and _is_below(path, own)):
                key = (trial.treatment, trial.workload, trial.case, path)
                found[key].append(trial.readings.get(path, {}))
    by_name = {treatment.name: treatment for treatment in experiment.treatments if treatment.repeats is None}
    order = {name: place for place, name in enumerate(by_name)}
    return tuple(
        _of(by_name[name], (workload, case), path, [*map(_rows, read)], guests[name, path].accelerator)
        for (name, workload, case, path), read in sorted(
            found.items(), key=lambda one: (order.get(one[0][0], -1), one[0][3])
        )
        if name in by_name
    )


def _is_below(path: str, own: str) -> bool:
    """Whether it is the trial's own machine, or one that carries it."""
    return own == path or own.startswith(f"{path}/")


def _rows(readings: Mapping[str, float]) -> Mapping[str, float]:
    return {name.removeprefix(METER): value for name, value in readings.items() if name.startswith(METER)}


def _of(
    treatment: Treatment, what: tuple[str, str], path: str, trials: Sequence[Mapping[str, float]], accelerator: str
) -> Exits:
    counted = [rows for rows in trials if "exits" in rows and rows.get("seconds")]
    if not counted:
        why = (
            f"no KVM here, {path} is emulated"
            if accelerator == "tcg"
            else "its QEMU has no query-stats (7.1 has), or an earlier version of vmtax made this run"
        )
        return Exits(treatment, path, *what, None, None, {}, why)
    total = sum(rows["exits"] for rows in counted)
    operations = sum(rows.get("operations", 0.0) for rows in counted)
    reasons: dict[str, float] = defaultdict(float)
    for rows in counted:
        for name, count in rows.items():
            if name.startswith(REASON) and count:
                reasons[name.removeprefix(REASON)] += count
    traced = sum(reasons.values())
    guest, host = (sum(rows.get(name, 0.0) for rows in counted) for name in CYCLES)
    return Exits(
        treatment,
        path,
        *what,
        per_operation=total / operations if operations and all("operations" in rows for rows in counted) else None,
        per_second=total / sum(rows["seconds"] for rows in counted),
        reasons={name: count / traced for name, count in sorted(reasons.items(), key=lambda one: (-one[1], one[0]))},
        why_not=None,
        host_cycles=host / (guest + host) if guest + host else None,
    )
