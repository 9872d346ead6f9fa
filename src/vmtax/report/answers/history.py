"""The answer about the runs of one host over time."""

from __future__ import annotations

from vmtax.analysis.many import choose
from vmtax.analysis.many import history as many
from vmtax.report.answers.shape import UNIT, Shape

POINT = Shape(many.HistoryPoint, "run label created ratio low high rounds odd")
CHANGE = Shape(many.HistoryChange, "run since before ratio p software")
LINE = Shape(
    many.HistoryLine,
    "metric=metric.name unit=metric.unit better=metric.better baseline treatment primary emulated points changes since"
    " runs_since most trend trend_low trend_high drifts",
    {"unit": UNIT},
    parts=[POINT, CHANGE],
)
LEFT_OUT = Shape(choose.OmittedRun, "run host why")
HISTORY = Shape(many.HostHistory, "plan label host runs created lines since most left_out", parts=[LINE, LEFT_OUT])
