"""What each setting of a VM of the user's costs it, with the change that makes it. Pure."""

from __future__ import annotations

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.summary import label
from vmtax.core.records import Comparison
from vmtax.core.units import format_cost, time_ratio
from vmtax.existing.prices import SHOWN, SettingPrice, prices
from vmtax.report.document import Code, Detail, Paragraph, Section

READING = "Time for the same work, against the VM with the first level of each setting, all others being equal."


def section(analysis: Analysis) -> Section | None:
    """None if the run measured no difference between settings of a VM of the user's."""
    found = prices(analysis)
    if not any(each.costs for each in found):
        return None
    vm = str((analysis.experiment.options.get("existing") or {}).get("name", "your VM"))
    title = f"What each setting costs {vm}"
    blocks: list[Paragraph | Code] = []
    for each in found:
        blocks.append(Paragraph(f"{each.factor}={each.level} in place of {each.first}: {_costs(analysis, each)}."))
        if line := _change(vm, each):
            blocks.append(Code((line,)))
    return Section("prices", title, (*blocks, Paragraph(READING, "note", Detail.FULL)), title)


def _costs(analysis: Analysis, price: SettingPrice) -> str:
    if not price.costs:
        return "not measured"
    verdicts = {one.verdict for one in price.costs}
    common = verdicts.pop() if len(verdicts) == 1 and not verdicts & {*SHOWN} else ""
    conditions = [common, "emulated" if any(map(analysis.is_emulated, price.costs)) else ""]
    together = "; ".join(filter(None, conditions))
    figures = ", ".join(_in_words(one, common) for one in price.costs)
    return f"{figures} ({together})" if together else figures


def _in_words(one: Comparison, common: str) -> str:
    cost = format_cost(*time_ratio(one.metric.better, one.ratio, one.low, one.high))
    return f"{label(one.metric)} {cost}{'' if one.verdict in (*SHOWN, common) else f' ({one.verdict})'}"


def _change(vm: str, each: SettingPrice) -> str:
    return f"virsh edit {vm.removeprefix('libvirt:')}   # {each.change}" if each.change else ""
