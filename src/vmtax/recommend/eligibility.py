"""Which treatments may be chosen: they meet the needs, and were measured together with the others. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from vmtax.analysis.comparisons import Numbers
from vmtax.core.records import Metric, Treatment, Trial
from vmtax.recommend.constraints import unmet
from vmtax.recommend.kinds import ChoiceKind, Features
from vmtax.recommend.pareto import Costs


def having(numbers: Numbers, names: Sequence[str]) -> list[Metric]:
    """The metrics that all of these treatments have, in the order of the run."""
    return [m for m in dict.fromkeys(m for m, _ in numbers) if all(numbers.get((m, name)) for name in names)]


def eligible(
    kind: ChoiceKind, members: Sequence[Treatment], features: Features, needs: Sequence[str], accept_loss: bool
) -> tuple[list[tuple[str, str]], list[Treatment]]:
    """(refused treatments with the reason, remaining ones)."""
    refused: list[tuple[str, str]] = []
    left: list[Treatment] = []
    for treatment in members:
        mine = features.get(treatment.name, ())
        danger = None if accept_loss else kind.danger(mine, treatment)
        reasons = [danger] if danger else [*kind.unknown(treatment), *unmet(kind, mine, treatment, needs)]
        if reasons:
            refused.append((treatment.name, "; ".join(reasons)))
        else:
            left.append(treatment)
    return refused, left


def incomplete(costs: Costs, errors: Mapping[str, str]) -> dict[str, str]:
    """Treatments that cannot be compared with the others -> why; a pair is compared in its common rounds, whatever
    others lack.

    `errors`: treatment -> a failure of what is compared
    """
    most = max((len(rounds) for rounds in costs.values()), default=0)
    found = {
        name: f"complete results in only {len(rounds)} of {most} rounds" + _because(errors.get(name))
        for name, rounds in costs.items()
        if not rounds or len(rounds) * 2 < most
    }
    linked = _linked({name: set(rounds) for name, rounds in costs.items() if name not in found})
    together = max(linked, key=len, default=set[str]())
    apart = "no round has a result both of it and of any of the others"
    return found | {name: apart for name in costs if name not in found and name not in together}


def failures(trials: Iterable[Trial], metrics: Sequence[Metric]) -> dict[str, str]:
    """Treatment -> the first error of a trial that should have had one of these metrics."""
    cases = {(metric.workload, metric.case) for metric in metrics}
    found: dict[str, str] = {}
    for trial in trials:
        if trial.status != "ok" and trial.error and (trial.workload, trial.case) in cases:
            found.setdefault(trial.treatment, trial.error)
    return found


def _because(error: str | None) -> str:
    return f" ({error})" if error else ""


def _linked(rounds: dict[str, set[int]]) -> Iterator[set[str]]:
    """Groups of treatments that are connected by rounds they have in common, directly or through others."""
    left = dict(rounds)
    while left:
        name = next(iter(left))
        group, reached = {name}, left.pop(name)
        while near := {other for other in left if left[other] & reached}:
            reached = reached.union(*(left.pop(other) for other in near))
            group |= near
        yield group
