"""A run's result in few words, for a list of runs."""

from __future__ import annotations

import math
from collections import Counter

from vmtax.analysis.analysis import Analysis
from vmtax.core.layers import ABOVE
from vmtax.core.records import Comparison, Verdict
from vmtax.core.units import format_cost, time_ratio
from vmtax.report.wording import durability

VERDICTS: dict[Verdict, str] = {
    "worse": "worse",
    "better": "better",
    "no difference shown": "without a difference",
    "too few rounds": "with too few rounds",
}


def in_few_words(analysis: Analysis) -> str:
    """Such as "VM +2 % to 24×": the cost of the primary metrics against the host. Without a host, how many primary
    comparisons had each outcome: "2 worse, 1 better"; without comparisons, what survived: "10 durable, 2 not". "" if
    nothing was compared or tried.
    """
    primary = [
        one
        for one in analysis.comparisons
        if one.metric.name in analysis.criteria.primary and one.treatment not in analysis.repeats
    ]
    layer = {treatment.name: treatment.layer for treatment in analysis.experiment.treatments}
    for above, name in ((each.name, each.title) for each in ABOVE):
        found = [one for one in primary if layer[one.baseline] == "host" and layer[one.treatment] == above]
        if found:
            costs = sorted(filter(math.isfinite, map(_ratio, found)))
            if not costs:
                return f"{name} not measured"
            texts = dict.fromkeys(format_cost(ratio).estimate for ratio in (costs[0], costs[-1]))
            few = all(one.verdict == "too few rounds" for one in found)
            return f"{name} {' to '.join(texts)}{', too few rounds' if few else ''}"
    if not primary and analysis.survival is not None:
        return durability.in_few_words(analysis.survival)
    counts = Counter(one.verdict for one in primary)
    return ", ".join(f"{counts[verdict]} {words}" for verdict, words in VERDICTS.items() if counts[verdict])


def _ratio(one: Comparison) -> float:
    return time_ratio(one.metric.better, one.ratio)[0]
