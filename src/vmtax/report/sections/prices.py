"""What each setting of a VM of the user's costs it, with the change that makes it. Pure."""

from __future__ import annotations

from vmtax.analysis.analysis import Analysis
from vmtax.core.records import Comparison
from vmtax.core.units import format_cost, time_ratio
from vmtax.existing.prices import SettingPrice, prices
from vmtax.report.document import Code, Detail, Paragraph, Section
from vmtax.workload.words import name

READING = "Time for the same work, against the VM with the first level of each setting, all others being equal."


def section(analysis: Analysis) -> Section | None:
    """None if the run compared no settings of a VM of the user's."""
    found = prices(analysis)
    if not found:
        return None
    vm = str((analysis.experiment.options.get("existing") or {}).get("name", "your VM"))
    title = f"What each setting costs {vm}"
    blocks: list[Paragraph | Code] = []
    for each in found:
        costs = "; ".join(_in_words(analysis, one) for one in each.costs) or "not measured"
        blocks.append(Paragraph(f"{each.factor}={each.level} in place of {each.first}: {costs}."))
        if line := _change(vm, each):
            blocks.append(Code((line,)))
    return Section("prices", title, (*blocks, Paragraph(READING, "note", Detail.FULL)), title)


def _in_words(analysis: Analysis, one: Comparison) -> str:
    emulated = ", emulated" if analysis.is_emulated(one) else ""
    cost = format_cost(*time_ratio(one.metric.better, one.ratio, one.low, one.high))
    chance = "" if one.verdict in ("worse", "better") else f", {one.verdict}"
    return f"{name(one.metric)} {cost}{chance}{emulated}"


def _change(vm: str, each: SettingPrice) -> str:
    return f"virsh edit {vm.removeprefix('libvirt:')}   # {each.change}" if each.change else ""
