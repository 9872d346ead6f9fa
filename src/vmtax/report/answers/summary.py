"""The few figures of a run that answer what it was made for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from vmtax.analysis import summary
from vmtax.analysis.analysis import Analysis
from vmtax.core.notices import Code
from vmtax.core.records import VERDICT_CODES, Better, VerdictCode
from vmtax.report.answers.comparison import about
from vmtax.report.answers.part import Part

Places = Mapping[str, summary.Place]  # by treatment


@dataclass(frozen=True)
class Median(Part):
    """The median of one configuration."""

    treatment: str  # name of the treatment
    layer: str  # host, vm or nested
    side: str  # `side` of the treatment
    median: float  # median over rounds, in the figure's unit
    emulated: bool  # whether any guest or the host of this treatment ran on an emulated CPU


@dataclass(frozen=True)
class Cost(Part):
    """How long the same work takes in one configuration, compared with another: 1.031 is +3.1 %, 24 is 24 times the
    time.
    """

    treatment: str  # name of the treatment
    layer: str  # layer of the treatment: host, vm or nested
    baseline: str  # name of the treatment that it is compared with
    against: str  # layer of the baseline
    ratio: float | None  # ratio of the times for the same work; null: no round has both
    low: float | None  # lower end of the ratio's interval; null: too few rounds, or all ratios are equal
    high: float | None  # upper end of the ratio's interval
    rounds: int  # rounds in which both have a value
    verdict_code: VerdictCode  # what the interval shows
    same: bool  # whether the cost is no more than that of a guest against itself in this run
    emulated: bool  # whether either side ran on an emulated CPU
    notice_codes: Sequence[Code]  # codes of the notices about this figure, except `emulated`; `notices` of the run has
    # their causes and cures

    @classmethod
    def made(cls, found: summary.Contrast, places: Places) -> Self:
        return cls.of(
            found,
            layer=places[found.treatment].layer,
            against=places[found.baseline].layer,
            verdict_code=VERDICT_CODES[found.verdict],
            notice_codes=found.notes,
        )


@dataclass(frozen=True)
class Figure(Part):
    """One of the metrics that answer what the run was made for."""

    metric: str  # name of the metric
    label: str  # short name of the metric, for people
    unit: str  # base unit of the medians
    better: Better  # which direction is an improvement
    primary: bool  # whether it is a primary metric of the plan
    noise_floor: float | None  # how far the interval of a guest against itself reaches, as a ratio of times above 1;
    # null: not measured
    medians: Sequence[Median]  # medians of the first configuration of each layer, from the host upward
    costs: Sequence[Cost]  # costs of VM against host, nested VM against VM, and nested VM against host; with
    # --interleave-with, of one side against the other

    @classmethod
    def made(cls, found: summary.Figure, places: Places) -> Self:
        medians = zip(places.values(), found.medians, strict=True)
        return cls.of(
            found,
            **about(found.metric),
            noise_floor=found.floor,
            medians=[Median.of(place, median=median) for place, median in medians if median is not None],
            costs=[Cost.made(contrast, places) for contrast in found.contrasts if contrast is not None],
        )


@dataclass(frozen=True)
class Summary(Part):
    """What `vmtax show` prints of a run: `data.summary`, and all of `--json=summary`."""

    run: str  # id of the run
    emulated: bool  # whether any treatment of the run ran on an emulated CPU
    figures: Sequence[Figure]  # the figures, in the order in which a reader asks for them
    durable: Mapping[str, str]  # name of a treatment -> yes, no, or not shown; empty: no durability trial has a result

    @classmethod
    def made(cls, analysis: Analysis) -> Self:
        found = summary.summary(analysis)
        places = {place.treatment: place for place in found.places}
        figures = [Figure.made(figure, places) for figure in found.figures]
        tried = analysis.survival.evidence if analysis.survival else ()
        durable = {one.treatment: one.state for one in tried}
        return cls(analysis.experiment.id, bool(analysis.emulated), figures, durable)
