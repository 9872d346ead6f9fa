"""Assign measurements to boots of the host, in a run that compares how its host is booted. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vmtax.core.records import Experiment, Json, Treatment
from vmtax.design.host import boots_asked, in_words, of_boot, reboots_itself
from vmtax.design.treatments import shuffled_rounds

HOST = "host"  # path of the host under test


@dataclass(frozen=True, slots=True)
class Block:
    """The work of one boot of the host: the treatments of one round that need this boot."""

    round: int  # from 1
    level: str  # of host.kernel_arguments


def shuffled_blocks(treatments: Sequence[Treatment], seed: int) -> Iterator[Block]:
    """The boots of the host for the shuffled rounds of these treatments, in order; endless."""
    for number, order in enumerate(shuffled_rounds(treatments, seed), start=1):
        yield from dict.fromkeys(Block(number, of_boot(treatment)) for treatment in order)


def seed_of(experiment: Experiment) -> int:
    """The seed of the order within its rounds."""
    seed = experiment.plan.get("seed")
    return int(experiment.created) if seed is None else int(seed)


def boots_of(experiment: Experiment) -> list[Json]:
    """The boots of its host that have measured something, in order, as stored in the host's facts."""
    facts = experiment.facts.get(HOST)
    found = facts.get("boots") if isinstance(facts, dict) else None
    return list(found) if isinstance(found, list) else []


def next_block(experiment: Experiment) -> Block:
    """The work for the next boot of its host: the rest of the newest boot's, or the following block."""
    boots, order = boots_of(experiment), shuffled_blocks(experiment.treatments, seed_of(experiment))
    if not boots:
        return next(order)
    newest = Block(boots[-1]["round"], boots[-1]["level"])
    if not boots[-1]["over"]:
        return newest
    rest = itertools.dropwhile(lambda block: block != newest and block.round <= newest.round, order)
    following = next(rest)  # where a stored boot is none of the order's, it is of the next round
    return next(rest) if following == newest else following


def how_to_boot(experiment: Experiment) -> str:
    """How the user must boot its host before it can continue: "with mitigations=off"; empty: no reboot is needed."""
    levels, boots = boots_asked(experiment.treatments), boots_of(experiment)
    by_itself = reboots_itself(experiment.host) or (boots and not boots[-1]["over"])
    return in_words(next_block(experiment).level, levels) if levels and not by_itself else ""
