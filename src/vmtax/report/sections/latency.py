"""How long single operations took on each layer: distributions, because a mean hides the tail. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vmtax.analysis.analysis import Analysis
from vmtax.core.records import Treatment, Trial
from vmtax.core.units import format_value
from vmtax.report.document import (
    Column,
    Detail,
    Figure,
    Paragraph,
    Row,
    Section,
    Span,
    Table,
    name_cell,
    term,
    value_cell,
)
from vmtax.report.view import Number
from vmtax.workload.words import title

if TYPE_CHECKING:
    from vmtax.report.picture import Picture

FEWEST = 3  # with this many treatments of a layer, its best and worst are shown besides its first
JUDGED = 0.99  # share of operations by which best and worst are chosen; lower if that is not reported
TABLED = (0.5, 0.9, 0.99, 0.999, 0.9999)  # in the table


@dataclass(frozen=True, slots=True)
class Curve:
    """The latencies of one treatment in one case."""

    treatment: str
    layer: str
    second: bool  # on the side that is interleaved with the plan's own
    emulated: bool
    rounds: int
    points: tuple[tuple[float, float], ...]  # (share of operations, seconds as the median over rounds), rising
    role: str = ""  # "best" or "worst" of its layer's treatments; "" for the first one

    def at(self, share: float) -> Number | None:
        """The most that this share of operations took; None if there were too few operations."""
        seconds = dict(self.points).get(share)
        return None if seconds is None else Number(format_value(seconds, "s"), self.emulated)


@dataclass(frozen=True, slots=True)
class Distribution:
    """One case: the first treatment of each layer on each side, and the best and worst of many."""

    workload: str
    case: str
    curves: tuple[Curve, ...]
    others: int = 0  # number of treatments with latencies that are not shown

    @property
    def name(self) -> str:
        """The case with its workload: "Disk randread-4k-qd1"."""
        return f"{title(self.workload)} {self.case}".strip()


def distributions(analysis: Analysis) -> tuple[Distribution, ...]:
    """Every case whose trials stored latencies, in order of appearance."""
    treatments = analysis.experiment.treatments
    sides = dict.fromkeys(treatment.side for treatment in treatments)
    named = {t.name: t for side in sides for t in analysis.first_treatments(side).values()}
    compared = {t.name: t for t in treatments if t.repeats is None} | named
    kept: dict[tuple[str, str], dict[str, list[Trial]]] = defaultdict(lambda: defaultdict(list))
    for trial in analysis.trials:
        if trial.status == "ok" and trial.latencies and trial.treatment in compared:
            kept[trial.workload, trial.case][trial.treatment].append(trial)
    found = []
    for case, trials in kept.items():
        curves = {curve.treatment: curve for curve in _curves(compared.values(), trials, analysis.emulated)}
        shown = _shown(curves, compared, named)
        if shown:
            found.append(Distribution(*case, shown, len(curves) - len(shown)))
    return tuple(found)


def section(found: Sequence[Distribution], pictures: Sequence[Picture]) -> Section | None:
    """None if no trial kept its latencies."""
    if not found:
        return None
    reading: tuple[Span, ...] = (
        Span(
            "From left to right the operations get rarer: half of them take at most the value at 50 %, one in a"
            " hundred takes longer than the value at 99 %; each step is ten times rarer than the one before. A line"
            " that climbs to the right has a tail, which a mean hides. "
        ),
        term("latency", "Latencies"),
        Span(" are medians over rounds, drawn as far as every round has enough operations."),
    )
    if any(distribution.others for distribution in found):
        many = "Of many configurations of a layer, the first is drawn, and the best and the worst by"
        reading += (Span(f" {many} {percentile(JUDGED)}."),)
    blocks = (Paragraph(reading, "note", Detail.PAGE), Figure(tuple(pictures), "pair"), _table(found))
    return Section("latency", "How long single operations take", blocks, "How long single operations take")


def _table(found: Sequence[Distribution]) -> Table:
    shares = tabled(found)
    columns = (Column("case and configuration"), *(Column(percentile(share)) for share in shares), Column("rounds"))
    rows: list[Row] = []
    for distribution in found:
        rows.append(Row((name_cell(distribution.name),)))
        for curve in distribution.curves:
            name = f"{curve.treatment}{f' ({curve.role})' if curve.role else ''}"
            found_here = (curve.at(share) for share in shares)
            cells = (value_cell(number.text if number else "") for number in found_here)
            rows.append(Row((name_cell(name, emulated=curve.emulated), *cells, value_cell(str(curve.rounds)))))
    title = "Latency by percentile: that many percent of the operations took at most so long"
    return Table(title, columns, tuple(rows), "latencies", detail=Detail.PAGE)


def _shown(
    curves: Mapping[str, Curve], treatments: Mapping[str, Treatment], first: Mapping[str, Treatment]
) -> tuple[Curve, ...]:
    """The first of each layer, then its best and worst if it has many; layers from the host upward."""
    layers: dict[tuple[str, str], list[Curve]] = defaultdict(list)
    for name, curve in curves.items():
        layers[treatments[name].side, curve.layer].append(curve)
    shown = {name: curves[name] for name in first if name in curves}
    for (_, layer), members in layers.items():
        shares = set.intersection(*({share for share, _ in curve.points} for curve in members))
        judged = max((share for share in shares if share <= JUDGED), default=None)
        if layer == "host" or len(members) < FEWEST or judged is None:
            continue
        ordered = sorted(members, key=lambda curve: dict(curve.points)[judged])
        for role, curve in (("best", ordered[0]), ("worst", ordered[-1])):
            shown[curve.treatment] = replace(curve, role=role)
    return tuple(shown.values())


def tabled(found: Iterable[Distribution]) -> tuple[float, ...]:
    """Those of TABLED that any distribution has."""
    have = {share for distribution in found for curve in distribution.curves for share, _ in curve.points}
    return tuple(share for share in TABLED if share in have)


def percentile(share: float) -> str:
    """The usual name of a share: "p99.9"."""
    return f"p{100 * share:.10g}"


def _curves(
    treatments: Iterable[Treatment], trials: Mapping[str, Sequence[Trial]], emulated: frozenset[str]
) -> Iterator[Curve]:
    for treatment in treatments:
        mine = trials.get(treatment.name, ())
        points = _medians(mine)
        if points:
            rounds = len({trial.round for trial in mine})
            emulates = treatment.name in emulated
            yield Curve(treatment.name, treatment.layer, bool(treatment.side), emulates, rounds, points)


def _medians(trials: Sequence[Trial]) -> tuple[tuple[float, float], ...]:
    """For each share, the median over rounds of each round's median: the boot is the unit (METHOD.md).

    Only shares that every trial reports: a share that needs more operations would come from fast rounds only.
    """
    values: dict[float, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for trial in trials:
        for share, seconds in trial.latencies:
            if 0 <= share < 1 and seconds > 0:
                values[share][trial.round].append(seconds)
    return tuple(
        (share, statistics.median(map(statistics.median, rounds.values())))
        for share, rounds in sorted(values.items())
        if sum(map(len, rounds.values())) == len(trials)
    )
