"""How much a run writes to the disks under test: foreseen, measured, and limited by the plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vmtax.core.errors import BadInput
from vmtax.core.records import Treatment, Trial
from vmtax.core.units import format_room, parse_bytes
from vmtax.design.disk import DiskSettings, During
from vmtax.design.stopping import count
from vmtax.design.topology import topology
from vmtax.plan.estimate import sum_per_round
from vmtax.plan.schema import Plan
from vmtax.storage.chain import snapshots_of
from vmtax.workload import Command, Workload
from vmtax.workload.fio import PATTERNS

SUBCLUSTERS = 32  # of a cluster that can be allocated separately (extended_l2)
COPIED = 15  # blocks of 4 KiB that are copied with the first that is written of a qcow2 cluster of 64 KiB, the default


@dataclass(frozen=True, slots=True)
class ForeseenWrites:
    """Bytes that the work itself writes, beside those with which the disks are prepared."""

    expected: float  # as when the plan last ran here, or as on a SATA SSD
    most: float  # on a very fast disk
    measured: bool  # whether the plan ran here before

    def __str__(self) -> str:
        """In a sentence; "" if the work writes nothing."""
        if not self.most:
            return ""
        basis = "as when this plan last ran here" if self.measured else "if that is a SATA SSD"
        return f"then over it about {format_room(self.expected)} {basis}, at most {format_room(self.most)} on any disk"


def machines_of(treatments: Sequence[Treatment]) -> list[Treatment]:
    """The treatment of each machine of a round: one of several guests at once has as many."""
    return [treatment for treatment in treatments for _ in topology(treatment).subjects]


def foresee_writes(
    plan: Plan, machines: Sequence[Treatment], executions: int, rounds: int, measured: float | None
) -> ForeseenWrites:
    """`executions`: how often each case is run in all rounds, at most; `measured`: bytes per round of an earlier run of
    the same plan on the same host, without what was copied for snapshots.
    """
    most = executions * (_written(plan, machines) + _copied(plan, machines))
    copied = executions * _copied(plan, machines, usual=True)
    usual = executions * _written(plan, machines, usual=True)
    expected = copied + (usual if measured is None else measured * rounds)
    return ForeseenWrites(min(expected, most), most, measured is not None)


def written_by_round(trials: Sequence[Trial], workloads: Sequence[Workload[Any]]) -> dict[int, float]:
    """The bytes that the trials of each round wrote; of one that failed, what it may have written at most."""
    by_name: Mapping[str, Workload[Any]] = {workload.name: workload for workload in workloads}
    rounds: dict[int, float] = defaultdict(float)
    for trial in trials:
        workload = by_name.get(trial.workload)
        if workload is not None:
            rounds[trial.round] += workload.written_by(trial)
    return rounds


def why_over(
    plan: Plan, prepared: float, by_round: Mapping[int, float], machines: Sequence[Treatment] = ()
) -> str | None:
    """Why the plan's limit ends the run after these rounds; None if another round fits.

    prepared: bytes with which the disks were prepared; machines: those of a round, for what their snapshots copy
    """
    if plan.max_writes is None or not by_round:
        return None
    copied = _copied(plan, machines)
    written = prepared + sum(by_round.values()) + copied * len(by_round)
    largest = max(by_round.values()) + copied
    if written + largest <= plan.max_writes:
        return None
    limit = format_room(plan.max_writes)
    rounds = f"after {count(len(by_round))}, which wrote up to {format_room(written)}"
    return f"{rounds}: one more may exceed max_writes, {limit}"


def refuse_too_much(plan: Plan, prepared: float, machines: Sequence[Treatment]) -> None:
    """Raises BadInput if even the first round may write more than the plan allows."""
    if plan.max_writes is None:
        return
    first = prepared + _written(plan, machines) + _copied(plan, machines)
    if first > plan.max_writes:
        raise BadInput(
            f"max_writes is {format_room(plan.max_writes)}, and one round may write {format_room(first)} if the disk is"
            " fast: allow that much, or measure fewer disks or patterns, or for fewer seconds (workloads.disk.seconds)"
        )


def _written(plan: Plan, machines: Sequence[Treatment], *, usual: bool = False) -> float:
    """Bytes that guests and the host write in a round: at most, or usually."""
    return sum_per_round(plan, machines, lambda workload, case: workload.written_bytes(case, usual=usual))


def _copied(plan: Plan, machines: Sequence[Treatment], *, usual: bool = False) -> float:
    """Bytes that a round copies into images over disks with snapshots: the first write to a cluster copies the rest of
    it. At most, all of both disks in each boot; usually, as many clusters as there are blocks written. Also those of
    snapshots and backups while the guest works, which are anew for each trial, and of a qcow2 file that grows.
    """
    copied = 0.0
    disks = [workload for workload in plan.build_workloads() if workload.filled_bytes]
    for machine in (each for each in machines if each.layer == "vm"):
        settings = DiskSettings.of(machine.levels)
        for disk in disks:
            sizes = {False: disk.filled_bytes, True: disk.fresh_bytes}
            written = dict.fromkeys(sizes, 0.0)  # of the disk that was filled, and of the one that was never written
            for case in plan.cases(disk, machine):
                fresh, bytes = disk.once(case), disk.written_bytes(case, usual=usual)
                written[fresh] += bytes
                copied += _beside(settings.copied, sizes[fresh], bytes)
                if fresh and not snapshots_of(settings):
                    copied += _zeroed(settings, case, sizes[fresh])
            if snapshots_of(settings):
                copied += sum(min(sizes[fresh], COPIED * bytes) for fresh, bytes in written.items())
        if settings.copied is During.BACKUP:  # while other things are measured, the disk is copied all the same
            size = max((disk.filled_bytes for disk in disks), default=0)
            workloads = plan.build_workloads()
            others = (each for each in workloads if isinstance(each, Command) and not each.filled_bytes)
            copied += sum(size * len(plan.cases(each, machine)) for each in others)
    return copied


def _zeroed(settings: DiskSettings, case: str, size: int) -> float:
    """Bytes that QEMU writes beside the first writes of all of a disk: the rest of each cluster that a qcow2 file
    gets for them.
    """
    if settings.format != "qcow2" or settings.preallocation != "off":
        return 0.0
    at_once = settings.cluster_size // (SUBCLUSTERS if settings.extended_l2 else 1)
    return size * max(0.0, 1 - parse_bytes(PATTERNS[case].block) / at_once)


def _beside(what: During, size: int, written: float) -> float:
    """Bytes that QEMU itself writes during and after one trial, which writes `written` bytes to a disk of `size` bytes:
    a backup all of the disk; after a snapshot the rest of each cluster, and its image once more when that is merged.
    """
    if what is During.BACKUP:
        return float(size)
    if what is During.SNAPSHOT:
        return min(size, COPIED * written) + min(size, (COPIED + 1) * written)
    return 0.0
