"""Several machines at once: their total, how evenly they share it, and the share of each. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.at_once import AtOnce, Each, LastReady, against_host, at_once, last_ready
from vmtax.analysis.comparisons import overhead
from vmtax.core.records import Comparison, Treatment
from vmtax.core.units import format_duration, format_value
from vmtax.design.guest import COUNT
from vmtax.design.net import settings_of
from vmtax.design.settings import UnknownLevel
from vmtax.design.topology import topology
from vmtax.report.document import (
    Block,
    Cell,
    Column,
    Detail,
    Figure,
    Folded,
    Paragraph,
    Row,
    Section,
    Table,
    name_cell,
    value_cell,
)
from vmtax.report.wording.cost import cost_of
from vmtax.workload.words import name

TITLE = "Several guests at once"
EACH = "What each of them had"
READY = "Boot, until the last of all is ready"
READING = (
    "Together: the sum of all guests (on the host, of all sets of processes), of times the worst; the median over"
    " rounds. Of the ideal: the share that this is of as many times the rate of one alone, which is measured in the"
    " same rounds; of times, the time of one alone as a share of theirs. Against host: time for the same work, against"
    " as many sets of processes on the host. Same time: the smallest share of what counts in which all of them worked;"
    " fio and iperf3 work before and after what counts; stockfish and stress-ng are repeated until each guest has"
    " finished its second repetition, which counts. Fairness: Jain's index, 100 % where all get the same and 1/n where"
    " one of n gets all. Host CPUs: that were busy on average, whatever for."
)
EACH_READING = (
    "CPU not got: the CPUs that a guest wanted and its hypervisor gave to others (steal). Soft irq: the CPUs that the"
    " guest's kernel used in soft interrupts, where it handles packets. Beyond RAM: the memory that the guest's QEMU"
    " has beside the guest's own, of what it shares with other processes its part (PSS). Medians over rounds; – where"
    " it cannot be read, as the steal of emulated guests."
)


def section(analysis: Analysis) -> Section | None:
    """None if no configuration has several guests."""
    run = analysis.experiment
    rates, ready = at_once(run, analysis.schedules), last_ready(run)
    if not rates and not ready:
        return None
    columns = (
        Column("configuration"),
        *(Column(head) for head in ("together", "of the ideal", "against host", "same time")),
        *(Column(head, spare=True) for head in ("least to most", "fairness", "host CPUs")),
    )
    table = Table(TITLE, columns, (*_rows(rates, analysis), *_ready_rows(ready, analysis)), "settings")
    blocks: list[Block] = [table, Paragraph(READING, "note", Detail.FULL)]
    return Section("at-once", TITLE, (*_pictures(rates, analysis), *blocks, *_each(rates, analysis)), TITLE)


def _pictures(rates: Sequence[AtOnce], analysis: Analysis) -> Iterator[Block]:
    from vmtax.report.figures.scaling import scaling_pictures

    drawn = scaling_pictures(rates, analysis.emulated)
    if drawn:
        yield Figure(drawn)


def _by_metric(rates: Iterable[AtOnce]) -> Iterator[tuple[str, list[AtOnce]]]:
    order = {metric: number for number, metric in enumerate(dict.fromkeys(rate.metric for rate in rates))}
    for metric, members in groupby(sorted(rates, key=lambda rate: order[rate.metric]), lambda rate: rate.metric):
        yield name(metric), list(members)


def _rows(rates: Sequence[AtOnce], analysis: Analysis) -> Iterator[Row]:
    """A heading for each figure, followed by a row for each configuration."""
    compared = against_host(analysis.comparisons, analysis.experiment.treatments)
    for title, members in _by_metric(rates):
        yield Row((name_cell(title),))
        for rate in members:
            here = rate.treatment.name
            cells = _cells(rate, compared.get((rate.metric, here)))
            yield Row((name_cell(named(here, len(rate.each)), emulated=here in analysis.emulated), *cells))


def named(treatment: str, machines: int) -> str:
    """A configuration; with its number of machines, if the name does not include it because all have the same
    number.
    """
    return treatment if f"{COUNT.name}=" in treatment else f"{treatment}, {machines} at once"


def _cells(rate: AtOnce, host: Comparison | None) -> list[Cell]:
    unit, ideal = rate.metric.unit, rate.share_of_ideal
    cost = "–" if host is None else cost_of(host.metric.better, *overhead(host))[0]
    values = [each.value for each in rate.each.values()]
    least, most = (format_value(extreme(values), unit) for extreme in (min, max))
    figures = (
        *(format_value(rate.together, unit), _percent(ideal), cost, _share(rate.overlap), f"{least} to {most}"),
        *("–" if rate.fairness is None else _share(rate.fairness), _cpus(rate.host_cpus)),
    )
    return [value_cell(text) for text in figures]


def _ready_rows(ready: Sequence[LastReady], analysis: Analysis) -> Iterator[Row]:
    if ready:
        yield Row((name_cell(READY),))
    for one in ready:
        spread = f"{format_duration(one.first)} to {format_duration(one.last)}"
        figures = (format_duration(one.last), _percent(one.share_of_ideal), "–", "–", spread, "–", "–")
        emulated = one.treatment.name in analysis.emulated
        yield Row((name_cell(named(one.treatment.name, one.count), emulated=emulated), *map(value_cell, figures)))


def _each(rates: Sequence[AtOnce], analysis: Analysis) -> Iterator[Block]:
    """Every machine of every configuration, folded."""
    heads = ("rate", "p99", "CPU not got", "soft irq", "beyond RAM")
    columns = (Column("machine"), *map(Column, heads))
    rows = []
    for title, members in _by_metric(rates):
        for rate in members:
            emulated = rate.treatment.name in analysis.emulated
            rows.append(Row((name_cell(f"{title}, {named(rate.treatment.name, len(rate.each))}", emulated=emulated),)))
            rows += [
                Row((name_cell(_with_path(machine, rate.treatment)), *_each_cells(each, rate.metric.unit, emulated)))
                for machine, each in rate.each.items()
            ]
            total = rate.total(emulated)
            rows.append(Row((name_cell("all together"), *_each_cells(total, rate.metric.unit, emulated))))
    if rows:
        blocks = (Table(EACH, columns, tuple(rows), "settings"), Paragraph(EACH_READING, "note"))
        yield Folded(EACH, blocks, Detail.FULL)


def _each_cells(each: Each, unit: str, emulated: bool) -> list[Cell]:
    return [
        value_cell(text)
        for text in (
            *(format_value(each.value, unit), _seconds(each.tail)),
            *(_cpus(each.lacking(emulated)), _cpus(each.soft_irq), _room(each.beyond)),
        )
    ]


def _with_path(machine: str, treatment: Treatment) -> str:
    """A machine's name, with its network path if that differs from its neighbours'."""
    numbers = {subject.name: subject.number for subject in topology(treatment).subjects}
    try:
        path, number = settings_of(treatment).path, numbers.get(machine.rpartition("/")[2])
    except UnknownLevel:  # of a run of another version
        return machine
    return machine if number is None or len(path.parts) == 1 else f"{machine}, {path.of_guest(number)}"


def _seconds(value: float | None) -> str:
    return "–" if value is None else format_value(value, "s")


def _cpus(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _room(value: float | None) -> str:
    return "–" if value is None else f"{value / 2**20:.0f} MiB"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


def _share(share: float) -> str:
    """Rounded down, so that nothing looks complete that is not."""
    return f"{math.floor(1000 * share + 1e-9) / 10:g} %"
