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
    """What one configuration gave."""

    treatment: str  # its name
    layer: str  # host, vm or nested
    side: str  # as of the treatment
    median: float  # over rounds, in the figure's unit
    emulated: bool  # a boot of it, or its host, ran on an emulated CPU


@dataclass(frozen=True)
class Cost(Part):
    """Time for the same work of one configuration against another: 1.031 is +3.1 %, 24 is 24 times the time."""

    treatment: str  # its name
    layer: str  # host, vm or nested
    baseline: str  # name of the treatment that it is compared with
    against: str  # layer of that
    ratio: float | None  # of times for the same work; null: no round has both
    low: float | None  # lower end of its interval; null: too few rounds
    high: float | None  # upper end of its interval
    rounds: int  # rounds in which both have a value
    verdict_code: VerdictCode  # what the interval shows
    same: bool  # no more than what a guest costs against itself in this run
    emulated: bool  # either is
    notice_codes: Sequence[Code]  # what casts doubt on it; `notices` of the run has causes and cures

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
    """One metric that matters."""

    metric: str  # its name
    label: str  # what people call it, for people
    unit: str  # base unit of the medians
    better: Better  # which direction is an improvement
    primary: bool  # the plan is about it
    noise_floor: float | None  # what a guest's interval against itself reaches, a ratio above 1
    medians: Sequence[Median]  # of the first configuration of each layer, from the host upward
    costs: Sequence[Cost]  # VM against host, nested against VM, nested against host; or between sides

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

    run: str  # its id
    emulated: bool  # any of its figures is
    figures: Sequence[Figure]  # in the order in which a reader asks
    durable: Mapping[str, str]  # treatment -> yes, no, or not shown; empty where no power cut was tried

    @classmethod
    def made(cls, analysis: Analysis) -> Self:
        found = summary.summary(analysis)
        places = {place.treatment: place for place in found.places}
        figures = [Figure.made(figure, places) for figure in found.figures]
        tried = analysis.survival.evidence if analysis.survival else ()
        durable = {one.treatment: one.state for one in tried}
        return cls(analysis.experiment.id, bool(analysis.emulated), figures, durable)
