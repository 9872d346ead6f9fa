"""How the memory of each configuration's guests was really backed, as read in every boot. Pure."""

from __future__ import annotations

from vmtax.analysis.analysis import Analysis
from vmtax.core.records import Boot
from vmtax.core.units import format_room
from vmtax.design.guest import GuestSettings
from vmtax.report.document import Column, Detail, Paragraph, Row, Section, Table, name_cell, value_cell

TITLE = "The guests' memory"
READING = (
    "Read from QEMU's mapping in /proc after each boot, before anything was measured; the least and the most over"
    " boots. A boot that did not get its level was not measured: it is listed under Warnings. Huge pages are"
    " transparent ones; those of a pool show in the size of its pages."
)
BACKING = GuestSettings.factors()["backing"].name


def section(analysis: Analysis) -> Section | None:
    """None if the plan does not vary it, or nothing was read."""
    run = analysis.experiment
    rows = []
    for treatment in run.treatments:
        boots = [
            boot for boot in run.boots if boot.treatment == treatment.name and "memory.page_bytes" in boot.obtained
        ]
        if boots and treatment.repeats is None:
            rows.append(_row(treatment.name, treatment.levels.get(BACKING, ""), boots, emulated=boots[0].emulated))
    if len({treatment.levels.get(BACKING) for treatment in run.treatments if treatment.layer == "vm"}) < 2 or not rows:
        return None
    columns = (
        *(
            Column("configuration"),
            Column(BACKING, words=True),
            Column("pages of"),
            Column("touched"),
            Column("in huge pages"),
        ),
        Column("boots"),
    )
    table = Table(TITLE, columns, tuple(rows), "settings")
    return Section("memory", TITLE, (table, Paragraph(READING, "note", Detail.FULL)), TITLE)


def _row(name: str, level: str, boots: list[Boot], *, emulated: bool) -> Row:
    read = [boot.obtained for boot in boots]
    pages = dict.fromkeys(_page(one["memory.page_bytes"]) for one in read)
    touched = [one.get("memory.resident_bytes", 0) + one.get("memory.hugetlb_bytes", 0) for one in read]
    huge = [one.get("memory.huge_bytes", 0) for one in read]
    cells = (", ".join(pages), _span(touched), _span(huge), str(len(boots)))
    return Row((name_cell(name, emulated=emulated), value_cell(level), *map(value_cell, cells)))


def _page(size: float) -> str:
    return f"{size / 1024:.0f} KiB" if size < 2**20 else f"{size / 2**20:.0f} MiB"


def _span(sizes: list[float]) -> str:
    ends = list(dict.fromkeys(format_room(size) if size else "none" for size in (min(sizes), max(sizes))))
    return " to ".join(ends)
