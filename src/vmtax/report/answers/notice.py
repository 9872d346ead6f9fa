"""A cause of warnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.notices import Cause
from vmtax.core import notices
from vmtax.core.notices import Code
from vmtax.report.answers.part import Part
from vmtax.report.wording import figures


@dataclass(frozen=True)
class Notice(Part):
    """One cause of warnings; warnings.md has all codes."""

    code: Code  # identifier of the cause
    cause: str  # what it was, one sentence
    effect: str  # what it does to the figures that it is about, one sentence
    cure: str  # what to do about it, one sentence
    about: str  # the figures that it is about, for people
    treatments: Sequence[str]  # names of those that it is about; empty: all
    metrics: Sequence[str]  # names of those that it is about; empty: all
    rounds: Sequence[int]  # those that it is about; empty: all, or it is about no rounds

    @classmethod
    def of_cause(cls, found: Cause, analysis: Analysis) -> Self:
        """Of a run."""
        return cls.of(found, cause=found.text, cure=found.remedy, about=figures.about(found, analysis))

    @classmethod
    def of_notice(cls, found: notices.Notice) -> Self:
        """Of a comparison of runs."""
        about = ", ".join(found.treatments) or "all figures"
        return cls.of(found, cure=found.remedy, about=about)
