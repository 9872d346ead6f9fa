"""Where the variance of a run is: between boots, or between the iterations within one. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from vmtax import stats
from vmtax.analysis.analysis import Analysis
from vmtax.core.records import Metric

# Share of a boot's variance. If infinitely many iterations would remove less than this, more iterations do not help.
LITTLE = 0.2


@dataclass(frozen=True, slots=True)
class Spread:
    """How the variance of one primary metric of one treatment is divided, over all boots of the run."""

    metric: Metric  # a primary one
    treatment: str  # its name
    emulated: bool  # whether the treatment is
    components: stats.VarianceComponents  # of the logarithms, between boots and within

    @property
    def each(self) -> float:
        """Iterations of a boot, on average."""
        return self.components.iterations / self.components.boots

    @property
    def of_iterations(self) -> float:
        """The share of the variance of a boot's mean that its iterations cause, 0 to 1."""
        inside = self.components.within / self.each
        return inside / (self.components.between + inside) if self.components.within else 0.0

    @property
    def more_would_help(self) -> bool:
        """Whether more iterations in each boot would make its mean much more exact."""
        return self.of_iterations > LITTLE


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
