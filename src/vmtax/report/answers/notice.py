"""A cause of warnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.notices import Cause
from vmtax.core import notices
from vmtax.core.notices import Code
from vmtax.report.answers.part import AnswerRecord
from vmtax.report.wording import figures


@dataclass(frozen=True)
class NoticeAnswer(AnswerRecord):
    """One cause of warnings; warnings.md lists all codes."""

    code: Code  # identifier of the cause
    cause: str  # what happened, in one sentence
    effect: str  # its effect on the affected figures, in one sentence
    cure: str  # what to do about it, in one sentence
    about: str  # the affected figures, for people
    treatments: Sequence[str]  # names of the affected treatments; empty: all
    metrics: Sequence[str]  # names of the affected metrics; empty: all
    rounds: Sequence[int]  # numbers of the affected rounds; empty: all, or the cause does not concern single rounds

    @classmethod
    def of_cause(cls, found: Cause, analysis: Analysis) -> Self:
        """The notice for a cause in a run."""
        return cls.of(found, cause=found.text, cure=found.remedy, about=figures.about(found, analysis))

    @classmethod
    def of_notice(cls, found: notices.Notice) -> Self:
        """The notice about a comparison of runs."""
        about = ", ".join(found.treatments) or "all figures"
        return cls.of(found, cure=found.remedy, about=about)
