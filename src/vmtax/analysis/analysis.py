"""The analysis of one experiment: everything that its reports use, each part computed once, when first needed."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
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
from vmtax.analysis.idle import IdleGuest, idle_guests
from vmtax.analysis.ledger import Ledger, ledgers
from vmtax.analysis.notices import Cause
from vmtax.analysis.rankings import FactorEffect, Ranking
from vmtax.analysis.requirements import Requirements
from vmtax.analysis.results import Results
from vmtax.analysis.scores import Scores
from vmtax.analysis.tiles import OfRole, tiles
from vmtax.analysis.values import Values
from vmtax.analysis.weight_profiles import WeightProfile
from vmtax.core.layers import LAYERS
from vmtax.core.records import Comparison, Experiment, Metric, Treatment, Trial
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

    profile: weights for scoring disks besides the usual scores; requirements: what a disk must have to be recommended;
    results: results of another analysis of this experiment, which are not computed again
    """

    experiment: Experiment

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
            vars(self).update(known)  # where cached properties are looked up first

    @property
    def results(self) -> Results:
        """The results that are worth storing. Raises ValueError if there is a profile: its scores are of no use to
        others.
        """
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
        """Names of the treatments that are the A/A of another one."""
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
        """Whether either side is emulated."""
        return not self.emulated.isdisjoint((comparison.baseline, comparison.treatment))

    @cached_property
    def rounds(self) -> int:
        """How many rounds were begun."""
        return max((trial.round for trial in self.experiment.trials), default=0)

    @cached_property
    def schedules(self) -> Mapping[Case, Schedule]:
        """How many iterations the pilot planned for each case; empty if the plan sets them."""
        return iterations.of(self.experiment)

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """The trials that count: all except the warm-up."""
        return iterations.counted(self.experiment.trials, self.schedules)

    @cached_property
    def boot_numbers(self) -> Numbers:
        """(metric, treatment) -> round -> the number of that boot, in the metric's unit."""
        return compare.boot_numbers(self.trials)

    @cached_property
    def primary_numbers(self) -> Numbers:
        """`boot_numbers` of the primary metrics."""
        primary = self.criteria.primary
        return {key: rounds for key, rounds in self.boot_numbers.items() if key[0].name in primary}

    @cached_property
    def medians(self) -> Mapping[tuple[Metric, str], float]:
        """(metric, treatment) -> the median over rounds of each round's median: the boot is the unit (METHOD.md)."""
        values: dict[tuple[Metric, str], Values] = defaultdict(Values)
        for trial in (*self.trials, *self.derived_trials):
            if trial.status == "ok":
                for measurement in trial.measurements:
                    values[measurement.metric, trial.treatment].add(trial.round, measurement.value)
        return {
            key: statistics.median(map(statistics.median, found.by_round().values())) for key, found in values.items()
        }

    @cached_property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Every comparison of two treatments by one metric, at the confidence that the plan's stopping rule allows."""
        return self._compared(self.trials)

    @cached_property
    def derived_trials(self) -> tuple[Trial, ...]:
        """Trials that have derived measurements, with these instead of their own; no other trials."""
        # For each machine separately: if several work at once, the CPU time of one must not be divided by the bytes of
        # all.
        derived = [
            replace(trial, measurements=WORKLOADS[trial.workload].derived(trial.measurements))
            for trial in self.experiment.trials
            if trial.workload in WORKLOADS and WORKLOADS[trial.workload].replaced
        ]
        counted = iterations.counted(derived, self.schedules)
        return tuple(trial for trial in counted if trial.measurements or trial.status != "ok")

    @cached_property
    def derived_comparisons(self) -> tuple[Comparison, ...]:
        """Comparisons of derived measurements, in the format of `comparisons`."""
        return self._compared(self.derived_trials)

    def _compared(self, trials: Sequence[Trial]) -> tuple[Comparison, ...]:
        run, named = self.experiment, compare.named_factors(self.experiment.plan)
        return compare.comparisons(run.treatments, trials, run.boots, self.criteria.alpha, run.facts, named)

    @cached_property
    def causes(self) -> tuple[Cause, ...]:
        """The causes of all warnings, each once with the figures that it affects; the most serious first."""
        return notices.causes(self.experiment, self.comparisons)

    @cached_property
    def contrasts(self) -> Mapping[tuple[Metric, str, str], Comparison]:
        """(metric, baseline, treatment) -> their comparison."""
        return {(c.metric, c.baseline, c.treatment): c for c in (*self.comparisons, *self.derived_comparisons)}

    @cached_property
    def headline_metrics(self) -> Mapping[str, Metric]:
        """Workload -> the metric that represents it, among those that were compared."""
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
        """Answers to the plan's question (decide); empty: the plan has no question."""
        asked = (c for c in self.comparisons if c.metric.name in self.criteria.primary)
        return self.stopping.decisions([c for c in asked if c.treatment not in self.repeats])

    @cached_property
    def rankings(self) -> tuple[Ranking, ...]:
        """Rankings of every layer with three treatments or more, for every metric; primary metrics first."""
        return rankings.rankings(self.experiment.treatments, self.boot_numbers, self.criteria)

    @cached_property
    def primary_rankings(self) -> tuple[Ranking, ...]:
        """Rankings for the primary metrics only, which is much less work; those of a host's own disks come last."""
        found = rankings.rankings(self.experiment.treatments, self.primary_numbers, self.criteria)
        return tuple(sorted(found, key=lambda ranking: not LAYERS[ranking.layer].boots))

    @cached_property
    def factor_effects(self) -> tuple[FactorEffect, ...]:
        """Effects of the factors on the primary metrics, for layers in which two factors or more vary."""
        return rankings.factor_effects(self.experiment.treatments, self.primary_numbers, self.criteria)

    @cached_property
    def scores(self) -> Scores:
        """Rankings of storage by a single figure: that of the article, and that of a mix."""
        return scores.scores(self.experiment.treatments, self.boot_numbers, self.criteria, self.profile)

    @cached_property
    def gains(self) -> tuple[Gain, ...]:
        """What queue depth gains and what a first write loses; of every layer with three disks or more."""
        return gains.gains(self.experiment.treatments, self.boot_numbers, self.criteria.alpha)

    @cached_property
    def idle_guests(self) -> tuple[IdleGuest, ...]:
        """What a guest that does nothing takes of its host's CPU; empty: none of them idled."""
        watched = bool((self.experiment.options.get("existing") or {}).get("watched"))
        return idle_guests(self.experiment.treatments, self.trials, self.criteria.alpha, is_watched=watched)

    @cached_property
    def tiles(self) -> tuple[OfRole, ...]:
        """What guests of unlike work had of the host, by what they do; empty: none had roles."""
        return tiles(self.experiment, self.schedules)

    @cached_property
    def exits(self) -> tuple[Exits, ...]:
        """How often guests exited to KVM in each case, and why; empty: no guest ran a command."""
        return exits(self.experiment, self.trials)

    @cached_property
    def ledger(self) -> tuple[Ledger, ...]:
        """What the CPUs of the machines were used for; empty in runs of earlier versions."""
        return ledgers(self.experiment, self.trials)

    @cached_property
    def disk_features(self) -> Mapping[str, tuple[Feature, ...]]:
        """Treatment -> what the run found out about its disk's features; empty if it did not check them."""
        from vmtax.design.features import Feature

        disk = (self.experiment.facts.get("host") or {}).get("disk") or {}
        recorded = disk.get("features") or {}
        return {name: tuple(map(Feature.from_json, features)) for name, features in recorded.items()}

    @cached_property
    def survival(self) -> Survival | None:
        """Which acknowledged data survived the end of a guest or a power cut; None: no such trial has a result."""
        return survival(self.experiment, self.disk_features)

    @cached_property
    def firsts(self) -> Mapping[str, Treatment]:
        """Name -> the first treatment of each layer, on each side; layers from the host upward, side by side."""
        sides = dict.fromkeys(treatment.side for treatment in self.experiment.treatments)
        return {t.name: t for side in sides for t in self.first_treatments(side).values()}

    def first_treatments(self, side: str = "") -> dict[str, Treatment]:
        """Layer -> its first treatment, which has the baseline levels; layers from the host upward.

        For one side; two QEMUs of one host share its layer.
        """
        found: dict[str, Treatment] = {}
        for treatment in sorted(self.experiment.treatments, key=lambda treatment: treatment.side != side):
            if treatment.side == side or not treatment.boots:
                found.setdefault(treatment.layer, treatment)
        return {layer: found[layer] for layer in (*LAYERS, *found) if layer in found}
