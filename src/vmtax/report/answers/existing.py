"""The answer about a guest of the user's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from vmtax.core.records import Experiment
from vmtax.existing.advice import advice
from vmtax.existing.guest import ExistingGuest, shown
from vmtax.existing.limits import limits
from vmtax.existing.measured import MeasuredSetting, by_cost
from vmtax.existing.numa import HostNode, node_advice
from vmtax.existing.plan import ExistingPlan
from vmtax.report.answers.part import AnswerRecord


@dataclass(frozen=True)
class GuestDisk(AnswerRecord):
    """A disk of the guest."""

    name: str  # its name in the configuration
    source: str  # the file, device or volume behind it; empty if it has none
    levels: Mapping[str, str]  # factor -> level


@dataclass(frozen=True)
class GuestCard(AnswerRecord):
    """A network card of the guest."""

    name: str  # its name in the configuration
    levels: Mapping[str, str]  # factor -> level


@dataclass(frozen=True)
class NotAsConfigured(AnswerRecord):
    """A setting that is not measured as it is configured."""

    where: str  # its name in the configuration
    text: str  # what it says, without secrets
    why: str  # what happens with it instead


@dataclass(frozen=True)
class LimitAnswer(AnswerRecord):
    """A limit of I/O, of packets or of CPU time that somebody set; no run measures it."""

    where: str  # the guest, or the name of its disk or card
    text: str  # what it says
    change: str  # how to lift it; empty if there is no single line for it


@dataclass(frozen=True)
class MeasuredAnswer(AnswerRecord):
    """The time that the same work takes with the guest's level, against the recommended one."""

    run: str  # id of the run
    metric: str  # name of the primary metric that it costs most
    ratio: float  # ratio of the times; 2: twice as long with the guest's level
    low: float | None  # lower end of its interval; null: there are too few rounds
    high: float | None  # upper end of its interval; null: there are too few rounds
    shown: bool  # whether a difference is shown
    emulated: bool  # whether either side ran on an emulated CPU


@dataclass(frozen=True)
class GuestAdvice(AnswerRecord):
    """A setting that manuals call unsafe, slow or wasteful."""

    weight: Literal["unsafe", "slow", "space"]  # what is wrong with it; space: it keeps more than it needs
    where: str  # the guest, or the name of its disk or card
    factor: str  # the factor of plans that is this setting
    level: str  # the level that the guest has
    better: str  # the level that is recommended instead
    why: str  # the reason, according to the manuals; nothing was measured
    patch: str  # how to change it; empty if there is no single line for it
    measured: MeasuredAnswer | None  # what the newest fitting run on the host has measured of it; null: none fits


@dataclass(frozen=True)
class GuestAnswer(AnswerRecord):
    """A guest of the user's, as its configuration describes it."""

    name: str  # its name
    kind: Literal["libvirt", "proxmox", "qemu"]  # what describes it: libvirt's XML, a qm.conf or QEMU's command line
    vcpus: int  # number of its CPUs
    memory_bytes: int  # size of its memory
    disks: Sequence[GuestDisk]  # its disks, without drives for CDs and floppy disks
    cards: Sequence[GuestCard]  # its network cards
    levels: Mapping[str, str]  # factor -> level, with the disk and card that the plan measures
    not_as_configured: Sequence[NotAsConfigured]  # what the plan does not measure as it is configured
    limits: Sequence[LimitAnswer]  # limits that somebody set for it
    advice: Sequence[GuestAdvice]  # settings that manuals call unsafe or slow
    plan: str  # the plan, as YAML


def guest_answer(
    guest: ExistingGuest, nodes: Sequence[HostNode], plan: ExistingPlan, runs: Sequence[Experiment]
) -> GuestAnswer:
    """`nodes`: of its host, if that is known; `runs`: of the same host, newest first."""
    return GuestAnswer(
        guest.name,
        guest.kind,
        guest.vcpus,
        guest.memory_bytes,
        [GuestDisk(disk.name, shown("", disk.source), disk.levels) for disk in guest.disks if not disk.is_cd],
        [GuestCard(card.name, card.levels) for card in guest.cards],
        plan.levels,
        [NotAsConfigured(each.where, each.text, each.why) for each in plan.remarks],
        [LimitAnswer(each.where, each.text, each.change) for each in limits(guest)],
        [
            GuestAdvice(
                *(each.weight, each.where, each.factor, each.level, each.better, each.why, each.patch(guest)),
                _measured(cost),
            )
            for each, cost in by_cost((*advice(guest), *node_advice(guest, nodes)), runs)
        ],
        plan.text,
    )


def _measured(cost: MeasuredSetting | None) -> MeasuredAnswer | None:
    if cost is None:
        return None
    return MeasuredAnswer(
        *(cost.run, cost.metric.name, cost.ratio, cost.low, cost.high), shown=cost.is_shown, emulated=cost.is_emulated
    )
