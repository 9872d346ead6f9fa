"""What an answer says of durability: what survived when the power went, by trial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

from vmtax.analysis import durability
from vmtax.analysis.losses import CONFIDENCE, End
from vmtax.design.features import Feature
from vmtax.report.answers.part import Part
from vmtax.workload.durability import NEEDED_STATES


@dataclass(frozen=True)
class DurabilityWriter(Part):
    """What one writer in the guest had acknowledged, over all rounds."""

    name: str  # append-fsync-4k, sqlite-wal, ...; control: the one that never flushes, and must lose
    states: int  # in which it had acknowledged something
    lost: int  # of these, in which acknowledged data were missing or old
    torn: int  # of these, in which acknowledged data were torn


@dataclass(frozen=True)
class DurabilityEnd(Part):
    """All states of one kind of end, over all rounds."""

    end: str  # guest-killed: QEMU was; power-cut: rebuilt from the log of writes; host-cut: a host's power was cut;
    # stack-cut: rebuilt from the logs of writes to the host's own disks; real-cut: the host under test lost its power
    states: int  # in which something had been acknowledged
    lost: int  # of these, with a loss of any writer but the control, or with damage
    low: float  # lower bound of the share that is lost, one-sided, at `confidence`
    high: float  # upper bound of it, as exact, one-sided
    file_system_damaged: int  # states
    image_damaged: int | None  # states, by qemu-img check; null: a raw image has nothing to check
    writers: Sequence[DurabilityWriter]  # without the control
    control: DurabilityWriter | None  # null: none had acknowledged anything
    states_without_disk: int | None  # of the states, those in which one of the host's disks was gone; null: none ever
    lost_without_disk: int | None  # of these, with a loss

    @classmethod
    def made(cls, found: End) -> Self:
        count, control, gone = found.count, found.control, found.without_disk
        return cls.of(
            found,
            **{"states": count.states, "lost": count.lost, "low": count.low, "high": count.high},
            writers=[DurabilityWriter.of(writer) for writer in found.writers],
            control=None if control is None else DurabilityWriter.of(control),
            states_without_disk=None if gone is None else gone.states,
            lost_without_disk=None if gone is None else gone.lost,
        )


@dataclass(frozen=True)
class DurabilityEvidence(Part):
    """What the trials of one configuration show."""

    treatment: str  # its name; its A/A is counted with it
    state: Literal["yes", "no", "not shown"]  # durable, by trial
    reason: str  # why, one line for people
    documented: Feature  # what documentation says of it
    disagrees: bool  # trial and documentation contradict each other
    ends: Sequence[DurabilityEnd]  # the kinds of end that were tried
    failed: int  # trials without a result
    emulated: bool  # a boot of it, or its host, ran on an emulated CPU

    @classmethod
    def made(cls, found: durability.Evidence, emulated: frozenset[str]) -> Self:
        return cls.of(
            found,
            disagrees=bool(found.disagreement),
            ends=[DurabilityEnd.made(end) for end in found.ends],
            emulated=found.treatment in emulated,
        )


@dataclass(frozen=True)
class Durability(Part):
    """What survived when the power went, by trial."""

    evidence: Sequence[DurabilityEvidence]  # configuration by configuration
    needed_states: int  # of a power cut, without a loss, before it counts as shown that one is durable
    confidence: float  # of each bound
    proves: bool  # a configuration that is documented as not durable did lose, so that the trials notice such a loss
    proof: str  # the same, for people
    blind: Sequence[str]  # configurations whose own control lost nothing, so that their trials prove nothing
    disagreements: Sequence[str]  # with documentation, for people

    @classmethod
    def made(cls, found: durability.Survival, emulated: frozenset[str]) -> Self:
        return cls.of(
            found,
            evidence=[DurabilityEvidence.made(one, emulated) for one in found.evidence],
            needed_states=NEEDED_STATES,
            confidence=CONFIDENCE,
            proves=found.shows_losses,
            blind=[one.treatment for one in found.blind],
        )
