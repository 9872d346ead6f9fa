"""Compare treatments: which pairs are compared, and what can be said about them. Pure functions."""

from __future__ import annotations

import math
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from vmtax import stats
from vmtax.analysis import plausibility
from vmtax.analysis.builds import is_like
from vmtax.analysis.emulation import emulated, on_emulated_hosts
from vmtax.analysis.notices import of_boots, of_failure, of_ratio, rounds_in_words
from vmtax.analysis.values import Values
from vmtax.core.layers import CONTRASTS
from vmtax.core.notices import MEANINGS, Notice
from vmtax.core.records import Better, Boot, Comparison, Json, Metric, Treatment, Trial, Verdict
from vmtax.design.factors import FACTORS, HELD, idle
from vmtax.design.host import of_boot
from vmtax.design.interleaved import is_host
from vmtax.design.size import VCPUS
from vmtax.design.topology import groups, machines_at_once
from vmtax.design.treatments import under
from vmtax.stats.arrays import np
from vmtax.workload.words import may_be_zero

# (metric, treatment name) -> round -> values of that round, or the single number to which they were reduced.
Side = tuple[Metric, str]
Numbers = Mapping[Side, Mapping[int, float]]
BOOT = ("boot", "")  # workload and case
PERCENTILE = re.compile(r"\.p\d+_seconds$")


@dataclass(slots=True)
class _Records:
    """Trials and boots, grouped in a single pass."""

    values: dict[Side, Values] = field(default_factory=lambda: defaultdict(Values))
    # Metric -> (workload, case), in order of appearance
    source: dict[Metric, tuple[str, str]] = field(default_factory=dict)
    # (treatment, workload, case) -> round -> the first trial without a result there
    failures: dict[tuple[str, str, str], dict[int, Trial]] = field(default_factory=lambda: defaultdict(dict))
    boots: dict[str, list[Boot]] = field(default_factory=lambda: defaultdict(list))
    treatments: dict[str, Treatment] = field(default_factory=dict)  # by name
    emulated: frozenset[str] = frozenset()  # names of treatments
    on_emulated_hosts: frozenset[str] = frozenset()  # names of treatments whose host itself is emulated
    # Round, treatment name -> position in its order
    positions: dict[tuple[int, str], int] = field(default_factory=dict)
    last_round: int = 0
    memory_rate: float | None = None  # of the host, in B/s
    named: frozenset[str] | None = None  # factors that the plan names; None: not known
    # Treatment name -> notices about all its figures
    of_boots: Mapping[str, tuple[Notice, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Reduced:
    """One side of a comparison: one number per round."""

    numbers: dict[int, float]  # round -> value in the metric's base unit, above 0
    unusable: tuple[int, ...]  # rounds with a value that has no logarithm


def comparisons(
    treatments: Sequence[Treatment],
    trials: Sequence[Trial],
    boots: Sequence[Boot],
    alpha: float = 0.05,
    facts: Mapping[str, Json] | None = None,
    named: Collection[str] | None = None,
) -> tuple[Comparison, ...]:
    """Every contrast of every metric, metrics in order of appearance, contrasts in the order of `contrasts`.

    Only trials with status "ok" count; warm-up has been removed by the caller. Several values of one (round, treatment,
    metric) are first reduced to one, because the boot is the unit. A metric that one side does not have by design (a
    host has no boot time) yields no comparison; one that failed there yields a comparison without rounds, whose ratio
    is NaN and whose notices give the reason.

    facts: by machine path; they show which host under test is itself emulated; named: factors that the plan names, so
    that a comparison can say in which others its sides differ
    """
    records = _group(trials, boots)
    records.treatments = {treatment.name: treatment for treatment in treatments}
    records.emulated = emulated(treatments, boots, facts or {})
    records.on_emulated_hosts = on_emulated_hosts(treatments, facts or {})
    records.memory_rate = _memory_rate(records)
    records.of_boots = dict(_of_boots(records))
    records.named = None if named is None else frozenset(named)
    pairs = contrasts(treatments)
    return tuple(
        comparison
        for metric in records.source
        for comparison in _of_metric(metric, _like(metric, pairs, records, facts or {}), records, alpha)
    )


def _like(
    metric: Metric, pairs: Sequence[tuple[str, str]], records: _Records, facts: Mapping[str, Json]
) -> list[tuple[str, str]]:
    known = records.treatments
    return [(low, high) for low, high in pairs if is_like(metric, known[low], known[high], facts)]


def _of_metric(
    metric: Metric, pairs: Sequence[tuple[str, str]], records: _Records, alpha: float
) -> Iterator[Comparison]:
    names = dict.fromkeys(name for pair in pairs for name in pair)
    sides = {name: _reduce(records.values[metric, name]) for name in names if (metric, name) in records.values}
    for pair in pairs:
        comparison = _compare(metric, *pair, sides, records, alpha)
        if comparison is not None:
            yield comparison


def named_factors(plan: Json) -> frozenset[str]:
    """The factors that a stored plan names."""
    lists = [plan.get("factors") or {}, *(entry["levels"] for entry in plan.get("combinations") or ())]
    return frozenset(name for levels in lists for name in levels)


def boot_numbers(trials: Sequence[Trial]) -> Numbers:
    """(metric, treatment) -> round -> the number of that boot, above 0, in the metric's unit."""
    return {side: _reduce(values).numbers for side, values in _group(trials, ()).values.items()}


def contrasts(treatments: Sequence[Treatment]) -> tuple[tuple[str, str], ...]:
    """Pairs (baseline, treatment) of names that are worth comparing, each once.

    If sides are interleaved, each treatment of the other side comes first, against the same one on the plan's own. Then
    within each side, across layers with equal levels: each against those that it stands on, such as nested against vm
    ("nested vs VM"). Within a layer: each treatment against the first one with the same number of machines at once,
    which has the baseline levels. For a repeat only the A/A.
    """
    by_layer: dict[tuple[str, str], list[Treatment]] = defaultdict(list)
    for treatment in treatments:
        if treatment.repeats is None:
            by_layer[treatment.layer, treatment.side].append(treatment)
    pairs: dict[tuple[str, str], None] = dict.fromkeys(side_contrasts(treatments))  # dicts keep the order
    for lower, upper in CONTRASTS:
        for side in dict.fromkeys(treatment.side for treatment in treatments):
            for treatment in by_layer[upper, side]:
                # Two QEMUs of one host share its layer.
                baseline = _counterpart(treatment, by_layer[lower, side] or by_layer[lower, ""])
                if baseline is not None:
                    pairs[baseline.name, treatment.name] = None
    for members in groups(treatments).values():
        for treatment in members[1:]:
            pairs[members[0].name, treatment.name] = None
    for treatment in treatments:
        if treatment.repeats is not None:
            pairs[treatment.repeats, treatment.name] = None
    return tuple(pairs)


def side_contrasts(treatments: Sequence[Treatment]) -> tuple[tuple[str, str], ...]:
    """Pairs (name on the plan's own side, name on the other side), in the order of the treatments."""
    own = [treatment for treatment in treatments if not treatment.side and treatment.repeats is None]
    others = [treatment for treatment in treatments if treatment.side and treatment.repeats is None]
    return tuple(
        (one.name, another.name)
        for one in own
        for another in others
        if (one.layer, dict(one.levels)) == (another.layer, dict(another.levels))
    )


class Overhead(NamedTuple):
    """A ratio as a cost: the lost rate, 1 - ratio, where higher is better; the added time, ratio - 1, where lower is
    better.
    """

    estimate: float  # a fraction: 0.02 is 2 %; above 0 is a cost; NaN: there is no ratio
    low: float | None  # lower end of its interval; None: there is no interval
    high: float | None  # upper end of its interval


def overhead(comparison: Comparison) -> Overhead:
    """The ratio as a cost; METHOD.md has the formula."""
    return as_overhead(comparison.metric.better, comparison.ratio, comparison.low, comparison.high)


def as_overhead(better: Better, ratio: float, low: float | None, high: float | None) -> Overhead:
    """A ratio and its interval as an overhead."""
    if better == "lower":
        return Overhead(ratio - 1, None if low is None else low - 1, None if high is None else high - 1)
    return Overhead(1 - ratio, None if high is None else 1 - high, None if low is None else 1 - low)


def as_times(
    better: Better, overhead: float, low: float | None, high: float | None
) -> tuple[float, float | None, float | None]:
    """An overhead and its interval as (estimate, low, high) of the ratio of times for the same work."""

    def times(part: float) -> float:
        return 1 + part if better == "lower" else 1 / max(1 - part, sys.float_info.epsilon)

    return times(overhead), None if low is None else times(low), None if high is None else times(high)


def _counterpart(treatment: Treatment, candidates: Sequence[Treatment]) -> Treatment | None:
    """The treatment of another layer with the same levels. A host and a container have only their disk's levels;
    otherwise the plain one is used.

    None if the number of machines differs, because four guests at once do other work than one; or that of their CPUs;
    or if the host is booted differently, or held at another level of a factor of its own.
    """
    candidates = [each for each in candidates if machines_at_once(each) == machines_at_once(treatment)]
    candidates = [each for each in candidates if of_boot(each) == of_boot(treatment)]
    candidates = [each for each in candidates if _held(each) == _held(treatment)]
    for candidate in candidates:
        if not candidate.boots:
            alike = dict(candidate.levels) == under(candidate.layer, treatment.levels)
        else:  # levels that one of the layers does not have, such as a nested guest's disk, do not count
            alike = all(candidate.levels.get(name, level) == level for name, level in treatment.levels.items())
        if alike:
            return candidate
    return next((candidate for candidate in candidates if not candidate.boots), None)


def _held(treatment: Treatment) -> list[str | None]:
    """In what two layers must be alike: their CPUs, and factors of the host itself, of which a VM of the user's has
    none: its runs refuse other levels than the defaults.
    """
    return [treatment.levels.get(VCPUS), *(treatment.levels.get(name, FACTORS[name].default) for name in HELD)]


def _group(trials: Sequence[Trial], boots: Sequence[Boot]) -> _Records:
    records = _Records()
    without_ratio = _without_ratio(trials)
    # By identity, because a metric's hash is computed anew each time, and there may be a million measurements. The
    # metric stays beside them, so that no other one takes its place in memory.
    known: dict[tuple[int, str], tuple[Metric, Values]] = {}
    for trial in trials:
        records.last_round = max(records.last_round, trial.round)
        records.positions[trial.round, trial.treatment] = trial.position
        if trial.status != "ok":
            failed = records.failures[trial.treatment, trial.workload, trial.case]
            failed.setdefault(trial.round, trial)
            continue
        for measurement in trial.measurements:
            metric, key = measurement.metric, (id(measurement.metric), trial.treatment)
            if key not in known:
                known[key] = metric, records.values[metric, trial.treatment]
                if metric not in without_ratio:
                    records.source.setdefault(metric, (trial.workload, trial.case))
            known[key][1].add(trial.round, measurement.value)
    for boot in boots:
        records.boots[boot.treatment].append(boot)
    return records


def _without_ratio(trials: Sequence[Trial]) -> frozenset[Metric]:
    """Metrics that were exactly 0 somewhere. A ratio of the other rounds would select rounds by their result: if one
    round in ten loses a datagram, it would describe only that round.
    """
    zeros = {one.metric for trial in trials if trial.status == "ok" for one in trial.measurements if one.value == 0}
    return frozenset(filter(may_be_zero, zeros))


def _reduce(values: Values) -> _Reduced:
    rounds = values.by_round()
    numbers: dict[int, float] = {}
    by_length: dict[int, list[int]] = defaultdict(list)
    for number, iterations in rounds.items():
        by_length[len(iterations)].append(number)
    for alike in by_length.values():
        reduced = stats.reduce_iterations(np.array([rounds[number] for number in alike]))
        numbers.update(zip(alike, reduced.tolist(), strict=True))
    usable = {number: value for number, value in numbers.items() if not math.isnan(value)}
    return _Reduced(usable, tuple(sorted(numbers.keys() - usable.keys())))


def _compare(
    metric: Metric,
    baseline: str,
    treatment: str,
    sides: Mapping[str, _Reduced],
    records: _Records,
    alpha: float,
) -> Comparison | None:
    """One comparison; None if a side has neither a value of this metric nor a failure that explains its absence."""
    names = (baseline, treatment)
    failed = {name: records.failures.get((name, *records.source[metric]), {}) for name in names}
    reduced = {name: sides.get(name) for name in names}
    if not any(reduced.values()) or not all(reduced[name] or failed[name] for name in names):
        return None
    have = {name: side or _Reduced({}, ()) for name, side in reduced.items()}
    before, after = have[baseline].numbers, have[treatment].numbers
    both = sorted(before.keys() & after.keys())
    result = _ratio(metric, before, after, both, names, records, alpha) if both else None
    low, high = (plausibility.Rates(records.treatments[name], have[name].numbers) for name in names)
    found = (
        *of_ratio(result, alpha),
        *_missing(
            metric,
            have,
            {name: {**records.failures.get((name, *BOOT), {}), **failed[name]} for name in names},
            records.last_round,
        ),
        *_not_positive(have),
        *plausibility.notices(metric, (low, high), result, records.memory_rate),
        *_two_hosts(*(records.treatments[name].side for name in names)),
        *_two_factors(records.treatments[baseline], records.treatments[treatment], records.named),
        *(notice for name in names for notice in records.of_boots[name]),
    )
    return Comparison(
        metric=metric,
        baseline=baseline,
        treatment=treatment,
        verdict=_verdict(metric.better, result),
        notices=tuple(
            replace(notice, metrics=(metric.name,), treatments=notice.treatments or (treatment,)) for notice in found
        ),
        **_figures(result),
    )


def _ratio(
    metric: Metric,
    before: Mapping[int, float],
    after: Mapping[int, float],
    rounds: Sequence[int],
    names: tuple[str, str],
    records: _Records,
    alpha: float,
) -> stats.PairedRatio:
    first = [records.positions[number, names[0]] < records.positions[number, names[1]] for number in rounds]
    return stats.paired_ratio(
        np.array([before[number] for number in rounds]),
        np.array([after[number] for number in rounds]),
        1 - alpha,
        better=metric.better,
        baseline_first=first,
    )


def _figures(result: stats.PairedRatio | None) -> dict[str, Any]:
    """The numeric fields of a comparison."""
    if result is None:
        return {"ratio": math.nan, "low": None, "high": None, "rounds": 0}
    return {
        "ratio": result.ratio,
        "low": result.low,
        "high": result.high,
        "rounds": result.pairs,
        "mean_ratio": result.mean_ratio,
        "p95_ratio": result.p95_ratio if result.pairs >= stats.P95_ROUNDS else None,
        "baseline_stalls": result.stalls.baseline,
        "treatment_stalls": result.stalls.treatment,
        "stalls_p": result.stalls.p,
        "carry_over": result.carry_over.estimate if result.carry_over else None,
        "carry_over_p": result.carry_over.p if result.carry_over else None,
    }


def _verdict(better: Better, result: stats.PairedRatio | None) -> Verdict:
    if result is None or ((result.low is None or result.high is None) and not result.coarse):
        return "too few rounds"
    if result.low is None or result.high is None:
        return "no difference shown"
    if result.low <= 1 <= result.high:
        return "no difference shown"
    return "better" if (result.low > 1) == (better == "higher") else "worse"


def _two_hosts(baseline: str, treatment: str) -> Iterator[Notice]:
    """The drift of one machine affects both sides of a contrast; two machines drift independently."""
    if baseline != treatment and is_host(treatment):
        yield Notice("two-hosts", MEANINGS["two-hosts"].cause)


def _two_factors(baseline: Treatment, treatment: Treatment, named: frozenset[str] | None) -> Iterator[Notice]:
    """A factor that the plan does not name differs only because another one leaves it no choice."""
    if named is None or baseline.layer != treatment.layer:
        return
    nothing = idle(baseline.levels).keys() & idle(treatment.levels).keys()
    differing = {name for name, level in treatment.levels.items() if baseline.levels.get(name, level) != level}
    asked = [f"{name}={level}" for name, level in treatment.levels.items() if name in differing & named]
    for name in treatment.levels:
        if asked and name in differing - named - nothing:
            both = f"{name}={treatment.levels[name]} against {baseline.levels[name]}"
            cause = f"{treatment.name} differs in {both}, too, which goes with {', '.join(asked)}"
            yield Notice("two-factors", cause)


def _missing(
    metric: Metric, have: Mapping[str, _Reduced], failed: Mapping[str, Mapping[int, Trial]], last_round: int
) -> Iterator[Notice]:
    """Rounds without a result on one side. The last round may still be in progress: there only failures count."""
    present = {name: side.numbers.keys() | set(side.unusable) for name, side in have.items()}
    tried = set().union(*present.values(), *failed.values())
    for name, rounds in present.items():
        gaps = sorted(r for r in tried - rounds if r < last_round or r in failed[name])
        causes: dict[Notice, list[int]] = defaultdict(list)
        for number in gaps:
            if number in failed[name]:
                causes[of_failure(failed[name][number])].append(number)
            elif PERCENTILE.search(metric.name):
                # Below a minimum number of operations, a percentile is not reported, because it would depend on a few
                # of them.
                causes[Notice("few-operations", f"{name} did too few operations for this percentile")].append(number)
            else:
                causes[Notice("missing-rounds", f"{name} has no result")].append(number)
        for notice, numbers in causes.items():
            cause = (
                notice.cause
                if notice.code in ("failed", "refused")
                else f"{notice.cause} in {rounds_in_words(numbers)}"
            )
            yield replace(notice, cause=cause, treatments=(name,), rounds=tuple(numbers))


def _not_positive(have: Mapping[str, _Reduced]) -> Iterator[Notice]:
    for name, side in have.items():
        if side.unusable:
            cause = f"{name} has a value that is not above 0, and so no ratio, in {rounds_in_words(side.unusable)}"
            yield Notice("not-positive", cause, treatments=(name,), rounds=side.unusable)


def _memory_rate(records: _Records) -> float | None:
    """The highest memory bandwidth of any host of this run, in B/s."""
    hosts = {name for name, treatment in records.treatments.items() if treatment.layer == "host"}
    sides = [side for side in records.values if side[0].name == plausibility.MEMORY and side[1] in hosts]
    numbers = (_reduce(records.values[side]).numbers for side in sides)
    return max((statistics.median(rounds.values()) for rounds in numbers if rounds), default=None)


def _of_boots(records: _Records) -> Iterator[tuple[str, tuple[Notice, ...]]]:
    """Treatment name -> notices from its boots about all its figures."""
    for name in records.treatments:
        boots = records.boots.get(name, ())
        found = []
        if name in records.emulated:
            cure = "on a host whose CPU is real" if name in records.on_emulated_hosts else "where /dev/kvm works"
            cause = f"{name} ran on an emulated CPU (TCG)"
            found.append(Notice("emulated", cause, f"Repeat the run {cure}", treatments=(name,)))
        yield name, (*found, *of_boots(name, boots))
