"""How the host was booted, if a run compares that, and its kernel's report on each vulnerability. Pure."""

from __future__ import annotations

from vmtax.analysis.analysis import Analysis
from vmtax.core.records import Json
from vmtax.design.host import boots_asked
from vmtax.design.reboots import boots_of
from vmtax.report.document import Column, Detail, Paragraph, Row, Section, Table, name_cell, value_cell

TITLE = "How the host was booted"
READING = (
    "Read after each boot of the host, before anything was measured: the beginning of what its kernel says of each"
    " vulnerability that is not the same at all levels. A boot served one level of one round."
)


def section(analysis: Analysis) -> Section | None:
    """None if the run asks for no reboot of its host."""
    run = analysis.experiment
    boots, levels = boots_of(run), boots_asked(run.treatments)
    by_level = {level: [boot for boot in boots if boot["level"] == level] for level in levels}
    if not all(by_level.values()) or not levels:
        return None
    said = {level: _said(found[-1]) for level, found in by_level.items()}
    names = sorted({name for words in said.values() for name in words})
    differing = [name for name in names if len({words.get(name) for words in said.values()}) > 1]
    rows = (
        Row((name_cell("boots"), *(value_cell(str(len(found))) for found in by_level.values()))),
        *(
            Row((name_cell(name), *(value_cell(words.get(name, "not reported")) for words in said.values())))
            for name in differing
        ),
    )
    columns = (Column("booted with"), *(Column(level, words=True) for level in levels))
    table = Table(TITLE, columns, rows, "wrapped", detail=Detail.FULL)
    return Section("host-boots", TITLE, (table, Paragraph(READING, "note", Detail.FULL)), TITLE)


def _said(boot: Json) -> dict[str, str]:
    """Vulnerability -> first words of the kernel's report."""
    found = boot.get("mitigations")
    return {name: str(text).partition(";")[0] for name, text in found.items()} if isinstance(found, dict) else {}
