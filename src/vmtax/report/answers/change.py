"""The answer of a comparison of two runs."""

from __future__ import annotations

from collections.abc import Sequence

from vmtax.analysis import sessions
from vmtax.report.answers.comparison import OVERHEAD
from vmtax.report.answers.notice import NoticeAnswer
from vmtax.report.answers.shape import UNIT, AnswerKey, Shape

NOTICES = AnswerKey(
    Sequence[NoticeAnswer],
    "doubts about this comparison",
    lambda change, _: [*map(NoticeAnswer.of_notice, change.notices)],
)
LINE = Shape(
    sessions.MetricChange,
    "metric=metric.name unit=metric.unit better=metric.better treatment primary ratio low high cost sessions method"
    " verdict gate emulated why",
    {"unit": UNIT},
    name="ChangeLine",
    parts=[OVERHEAD],
)
CHANGE = Shape(
    sessions.Change,
    "before after hosts facts emulated same_within fail_if_worse=limit gate lines warnings notices",
    {"notices": NOTICES},
    parts=[LINE],
)
