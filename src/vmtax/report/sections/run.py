"""Facts about the run itself: its head, notes, machines, and the command that repeats it. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.hosts import cpu_model, host_name, hypervisor_below, is_bare_metal
from vmtax.core.records import Experiment, Json
from vmtax.core.units import count_of, format_duration
from vmtax.report.document import (
    Block,
    Code,
    Column,
    Detail,
    Folded,
    Head,
    Heading,
    Paragraph,
    Row,
    Section,
    Sentences,
    Span,
    Table,
    listed,
    name_cell,
    value_cell,
)
from vmtax.report.sections.summary import banner
from vmtax.report.wording.facts import fact_in_words, fact_label, fact_value, flat_facts

FACTS = {  # shown side by side for each machine -> name for people; the page and the JSON have all facts
    "cpu_model": "CPU",
    "cpus_online": "CPUs",
    "memory_bytes": "memory",
    "os": "system",
    "kernel_release": "kernel",
    "hypervisor": "hypervisor",
}


def head(analysis: Analysis) -> Head:
    """The part above all sections."""
    run, count, sides = analysis.experiment, analysis.rounds, analysis.sides
    name, model, below = host_name(run), cpu_model(run), hypervisor_below(run)
    known = [model] if model and model != name else []
    known += ["bare metal"] if is_bare_metal(run) else [f"a VM under {below}"] if below else []
    about = f" ({', '.join(known)})" if known else ""
    facts = (
        f"on {sides.place(name) if sides else name}{about}",
        f"{datetime.fromtimestamp(run.created, UTC):%Y-%m-%d %H:%M} UTC",
        count_of(count, "round"),
        f"took {format_duration(run.took)}" if run.took is not None else "not finished",
        run.state,
        *(("imported",) if run.options.get("imported") else ()),
        *((f"label {run.label}",) if run.label else ()),
    )
    return Head(run.name, run.id, run.host, facts, run.ended or "", banner(analysis) or "")


def notes(run: Experiment) -> Section:
    none = Paragraph("The run recorded no notes. Trials that failed are listed under Warnings.", detail=Detail.PAGE)
    title = "What limits these figures"
    return Section("notes", title, (listed(run.notes) if run.notes else none,), title)


def repeat(run: Experiment) -> Section:
    name = Paragraph((Span("This run is "), Span(run.id, "code"), Span(".")), "note", Detail.FILE)
    return Section("repeat", "Repeat it", (Code((run.command,)), name), "Repeat it")


def machines(run: Experiment) -> Section:
    """Selected facts side by side, then all facts of each machine, then QEMU's command lines."""
    known = {path: dict(flat_facts(_without_features(facts))) for path, facts in run.facts.items()}
    blocks = (_side_by_side(known), *(_all_facts(path, facts) for path, facts in known.items()), *_command_lines(run))
    return Section("facts", "The machines", blocks, "Machines")


def words(*, emulated: bool) -> Section:
    """The glossary."""
    from vmtax.report.wording.glossary import GLOSSARY

    terms = tuple((term.word, (term.meaning,)) for term in GLOSSARY if emulated or term.word != "emulated")
    return Section("glossary", "Words", (Sentences(terms, Detail.PAGE, glossary=True),), "Words")


def _side_by_side(known: Mapping[str, Mapping[str, str]]) -> Table:
    names = [name for name in FACTS if any(name in facts for facts in known.values())]
    rows = tuple(
        Row((name_cell(path), *(value_cell(fact_in_words(name, facts)) for name in names)))
        for path, facts in known.items()
    )
    columns = (Column("machine"), *(Column(FACTS[name], words=True) for name in names))
    return Table("The machines", columns, rows, "wrapped", detail=Detail.FILE)


def _all_facts(path: str, facts: Mapping[str, str]) -> Folded:
    labelled = ((fact_label(name), fact_value(name, text), name) for name, text in facts.items())
    rows = tuple(Row((name_cell(label, title=name), value_cell(text))) for label, text, name in labelled)
    table = Table(f"Facts of {path}", (Column("fact"), Column("value", words=True)), rows, "facts")
    return Folded(path, (table,), Detail.PAGE)


def _without_features(facts: Json) -> Json:
    """Features of disks, and the boots of the host, have tables of their own."""
    facts = {name: fact for name, fact in facts.items() if name != "boots"}
    disk = facts.get("disk")
    if not isinstance(disk, dict):
        return facts
    return {**facts, "disk": {name: fact for name, fact in disk.items() if name != "features"}}


def _command_lines(run: Experiment) -> Iterator[Block]:
    """QEMU's command lines, from the first boot of each treatment and machine."""
    lines: dict[tuple[str, str], str] = {}
    for boot in run.boots:
        if (boot.treatment, boot.path) not in lines:
            lines[boot.treatment, boot.path] = shlex.join(boot.argv)
    if lines:
        blocks: list[Block] = []
        for (treatment, path), line in lines.items():
            blocks += (Heading(f"{treatment}: {path}"), Code((line,)))
        yield Folded("QEMU command lines", tuple(blocks), Detail.PAGE)
