"""The work is the same on every layer: what a workload's output says about it is compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from vmtax.core.records import Trial
from vmtax.workload import Command, Workload
from vmtax.workload.repeated import Repetitions


@dataclass
class Signatures:
    """Checks that the work is the same on every layer: the first layer that reports a signature sets it."""

    first: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)

    @staticmethod
    def of(workloads: Sequence[Workload[Any]], trials: Iterable[Trial]) -> Signatures:
        """The signatures that existing trials, read with their raw outputs, have set."""
        by_name = {workload.name: workload for workload in workloads}
        known = Signatures()
        for trial in trials:
            workload = by_name.get(trial.workload)
            if trial.status != "ok" or not isinstance(workload, Command) or not trial.raw:
                continue
            signature = workload.signature(trial.case, Repetitions.of(trial.raw).counting)
            if signature:
                known.first.setdefault((trial.workload, trial.case), (trial.treatment, signature))
        return known

    def disagreement(self, treatment: str, workload: str, case: str, signature: str) -> str | None:
        """Why the work was not the same, in one line; None if it was."""
        where, wanted = self.first.setdefault((workload, case), (treatment, signature))
        if signature == wanted:
            return None
        return f"not the same work: {signature} here, {wanted} on {where}; the result is refused"
