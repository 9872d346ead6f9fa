"""Published figures compared with those of this run, if its plan measures the same; shares are recalculated. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from vmtax.analysis.analysis import Analysis
from vmtax.core.records import Metric, Treatment
from vmtax.core.units import format_value
from vmtax.design.guest import COUNT
from vmtax.design.net import PATH
from vmtax.report.document import Block, Column, Detail, Paragraph, Row, Section, Table, name_cell, value_cell

TITLE = "Published figures beside yours"
HEADS = ("configuration", "published", "share", "printed as", "here", "share here")
READING = (
    "Share: its speed, or its CPU time, as a share of that of the configuration after 'of', computed from the figures;"
    " beside it the share as it was printed. The hardware and the software are others, so compare the shares, not the"
    " figures."
)


@dataclass(frozen=True, slots=True)
class _Line:
    """One published figure, and the configuration of a plan that corresponds to it."""

    name: str
    value: float
    layer: str
    levels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    of: _Line | None = None  # the figure that it is a share of: the same number of machines, otherwise the same
    printed: str = "–"  # that share
    orders: tuple[str, str] | None = None  # figure and share in words, if only orders of magnitude were published


@dataclass(frozen=True, slots=True)
class _Published:
    """One table of an article."""

    title: str
    metric: str  # a regular expression
    unit: str
    lines: tuple[_Line, ...]
    remark: str  # source and calculation


_METAL = _Line("bare metal", 362, "host")
_OFF = {"cpu.mitigations": "off"}
_BUILDS = (
    _METAL,
    _Line("2 MiB pages, no mitigations", 436, "vm", {"memory.backing": "2MiB", **_OFF}, _METAL, "83 %"),
    _Line("2 MiB pages", 449, "vm", {"memory.backing": "2MiB", "cpu.mitigations": "auto"}, _METAL, "80 %"),
    _Line("4 KiB pages, no mitigations", 474, "vm", {"memory.backing": "4k", **_OFF}, _METAL, "75 %"),
)
_ONE, _FOUR = {COUNT.name: "1"}, {COUNT.name: "4"}
_HOST = _Line("host", 465_536, "host", _FOUR)
_ONE_VM = _Line("one VM", 139_634, "vm", _ONE)
_FOUR_VMS = _Line("four VMs", 373_178, "vm", _FOUR, _HOST, "78.62 %")
_PARAVIRTUAL = _Line("virtio with vhost", 1e3, "vm", {PATH: "vhost"})
_FUNCTION = _Line("virtual function", 1e2, "vm", {PATH: "sriov"}, _PARAVIRTUAL, orders=("10²", "1–10 %"))
PUBLISHED = (
    _Published(
        "A kernel build, 2020",
        r"build\..*\.seconds",
        "s",
        _BUILDS,
        "Shattered Silicon, Virtualization Performance Impact, 2020: Linux 5.4.70, allmodconfig, on an EPYC 7402P. 362"
        " s of 474 s is 76.4 %, which was printed as 75 %.",
    ),
    _Published(
        "Random writes of one and of four guests",
        r"disk\.randwrite-4k-qd32\.iops",
        "1/s",
        (
            *(_HOST, _FOUR_VMS, _Line("four nested VMs", 94_897, "nested", _FOUR, _FOUR_VMS, "67.96 %")),
            *(_ONE_VM, _Line("one nested VM", 76_259, "nested", _ONE, _ONE_VM)),
        ),
        "Performance Overhead of Nested Virtualization on Windows Server 2016 Technical Preview 4: fio, 4 KiB, 16 jobs"
        " at depth 20. The 32.04 % that it calls the cost of nesting set four nested VMs against one VM; like for like"
        " it is 45.4 % for one guest and 74.6 % for four. The 21.38 % of four VMs are 19.8 %.",
    ),
    _Published(
        "Host CPU with SR-IOV, 2012",
        r"net\.tcp-in\.host_side_seconds",
        "s/B",
        (_FUNCTION,),
        "SR-IOV Network I/O Enhancement in a Virtualized Environment in Windows Server 2012, by Dell: 20 GB are copied"
        " from an SMB share into one VM. Of the CPU use of the host's network modules, NDIS and VMBUS, only the order"
        " of magnitude is printed, without a unit: 10² with SR-IOV, 10³ to 10⁴ without. In the guests there is not"
        " much difference. The paravirtual path there is VMBus; here it is virtio with vhost.",
    ),
)


def section(analysis: Analysis) -> Section | None:
    """None if the plan measures nothing that was published, or lacks the reference of the shares."""
    metrics = dict.fromkeys(metric for metric, _ in analysis.medians)
    blocks: list[Block] = []
    for published in PUBLISHED:
        for metric in metrics:
            rows = _rows(published, metric, analysis) if re.fullmatch(published.metric, metric.name) else ()
            table = Table(published.title, tuple(map(Column, HEADS)), tuple(rows), "settings", detail=Detail.FULL)
            blocks += [table, Paragraph(published.remark, "note", Detail.FULL)] if table.rows else []
    note = Paragraph(READING, "note", Detail.FULL)
    return Section("published", TITLE, (*blocks, note), TITLE) if blocks else None


def _rows(published: _Published, metric: Metric, analysis: Analysis) -> Iterator[Row]:
    """The lines that are shares of another one, if this run has both; single lines are left out."""
    for line in published.lines:
        treatment, base = _treatment(line, analysis), line.of and _treatment(line.of, analysis)
        if line.of is None or treatment is None or base is None:
            continue
        own, of = (analysis.medians.get((metric, each.name)) for each in (treatment, base))
        if not own or not of:
            continue
        emulated = {treatment.name, base.name} & analysis.emulated
        exact = (format_value(line.value, published.unit), _share(published, line.value, line.of.value))
        theirs = (*(line.orders or exact), line.printed)
        ours = (format_value(own, metric.unit), _share(published, own, of))
        cells = (*map(value_cell, theirs), *(value_cell(text, emulated=bool(emulated)) for text in ours))
        yield Row((name_cell(f"{line.name}, of {line.of.name}"), *cells))


def _share(published: _Published, value: float, of: float) -> str:
    """The speed, or the CPU time, as a share of the other's."""
    return f"{100 * (of / value if published.unit == 's' else value / of):.1f} %"


def _treatment(line: _Line, analysis: Analysis) -> Treatment | None:
    """The first configuration that corresponds to it."""
    for treatment in analysis.experiment.treatments:
        alike = all(treatment.levels.get(name) == level for name, level in line.levels.items())
        if treatment.layer == line.layer and treatment.repeats is None and alike:
            return treatment
    return None
