"""One experiment and all that its reports take from it, each part computed once, when it is first asked for."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cached_property
from typing import TYPE_CHECKING

from vmtax.analysis import comparisons as compare
from vmtax.analysis import gains, notices, rankings, scores
from vmtax.analysis.comparisons import Numbers
from vmtax.analysis.criteria import Criteria
from vmtax.analysis.durability import Survival, survival
from vmtax.analysis.emulation import emulated_treatments
from vmtax.analysis.exits import Exits, exits
from vmtax.analysis.gains import Gain
from vmtax.analysis.ledger import Ledger, ledgers
from vmtax.analysis.notices import Cause
from vmtax.analysis.rankings import FactorEffect, Ranking
from vmtax.analysis.requirements import Requirements
from vmtax.analysis.results import Results
from vmtax.analysis.scores import Scores
from vmtax.analysis.weight_profiles import WeightProfile
from vmtax.core.records import LAYERS, Comparison, Experiment, Metric, Treatment, Trial
from vmtax.design import iterations
from vmtax.design.interleaved import Sides, sides_of
from vmtax.design.iterations import Case, Schedule
from vmtax.design.stopping import Decision, Stopping
from vmtax.workload import WORKLOADS

if TYPE_CHECKING:
    from vmtax.design.features import Feature

RESULTS = tuple(field.name for field in fields(Results))


class Analysis:
    """Pure, and as immutable as its experiment.

    profile: the weights by which disks are scored besides the usual scores; requirements: what a disk must have to be
    recommended; results: what another analysis of this experiment computed, which is not computed again
    """

    def __init__(
        self,
        experiment: Experiment,
        profile: WeightProfile | None = None,
        requirements: Requirements | None = None,
        results: Results | None = None,
    ) -> None:
        self.experiment = experiment
        self.profile = profile
        self.requirements = requirements or Requirements()
        if results is not None:
            by_profile = {"scores"} if profile is not None else set()
            known = {name: getattr(results, name) for name in RESULTS if name not in by_profile}
            vars(self).update(known)  # where a cached property looks first

    @property
    def results(self) -> Results:
        """What is worth keeping. Raises ValueError if a profile was asked for: its scores fit no other."""
        if self.profile is not None:
            raise ValueError("the results of a profile are not kept")
        return Results(**{name: getattr(self, name) for name in RESULTS})

    @cached_property
    def criteria(self) -> Criteria:
        return Criteria.of(self.experiment.plan)

    @cached_property
    def stopping(self) -> Stopping:
        return Stopping.of(self.experiment.plan)

    @cached_property
    def sides(self) -> Sides | None:
        """None if nothing is interleaved."""
        return sides_of(self.experiment)

    @cached_property
    def repeats(self) -> frozenset[str]:
        """Names of the treatments that are another one's A/A."""
        return frozenset(t.name for t in self.experiment.treatments if t.repeats is not None)

    @cached_property
    def emulated(self) -> frozenset[str]:
        """Names of the treatments whose figures are emulated."""
        return emulated_treatments(self.experiment)

    @cached_property
    def emulated_layers(self) -> frozenset[str]:
        """Layers with a treatment whose figures are emulated."""
        return frozenset(t.layer for t in self.experiment.treatments if t.name in self.emulated)

    def is_emulated(self, comparison: Comparison) -> bool:
        """Either side is."""
        return not self.emulated.isdisjoint((comparison.baseline, comparison.treatment))

    @cached_property
    def rounds(self) -> int:
        """How many were begun."""
        return max((trial.round for trial in self.experiment.trials), default=0)

    @cached_property
    def schedules(self) -> Mapping[Case, Schedule]:
        """How many iterations the pilot planned for each case; empty if the plan says it."""
        return iterations.of(self.experiment)

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """Those that count: all but the warm-up."""
        return iterations.counted(self.experiment.trials, self.schedules)

    @cached_property
    def boot_numbers(self) -> Numbers:
        """(metric, treatment) -> round -> the one number of that boot, in the metric's unit."""
        return compare.boot_numbers(self.trials)

    @cached_property
    def primary_numbers(self) -> Numbers:
        """`boot_numbers` of the primary metrics."""
        primary = self.criteria.primary
        return {key: rounds for key, rounds in self.boot_numbers.items() if key[0].name in primary}

    @cached_property
    def medians(self) -> Mapping[tuple[Metric, str], float]:
        """(metric, treatment) -> the median over rounds of each round's median: a boot is the unit (METHOD.md)."""
        values: dict[tuple[Metric, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for trial in (*self.trials, *self.derived_trials):
            if trial.status == "ok":
                for measurement in trial.measurements:
                    values[measurement.metric, trial.treatment][trial.round].append(measurement.value)
        return {key: statistics.median(map(statistics.median, rounds.values())) for key, rounds in values.items()}

    @cached_property
    def comparisons(self) -> tuple[Comparison, ...]:
        """All of them, at the confidence that the plan's way of stopping allows."""
        run = self.experiment
        return compare.comparisons(run.treatments, self.trials, run.boots, self.criteria.alpha, run.facts)

    @cached_property
    def derived_trials(self) -> tuple[Trial, ...]:
        """Trials with what is derived from their measurements in the place of these; none of the others."""
        # Of each machine by itself: where several work at once, one's CPU time is not set against the bytes of all.
        derived = [
            replace(trial, measurements=WORKLOADS[trial.workload].derived(trial.measurements))
            for trial in self.experiment.trials
            if trial.workload in WORKLOADS and WORKLOADS[trial.workload].replaced
        ]
        counted = iterations.counted(derived, self.schedules)
        return tuple(trial for trial in counted if trial.measurements or trial.status != "ok")

    @cached_property
    def derived_comparisons(self) -> tuple[Comparison, ...]:
        """Of what is derived, in the words of `comparisons`."""
        run = self.experiment
        return compare.comparisons(run.treatments, self.derived_trials, run.boots, self.criteria.alpha, run.facts)

    @cached_property
    def causes(self) -> tuple[Cause, ...]:
        """Of all warnings, each once with the figures that it is about; the gravest first."""
        return notices.causes(self.experiment, self.comparisons)

    @cached_property
    def contrasts(self) -> Mapping[tuple[Metric, str, str], Comparison]:
        """(metric, baseline, treatment) -> their comparison."""
        return {(c.metric, c.baseline, c.treatment): c for c in (*self.comparisons, *self.derived_comparisons)}

    @cached_property
    def headline_metrics(self) -> Mapping[str, Metric]:
        """Workload -> the one metric that stands for it, of those that were compared."""
        by_workload: dict[str, list[Metric]] = defaultdict(list)
        for metric in dict.fromkeys(comparison.metric for comparison in self.comparisons):
            by_workload[metric.workload].append(metric)
        best_first = dict.fromkeys((*self.criteria.primary, *(kind.headline for kind in WORKLOADS.values())))
        rank = {name: place for place, name in enumerate(best_first)}
        return {
            workload: min(metrics, key=lambda metric: (rank.get(metric.name, len(rank)), metric.better == "lower"))
            for workload, metrics in by_workload.items()
        }

    @cached_property
    def decisions(self) -> tuple[Decision, ...]:
        """The answers to the plan's question; none where it asks nothing."""
        asked = (c for c in self.comparisons if c.metric.name in self.criteria.primary)
        return self.stopping.decisions([c for c in asked if c.treatment not in self.repeats])

    @cached_property
    def rankings(self) -> tuple[Ranking, ...]:
        """Of every metric; primary metrics first."""
        return rankings.rankings(self.experiment.treatments, self.boot_numbers, self.criteria)

    @cached_property
    def primary_rankings(self) -> tuple[Ranking, ...]:
        """Of the primary metrics alone, which is much less work; those of a host's own disks last."""
        found = rankings.rankings(self.experiment.treatments, self.primary_numbers, self.criteria)
        return tuple(sorted(found, key=lambda ranking: ranking.layer == "host"))

    @cached_property
    def factor_effects(self) -> tuple[FactorEffect, ...]:
        """Of the primary metrics, for every layer in which two factors or more differ."""
        return rankings.factor_effects(self.experiment.treatments, self.primary_numbers, self.criteria)

    @cached_property
    def scores(self) -> Scores:
        """Storage scores: the article's, and that of the profile."""
        return scores.scores(self.experiment.treatments, self.boot_numbers, self.criteria, self.profile)

    @cached_property
    def gains(self) -> tuple[Gain, ...]:
        """What queue depth gains each disk, and what its first write loses."""
        return gains.gains(self.experiment.treatments, self.boot_numbers, self.criteria.alpha)

    @cached_property
    def exits(self) -> tuple[Exits, ...]:
        """How often each guest left to KVM in each case; of none that ran no command."""
        return exits(self.experiment, self.trials)

    @cached_property
    def ledger(self) -> tuple[Ledger, ...]:
        """Who used the host's CPU in each case; of a run whose version read none there are none."""
        return ledgers(self.experiment, self.trials)

    @cached_property
    def disk_features(self) -> Mapping[str, tuple[Feature, ...]]:
        """Treatment -> what the run found that its disk can do; empty of a run that did not look."""
        from vmtax.design.features import Feature

        disk = (self.experiment.facts.get("host") or {}).get("disk") or {}
        recorded = disk.get("features") or {}
        return {name: tuple(map(Feature.from_json, features)) for name, features in recorded.items()}

    @cached_property
    def survival(self) -> Survival | None:
        """What survived when the power went; None of a run that did not try it."""
        return survival(self.experiment, self.disk_features)

    def first_treatments(self, side: str = "") -> dict[str, Treatment]:
        """Layer -> its first treatment, which has the baseline levels; layers from the host upward.

        Of one side; two QEMUs of one host have its layer in common.
        """
        found: dict[str, Treatment] = {}
        for treatment in sorted(self.experiment.treatments, key=lambda treatment: treatment.side != side):
            if treatment.side == side or treatment.layer == "host":
                found.setdefault(treatment.layer, treatment)
        return {layer: found[layer] for layer in (*LAYERS, *found) if layer in found}
