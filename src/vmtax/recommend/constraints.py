"""Needs that the user may have of a choice. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from vmtax.core.errors import BadInput
from vmtax.core.records import Treatment
from vmtax.design.features import BY_TRIAL, CARD_FEATURES, FEATURES, Feature
from vmtax.recommend.kinds import ChoiceKind

NEEDS = (*FEATURES, *CARD_FEATURES)  # values of --needs


class BadNeeds(BadInput):
    """`--needs` names something that is no feature; the text lists the features."""


def parse_needs(text: str) -> tuple[str, ...]:
    """Convert "durable,savevm" to a tuple without duplicates; () for an empty text. Raises BadNeeds."""
    names = [name for name in (part.strip() for part in text.split(",")) if name]
    for name in names:
        if name not in NEEDS:
            close = difflib.get_close_matches(name[:100], NEEDS, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise BadNeeds(f"--needs: unknown need {name[:60]!r}; {hint}legal: {', '.join(NEEDS)}")
    return tuple(dict.fromkeys(names))


def unmet(kind: ChoiceKind, features: Sequence[Feature], treatment: Treatment, needs: Sequence[str]) -> Iterator[str]:
    """A reason for each need that is not shown to be met; a feature that was not tried is not shown."""
    states = kind.answers(features, treatment)
    for name in needs:
        feature = states.get(name)
        if feature is None:
            yield f"{name}: this run did not find out"
        elif feature.state != "yes":
            how = f", {BY_TRIAL}" if feature.how == BY_TRIAL else ""
            yield f"{name}: {feature.state}{how}" + (f" ({feature.words})" if feature.words else "")
