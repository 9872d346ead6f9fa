"""The part of an answer about durability: which data survived a power cut, as trials show."""

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
    """What one writer in the guest lost of the data that it had acknowledged, over all rounds."""

    name: str  # append-fsync-4k, sqlite-wal, ...; control: the writer that never flushes, and must lose data
    states: int  # number of states of the disk in which the writer had acknowledged something
    lost: int  # number of these states in which acknowledged data were missing or old
    torn: int  # number of these states in which acknowledged data were torn: partly new and partly old


@dataclass(frozen=True)
class DurabilityEnd(Part):
    """The states of the disk after one kind of end of the guest, over all rounds."""

    end: str  # guest-killed: QEMU was killed; power-cut: a power cut of the host, rebuilt from the log of QEMU's
    # writes; host-cut: the outer VM of a nested guest was killed; stack-cut: a power cut of the host, rebuilt from the
    # logs of writes to its own disks; real-cut: a real power cut of the host under test
    states: int  # number of states in which any writer but the control had acknowledged something
    lost: int  # number of these states in which any writer but the control had lost or torn data, or something was
    # damaged
    low: float  # exact one-sided lower bound of the share of states with a loss, at `confidence`
    high: float  # exact one-sided upper bound of this share, at `confidence`
    file_system_damaged: int  # number of states in which a file system was damaged
    image_damaged: int | None  # number of states in which qemu-img check found damage; null: a raw image has no
    # structure to check
    writers: Sequence[DurabilityWriter]  # the writers, without the control
    control: DurabilityWriter | None  # the control; null: it had acknowledged nothing
    states_without_disk: int | None  # number of `states` in which one of the host's disks was gone; null: no disk was
    # ever gone
    lost_without_disk: int | None  # number of `lost` in which one of the host's disks was gone; null: no disk was ever
    # gone

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

    treatment: str  # name of the treatment; the trials of its A/A are included
    state: Literal["yes", "no", "not shown"]  # whether the trials show that it is durable
    reason: str  # reason for `state`, in one line for people
    documented: Feature  # what documentation says about its durability
    disagrees: bool  # whether the trials contradict the documentation
    ends: Sequence[DurabilityEnd]  # the kinds of end that were tried
    failed: int  # number of trials without a result
    emulated: bool  # whether any guest or the host of this treatment ran on an emulated CPU

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
    """Which acknowledged data survived when QEMU was killed or the host lost its power, as trials show."""

    evidence: Sequence[DurabilityEvidence]  # the evidence for each configuration
    needed_states: int  # number of states after a power cut, all without a loss, that show a configuration to be
    # durable
    confidence: float  # confidence level of the bounds, as a fraction
    proves: bool  # whether a configuration that is documented as not durable lost data; this shows that the trials
    # notice such a loss
    proof: str  # the same, as a sentence for people
    blind: Sequence[str]  # names of configurations whose trials prove nothing, because their own control lost nothing
    disagreements: Sequence[str]  # contradictions between trials and documentation, as sentences for people

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
