"""Describe sets of figures: "all figures of the nested VM", "12 disk figures of the VM". Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.notices import Cause, Figure
from vmtax.core.records import Metric
from vmtax.core.units import at_most, format_row
from vmtax.report.wording.layers import THE
from vmtax.workload.words import bytes_of, name, title, within

CPU_TIME = "CPU\N{MIDDLE DOT}"
MOST_NAMES, MOST_ROUNDS = 3, 6  # in a list; the rest is counted


def amounts(metric: Metric, values: Sequence[float | None]) -> tuple[str, list[str]]:
    """Values of a row whose name says what they are, and their common unit: ("IOPS", ["1150", "803"])."""
    if size := bytes_of(metric):
        return format_row([None if value is None else size * value for value in values], "B/s")
    unit, texts = format_row(values, metric.unit)
    if metric.measure == "iops":
        return f"{unit.removesuffix('/s')}IOPS", texts
    return unit.removeprefix(CPU_TIME), texts  # the name says that it is CPU time


def about(cause: Cause, analysis: Analysis) -> str:
    """What a cause concerns, such as "3 disk figures of the VM, in round 2"."""
    figures = figures_in_words(cause.concerned, analysis)
    if not figures:
        figures = f"all figures of {_names(cause.treatments)}" if cause.treatments else "all figures"
    return f"{figures}, in {_rounds(cause.rounds)}" if cause.rounds else figures


def briefly(cause: Cause, analysis: Analysis) -> str:
    """The same for a line of a screen: "disk and memory", "boot of the nested VM, in round 3"."""
    compared = {metric.partition(".")[0] for metrics in _every(analysis).values() for metric in metrics}
    mine = dict.fromkeys(metric.partition(".")[0] for metric, _ in sorted(cause.concerned))
    what = "" if set(mine) >= compared else _joined([within(title(workload)) for workload in mine])
    concerned = {name for _, name in cause.concerned} | set(cause.treatments)
    names = [one.name for one in analysis.experiment.treatments if one.name in concerned - analysis.repeats]
    where = "" if concerned >= set(_every(analysis)) else _names(names)
    text = " of ".join(filter(None, (what, where))) or "all figures"
    return f"{text}, in {_rounds(cause.rounds)}" if cause.rounds else text


def figures_in_words(figures: Collection[Figure], analysis: Analysis) -> str:
    """Such as "all disk figures of the VM and the nested VM; 2 boot figures of the VM"; "" if there are none."""
    mine = _by_treatment([pair for pair in figures if pair[1] not in analysis.repeats] or figures)
    order = [treatment.name for treatment in analysis.experiment.treatments if treatment.name in mine]
    every = _every(analysis)
    if set(every) <= set(mine) and all(set(mine[one]) >= set(metrics) for one, metrics in every.items()):
        return "all figures"
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)  # description -> treatments
    for treatment in order:
        whole = treatment in every and set(mine[treatment]) >= set(every[treatment])
        what = ("all figures",) if whole else _some(mine[treatment], every.get(treatment, ()), analysis)
        alike[what].append(treatment)
    parts = []
    for what, names in alike.items():
        each = " each" if len(names) > 1 and any(phrase[0].isdigit() for phrase in what) else ""
        parts.append(f"{_joined(what)}{each} of {_names(names)}")
    return "; ".join(at_most(MOST_NAMES, parts))


def _some(metrics: Collection[str], every: Collection[str], analysis: Analysis) -> tuple[str, ...]:
    """For one treatment, by workload: "all CPU figures", "3 disk figures", "memory stream bandwidth"."""
    known = {metric.name: metric for metric, *_ in analysis.contrasts}
    found = []
    for workload, mine in _by_workload(metrics).items():
        one = known.get(next(iter(mine))) if len(mine) == 1 else None
        called = within(name(one) if one else title(workload))
        all_of_it = {metric for metric in every if metric.startswith(f"{workload}.")} <= set(mine)
        found.append(called if one else f"{'all' if all_of_it else len(mine)} {called} figures")
    return tuple(found)


def _every(analysis: Analysis) -> dict[str, list[str]]:
    """What is compared: the metrics of each treatment that has a baseline, and of those that are only baselines. If
    nothing is: what was measured.
    """
    above, below = defaultdict(list), defaultdict(list)
    for found in analysis.comparisons:
        if found.treatment not in analysis.repeats:
            above[found.treatment].append(found.metric.name)
            below[found.baseline].append(found.metric.name)
    if not above:
        for metric, treatment in analysis.boot_numbers:
            if treatment not in analysis.repeats:
                above[treatment].append(metric.name)
    return {**below, **above}


def _by_treatment(figures: Collection[Figure]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for metric, treatment in sorted(figures):
        found[treatment].append(metric)
    return found


def _by_workload(metrics: Collection[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for metric in metrics:
        found[metric.partition(".")[0]].append(metric)
    return found


def _names(treatments: Sequence[str]) -> str:
    if len(treatments) > MOST_NAMES + 1:
        return f"{len(treatments)} configurations"
    return _joined([THE.get(name, name) for name in treatments])


def _rounds(numbers: Sequence[int]) -> str:
    if len(numbers) > MOST_ROUNDS:
        return f"{len(numbers)} rounds"
    return f"round{'s' if len(numbers) > 1 else ''} {_joined([str(number) for number in numbers])}"


def _joined(texts: Sequence[str]) -> str:
    if len(texts) > 1 and not texts[-1].startswith("and "):
        texts = [*texts[:-1], f"and {texts[-1]}"]
    return " ".join(texts) if len(texts) == 2 else ", ".join(texts)
