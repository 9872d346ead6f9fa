"""The answer about changes over many hosts."""

from __future__ import annotations

from vmtax.analysis.many import fleet as of_many
from vmtax.analysis.many import fleet_change as many
from vmtax.report.answers.fleet import PROPERTY
from vmtax.report.answers.history import LEFT_OUT
from vmtax.report.answers.shape import UNIT, AnswerKey, Shape

HOST = Shape(
    of_many.HostCost,
    "host ratio low high rounds deviation p unlike=odd",
    {
        "ratio": AnswerKey(float, "times after / times before of this host"),
        "low": AnswerKey(float | None, "lower end of its interval; null: none"),
        "rounds": AnswerKey(int, "rounds of the side that has fewer"),
        "deviation": AnswerKey(float, "this ratio / that of the median host"),
        "unlike": AnswerKey(bool, "whether the host changed unlike the others", lambda host, _: host.odd),
    },
    name="HostChange",
    about="The change of one host.",
)
LINE = Shape(
    many.ChangedLine,
    "metric=line.metric.name unit=line.metric.unit better=line.metric.better baseline=line.baseline"
    " treatment=line.treatment primary=line.primary emulated=line.emulated ratio=line.ratio low=line.low high=line.high"
    " between=line.between next_low=line.next_low next_high=line.next_high verdict run_to_run hosts=line.hosts"
    " properties=line.properties",
    {
        "unit": UNIT,
        "baseline": AnswerKey(str, 'name of the treatment that it is compared with; "": it is the time itself'),
        "primary": AnswerKey(bool, "whether it is the time of a primary metric"),
        "ratio": AnswerKey(float | None, "mean over hosts of times after / times before; null: fewer than two hosts"),
    },
    parts=[HOST, PROPERTY],
)
PAIR = Shape(many.HostPair, "host before after software")
FLEET_CHANGE = Shape(
    many.FleetChange, "plan before after hosts=pairs same_within lines left_out", parts=[LINE, PAIR, LEFT_OUT]
)
