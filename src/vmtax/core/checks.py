"""Findings of the doctor: one frozen record for each check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Area = Literal["measurable", "need", "disturbance", "tried"]
Status = Literal["ok", "unknown", "disturbs", "missing", "failed"]
WORST_FIRST: tuple[Status, ...] = ("failed", "missing", "disturbs", "unknown", "ok")

# The exit code depends on these.
HOST, VM = "host", "VM"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding of the doctor."""

    area: Area  # what the check is about; "tried": only with --try
    name: str  # what was examined: "VM", "governor"; unique within its area
    status: Status  # "unknown": what could be read does not show it
    text: str  # what was found, and why it matters
    remedy: str = ""  # what to type or do, one line for each step; empty: there is nothing to do


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What `vmtax doctor` found."""

    host: str  # the host, as given: local, ssh://[user@]host or lab[:NAME]
    about: str  # processor, memory and system, in one line
    checks: tuple[Check, ...]  # the findings, one for each thing that was examined

    def of(self, area: Area) -> tuple[Check, ...]:
        """The checks of one area."""
        return tuple(check for check in self.checks if check.area == area)

    @property
    def bad(self) -> tuple[Check, ...]:
        """Checks that show why host and VM cannot be measured."""
        layers = [check for check in self.of("measurable") if check.name in (HOST, VM)]
        lacking = [check for check in layers if check.status in ("missing", "failed")]
        return (*lacking, *(check for check in self.of("tried") if check.status == "failed"))
