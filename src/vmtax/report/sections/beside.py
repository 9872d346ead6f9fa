"""The part beside a page's first screen: the machine, and how certain the figures are. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vmtax.analysis.hosts import hypervisor_below, is_bare_metal, other_kernels
from vmtax.core.notices import MEANINGS
from vmtax.core.records import Experiment
from vmtax.core.units import at_most, count_of, format_cost
from vmtax.report.document import Detail, Paragraph, Section, Sentences, Span, listed, term
from vmtax.report.sections.first import First, Sentence
from vmtax.report.sections.summary import sureness
from vmtax.report.sections.warnings import warnings
from vmtax.report.wording.facts import fact_in_words, flat_facts
from vmtax.report.wording.figures import about
from vmtax.report.wording.guest_settings import builds_of_windows
from vmtax.report.wording.own_program import own_program
from vmtax.workload.durability import KILLED

if TYPE_CHECKING:
    from vmtax.analysis.outliers import Outliers

FACTS = {
    "cpu_model": "CPU",
    "cpus_online": "CPUs",
    "memory_bytes": "memory",
    "os": "system",
    "kernel_release": "kernel",
    "kernel_pack.version": "kernel pack",
    "postgresql_pack.version": "PostgreSQL pack",
}
MOST_CAUSES = 5  # of warnings


def builds(run: Experiment) -> Section | None:
    """What the figures of a Windows can be compared with; None if there is none."""
    words = builds_of_windows(run.facts)
    return Section("builds", "", (Paragraph(words, "note"),), place="first") if words else None


def machine(run: Experiment) -> Section:
    """The host under test."""
    host = run.facts.get("host")
    facts = dict(flat_facts(host)) if isinstance(host, dict) else {}
    lines: list[Sentence] = [
        (words, ((Span(fact_in_words(name, facts)),),)) for name, words in FACTS.items() if name in facts
    ]
    if program := own_program(run):
        lines.insert(0, ("command", ((Span(program, "code"),),)))
    if (below := hypervisor_below(run)) is not None:
        lines.append(("is itself", ((Span(f"a VM (under {below}): its VM is a nested one already"),),)))
    elif is_bare_metal(run):
        lines.append(("is itself", ((Span("no VM (bare metal)"),),)))
    if accelerators := dict.fromkeys(boot.accelerator for boot in run.boots):
        lines.append(("guests on", ((Span(" and ".join(map(_accelerator, accelerators))),),)))
    if others := other_kernels(run):
        has_host = any(treatment.layer == "host" for treatment in run.treatments)
        doubt = ": part of a cost may be the kernel's" if has_host else ""
        lines.append(("kernel of guests", ((Span(f"{' and '.join(others)}{doubt}"),),)))
    return Section("machine", "The machine", (Sentences(tuple(lines), Detail.PAGE),), place="beside")


def _accelerator(name: str) -> str:
    return "an emulated CPU (TCG)" if name == "tcg" else name.upper()


def sure(shown: First, outliers: Outliers) -> Section:
    """How certain the figures are."""
    causes = warnings(shown.analysis)
    texts = [f"{MEANINGS[one.code].label}: {about(one, shown.analysis)}" for one in causes]
    counted = Sentences(tuple(_sure(shown, outliers, len(causes))), Detail.PAGE)
    return Section("sure", "How sure", (counted, listed(at_most(MOST_CAUSES, texts))), place="beside")


def _sure(shown: First, outliers: Outliers, warned: int) -> Iterator[Sentence]:
    counted, rounds = sureness(shown.analysis), shown.analysis.rounds
    order = "" if rounds == 1 else ", each with every configuration in random order"
    yield "rounds", ((Span(f"{rounds}{order}"),),)
    if counted.comparisons or shown.analysis.survival is None:
        intervals = f"{counted.intervals} of {counted.comparisons} comparisons have a 95 % "
        yield "intervals", ((Span(intervals), term("interval")),)
    if (found := shown.analysis.survival) is not None:
        states = sum(end.count.states for one in found.evidence for end in one.ends if end.end != KILLED)
        tried = count_of(len(found.evidence), "configuration")
        yield (
            "power cuts",
            ((Span(f"{count_of(states, 'state')} in {tried}", "link", "durability"),),),
        )
    if floors := shown.summary.floors:
        least, most = (format_cost(floor).estimate.lstrip("+") for floor in (floors[0], floors[-1]))
        yield "noise floor", ((Span(most if least == most else f"{least} to {most}", "link", "noise"),),)
    yield "failed", ((Span(f"{counted.failed or 'none'} of {count_of(counted.trials, 'trial')}", "link", "doubts"),),)
    if outliers.values:
        yield (
            "outliers",
            ((Span(f"{len(outliers.found) or 'none'} in {outliers.values} values", "link", "outliers"),),),
        )
    yield "warnings", ((Span(f"{warned or 'none'}", "link", "doubts"),),)
