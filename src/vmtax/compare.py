"""From records to comparisons: which treatments are set side by side, and what may be said of them. Pure functions."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vmtax import stats
from vmtax.result import LAYERS, Better, Boot, Comparison, Experiment, Metric, Treatment, Trial, Verdict

# (metric, treatment name) -> round -> values of that round, or the one number they were reduced to.
Side = tuple[Metric, str]


@dataclass(slots=True)
class _Records:
    """Trials and boots, grouped in one pass."""

    values: dict[Side, dict[int, list[float]]] = field(default_factory=dict)
    source: dict[Metric, tuple[str, str]] = field(default_factory=dict)  # metric -> (workload, case); keeps the order
    # (treatment, workload, case) -> round -> first error there
    failures: dict[tuple[str, str, str], dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    boots: dict[str, list[Boot]] = field(default_factory=lambda: defaultdict(list))
    layers: dict[str, str] = field(default_factory=dict)  # treatment name -> layer
    last_round: int = 0


@dataclass(frozen=True, slots=True)
class _Reduced:
    """One side of a comparison: one number per round."""

    numbers: dict[int, float]  # round -> value in the metric's base unit, above 0
    unusable: tuple[int, ...]  # rounds with a value that has no logarithm


def comparisons(
    treatments: Sequence[Treatment], trials: Sequence[Trial], boots: Sequence[Boot], alpha: float = 0.05
) -> tuple[Comparison, ...]:
    """Every contrast of every metric, metrics in order of appearance, contrasts in the order of `contrasts`.

    Only trials with status "ok" count. Several values of one (round, treatment, metric) are first reduced to one, for a
    boot is the unit. A metric that one side does not have by design (a host has no boot time) gives no comparison; one
    that failed there gives a comparison without rounds, whose ratio is NaN and whose warnings say why.
    """
    records = _group(trials, boots)
    records.layers = {treatment.name: treatment.layer for treatment in treatments}
    sides = {side: _reduce(rounds) for side, rounds in records.values.items()}
    pairs = contrasts(treatments)
    found = (_compare(metric, *pair, sides, records, alpha) for metric in records.source for pair in pairs)
    return tuple(comparison for comparison in found if comparison is not None)


def of(experiment: Experiment) -> tuple[Comparison, ...]:
    """All comparisons of a stored experiment, at the confidence that its way of stopping allows."""
    rounds = experiment.plan["rounds"]
    alpha = alpha_of(rounds["min"], rounds["max"])
    return comparisons(experiment.treatments, experiment.trials, experiment.boots, alpha)


def alpha_of(rounds_min: int, rounds_max: int) -> float:
    """A fixed number of rounds, or stopping when the intervals are narrow enough."""
    return stats.ALPHA if rounds_min == rounds_max else stats.PRECISION_ALPHA


def contrasts(treatments: Sequence[Treatment]) -> tuple[tuple[str, str], ...]:
    """Pairs (baseline, treatment) of names that are worth comparing, each once.

    Across layers with equal levels: vm against host, nested against vm ("nesting adds"), nested against host. Within a
    layer: each treatment against the layer's first, which has the baseline levels.
    """
    by_layer: dict[str, list[Treatment]] = defaultdict(list)
    for treatment in treatments:
        by_layer[treatment.layer].append(treatment)
    pairs: dict[tuple[str, str], None] = {}  # a dict keeps the order
    for upper, lower in (("vm", "host"), ("nested", "vm"), ("nested", "host")):
        for treatment in by_layer[upper]:
            baseline = _counterpart(treatment, by_layer[lower])
            if baseline is not None:
                pairs[baseline.name, treatment.name] = None
    for members in by_layer.values():
        for treatment in members[1:]:
            pairs[members[0].name, treatment.name] = None
    return tuple(pairs)


def overhead(comparison: Comparison) -> tuple[float, float | None, float | None]:
    """The comparison's `cost`."""
    return cost(comparison.metric.better, comparison.ratio, comparison.low, comparison.high)


def cost(
    better: Better, ratio: float, low: float | None, high: float | None
) -> tuple[float, float | None, float | None]:
    """(estimate, low, high) of an overhead as fractions, low <= high; None without an interval.

    Lost rate, `1 - ratio`, where higher is better; added time, `ratio - 1`, where lower is better (METHOD.md).
    """
    if better == "lower":
        return ratio - 1, None if low is None else low - 1, None if high is None else high - 1
    return 1 - ratio, None if high is None else 1 - high, None if low is None else 1 - low


def _counterpart(treatment: Treatment, candidates: Sequence[Treatment]) -> Treatment | None:
    """The treatment of a lower layer with the same levels. A host has no guest factors: there the plain one serves."""
    for candidate in candidates:
        if dict(candidate.levels) == dict(treatment.levels):
            return candidate
    return next((candidate for candidate in candidates if candidate.layer == "host"), None)


def _group(trials: Sequence[Trial], boots: Sequence[Boot]) -> _Records:
    records = _Records()
    for trial in trials:
        records.last_round = max(records.last_round, trial.round)
        if trial.status != "ok":
            failed = records.failures[trial.treatment, trial.workload, trial.case]
            failed.setdefault(trial.round, f"{trial.status}: {trial.error or 'no reason was recorded'}")
            continue
        for measurement in trial.measurements:
            records.source.setdefault(measurement.metric, (trial.workload, trial.case))
            rounds = records.values.setdefault((measurement.metric, trial.treatment), {})
            rounds.setdefault(trial.round, []).append(measurement.value)
    for boot in boots:
        records.boots[boot.treatment].append(boot)
    return records


def _reduce(rounds: Mapping[int, Sequence[float]]) -> _Reduced:
    numbers, unusable = {}, []
    for number, values in rounds.items():
        try:
            numbers[number] = stats.reduce_iterations(values)
        except ValueError:
            unusable.append(number)
    return _Reduced(numbers, tuple(sorted(unusable)))


def _compare(
    metric: Metric,
    baseline: str,
    treatment: str,
    sides: Mapping[Side, _Reduced],
    records: _Records,
    alpha: float,
) -> Comparison | None:
    """One comparison; None where a side has neither a value of this metric nor a failure that explains it."""
    names = (baseline, treatment)
    failed = {name: records.failures.get((name, *records.source[metric]), {}) for name in names}
    reduced = {name: sides.get((metric, name)) for name in names}
    if not any(reduced.values()) or not all(reduced[name] or failed[name] for name in names):
        return None
    have = {name: side or _Reduced({}, ()) for name, side in reduced.items()}
    before, after = have[baseline].numbers, have[treatment].numbers
    log_ratios = [math.log(after[number]) - math.log(before[number]) for number in sorted(before.keys() & after.keys())]
    result = stats.estimate(log_ratios, alpha) if log_ratios else None
    warnings = (
        *_few_warnings(len(log_ratios), alpha),
        *_missing_warnings(have, failed, records.last_round),
        *_unusable_warnings(have),
        *_cached_warnings(metric, result, records.layers, names),
        *(warning for name in names for warning in _boot_warnings(name, records.boots.get(name, ()))),
    )
    return Comparison(
        metric=metric,
        baseline=baseline,
        treatment=treatment,
        ratio=result.ratio if result else math.nan,
        low=result.low if result else None,
        high=result.high if result else None,
        rounds=len(log_ratios),
        verdict=_verdict(metric.better, result),
        warnings=warnings,
    )


def _verdict(better: Better, result: stats.Estimate | None) -> Verdict:
    if result is None or result.low is None or result.high is None:
        return "too few rounds"
    if result.low <= 1 <= result.high:
        return "no difference shown"
    return "better" if (result.low > 1) == (better == "higher") else "worse"


def _few_warnings(rounds: int, alpha: float) -> Iterator[str]:
    needed = stats.minimum_rounds(alpha)
    if rounds < needed:
        yield f"too few rounds for an interval: needs {needed} rounds or more; has {rounds}"


def _missing_warnings(
    have: Mapping[str, _Reduced], failed: Mapping[str, Mapping[int, str]], last_round: int
) -> Iterator[str]:
    """Rounds without a result on one side. The last round may be still under way: there only failures count."""
    present = {name: side.numbers.keys() | set(side.unusable) for name, side in have.items()}
    tried = set().union(*present.values(), *failed.values())
    for name, rounds in present.items():
        gaps = sorted(r for r in tried - rounds if r < last_round or r in failed[name])
        if not gaps:
            continue
        why = next((f" ({failed[name][number]})" for number in gaps if number in failed[name]), "")
        yield f"{_rounds(gaps)} left out, no result of {name}{why}: mend the cause, then run more rounds"


def _unusable_warnings(have: Mapping[str, _Reduced]) -> Iterator[str]:
    for name, side in have.items():
        if side.unusable:
            yield (
                f"{_rounds(side.unusable)} left out, {name} has a value that is not above 0 and so has no ratio:"
                " make the workload larger or longer"
            )


def _cached_warnings(
    metric: Metric, result: stats.Estimate | None, layers: Mapping[str, str], names: tuple[str, str]
) -> Iterator[str]:
    """A disk that is faster through one more layer is not faster: something above it answered (METHOD.md, guards)."""
    baseline, treatment = (LAYERS.index(layers[name]) for name in names)
    if metric.name.startswith("disk.") and baseline < treatment and _verdict(metric.better, result) == "better":
        yield (
            f"cached: {names[1]} is faster than {names[0]} below it, so a cache or read-ahead took part:"
            " repeat with a workloads.disk.size well above the memory of guest and host"
        )


def _boot_warnings(name: str, boots: Sequence[Boot]) -> Iterator[str]:
    if any(boot.emulated for boot in boots):
        yield (
            f"emulated: {name} ran on an emulated CPU (TCG), which shows that it works and not what hardware costs:"
            " repeat where /dev/kvm works"
        )
    # What stands before the colon is the kind; what follows differs from boot to boot.
    kinds = Counter(kind for boot in boots for kind in {warning.partition(":")[0] for warning in boot.warnings})
    for kind, count in kinds.items():
        yield f"{name}: {kind}, in {count} of {len(boots)} boots"


def _rounds(numbers: Sequence[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:5]) + (", ..." if len(numbers) > 5 else "")
    return f"{len(numbers)} round{'s' if len(numbers) > 1 else ''} ({shown})"
