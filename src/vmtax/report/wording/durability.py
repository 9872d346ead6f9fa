"""Whether flushed data survived, in few words. Pure."""

from __future__ import annotations

from vmtax.analysis.durability import Survival

IN_WORDS = {"yes": "durable", "no": "not durable", "not shown": "not shown to be durable"}


def in_few_words(found: Survival) -> str:
    """For a list of runs: "10 durable, 2 not", or "not durable" if there is one configuration."""
    if len(found.evidence) == 1:
        return IN_WORDS[found.evidence[0].state]
    yes, no, unclear = (len(found.of(state)) for state in ("yes", "no", "not shown"))
    counts = ((yes, "durable"), (no, "not" if yes else "not durable"), (unclear, "not shown"))
    return ", ".join(f"{count} {word}" for count, word in counts if count)
