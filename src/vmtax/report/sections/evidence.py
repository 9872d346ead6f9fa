"""The evidence, for each choice of a run, of whether it has a feature. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.durability import FEATURE as DURABLE
from vmtax.core.errors import BadInput
from vmtax.design.features import Feature
from vmtax.plan.errors import unknown
from vmtax.recommend import DISK, KINDS, NEEDS
from vmtax.report.document import Paragraph, Section, listed
from vmtax.report.sections import durability
from vmtax.workload.durability import NAME as DURABILITY

NO_TRIAL = "tried no power cut, so what is durable is as documented; `vmtax run durability` tries it"
ALL_FAILED = "has no trial of a power cut that did not fail: `vmtax show --full` has the reasons"
NOT_LOOKED = "did not try what its disks can do: measure again with `give_ups: true` in the plan"


def sections(analysis: Analysis, feature: str) -> tuple[Section, ...]:
    """Raises BadInput if `feature` is none, or if the run has no information about it; the text is one line."""
    if feature not in NEEDS:
        raise BadInput(f"--why: {unknown('feature', feature, NEEDS)}")
    run = analysis.experiment.id
    if feature == DURABLE:
        found = durability.evidence(analysis)
        if not found:
            tried = any(trial.workload == DURABILITY for trial in analysis.experiment.trials)
            raise BadInput(f"--why {feature}: run {run} {ALL_FAILED if tried else NO_TRIAL}")
        return found
    kind = next(kind for kind in KINDS if feature in kind.features)
    known = kind.looked_at(analysis)
    lines = tuple(_lines(feature, [(name, known[name]) for name in known]))
    if not lines:
        why = NOT_LOOKED if kind is DISK else f"has no {kind.ways}"
        raise BadInput(f"--why {feature}: run {run} {why}")
    what = Paragraph(f"A {kind.name} that has it {kind.features[feature]}.", "note")
    return (Section("evidence", f"Evidence: {feature}", (listed(lines), what)),)


def _lines(name: str, known: Sequence[tuple[str, Sequence[Feature]]]) -> Iterator[str]:
    """One line for each choice that was checked."""
    for treatment, features in known:
        for feature in features:
            if feature.name == name:
                source = "; ".join(filter(None, (feature.words, feature.how)))
                yield f"{treatment}: {feature.state}{f' ({source})' if source else ''}"
