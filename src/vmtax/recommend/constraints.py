"""What a choice must have: what the user names, and that flushed data are kept. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence

from vmtax.core.errors import BadInput
from vmtax.core.records import Treatment
from vmtax.design.disk import DiskSettings
from vmtax.design.features import DOCUMENTED, FEATURES, Feature, documented_durability
from vmtax.design.settings import UnknownLevel

NEEDS = tuple(FEATURES)  # what --needs takes
LOSS = "data that the guest flushed are lost with the host's power"
Features = Mapping[str, tuple[Feature, ...]]  # of each treatment that the run looked at


class BadNeeds(BadInput):
    """`--needs` names something that is no feature; the text says what there is."""


def parse_needs(text: str) -> tuple[str, ...]:
    """ "durable,savevm" as a tuple, each once; () for an empty text. Raises BadNeeds."""
    names = [name for name in (part.strip() for part in text.split(",")) if name]
    for name in names:
        if name not in NEEDS:
            close = difflib.get_close_matches(name[:100], NEEDS, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise BadNeeds(f"--needs: unknown need {name[:60]!r}; {hint}legal: {', '.join(NEEDS)}")
    return tuple(dict.fromkeys(names))


def durability(features: Sequence[Feature], treatment: Treatment) -> Feature:
    """As the run found it; of a run that did not look, as documented."""
    recorded = next((feature for feature in features if feature.name == "durable"), None)
    if recorded is not None:
        return recorded
    try:
        return documented_durability(DiskSettings.of(treatment.levels))
    except UnknownLevel as error:  # of a run of another version
        return Feature("durable", "not tried", DOCUMENTED, str(error))


def loses_data(features: Sequence[Feature], treatment: Treatment) -> str | None:
    """Why this choice is dangerous whatever else it offers; None where it is not."""
    durable = durability(features, treatment)
    return f"{durable.words}: {LOSS}" if durable.state == "no" else None


def unknown_levels(treatment: Treatment) -> Iterator[str]:
    """Why it is unknown how to make this disk: a run of another version of vmtax has levels that this one lacks."""
    try:
        DiskSettings.of(treatment.levels)
    except UnknownLevel as error:
        yield str(error)


def unmet(features: Sequence[Feature], treatment: Treatment, needs: Sequence[str]) -> Iterator[str]:
    """A reason for each need that is not shown to be met; what was not tried is not shown."""
    states = {feature.name: feature for feature in features} | {"durable": durability(features, treatment)}
    for name in needs:
        feature = states.get(name)
        if feature is None:
            yield f"{name}: this run did not find out"
        elif feature.state != "yes":
            yield f"{name}: {feature.state}" + (f" ({feature.words})" if feature.words else "")
