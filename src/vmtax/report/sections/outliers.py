"""Values far from their treatment's other values, as tables with the state of the host at that time. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from vmtax.analysis.outliers import FEWEST, GAUGES, Outlier, Outliers, Reading
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


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.0995 else f"{100 * share:.0f} %"


def _cpus(number: float) -> str:
    return f"{number:.2f}"


# Gauge -> its values as text.
TEXTS: Mapping[str, Callable[[float], str]] = {
    "steal": _cpus,
    "CPU pressure": _percent,
    "disk pressure": _percent,
    "memory pressure": _percent,
    "busy CPUs": _cpus,
    "frequency": lambda hertz: f"{hertz / 1e9:.2f} GHz",
    "throttles": lambda number: f"{number:.0f}",
}


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
    if reading.value is None or reading.typical is None:
        return Cell()
    text, typical = (TEXTS[reading.gauge](value) for value in (reading.value, reading.typical))
    return Cell((Span(text, "strong" if reading.stands_out else "plain"), Span(typical, "muted")))
