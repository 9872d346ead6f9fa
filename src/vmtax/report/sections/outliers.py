"""Values far from their treatment's other values, with the state of the host at that time. None is ever left out. Pure.

Far means outside Tukey's fences, 1.5 interquartile ranges below or above the quartiles, on logarithms.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from vmtax.analysis.analysis import Analysis
from vmtax.core.records import Disturbance, Metric, Trial
from vmtax.core.units import format_cost, format_value
from vmtax.report.document import (
    Block,
    Cell,
    Column,
    Detail,
    Folded,
    Inline,
    Paragraph,
    Row,
    Section,
    Span,
    Table,
    name_cell,
    term,
    value_cell,
)
from vmtax.workload.words import label, title

WORST, MOST_SHOWN = 5, 60  # rows that are shown at first, and in total; the farthest come first
FENCE = 1.5  # interquartile ranges
FEWEST = 6  # values that a treatment needs before one of them can be called far

Kind = tuple[str, str, str]  # treatment, workload, case: typical values are those of all three together


@dataclass(frozen=True, slots=True)
class Gauge:
    """A quantity that the host reports for the time of a trial."""

    name: str
    of: Callable[[Disturbance], float | None]
    text: Callable[[float], str]
    floor: float  # smaller differences from the typical value mean nothing
    both: bool = False  # values below the typical one count, too


@dataclass(frozen=True, slots=True)
class Reading:
    """One gauge during one trial."""

    gauge: str
    text: str | None  # None: the host does not report it
    typical: str | None  # the median over the treatment's trials of the same workload and case
    stands_out: bool


@dataclass(frozen=True, slots=True)
class Far:
    """One value outside the fences."""

    metric: Metric
    value: float
    median: float  # of the treatment's values

    @property
    def decades(self) -> float:
        """The distance in either direction."""
        return abs(math.log10(self.value / self.median))


@dataclass(frozen=True, slots=True)
class Outlier:
    """A trial with one or more values outside the fences."""

    trial: Trial
    emulated: bool
    values: tuple[Far, ...]  # farthest first
    readings: tuple[Reading, ...]  # in the order of GAUGES; empty if the host was not read

    @property
    def causes(self) -> tuple[str, ...]:
        """The gauges with unusual values; these need not be the cause, and a cause need not show in them."""
        return tuple(reading.gauge for reading in self.readings if reading.stands_out)


@dataclass(frozen=True, slots=True)
class Outliers:
    """All outliers of a run."""

    found: tuple[Outlier, ...]  # farthest first
    values: int  # number of values that were checked
    unreported: tuple[str, ...]  # gauges that the host reports for no trial

    @property
    def host_tells(self) -> bool:
        return len(self.unreported) < len(GAUGES)

    @property
    def explained(self) -> int:
        """How many have an unusual gauge."""
        return sum(bool(outlier.causes) for outlier in self.found)


def _share(name: str) -> Callable[[Disturbance], float | None]:
    """Seconds of something per second."""

    def share(disturbance: Disturbance) -> float | None:
        seconds = getattr(disturbance, name)
        return seconds / disturbance.wall_seconds if seconds is not None and disturbance.wall_seconds > 0 else None

    return share


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.0995 else f"{100 * share:.0f} %"


GAUGES = (
    Gauge("steal", _share("steal_seconds"), lambda cpus: f"{cpus:.2f}", 0.02),
    Gauge("CPU pressure", _share("cpu_pressure_seconds"), _percent, 0.02),
    Gauge("disk pressure", _share("io_pressure_seconds"), _percent, 0.02),
    Gauge("memory pressure", _share("memory_pressure_seconds"), _percent, 0.02),
    Gauge("busy CPUs", _share("busy_seconds"), lambda cpus: f"{cpus:.2f}", 0.1),
    Gauge("frequency", lambda d: d.mean_frequency_hz, lambda hz: f"{hz / 1e9:.2f} GHz", 2e7, both=True),
    Gauge("throttles", lambda d: d.throttles, lambda count: f"{count:.0f}", 0.5),
)


def outliers(analysis: Analysis) -> Outliers:
    """Every trial with a value outside the fences of its treatment's values."""
    values: dict[tuple[Metric, str], list[tuple[int, float]]] = defaultdict(list)
    trials = analysis.trials
    for index, trial in enumerate(trials):
        for measurement in trial.measurements if trial.status == "ok" else ():
            if measurement.value > 0:
                values[measurement.metric, trial.treatment].append((index, measurement.value))
    judged = {side: found for side, found in values.items() if len(found) >= FEWEST}
    far: dict[int, list[Far]] = defaultdict(list)
    for (metric, _), found in judged.items():
        for index, one in _far(metric, found):
            far[index].append(one)
    gauges = _Gauges(trials)
    rows = [
        Outlier(
            trial := trials[index],
            trial.treatment in analysis.emulated,
            tuple(sorted(mine, key=lambda one: -one.decades)),
            gauges.readings(trial),
        )
        for index, mine in far.items()
    ]
    rows.sort(key=lambda outlier: -outlier.values[0].decades)
    return Outliers(tuple(rows), sum(map(len, judged.values())), gauges.unreported)


def section(outliers: Outliers, run: str) -> Section:
    """`run`: its id."""
    return Section("outliers", "Outliers", tuple(_blocks(outliers, run)), "Outliers")


def _blocks(outliers: Outliers, run: str) -> Iterator[Block]:
    page = Detail.PAGE
    many = len(outliers.found)
    if not outliers.values:
        yield Paragraph(
            f"Too few values to look for outliers: no configuration has {FEWEST} of any metric.", detail=page
        )
        return
    if not many:
        none = f"None: none of {outliers.values} values lies far from the others of its configuration."
        yield Paragraph(none, detail=page)
        return
    lead = f"{many} trial has" if many == 1 else f"{many} trials have"
    whose = "its" if many == 1 else "their"
    yield Paragraph(
        (
            Span(f"{lead} a value far from the others of {whose} configuration. All are in the figures above: an "),
            term("outlier"),
            Span(" is explained where it can be, never left out."),
        ),
        detail=page,
    )
    yield Paragraph(
        f"Checked: {outliers.values} values, those of configurations with {FEWEST} or more. By chance alone, about 4 in"
        " 100 values are outliers with 10 rounds, 1 in 100 with 60. Below each reading of the host is the typical value"
        " for that configuration and workload. A reading far from it “stands out”: a hint at the cause, not a proof.",
        "note",
        page,
    )
    if not outliers.host_tells:
        yield Paragraph("The host was not read during these trials, so no cause can be seen.", detail=page)
    elif outliers.unreported:
        unreported = (
            f"This host does not report: {', '.join(outliers.unreported)}. A cause of that kind cannot be seen."
        )
        yield Paragraph(unreported, detail=page)
    gauges = tuple(Column(_head(gauge.name)) for gauge in GAUGES if outliers.host_tells)
    columns = (Column("trial"), Column("value"), Column("stands out", words=True), *gauges)
    rows = tuple(Row(tuple(_cells(outlier, outliers.host_tells))) for outlier in outliers.found[:MOST_SHOWN])
    title = "The farthest first; below each reading the typical one"
    yield Table(title, columns, rows[:WORST], "wrapped many", detail=page)
    if many > WORST:
        others = Table(f"{title}, after the first {WORST}", columns, rows[WORST:], "wrapped many", detail=page)
        yield Folded(f"The next {len(rows) - WORST}", (others,), page)
    if many > MOST_SHOWN:
        rest = f"And {many - MOST_SHOWN} more, nearer than these; every value, with its readings, is in "
        yield Paragraph((Span(rest), Span(f"vmtax report {run} --format csv", "code"), Span(".")), "note", page)


def _head(gauge: str) -> Inline:
    """A gauge's name, linked to the glossary."""
    words = {"steal": "steal", "CPU pressure": "pressure", "busy CPUs": "busy CPUs", "throttles": "throttle"}
    return (term(words[gauge], gauge),) if gauge in words else gauge


def _cells(outlier: Outlier, host_tells: bool) -> Iterator[Cell]:
    trial, far = outlier.trial, outlier.values[0]
    yield name_cell(f"{trial.treatment}, round {trial.round}", f"{title(trial.workload)} {trial.case}".strip())
    more = f", {len(outlier.values) - 1} more" if len(outlier.values) > 1 else ""
    what = Span(f"{label(far.metric)} {format_value(far.value, far.metric.unit)}{more}", "muted")
    mark = (Span("emulated", "emulated"),) if outlier.emulated else ()
    yield Cell((Span(format_cost(far.value / far.median).estimate), *mark, what))
    causes = f"{', '.join(outlier.causes[:2])}{', more' if len(outlier.causes) > 2 else ''}"
    yield value_cell(causes or ("nothing" if outlier.readings else "host not read"), shown=bool(causes))
    for number in range(len(GAUGES) if host_tells else 0):
        yield _reading_cell(outlier.readings[number]) if outlier.readings else Cell()


def _reading_cell(reading: Reading) -> Cell:
    if reading.text is None or reading.typical is None:
        return Cell()
    return Cell((Span(reading.text, "strong" if reading.stands_out else "plain"), Span(reading.typical, "muted")))


def fences(values: Iterable[float]) -> tuple[float, float]:
    """The limits beyond which a value is far from the others. Needs at least two values."""
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low - FENCE * (high - low), high + FENCE * (high - low)


def _far(metric: Metric, found: Sequence[tuple[int, float]]) -> Iterator[tuple[int, Far]]:
    low, high = fences(math.log(value) for _, value in found)
    median = statistics.median(value for _, value in found)
    for index, value in found:
        if not low <= math.log(value) <= high:
            yield index, Far(metric, value, median)


class _Gauges:
    """Typical values of each kind of trial, computed when first needed."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        self.disturbances: dict[Kind, list[Disturbance]] = defaultdict(list)
        reported: set[str] = set()
        for trial in trials:
            if trial.disturbance is not None:
                self.disturbances[_kind(trial)].append(trial.disturbance)
                reported |= {
                    gauge.name
                    for gauge in GAUGES
                    if gauge.name not in reported and gauge.of(trial.disturbance) is not None
                }
        self.unreported = tuple(gauge.name for gauge in GAUGES if gauge.name not in reported)
        self.known: dict[Kind, Mapping[str, list[float]]] = {}

    def readings(self, trial: Trial) -> tuple[Reading, ...]:
        if trial.disturbance is None:
            return ()
        kind = _kind(trial)
        if kind not in self.known:
            self.known[kind] = {
                gauge.name: [value for d in self.disturbances[kind] if (value := gauge.of(d)) is not None]
                for gauge in GAUGES
            }
        return tuple(_reading(gauge, gauge.of(trial.disturbance), self.known[kind][gauge.name]) for gauge in GAUGES)


def _kind(trial: Trial) -> Kind:
    return trial.treatment, trial.workload, trial.case


def _reading(gauge: Gauge, value: float | None, usual: Sequence[float]) -> Reading:
    if value is None:
        return Reading(gauge.name, None, None, False)
    typical = statistics.median(usual)
    more = value - typical
    stands_out = abs(more) > gauge.floor and (more > 0 or gauge.both)
    if stands_out and len(usual) > 1:
        low, high = fences(usual)
        stands_out = not low <= value <= high
    return Reading(gauge.name, gauge.text(value), gauge.text(typical), stands_out)
