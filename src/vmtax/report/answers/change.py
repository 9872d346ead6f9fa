"""The answer of a comparison of two runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from vmtax.analysis import sessions as analysed
from vmtax.analysis.sessions import FactChange, Gate, Outcome
from vmtax.core.records import Better
from vmtax.report.answers.comparison import Overhead, about
from vmtax.report.answers.notice import Notice
from vmtax.report.answers.part import Part
from vmtax.stats import SessionMethod


@dataclass(frozen=True)
class ChangeLine(Part):
    """One metric of one treatment, or of one contrast between two, after against before; over sessions."""

    metric: str  # its name
    unit: str  # base unit of the metric; the ratio has none
    better: Better  # which direction is an improvement
    treatment: str  # name of a treatment; `vm against host`: the overhead itself
    primary: bool  # the verdict is about these; the others are exploratory
    ratio: float | None  # after / before: exp of the difference of the sessions' mean levels
    low: float | None  # lower end of its 95 % interval; null: cannot be given
    high: float | None  # upper end of its 95 % interval
    cost: Overhead  # the same as a cost of the change
    sessions: tuple[int, int]  # before, after; boots of the host where it was rebooted in between
    method: SessionMethod  # where the variance between sessions is from
    verdict: Outcome  # worse, better: the interval excludes 0; same: it is within same_within
    gate: Gate | None  # failed: the whole interval is worse than fail_if_worse; passed: none of it is; undecided: a
    # part of it is, or there is no interval; null: no limit was asked for, or the line is not primary
    emulated: bool  # either side is
    why: str | None  # it is undecided, and what would decide it

    @classmethod
    def made(cls, line: analysed.Line) -> Self:
        return cls.of(line, **about(line.metric), cost=Overhead(*line.cost))


@dataclass(frozen=True)
class Change(Part):
    """Runs before a change against runs after it: what `vmtax compare` found."""

    before: Sequence[str]  # ids of the runs before
    after: Sequence[str]  # ids of the runs after
    hosts: tuple[str, str]  # where measured, before and after, as given
    facts: Sequence[FactChange]  # what differs about the machines
    emulated: Sequence[str]  # treatments that ran on an emulated CPU
    same_within: float  # fraction within which two are the same
    fail_if_worse: float | None  # fraction by which after may be worse; null: nothing was asked
    gate: Gate | None  # of all primary lines: failed where any is, else undecided where any is
    lines: Sequence[ChangeLine]  # what came out, the primary lines first
    warnings: Sequence[str]  # its notices as sentences
    notices: Sequence[Notice]  # what casts doubt on it

    @classmethod
    def made(cls, change: analysed.Change) -> Self:
        return cls.of(
            change,
            fail_if_worse=change.limit,
            lines=[ChangeLine.made(line) for line in change.lines],
            notices=[Notice.of_notice(notice) for notice in change.notices],
        )
