"""The findings in words: one sentence per resource, and one about all of them. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.comparisons import side_contrasts
from vmtax.analysis.effects import Effect, effect
from vmtax.analysis.emulation import host_path, is_emulated, on_emulated_hosts
from vmtax.core.layers import CONTRASTS, EXISTING
from vmtax.core.records import Metric
from vmtax.core.units import MINUS, TIMES, Cost, format_cost, format_duration
from vmtax.design.topology import none_alike
from vmtax.report.document import Block, Detail, Paragraph, Section, Sentences, Span, listed, term
from vmtax.report.wording.cost import NOT_A_COST, SAME_WORK, cost
from vmtax.report.wording.layers import THE
from vmtax.report.wording.rankings import decided
from vmtax.workload.boot import READY
from vmtax.workload.words import phrase, title, within

LAYER_NAMES = {name: the for name, the in THE.items() if name != "host"}
CONFIDENCE = "95 %"
NOTHING_COMPARED = "Nothing can be compared: no round has a result on two sides."
NONE_ALIKE = "No cost has an interval: no two configurations have the same number of guests at once."


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence about one resource."""

    resource: str  # "CPU", "Memory", "Disk", "Network", "Boot", or another workload's title
    metric: Metric
    parts: tuple[Span, ...]

    @property
    def sentence(self) -> str:
        return "".join(part.text for part in self.parts)


@dataclass(frozen=True, slots=True)
class Sureness:
    """What the findings are based on, as counts."""

    comparisons: int
    intervals: int  # comparisons that have one
    trials: int
    failed: int  # trials that failed or were refused


def sureness(analysis: Analysis) -> Sureness:
    """What a reader must know before relying on the findings."""
    trials = analysis.experiment.trials
    return Sureness(
        comparisons=len(analysis.comparisons),
        intervals=sum(comparison.low is not None for comparison in analysis.comparisons),
        trials=len(trials),
        failed=sum(trial.status != "ok" for trial in trials),
    )


def findings(analysis: Analysis) -> tuple[Finding, ...]:
    """One sentence for each workload that was compared, in the order of measurement.

    It is about the layers or, if sides are interleaved, about these, because they are the question.
    """
    seen = _Seen(analysis)
    tell = _sentence if analysis.sides is None else _side_sentence
    return tuple(
        Finding(title(workload), metric, tuple(_capitalised(tell(metric, seen))))
        for workload, metric in analysis.headline_metrics.items()
    )


def headline(analysis: Analysis) -> str | None:
    """The range of the costs of VM and nested VM over the resources; None if there is no range.

    Also None if sides are interleaved, because each has its own.
    """
    if analysis.sides is not None:
        return None
    seen = _Seen(analysis)
    clauses: list[str] = []
    for layer, name in LAYER_NAMES.items():
        found = [seen.effect(metric, "host", layer) for metric in analysis.headline_metrics.values()]
        known = sorted((one for one in found if one and one.low is not None), key=lambda one: one.times[0])
        if len(known) >= 2:
            least, most = (_of_resource(effect) for effect in (known[0], known[-1]))
            clauses.append(f"{name} costs between {least} and {most}")
    lead = "Against the host, by one figure of each resource, "
    return f"{lead}{', and '.join(clauses)} in time for the same work." if clauses else None


def nothing_compared(analysis: Analysis) -> str:
    """Why a run compares nothing."""
    own = [treatment for treatment in analysis.experiment.treatments if treatment.repeats is None]
    return NONE_ALIKE if len(own) > 1 and none_alike(own) else NOTHING_COMPARED


def section(analysis: Analysis) -> Section | None:
    """What was found; None for a run that compares nothing, because it tried durability."""
    found = findings(analysis)
    if not found and analysis.survival is not None:
        return None
    blocks: list[Block] = []
    if over := headline(analysis):
        blocks.append(Paragraph(over, "headline"))
    if found:
        blocks.append(Sentences(tuple((finding.resource, (finding.parts,)) for finding in found)))
    else:
        blocks.append(Paragraph(nothing_compared(analysis)))
    reading = (
        Span(f"In parentheses: the {CONFIDENCE} "),
        term("interval"),
        Span(", which holds the true figure in 95 of 100 such runs; one that includes 0 % shows no difference. The "),
        term("nested"),
        Span(" VM is set against a VM of the same size."),
    )
    return Section("findings", "In sentences", (*blocks, Paragraph(reading, "note", Detail.PAGE)), "In sentences")


def decisions(analysis: Analysis) -> Section | None:
    """The answers to the plan's question; None if it has none."""
    answers = tuple(decided(analysis))
    return Section("decisions", "Decisions", (listed(answers),)) if answers else None


def banner(analysis: Analysis) -> str | None:
    """The warning that must be above the figures of an emulated run; None for any other."""
    experiment, emulated = analysis.experiment, analysis.emulated
    if not emulated:
        return None
    on_hosts = on_emulated_hosts(experiment.treatments, experiment.facts)
    own = [treatment for treatment in experiment.treatments if treatment.layer != EXISTING]
    if not own and not is_emulated(experiment.facts, "host"):
        return f"The VM is emulated (TCG), and so is every figure. {NOT_A_COST}"
    if on_hosts.issuperset(treatment.name for treatment in experiment.treatments):
        two = len({host_path(treatment) for treatment in own}) > 1
        hosts = "Both hosts under test are themselves" if two else "The host under test is itself"
        return f"{hosts} emulated (TCG), and so is every figure, also of guests on KVM. {NOT_A_COST}"
    guests = {treatment.name for treatment in experiment.treatments if treatment.layer != "host"}
    named = ", ".join(treatment.name for treatment in experiment.treatments if treatment.name in emulated)
    which = "Every guest" if emulated == guests else named
    shows = "This run only demonstrates the report. " if experiment.options.get("demonstration") else ""
    return f"{shows}{which} ran on an emulated CPU (TCG). {NOT_A_COST}"


class _Seen:
    """The comparisons between the first treatments of the layers."""

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self.first = {layer: treatment.name for layer, treatment in analysis.first_treatments().items()}

    def effect(self, metric: Metric, low: str, high: str) -> Effect | None:
        """The cost of layer `high` against layer `low`."""
        return effect(self.analysis, metric, self.first.get(low, ""), self.first.get(high, ""))

    @property
    def instead(self) -> str:
        """The sentence if no two layers have this metric."""
        treatments = self.analysis.experiment.treatments
        if len(treatments) - len(self.analysis.repeats) > len(self.first):
            return "the layers were not compared; the settings are, below"
        return "nothing was compared but a guest with itself, below"

    def boot_seconds(self, metric: Metric, layer: str) -> float | None:
        """Median time from launch to the first answer of the layer's first treatment, over rounds."""
        return self.analysis.medians.get((metric, self.first.get(layer, "")))


def _sentence(metric: Metric, seen: _Seen) -> Iterator[Span]:
    found = {pair: one for pair in CONTRASTS if (one := seen.effect(metric, *pair))}
    if ("host", "vm") in found or ("vm", "nested") in found:
        found.pop(("host", "nested"), None)  # these two say it
    clauses = [
        list(_boot_times(metric, seen)) if metric.name == READY.name else [],
        *(list(_cost(one, THE[high], THE[low])) for (low, high), one in found.items()),
    ]
    yield from _clauses(metric, [clause for clause in clauses if clause] or [[Span(seen.instead)]])
    yield from _few([*found.values()])
    yield Span(".")


def _clauses(metric: Metric, clauses: Sequence[Sequence[Span]]) -> Iterator[Span]:
    """The clauses, after their subject."""
    if metric.name != READY.name:
        yield Span(f"{phrase(metric)}: ")
    for number, clause in enumerate(clauses):
        yield from ((Span("; "),) if number else ())
        yield from clause


def _side_sentence(metric: Metric, seen: _Seen) -> Iterator[Span]:
    """The other side against the plan's own, layer by layer."""
    sides = seen.analysis.sides
    assert sides is not None
    there, here = sides.where(own=False), sides.where(own=True)
    other = dict(side_contrasts(seen.analysis.experiment.treatments))  # name on the plan's own side -> on the other
    found = {
        layer: one
        for layer, name in seen.first.items()
        if (one := effect(seen.analysis, metric, name, other.get(name, "")))
    }
    clauses = [list(_cost(one, f"{THE[layer]} {there}", f"that {here}")) for layer, one in found.items()]
    yield from _clauses(metric, clauses or [[Span("the sides were not compared")]])
    yield from _few([*found.values()])
    yield Span(".")


def _few(effects: Sequence[Effect]) -> Iterator[Span]:
    """The doubt about estimates without an interval."""
    rounds = {effect.comparison.rounds for effect in effects if effect.low is None and effect.comparison.rounds}
    if rounds:
        yield Span(": ")
        yield Span("too few rounds", "strong")
        yield Span(f" ({' and '.join(map(str, sorted(rounds)))}) for an interval")


def _boot_times(metric: Metric, seen: _Seen) -> Iterator[Span]:
    for layer, name in LAYER_NAMES.items():
        seconds = seen.boot_seconds(metric, layer)
        if seconds is None:
            continue
        yield Span(f"{name} answers its first command after " if layer == "vm" else f", {name} after ")
        yield Span(format_duration(seconds), "strong")
        yield Span(" (emulated)" if seen.first[layer] in seen.analysis.emulated else "")


def _cost(effect: Effect, who: str, whom: str) -> Iterator[Span]:
    """The cost of one against another, for the same work."""
    if math.isnan(effect.fraction):
        yield from (Span("not measured", "strong"), Span(f": {who} against {whom}, for no round has both sides"))
        return
    spent = cost(effect.comparison.metric).removesuffix(f" {SAME_WORK}")
    if effect.comparison.verdict == "no difference shown":
        amount = format_cost(*effect.times)
        yield Span(f"no difference of {who} from {whom} is shown", "strong")
        text = f"{amount.estimate}, {amount.interval}" if amount.low else amount.estimate
        yield Span(f" ({text}{', emulated' if effect.emulated else ''})")
        return
    yield Span(f"{'so far ' if effect.low is None else ''}{who} takes ")
    yield from _amount(format_cost(*effect.times), spent, whom)
    yield Span(" (emulated)" if effect.emulated else "")


def _amount(cost: Cost, spent: str, whom: str) -> Iterator[Span]:
    """A cost worded so that it and its interval are positive: "3.1 % (2.4–3.9) more time than the host"."""
    estimate, low, high = cost.estimate, cost.low, cost.high
    tail = f" more {spent} than {whom}"
    if estimate.endswith(TIMES):
        tail = f" the {spent} of {whom}"
    elif estimate.startswith(MINUS):
        low, high, tail = high.removeprefix(MINUS), low.removeprefix(MINUS), f" less {spent} than {whom}"
    yield Span(estimate.lstrip(f"+{MINUS}"), "strong")
    if low:
        yield Span(f" ({low}–{high})", "interval")
    yield Span(tail)


def _of_resource(effect: Effect) -> str:
    """Such as "+3.1 % (memory)"."""
    resource = title(effect.comparison.metric.workload)
    amount = "nothing that can be shown" if effect.unclear else format_cost(*effect.times).estimate
    doubt = ", emulated" if effect.emulated else ""
    return f"{amount} ({within(resource)}{doubt})"


def _capitalised(parts: Iterable[Span]) -> Iterator[Span]:
    for number, part in enumerate(parts):
        yield part if number else Span(part.text[:1].upper() + part.text[1:], part.kind)
