"""Which boot of the host measures what, in a run that compares how its host is booted. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vmtax.core.records import Experiment, Json, Treatment
from vmtax.design.host import boots_asked, in_words, of_boot, reboots_itself
from vmtax.design.treatments import shuffled_rounds

HOST = "host"  # path of the host under test


@dataclass(frozen=True, slots=True)
class Block:
    """What is measured in one boot of the host: the treatments of one round that want it booted so."""

    round: int  # from 1
    level: str  # of host.kernel_arguments


def shuffled_blocks(treatments: Sequence[Treatment], seed: int) -> Iterator[Block]:
    """The boots of the host that the shuffled rounds of these treatments take, in order; endless."""
    for number, order in enumerate(shuffled_rounds(treatments, seed), start=1):
        yield from dict.fromkeys(Block(number, of_boot(treatment)) for treatment in order)


def seed_of(experiment: Experiment) -> int:
    """Of the order within its rounds."""
    seed = experiment.plan.get("seed")
    return int(experiment.created) if seed is None else int(seed)


def boots_of(experiment: Experiment) -> list[Json]:
    """The boots of its host that have measured something, in order: as facts of the host keep them."""
    facts = experiment.facts.get(HOST)
    found = facts.get("boots") if isinstance(facts, dict) else None
    return list(found) if isinstance(found, list) else []


def next_block(experiment: Experiment) -> Block:
    """What its next boot of the host is to measure: what the newest one left, or what comes after it."""
    boots, order = boots_of(experiment), shuffled_blocks(experiment.treatments, seed_of(experiment))
    if not boots:
        return next(order)
    newest = Block(boots[-1]["round"], boots[-1]["level"])
    if not boots[-1]["over"]:
        return newest
    next(block for block in order if block == newest)
    return next(order)


def how_to_boot(experiment: Experiment) -> str:
    """How its user is to boot the host before it goes on: "with mitigations=off"; empty: not at all."""
    levels, boots = boots_asked(experiment.treatments), boots_of(experiment)
    by_itself = reboots_itself(experiment.host) or (boots and not boots[-1]["over"])
    return in_words(next_block(experiment).level, levels) if levels and not by_itself else ""
