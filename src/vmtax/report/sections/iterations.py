"""What a run shows about boots and iterations: how many were planned and why, and where the variance is. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from vmtax import stats
from vmtax.analysis.analysis import Analysis
from vmtax.core.records import Metric
from vmtax.core.units import count_of
from vmtax.design import iterations
from vmtax.design.iterations import PILOT_ITERATIONS, PILOT_ROUNDS
from vmtax.report.document import Detail, Item, List, Paragraph, Section, Span, term

# Share of a boot's variance. If infinitely many iterations would remove less than this, more iterations do not help.
LITTLE = 0.2


@dataclass(frozen=True, slots=True)
class Spread:
    """How the variance of one primary metric of one treatment is divided, over all boots of the run."""

    metric: Metric
    treatment: str
    emulated: bool
    components: stats.VarianceComponents

    @property
    def sentence(self) -> str:
        """What this means for the next run."""
        found = self.components
        each = found.iterations / found.boots
        place = f"{self.metric.name}, {self.treatment}{' (emulated)' if self.emulated else ''}"
        share = f"{place}: {found.share_between:.0%} of the variance is between boots".replace("%", " %")
        inside = found.within / each
        gain = inside / (found.between + inside) if found.within else 0.0
        if gain <= LITTLE:
            return f"{share}: more iterations would not help"
        return f"{share}; of a boot’s mean over {each:.3g} iterations, they cause {100 * gain:.0f} %: more would help"


def spreads(analysis: Analysis) -> tuple[Spread, ...]:
    """For each primary metric and treatment with boots of at least two iterations; without warm-up and the A/A."""
    primary = analysis.criteria.primary
    boots: dict[tuple[Metric, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for trial in analysis.trials:
        for measurement in trial.measurements if trial.status == "ok" else ():
            if measurement.metric.name in primary and measurement.value > 0:
                boots[measurement.metric, trial.treatment][trial.round].append(measurement.value)
    return tuple(
        Spread(metric, treatment, treatment in analysis.emulated, stats.variance_components(list(rounds.values())))
        for (metric, treatment), rounds in boots.items()
        if treatment not in analysis.repeats and len(rounds) > 1 and any(len(values) > 1 for values in rounds.values())
    )


def lines(analysis: Analysis) -> tuple[str, ...]:
    """All of it as lines; empty if every boot has one iteration."""
    return (*_planned(analysis), *(spread.sentence for spread in spreads(analysis)))


def section(analysis: Analysis) -> Section | None:
    """None if every boot has one iteration."""
    found = lines(analysis)
    if not found:
        return None
    reading = (
        Span("A "),
        term("boot"),
        Span(
            " is what is counted; its iterations are made one value. What lies between boots is in the machine’s own"
            " wandering too, and only more rounds make it smaller."
        ),
    )
    blocks = (Paragraph(reading, "note", Detail.PAGE), List(tuple(map(Item, found)), detail=Detail.FULL))
    return Section("iterations", "Boots and iterations", blocks, "Boots")


def _planned(analysis: Analysis) -> Iterator[str]:
    wanted = analysis.experiment.plan.get("iterations", 1)
    if wanted == 1:
        return
    if wanted != "auto":
        yield f"{wanted} iterations in each boot, as the plan says; each boot counts as one value, none is left out"
        return
    yield (
        f"iterations planned from a pilot, the first {PILOT_ROUNDS} rounds with {PILOT_ITERATIONS} in each boot;"
        " each boot counts as one value"
    )
    for case, planned in analysis.schedules.items():
        yield f"{iterations.name_of(case)}: {_plan(planned)} ({planned.reason})"


def _plan(planned: iterations.Schedule) -> str:
    number = f"{count_of(planned.iterations, 'iteration')} in each boot"
    if not planned.steady:
        return (
            f"{number}; no steady state, so none is left out as warm-up, the first {planned.runs} of each boot count:"
            " a longer workload may settle"
        )
    return f"{number}, the first {planned.warm_up} before them left out as warm-up" if planned.warm_up else number
