"""What one changed setting of a VM of the user's costs it, in a run that compared its settings."""

from __future__ import annotations

from dataclasses import dataclass

from vmtax.analysis.analysis import Analysis
from vmtax.core.layers import OWNERS
from vmtax.core.records import Comparison
from vmtax.core.units import time_ratio
from vmtax.existing.advice import change_of_xml

SHOWN = ("worse", "better")  # verdicts that show a difference


@dataclass(frozen=True, slots=True)
class SettingPrice:
    """One setting that differs from those of the run's first configuration of the VM, all others being equal."""

    factor: str
    level: str
    first: str  # level of the first configuration
    costs: tuple[Comparison, ...]  # of the primary metrics, against the first configuration; () if it was not measured
    change: str  # libvirt's XML; "" if no line of it makes the change


def prices(analysis: Analysis) -> tuple[SettingPrice, ...]:
    """The one that is shown to save most first, others in the run's order; () if it measured no VM of the user's, or
    with one configuration only.
    """
    run = analysis.experiment
    own = [each for each in run.treatments if each.layer in OWNERS and each.repeats is None and not each.side]
    found = []
    for each in own[1:]:
        first = own[0].levels
        changed = [name for name, level in each.levels.items() if level != first.get(name)]
        if len(changed) == 1 and changed[0] in first:
            factor, pair = changed[0], (own[0].name, each.name)
            costs = tuple(
                one
                for one in analysis.comparisons
                if (one.baseline, one.treatment) == pair and one.metric.name in run.plan["primary"]
            )
            level = each.levels[factor]
            found.append(SettingPrice(factor, level, first[factor], costs, change_of_xml(factor, level)))
    return tuple(sorted(found, key=_least_time))


def _least_time(price: SettingPrice) -> float:
    """The least time for the same work that is shown for it, against the first configuration; 1: no saving is shown."""
    shown = [one for one in price.costs if one.verdict in SHOWN]
    return min((1.0, *(time_ratio(one.metric.better, one.ratio, one.low, one.high)[0] for one in shown)))
