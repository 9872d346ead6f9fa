"""Medians and costs by workload, as every report shows them: layers side by side, settings, and the two sides. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.comparisons import side_contrasts
from vmtax.analysis.effects import Effect, effect, layer_contrasts
from vmtax.core.records import Metric, Treatment
from vmtax.design.interleaved import Sides
from vmtax.design.topology import groups
from vmtax.workload.words import replaced, title


@dataclass(frozen=True, slots=True)
class Number:
    """The median of one metric of one treatment, over rounds."""

    value: float  # in `unit`
    unit: str  # base unit of the metric
    emulated: bool  # whether the treatment is


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric across the layers."""

    metric: Metric
    medians: tuple[Number | None, ...]  # in the order of Workload.layers
    effects: tuple[Effect | None, ...]  # in the order of Workload.contrasts

    @property
    def rounds(self) -> tuple[int, ...]:
        """The least and the most rounds of the effects, or one number if these are equal; () without effects."""
        counts = sorted({effect.comparison.rounds for effect in self.effects if effect is not None})
        return tuple(sorted({*counts[:1], *counts[-1:]}))


@dataclass(frozen=True, slots=True)
class Setting:
    """One treatment with other levels than the first of its layer, for each metric."""

    treatment: str  # its name
    baseline: str  # the first treatment of its layer
    medians: tuple[Number | None, ...]  # in the order of Case.rows
    effects: tuple[Effect | None, ...]


@dataclass(frozen=True, slots=True)
class Between:
    """One metric of one treatment on both sides."""

    case: str  # part of the workload; "" if there is only one
    metric: Metric
    treatment: str  # its name on the plan's own side
    own: Number | None  # on the plan's own side
    other: Number | None  # on the other side
    effect: Effect | None  # the other side against the plan's own


@dataclass(frozen=True, slots=True)
class Case:
    """One part of a workload."""

    name: str  # "randread-4k-qd1"; "" if the metrics' names have none
    rows: tuple[MetricRow, ...]  # one for each metric
    settings: tuple[Setting, ...]


@dataclass(frozen=True, slots=True)
class WorkloadTable:
    """One workload, on one side."""

    name: str
    layers: tuple[str, ...]  # the first treatment of each layer that has any of these metrics
    contrasts: tuple[tuple[str, str], ...]  # (baseline, treatment), among `layers`
    cases: tuple[Case, ...]
    where: str = ""  # "on ssh://b": the side of these layers and settings; "" if nothing is interleaved
    between: tuple[Between, ...] = ()  # the sides, as part of the plan's own

    @property
    def title(self) -> str:
        """What the workload is about: "CPU"."""
        return " ".join(filter(None, (title(self.name), self.where)))

    @property
    def told_between(self) -> bool:
        """Whether there is one layer, so that the sides' table has its numbers."""
        return bool(self.between) and not self.contrasts

    @property
    def between_title(self) -> str:
        """The title for the comparison of the sides."""
        return title(self.name)


@dataclass(frozen=True, slots=True)
class View:
    """An experiment, ready to be shown."""

    analysis: Analysis
    workloads: tuple[WorkloadTable, ...]


class _Table:
    """Medians and effects by metric and treatment."""

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self.medians = analysis.medians
        measured = dict.fromkeys(metric for metric, _ in self.medians)
        compared = dict.fromkeys(metric for metric, _, _ in analysis.contrasts)
        self.metrics = tuple(metric for metric in measured | compared if not replaced(metric))

    def effect(self, metric: Metric, baseline: str, treatment: str) -> Effect | None:
        return effect(self.analysis, metric, baseline, treatment)

    def number(self, metric: Metric, treatment: str) -> Number | None:
        value = self.medians.get((metric, treatment))
        return None if value is None else Number(value, metric.unit, treatment in self.analysis.emulated)


def view(analysis: Analysis) -> View:
    """Everything a report shows of one experiment."""
    table = _Table(analysis)
    grouped: dict[str, list[Metric]] = defaultdict(list)
    for metric in table.metrics:
        grouped[metric.workload].append(metric)
    return View(analysis, tuple(_sections(analysis, grouped, table)))


def _sections(analysis: Analysis, grouped: Mapping[str, Sequence[Metric]], table: _Table) -> Iterator[WorkloadTable]:
    """One for each workload; if sides are interleaved, one for each side that has additional content."""
    treatments, sides = analysis.experiment.treatments, analysis.sides
    firsts = {one.name: members[0].name for members in groups(treatments).values() for one in members[1:]}
    for workload, metrics in grouped.items():
        for side in dict.fromkeys(treatment.side for treatment in treatments):
            first = analysis.first_treatments(side)
            mine = [treatment for treatment in treatments if treatment.side == side and treatment.repeats is None]
            others = [(t.name, firsts[t.name]) for t in mine if t.name in firsts]
            section = _section(workload, metrics, table, first, others)
            if sides is None:
                yield section
            elif not side:
                between = tuple(_between(metrics, table, side_contrasts(treatments)))
                yield replace(section, where=sides.where(own=True), between=between)
            elif section.contrasts or any(case.settings for case in section.cases):
                yield _of_other_side(section, sides)


def _of_other_side(section: WorkloadTable, sides: Sides) -> WorkloadTable:
    """The section names its side, so its treatments need not."""
    short = sides.short
    return replace(
        section,
        where=sides.where(own=False),
        layers=tuple(map(short, section.layers)),
        contrasts=tuple((short(low), short(high)) for low, high in section.contrasts),
        cases=tuple(
            replace(
                case,
                settings=tuple(
                    replace(setting, treatment=short(setting.treatment), baseline=short(setting.baseline))
                    for setting in case.settings
                ),
            )
            for case in section.cases
        ),
    )


def _between(metrics: Sequence[Metric], table: _Table, pairs: Sequence[tuple[str, str]]) -> Iterator[Between]:
    for metric in _plain_first(metrics):
        for own, other in pairs:
            effect = table.effect(metric, own, other)
            if effect is not None:
                numbers = table.number(metric, own), table.number(metric, other)
                yield Between(metric.case, metric, own, *numbers, effect)


def _section(
    workload: str,
    metrics: Sequence[Metric],
    table: _Table,
    first: Mapping[str, Treatment],
    others: Sequence[tuple[str, str]],
) -> WorkloadTable:
    layers = tuple(t.name for t in first.values() if any((metric, t.name) in table.medians for metric in metrics))
    contrasts = tuple(
        pair
        for pair in layer_contrasts(first)
        if any((metric, *pair) in table.analysis.contrasts for metric in metrics)
    )
    cases: dict[str, list[Metric]] = defaultdict(list)
    for metric in _plain_first(metrics):
        cases[metric.case].append(metric)
    return WorkloadTable(
        workload,
        layers,
        contrasts,
        tuple(
            Case(name, tuple(_row(m, table, layers, contrasts) for m in mine), tuple(_settings(mine, table, others)))
            for name, mine in cases.items()
        ),
    )


def _plain_first(metrics: Iterable[Metric]) -> list[Metric]:
    """Metrics without a case first: below another case's heading they would seem to belong to it."""
    return sorted(metrics, key=lambda metric: metric.case != "")


def _row(metric: Metric, table: _Table, layers: Sequence[str], contrasts: Sequence[tuple[str, str]]) -> MetricRow:
    return MetricRow(
        metric,
        tuple(table.number(metric, name) for name in layers),
        tuple(table.effect(metric, *pair) for pair in contrasts),
    )


def _settings(metrics: Sequence[Metric], table: _Table, others: Sequence[tuple[str, str]]) -> Iterator[Setting]:
    for treatment, baseline in others:
        medians = tuple(table.number(metric, treatment) for metric in metrics)
        effects = tuple(table.effect(metric, baseline, treatment) for metric in metrics)
        if any(medians) or any(effects):
            yield Setting(treatment, baseline, medians, effects)
