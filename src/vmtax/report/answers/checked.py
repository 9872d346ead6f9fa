"""The answer about a plan that is checked and not run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from vmtax.report.answers.part import AnswerRecord

LeftOutCode = Literal["illegal", "without-meaning", "excluded", "the-same", "workload", "host"]


@dataclass(frozen=True)
class PlannedConfiguration(AnswerRecord):
    """A configuration that would be measured."""

    name: str  # its name, as in results
    layer: str  # host, container, vm or nested
    levels: Mapping[str, str]  # factor -> level


@dataclass(frozen=True)
class PlannedLeftOut(AnswerRecord):
    """A combination of levels that would not be measured."""

    name: str  # the name that its configuration would have
    code: LeftOutCode  # kind of reason. illegal: its levels cannot be combined; without-meaning: one of them would have
    # no effect; excluded: by the plan; the-same: it is another one under another name; workload, host: cannot have it
    factors: Sequence[str]  # names of the factors that the reason is about
    why: str  # the reason, for people


@dataclass(frozen=True)
class PlannedSeconds(AnswerRecord):
    """How long it would take, from its first round on, without reboots of the host."""

    low: float  # lower end of the range, in seconds
    high: float  # upper end of the range, in seconds
    measured: bool  # whether it is known from a run of the same plan on the same host


@dataclass(frozen=True)
class PlannedBytes(AnswerRecord):
    """What it would write to the disks under test, and what memory it would take."""

    prepared: float  # bytes that are written before the first round
    expected: float  # bytes that its rounds write then, as when the plan last ran there, or as on a SATA SSD
    most: float  # bytes that its rounds write then on a very fast disk
    memory: float  # bytes of memory that it takes at a time


@dataclass(frozen=True)
class PlannedAction(AnswerRecord):
    """One of the lines that `vmtax run` shows before it asks: what it does, takes, writes, drops or needs."""

    what: str  # label: "writes", "as root", "takes"
    text: str  # the line, for people


@dataclass(frozen=True)
class PlanCheck(AnswerRecord):
    """What a plan compares, and what `vmtax run` with the same options would do. Nothing was measured."""

    plan: str  # name of the plan
    host: str  # host under test, as the plan or the command line names it
    configurations: Sequence[PlannedConfiguration]  # what each round would measure, without the A/A
    left_out: Sequence[PlannedLeftOut]  # what it would not measure
    set: Sequence[str]  # levels of factors that the plan does not name and that are not the default, for people
    rounds: int  # how many rounds it would have at most
    seconds: PlannedSeconds  # how long it would take
    bytes: PlannedBytes  # what it would write, and take of the memory
    actions: Sequence[PlannedAction]  # what it would do on the hosts; empty if they cannot be examined
    refused: str | None  # why it cannot run there, for people; null: as far as is known, it can
    lines: Sequence[str]  # everything that the command prints without --json
