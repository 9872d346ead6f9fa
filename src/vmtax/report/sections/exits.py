"""How often guests exited to KVM in each workload, and why. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.exits import Exits
from vmtax.core.units import at_most, format_value
from vmtax.report.document import (
    Block,
    Column,
    Item,
    List,
    Paragraph,
    Row,
    Section,
    Span,
    Table,
    name_cell,
    value_cell,
)
from vmtax.workload import words
from vmtax.workload.cpuid import INSTRUCTION

PRICE = "What one exit costs"
PRICE_READING = (
    "The time of a cpuid instruction, which in a guest is one exit to KVM and the way back. Beyond the host's: how much"
    " longer it takes than on the host. A nested VM exits to the KVM in its outer VM, which may exit several times for"
    " each of them. Exits are counted for each instruction, with those of timers and of the program's start."
)
TITLE = "Exits to KVM"
READING = (
    "KVM counts them, all vCPUs of a guest together, from before a command until after it, so they include the start of"
    " its program. What an operation is, the workload says: a read, a cpuid instruction. A dash: it counts none."
)
NO_REASONS = (
    Span("--vary guest.exit_trace=on", "code"),
    Span(" also shows why a guest exits; it makes each exit a little slower."),
)
REASONS = "Reasons: the two most frequent, each with its share of the exits."
MOST = 2  # reasons per row
CYCLES = (
    "Cycles in the host: the share of the CPU cycles of a guest's QEMU that was spent outside of guest code, as the CPU"
    " itself counts them: exits, devices, and vhost since Linux 6.4. A dash: they were not counted."
)


def section(analysis: Analysis) -> Section | None:
    """None if no guest ran a command."""
    found = analysis.exits
    counted = [one for one in found if one.why_not is None]
    has_reasons = any(one.reasons for one in counted)
    has_cycles = any(one.host_cycles is not None for one in counted)
    rows: list[Row] = []
    for (name, path), members in groupby(counted, key=lambda one: (one.treatment.name, one.machine)):
        rows.append(Row((name_cell(f"{name}: {path}", emulated=name in analysis.emulated),)))
        rows += (_row(one, has_reasons=has_reasons, has_cycles=has_cycles) for one in members)
    columns = (
        *(Column("workload"), Column("per operation"), Column("per second")),
        *((Column("reasons", words=True),) if has_reasons else ()),
        *((Column("cycles in the host"),) if has_cycles else ()),
    )
    table = Table(TITLE, columns, tuple(rows), "settings")
    texts = (READING, REASONS if has_reasons else NO_REASONS, *((CYCLES,) if has_cycles else ()))
    notes = [Paragraph(text, "note") for text in texts]
    missing = List(tuple(map(Item, _missing(found))))
    price = _price(analysis) if rows else ()
    blocks = (*price, *((table, *notes) if rows else ()), *((missing,) if missing.items else ()))
    return Section("exits", TITLE, blocks, TITLE) if blocks else None


def _price(analysis: Analysis) -> tuple[Block, ...]:
    """A row for each configuration in which cpuid was measured; nothing if there is none."""
    took = [
        (each, analysis.medians[INSTRUCTION, each.name])
        for each in analysis.experiment.treatments
        if each.repeats is None and (INSTRUCTION, each.name) in analysis.medians
    ]
    if all(treatment.layer == "host" for treatment, _ in took):
        return ()
    rows = []
    for treatment, seconds in took:
        name = treatment.name
        host = None if treatment.layer == "host" else _host_of(name, analysis)
        mine = [one for one in analysis.exits if (one.treatment.name, one.workload) == (name, INSTRUCTION.workload)]
        deepest = max((one.machine.count("/") for one in mine), default=0)
        counted = [next((one for one in mine if one.machine.count("/") == at), None) for at in (deepest, deepest - 1)]
        figures = (
            format_value(seconds, INSTRUCTION.unit),
            "–" if host is None else format_value(seconds - host, INSTRUCTION.unit),
            *("–" if one is None or one.per_operation is None else _rate(one.per_operation) for one in counted),
        )
        rows.append(Row((name_cell(name, emulated=name in analysis.emulated), *map(value_cell, figures))))
    heads = ("configuration", "one cpuid", "beyond the host's", "its exits", "exits of its outer VM")
    return (Table(PRICE, tuple(map(Column, heads)), tuple(rows), "settings"), Paragraph(PRICE_READING, "note"))


def _host_of(treatment: str, analysis: Analysis) -> float | None:
    """Seconds of a cpuid on the host with which this guest is compared; None if there is no such host."""
    hosts = {each.name for each in analysis.experiment.treatments if each.layer == "host"}
    compared = (one.baseline for one in analysis.comparisons if (one.metric, one.treatment) == (INSTRUCTION, treatment))
    return next((analysis.medians.get((INSTRUCTION, name)) for name in compared if name in hosts), None)


def _row(one: Exits, *, has_reasons: bool, has_cycles: bool) -> Row:
    per_operation = "–" if one.per_operation is None else _rate(one.per_operation)
    figures = (value_cell(per_operation), value_cell(_rate(one.per_second or 0.0)))
    named = [f"{name} {100 * share:.0f} %" for name, share in [*one.reasons.items()][:MOST]]
    reasons = (value_cell(", ".join(named) or "–"),) if has_reasons else ()
    share = "–" if one.host_cycles is None else f"{100 * one.host_cycles:.1f} %"
    cycles = (value_cell(share),) if has_cycles else ()
    name = name_cell(" ".join(filter(None, (words.title(one.workload), one.case))))
    return Row((name, *figures, *reasons, *cycles))


def _rate(value: float) -> str:
    """Three digits, or all before the decimal point: a spinning loop has few exits, cpuid many."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value >= 0.001 or value == 0 else "< 0.001"


def _missing(found: tuple[Exits, ...]) -> Iterator[str]:
    """A sentence for each reason why exits were not counted, with the configurations."""
    reasons = dict.fromkeys(one.why_not for one in found if one.why_not)
    for why in reasons:
        names = dict.fromkeys(one.treatment.name for one in found if one.why_not == why)
        yield f"{', '.join(at_most(4, list(names)))}: not counted; {why}"
