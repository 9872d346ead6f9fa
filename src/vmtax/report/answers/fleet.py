"""The answer about many hosts."""

from __future__ import annotations

from vmtax.analysis.many import fleet as many
from vmtax.report.answers.history import LEFT_OUT
from vmtax.report.answers.shape import UNIT, Shape

HOST = Shape(many.HostCost, "host run ratio low high rounds deviation p odd")
GROUP = Shape(many.GroupCost, "value hosts ratio low high")
PROPERTY = Shape(many.PropertyCost, "name groups p shown same_as", parts=[GROUP])
LINE = Shape(
    many.FleetLine,
    "metric=metric.name unit=metric.unit better=metric.better baseline treatment primary emulated ratio low high"
    " between next_low next_high hosts properties",
    {"unit": UNIT},
    parts=[HOST, PROPERTY],
)
MERGED = Shape(many.MergedHost, "host run others names")
FLEET = Shape(many.Fleet, "plan label hosts lines merged left_out", parts=[LINE, MERGED, LEFT_OUT])
