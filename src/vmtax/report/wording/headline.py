"""A run's result in few words, for a list of runs."""

from __future__ import annotations

import math
from collections import Counter

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.summary import summary
from vmtax.core.layers import ABOVE
from vmtax.core.records import Verdict
from vmtax.core.units import format_cost
from vmtax.report.wording import durability

VERDICTS: dict[Verdict, str] = {
    "worse": "worse",
    "better": "better",
    "no difference shown": "without a difference",
    "too few rounds": "with too few rounds",
}


def in_few_words(analysis: Analysis) -> str:
    """Such as "VM +2 % to 24×": the lowest and the highest cost of the first screen's first column. Without a host, how
    many primary comparisons had each outcome: "2 worse, 1 better"; without comparisons, what survived: "10 durable, 2
    not". "" if nothing was compared or tried.
    """
    found = summary(analysis)
    layer = {place.treatment: place.layer for place in found.places}
    for above in (each for each in ABOVE if analysis.sides is None):
        numbers = [
            n for n, (low, high) in enumerate(found.contrasts) if (layer[low], layer[high]) == ("host", above.name)
        ]
        costs = [one for figure in found.figures for n in numbers if (one := figure.contrasts[n]) is not None]
        if costs:
            ratios = sorted(one.ratio for one in costs if math.isfinite(one.ratio))
            if not ratios:
                return f"{above.title} not measured"
            texts = dict.fromkeys(format_cost(ratio).estimate for ratio in (ratios[0], ratios[-1]))
            few = all(one.verdict == "too few rounds" for one in costs)
            return f"{above.title} {' to '.join(texts)}{', too few rounds' if few else ''}"
    primary = [
        one
        for one in analysis.comparisons
        if one.metric.name in analysis.criteria.primary and one.treatment not in analysis.repeats
    ]
    if not primary and analysis.survival is not None:
        return durability.in_few_words(analysis.survival)
    counts = Counter(one.verdict for one in primary)
    return ", ".join(f"{counts[verdict]} {words}" for verdict, words in VERDICTS.items() if counts[verdict])
