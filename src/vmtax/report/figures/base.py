"""Common parts of the pictures of which the reader chooses one; all of them are in the page, and CSS shows one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vmtax.core.records import Better
from vmtax.report.picture import Panel

MOST_CHARACTERS = 200_000  # of the drawings of one choice, so that a page stays small


def that_fit(groups: Iterable[Sequence[Panel]]) -> list[Sequence[Panel]]:
    """The first groups whose drawings fit into MOST_CHARACTERS together; at least one."""
    kept: list[Sequence[Panel]] = []
    size = 0
    for group in groups:
        size += sum(len(part.drawing or "") for part in group)
        if kept and size > MOST_CHARACTERS:
            break
        kept.append(group)
    return kept


def times_dearer(better: Better, overhead: float) -> float:
    """An overhead as a multiple of the reference's cost: 50 % of a rate lost and 100 % more time are both 2."""
    return 1 / (1 - overhead) if better == "higher" else 1 + overhead
