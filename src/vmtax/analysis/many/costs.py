"""What answers over many runs use of one run: its costs with their intervals, and what tells it from other runs.

It takes a few kB and can be kept as text, so that a thousand runs are not read from their trials each time.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vmtax import __version__, stats
from vmtax.analysis.criteria import Criteria
from vmtax.analysis.emulation import emulated_treatments
from vmtax.analysis.hosts import cpu_model, host_name
from vmtax.analysis.results import VERSION
from vmtax.analysis.sessions.level import FEWEST_ROUNDS, SessionSubject, round_logs
from vmtax.analysis.sessions.work import Work, work_of
from vmtax.analysis.summary import BETTER, FIGURES
from vmtax.core.records import Experiment, Metric
from vmtax.plan.errors import PlanError
from vmtax.workload import WORKLOADS

if TYPE_CHECKING:
    from pydantic import TypeAdapter

# Properties of a host by which hosts are grouped, and whose changes are named: words for people -> facts, with dots
PROPERTIES: Mapping[str, tuple[str, ...]] = {
    "CPU": ("cpu_model",),
    "microcode": ("microcode",),
    "kernel": ("kernel_release", "kernel_version"),
    "QEMU": ("qemu.text",),
    "system": ("os",),
}


UNKNOWN_WORK = Work({}, {}, 1, "", {}, "", {})


@dataclass(frozen=True, slots=True)
class CostSubject:
    """What has a cost: a metric of a configuration, compared with another."""

    metric: Metric
    baseline: str  # name of the treatment that it is compared with; "": none, it is the time itself
    treatment: str  # name of the treatment


@dataclass(frozen=True, slots=True)
class CostFigure:
    """One cost of one run, as the logarithm of the ratio of times for the same work."""

    subject: CostSubject
    log: float  # Hodges-Lehmann estimate over rounds; above 0 is a cost
    error: float  # standard error of it
    rounds: int  # in which both have a value
    freedom: int  # degrees of freedom of the error
    low: float | None  # of the interval, as `vmtax show` has it; None: too few rounds
    high: float | None
    primary: bool  # whether the plan names the metric as primary
    emulated: bool  # whether either side ran on an emulated CPU


# Why there are no costs, after who has none
WITHOUT_COSTS = f"nothing was compared in {FEWEST_ROUNDS} rounds or more"


@dataclass(frozen=True, slots=True)
class RunCosts:
    """The costs of one run."""

    id: str  # of the run
    plan: str  # its name
    label: str  # that the user gave to the run; "": none
    host: str  # as given
    host_name: str  # for a reader: its own name if it is local, otherwise the one by which it is reached
    created: float  # time of the start, in seconds since the epoch
    ended: float  # time of the end
    machine_id: str | None  # digest of /etc/machine-id; None: not recorded
    boot: str  # that of the host, by its id; "": not recorded
    cpu: str  # model, without generic words; "" if it is unknown
    properties: Mapping[str, str]  # those of PROPERTIES that are known
    work: Work
    figures: tuple[CostFigure, ...]  # metrics in the order of the first screen, contrasts in that of the plan
    levels: tuple[CostFigure, ...]  # the times themselves of each configuration, without intervals; ordered likewise


def run_costs(run: Experiment) -> RunCosts | None:
    """The costs of a run; None if its plan is of an older vmtax, so that nothing can be compared with it."""
    try:
        return costs_of_work(run, work_of(run))
    except PlanError:
        return None


def costs_of_work(run: Experiment, work: Work) -> RunCosts:
    """The costs of a run whose work is known, or does not matter because nothing is compared with it."""
    host = run.facts.get("host") or {}
    logs, criteria, emulated = round_logs(run), Criteria.of(run.plan), emulated_treatments(run)
    figures, levels = (
        tuple(_figure(subject, logs[subject], criteria, emulated) for subject in _ordered(kind, criteria))
        for kind in (
            [subject for subject in logs if subject.baseline is not None],
            [subject for subject in logs if subject.baseline is None],
        )
    )
    return RunCosts(
        *(run.id, run.name, run.label, run.host, _short_name(run), run.created),
        ended=run.created if run.finished is None else run.finished,
        machine_id=host.get("machine_id"),
        boot=host.get("boot_id") or "",
        cpu=cpu_model(run),
        properties=dict(_properties(host)),
        work=work,
        figures=figures,
        levels=levels,
    )


def _short_name(run: Experiment) -> str:
    """Without how it is reached, which is the same for most hosts of a fleet: "web1" for "ssh://root@web1"."""
    return host_name(run).removeprefix("ssh://").rpartition("@")[2]


def _properties(host: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for words, names in PROPERTIES.items():
        found = []
        for name in names:
            value: object = host
            for part in name.split("."):
                value = value.get(part) if isinstance(value, Mapping) else None
            found.append(value)
        text = " ".join(value for value in found if isinstance(value, str) and value)
        if text:
            yield words, text


def changed_properties(before: RunCosts, after: RunCosts) -> Iterator[str]:
    """The properties that differ between two runs of a host: "kernel A → B"."""
    for name in PROPERTIES:
        texts = [run.properties.get(name, "unknown") for run in (before, after)]
        if texts[0] != texts[1]:
            yield f"{name} {' → '.join(texts)}"


def _ordered(subjects: Sequence[SessionSubject], criteria: Criteria) -> list[SessionSubject]:
    """Those whose metric matters."""
    places = {name: place for place, name in enumerate(_shown({subject.metric for subject in subjects}, criteria))}
    kept = [subject for subject in subjects if subject.metric.name in places]
    return sorted(kept, key=lambda one: places[one.metric.name])


def _figure(subject: SessionSubject, logs: list[float], criteria: Criteria, emulated: frozenset[str]) -> CostFigure:
    sign = -1 if subject.metric.better == "higher" else 1
    values = [sign * value for value in logs]
    level = stats.level(values)
    bounds = None if subject.baseline is None else stats.interval(values, criteria.alpha)
    baseline, (low, high) = subject.baseline or "", bounds or (None, None)
    return CostFigure(
        *(CostSubject(subject.metric, baseline, subject.treatment), level.log, level.error, len(values)),
        freedom=len(values) - 1,
        low=low,
        high=high,
        primary=subject.metric.name in criteria.primary,
        emulated=not emulated.isdisjoint((baseline, subject.treatment)),
    )


def _shown(measured: set[Metric], criteria: Criteria) -> list[str]:
    """Names of the metrics that matter: primary ones, then those of the first screen; of a workload that has neither,
    the one that represents it.
    """
    names = {metric.name: metric for metric in measured}
    replaced = {name for name, better in BETTER.items() if better in names}
    chosen = [name for name in dict.fromkeys((*criteria.primary, *FIGURES)) if name in names and name not in replaced]
    known = {names[name].workload for name in chosen}
    for workload, kind in WORKLOADS.items():
        own = [name for name in sorted(names) if names[name].workload == workload]
        if own and workload not in known:
            chosen.append(kind.headline if kind.headline in own else own[0])
    return chosen


def written(costs: RunCosts) -> str:
    """As text, from which `read` makes equal costs."""
    return f"{_head()}\n{_adapter().dump_json(costs).decode()}"


def read(text: str) -> RunCosts | None:
    """The text of `written`; None if another version wrote it, or if it is damaged."""
    from pydantic import ValidationError

    head, _, body = text.partition("\n")
    if head != _head():
        return None
    try:
        found: RunCosts = _adapter().validate_json(body)
    except ValidationError:
        return None
    return found if all(math.isfinite(one.log) for one in (*found.figures, *found.levels)) else None


@functools.cache
def _adapter() -> TypeAdapter[RunCosts]:
    """Made once: for a thousand runs that takes longer than to read them."""
    from pydantic import TypeAdapter

    return TypeAdapter(RunCosts)


def _head() -> str:
    return json.dumps(["vmtax costs", __version__, VERSION])
