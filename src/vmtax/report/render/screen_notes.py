"""The notes below the table of the first screen: how to read it, what to doubt, and the conclusions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.text import Text

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.hosts import other_kernels
from vmtax.analysis.summary import Contrast, KeyFigure, Summary
from vmtax.core.notices import MEANINGS, Code
from vmtax.core.units import at_most, format_cost, printable
from vmtax.report.sections.summary import nothing_compared
from vmtax.report.wording.figures import briefly
from vmtax.report.wording.layers import SHORT, contrast_name
from vmtax.report.wording.ledger import in_words
from vmtax.report.wording.rankings import decided

MOST_LABELS, MOST_DECISIONS = 3, 3
LINE = 80  # most characters of a line
MAIN = 2  # costs of a figure that every screen shows: of a VM and of nesting, if there is no container
MOST_FOOTNOTES = 3  # lines
MOST_ALSO = 2  # lines


@dataclass
class Footnotes:
    """Doubts about single figures, numbered in order of appearance."""

    common: frozenset[Code]  # about more than half of the figures: these get no number
    numbers: dict[Code, int] = field(default_factory=dict)

    def of_row(self, figure: KeyFigure) -> str:
        """The numbers that apply to all costs of a figure, placed after its name."""
        return self.marks(self._of_all(figure.contrasts))

    def of_costs(self, figure: KeyFigure) -> list[str]:
        """The numbers for each cost alone; doubts about the third cost, which not every screen shows, are added to
        another one.
        """
        every = self._of_all(figure.contrasts)
        return [
            self.marks([code for code in one.notes if code not in every]) if one and number < MAIN else ""
            for number, one in enumerate(figure.contrasts)
        ]

    def _of_all(self, row: Sequence[Contrast | None]) -> list[Code]:
        """Doubts about all costs; a cost without an interval has room for its own."""
        main = [one for one in row[:MAIN] if one is not None]
        if len(main) < 2 or any(one.low is None for one in main):
            return []
        return [code for code in main[0].notes if all(code in one.notes for one in main)]

    def marks(self, codes: Sequence[Code]) -> str:
        noted = [code for code in codes if code not in self.common]
        return "".join(f"[{self.numbers.setdefault(code, len(self.numbers) + 1)}]" for code in noted)


def reading(found: Summary, analysis: Analysis, *, floors: bool) -> Iterator[Text]:
    """How to read the costs, and which of them may be none. `floors`: the noise floor is shown beside each figure."""
    if not found.contrasts:
        if not analysis.comparisons and analysis.survival is not None:
            return
        yield Text(_why_nothing_is_compared(found, analysis))
        return
    contrasts = [one for figure in found.figures for one in figure.contrasts if one is not None]
    ranges = any(one.low is not None for one in contrasts)
    whom = f", {analysis.sides.other} against {analysis.sides.own}" if analysis.sides else ""
    with_ranges = f", with 95 % intervals{_clear(found, analysis)}" if ranges else ""
    noise = f" {_noise(found, by_figure=floors, same=any(one.same for one in contrasts))}" if found.floors else ""
    yield Text(f"Costs: time for the same work{whom}{with_ranges}.{noise}", style="dim")
    if all(one.verdict == "too few rounds" for one in contrasts):
        rounds = max(one.rounds for one in contrasts)
        yield Text(f"Too few rounds ({rounds}) for intervals: no cost has a range.", "yellow")
    unclear = _not_shown(found)
    if floors and any(figure.metric.name.endswith("local_seconds_per_byte") for figure in found.figures):
        yield Text("iperf3's CPU: iperf3 on the measured machine, without what QEMU does for it.", style="dim")
    if (used := _used(found, analysis)) is not None:
        yield Text(printable(used), style="dim")
    if other_kernels(analysis.experiment):
        yield Text("Host and guests run different kernels: part of a cost may be theirs.", style="dim")
    if not analysis.sides:
        yield from _highest(found)
        if unclear:
            yield _plain(f"No cost shown{_emulated(found)} (range has 0): {unclear}.")


def _clear(found: Summary, analysis: Analysis) -> str:
    """That every cost of these figures, including those of other configurations, is shown to be one, where that is so:
    it has an interval without 0, and is not that of a guest against itself.
    """
    metrics = {figure.metric for figure in found.figures}
    every = [one for one in analysis.comparisons if one.metric in metrics and one.treatment not in analysis.repeats]
    same = any(one.same for figure in found.figures for one in figure.contrasts if one is not None)
    clear = not same and all(one.verdict in ("worse", "better") for one in every)
    return "; each is larger than chance" if clear else ""


def _used(found: Summary, analysis: Analysis) -> str | None:
    """Who used the host's CPU in the VM's first network case on the screen or else its first one there, which is named
    as its line is; None: it was not read, or an emulator used it.
    """
    if _emulated(found):
        return None
    names = [place.treatment for place in found.places if place.layer != "host"] or [p.treatment for p in found.places]
    labels: dict[tuple[str, str], str] = {}
    for figure in found.figures:
        labels.setdefault((figure.metric.workload, figure.metric.case), figure.label)
    shown = [one for one in analysis.ledger if (one.workload, one.case) in labels]
    own = [one for one in shown if one.treatment.name in names[:1] and "/" not in one.machine]
    chosen = next((one for one in own if one.workload == "net"), own[0] if own else None)
    if chosen is None:
        return None
    name = labels[chosen.workload, chosen.case]
    cores = f"{chosen.cores:.2g}" if chosen.cores < 10 else f"{chosen.cores:.0f}"
    lead = f"In “{name}”, {cores} host cores busy ({chosen.treatment.name}): "
    parts, end = in_words(chosen).split(", "), "."
    while len(lead) + len(", ".join(parts)) + len(end) > LINE and len(parts) > 1:
        end = ", …"  # the rest is in the table
        parts.pop()
    return f"{lead}{', '.join(parts)}{end}"


def _noise(found: Summary, *, by_figure: bool, same: bool) -> str:
    meaning = "; “same”: within it." if same else "."
    if by_figure:
        return f"Noise: guest against itself{meaning}"
    least, most = (format_cost(floor).estimate.lstrip("+") for floor in (found.floors[0], found.floors[-1]))
    what = "Noise floor" if same else "Noise, guest against itself"
    return f"{what}: {most if least == most else f'{least} to {most}'}{meaning}"


def _main(found: Summary) -> Iterator[tuple[str, list[tuple[KeyFigure, Contrast]]]]:
    """For each of the first two columns of costs: its name in sentences, and its costs."""
    layers = {one.treatment: one.layer for one in found.places}
    for number, (low, high) in enumerate(found.contrasts[:MAIN]):
        name = SHORT[layers[high]] if layers[low] == layers[high] else contrast_name(layers[low], layers[high])
        yield name, [(figure, one) for figure in found.figures if (one := figure.contrasts[number]) is not None]


def _highest(found: Summary) -> Iterator[Text]:
    highest = []
    for name, costs in _main(found):
        clear = [(one.ratio, figure) for figure, one in costs if one.verdict == "worse" and not one.same]
        if clear:
            ratio, figure = max(clear, key=lambda pair: pair[0] if math.isfinite(pair[0]) else 0.0)
            highest.append(f"{name} {format_cost(ratio).estimate} ({figure.label})")
    if highest:
        yield _plain(f"Highest{_emulated(found)}: {'; '.join(highest)}.")


def _not_shown(found: Summary) -> str:
    """The costs whose intervals include both signs; "" if there are none."""
    unclear = {
        name: [figure.label for figure, one in costs if one.verdict == "no difference shown"]
        for name, costs in _main(found)
        if costs
    }
    if not any(unclear.values()):
        return ""
    return "; ".join(f"{name}: {', '.join(at_most(MOST_LABELS, labels)) or 'none'}" for name, labels in unclear.items())


def _emulated(found: Summary) -> str:
    """What a sentence about costs adds if one of these columns is emulated."""
    costs = [one for figure in found.figures for one in figure.contrasts[:MAIN] if one is not None]
    return ", emulated" if any(one.emulated for one in costs) else ""


def _why_nothing_is_compared(found: Summary, analysis: Analysis) -> str:
    if len(found.places) == 1 and len(analysis.experiment.treatments) - len(analysis.repeats) == 1:
        return "One configuration was measured, so there is nothing to compare it with."
    if any(one.rounds and one.treatment not in analysis.repeats for one in analysis.comparisons):
        return "Layers are not compared in this run; its configurations are."
    trials = analysis.experiment.trials
    if trials and all(trial.status != "ok" for trial in trials):
        why = (trials[0].error or "no reason that is known").partition("\n")[0].removesuffix(".")
        return f"No trial has a result. The first: {why}."
    return nothing_compared(analysis)


def footnote_lines(footnotes: Footnotes, analysis: Analysis, width: int, *, brief: bool) -> Iterator[Text]:
    """The numbered doubts, then those about the whole run; `brief`: one line each, without what they concern."""
    causes = {cause.code: cause for cause in analysis.causes}
    notes = []
    for code, number in footnotes.numbers.items():
        where = f" ({briefly(causes[code], analysis)})" if code in causes else ""
        notes.append((f"[{number}] {MEANINGS[code].label}", where, MEANINGS[code].effect))
    most = 1 if brief else MOST_FOOTNOTES
    few = len(notes) <= most
    for short, where, effect in notes[: most - (not few)]:
        every = (f"{short}{where}: {effect[0].lower()}{effect[1:]}", f"{short}{where}", short)
        yield _plain(next((text for text in every if len(text) <= width), short))
    if not few:
        yield _plain("; ".join(short for short, *_ in notes[most - 1 :]))
    noted = (*footnotes.numbers, "emulated", "few-rounds")
    rest = [cause for cause in analysis.causes if cause.code not in noted]
    if rest:
        long = "; ".join(dict.fromkeys(f"{MEANINGS[one.code].label} ({briefly(one, analysis)})" for one in rest))
        labels = list(dict.fromkeys(MEANINGS[cause.code].label for cause in rest))
        fits = not brief and len(long) <= MOST_ALSO * (width - 10)  # this leaves space for word wrapping
        lead = "Also" if notes else "Warnings"
        yield _plain(f"{lead}: {long if fits else '; '.join(at_most(MOST_LABELS, labels))}")
    if analysis.comparisons and not analysis.causes:
        yield Text("Warnings: none.", style="dim")


def decisions(analysis: Analysis) -> Iterator[Text]:
    for line in at_most(MOST_DECISIONS, list(decided(analysis))):
        yield _plain(line)


def common(found: Summary) -> Iterator[Code]:
    """Doubts about more than half of the costs; without "too few rounds" if it applies to all, because a line says
    so.
    """
    contrasts = [one for figure in found.figures for one in figure.contrasts if one is not None]
    for code in dict.fromkeys(code for one in contrasts for code in one.notes):
        count = sum(code in one.notes for one in contrasts)
        if count == len(contrasts) or (2 * count > len(contrasts) and code != "few-rounds"):
            yield code


def _plain(text: str, style: str = "") -> Text:
    return Text(printable(text), style=style)
