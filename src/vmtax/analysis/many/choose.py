"""Which runs belong together: those of one machine, under whatever name, and those of the same work."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from vmtax.analysis.many.costs import RunCosts
from vmtax.analysis.sessions.work import unlike

MachineKey = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OmittedRun:
    """A run that is not compared with the others."""

    run: str  # its id
    host: str  # its name for a reader
    why: str  # in words


def by_machine(runs: Sequence[RunCosts]) -> dict[MachineKey, list[RunCosts]]:
    """The runs of each machine, in their order. A run of a version that recorded no machine-id belongs to the machine
    of that name and CPU, if there is only one.
    """
    named: dict[MachineKey, set[str]] = defaultdict(set)
    for run in runs:
        if run.machine_id is not None:
            named[run.host, run.cpu].add(run.machine_id)
    found: dict[MachineKey, list[RunCosts]] = defaultdict(list)
    for run in runs:
        ids = {run.machine_id} if run.machine_id is not None else named[run.host, run.cpu]
        found[(next(iter(ids)),) if len(ids) == 1 else (run.host, run.cpu)].append(run)
    return dict(found)


def alike(runs: Sequence[RunCosts], anchor: RunCosts) -> tuple[list[RunCosts], list[OmittedRun]]:
    """The runs whose work `vmtax compare` would compare with that of `anchor`, and the others."""
    kept, others = [], []
    for run in runs:
        why = next(unlike(run.work, anchor.work), None)
        if why is None:
            kept.append(run)
        else:
            words = why.replace(" in the first,", f" in {run.id},").replace(" in the second", f" in {anchor.id}")
            others.append(OmittedRun(run.id, run.host_name, words))
    return kept, others
