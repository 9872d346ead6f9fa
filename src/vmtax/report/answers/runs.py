"""The answer about the runs in the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from vmtax.report.answers.part import AnswerRecord, written
from vmtax.store import ExperimentSummary


@dataclass(frozen=True)
class Run(ExperimentSummary, AnswerRecord):
    """One line of `vmtax runs`."""

    created_iso: str | None = None  # `created` in UTC as ISO 8601 writes it; null: the run is damaged
    finished_iso: str | None = None  # `finished` in UTC as ISO 8601 writes it; null: not finished

    @classmethod
    def made(cls, entry: ExperimentSummary) -> Self:
        created, finished = (written(time) if time else None for time in (entry.created, entry.finished))
        return cls.of(entry, created_iso=created, finished_iso=finished)
