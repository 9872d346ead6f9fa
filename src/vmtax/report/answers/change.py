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
    """One metric of one treatment, or of one contrast between two treatments: the sessions after compared with those
    before.
    """

    metric: str  # name of the metric
    unit: str  # base unit of the metric; the ratio has none
    better: Better  # which direction is an improvement
    treatment: str  # name of the treatment; for a contrast, such as `vm against host`, the line is about the overhead
    # itself
    primary: bool  # whether the line counts for the gate, as a primary metric of all runs does; the other lines are
    # exploratory
    ratio: float | None  # after / before: exp of the difference between the mean logarithms of the sessions; null: a
    # side has no result
    low: float | None  # lower end of the ratio's 95 % interval; null: there is no interval, and `why` gives the reason
    high: float | None  # upper end of the ratio's 95 % interval
    cost: Overhead  # the ratio as a cost of the change
    sessions: tuple[int, int]  # number of sessions before and after; boots of the host if it was rebooted between the
    # two sides
    method: SessionMethod  # source of the variance between sessions; welch: the compared sessions; stored:
    # calibrations; other side: the side with several sessions; none: there is no interval
    verdict: Outcome  # same: the interval of the cost lies within same_within; worse, better: it does not, and excludes
    # 0; undecided: neither, or there is no interval
    gate: Gate | None  # failed: the whole interval is worse than fail_if_worse; passed: no part of it is; undecided: a
    # part of it is, or there is no interval; null: no limit was given, or the line is not primary
    emulated: bool  # whether either side ran on an emulated CPU
    why: str | None  # why the gate is undecided (the verdict if there is no gate), and what would decide it; null: it
    # is decided

    @classmethod
    def made(cls, line: analysed.Line) -> Self:
        return cls.of(line, **about(line.metric), cost=Overhead(*line.cost))


@dataclass(frozen=True)
class Change(Part):
    """The result of `vmtax compare`: runs after a change compared with runs before it."""

    before: Sequence[str]  # ids of the runs before the change
    after: Sequence[str]  # ids of the runs after the change
    hosts: tuple[str, str]  # the hosts that were measured before and after, as given
    facts: Sequence[FactChange]  # facts about the machines that differ between the sides
    emulated: Sequence[str]  # names of the treatments that ran on an emulated CPU
    same_within: float  # fraction within which two figures count as the same
    fail_if_worse: float | None  # fraction by which figures may be worse after the change; null: no limit was given
    gate: Gate | None  # failed: a primary line failed; undecided: none failed, but one is undecided; passed: all
    # passed; null: no limit was given
    lines: Sequence[ChangeLine]  # the results, primary lines first
    warnings: Sequence[str]  # the notices as sentences
    notices: Sequence[Notice]  # doubts about this comparison

    @classmethod
    def made(cls, change: analysed.Change) -> Self:
        return cls.of(
            change,
            fail_if_worse=change.limit,
            lines=[ChangeLine.made(line) for line in change.lines],
            notices=[Notice.of_notice(notice) for notice in change.notices],
        )
