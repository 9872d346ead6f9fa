"""The answer of a comparison of two runs."""

from __future__ import annotations

from pydantic import Field

from vmtax.analysis.sessions import Gate, Outcome
from vmtax.core.records import Better
from vmtax.report.schema.comparison import Overhead
from vmtax.report.schema.part import Part
from vmtax.stats import SessionMethod


class FactChange(Part):
    """One fact of a machine that is not the same before and after."""

    path: str = Field(description="the machine's path")
    name: str = Field(description="dotted name of the fact")
    before: str = Field(description="for people; several values joined by |, where sessions of that side differ")
    after: str = Field(description="the same, after")


class ChangeLine(Part):
    """One metric of one treatment, or of one contrast between two, after against before; over sessions."""

    metric: str = Field(description="its name")
    unit: str = Field(description="base unit of the metric; the ratio has none")
    better: Better = Field(description="which direction is an improvement")
    treatment: str = Field(description="name of a treatment; `vm against host`: the overhead itself")
    primary: bool = Field(description="the verdict is about these; the others are exploratory")
    ratio: float | None = Field(description="after / before: exp of the difference of the sessions' mean levels")
    low: float | None = Field(description="lower end of its 95 % interval; null: cannot be given")
    high: float | None = Field(description="upper end of its 95 % interval")
    cost: Overhead = Field(description="the same as a cost of the change")
    sessions: tuple[int, int] = Field(description="before, after; boots of the host where it was rebooted in between")
    method: SessionMethod = Field(description="where the variance between sessions is from")
    verdict: Outcome = Field(description="worse, better: the interval excludes 0; same: it is within same_within")
    gate: Gate | None = Field(
        description="failed: the whole interval is worse than fail_if_worse; passed: none of it is; undecided: a part"
        " of it is, or there is no interval; null: no limit was asked for, or the line is not primary"
    )
    emulated: bool = Field(description="either side is")
    why: str | None = Field(description="it is undecided, and what would decide it")


class Change(Part):
    """Runs before a change against runs after it: what `vmtax compare` found."""

    before: list[str] = Field(description="ids of the runs before")
    after: list[str] = Field(description="ids of the runs after")
    hosts: tuple[str, str] = Field(description="where measured, before and after, as given")
    facts: list[FactChange] = Field(description="what differs about the machines")
    emulated: list[str] = Field(description="treatments that ran on an emulated CPU")
    same_within: float = Field(description="fraction within which two are the same")
    fail_if_worse: float | None = Field(description="fraction by which after may be worse; null: nothing was asked")
    gate: Gate | None = Field(description="of all primary lines: failed where any is, else undecided where any is")
    lines: list[ChangeLine] = Field(description="what came out, the primary lines first")
    warnings: list[str] = Field(description="doubts, each with its cure")
