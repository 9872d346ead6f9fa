"""How one treatment stands to another, or to all."""

from __future__ import annotations

from pydantic import Field

from vmtax.core.notices import Code
from vmtax.core.records import Better, Verdict, VerdictCode
from vmtax.report.schema.part import Part


class Overhead(Part):
    """Lost rate, 1 - ratio, where higher is better; added time, ratio - 1, where lower is better."""

    estimate: float | None = Field(description="a fraction: 0.02 is 2 %; above 0 is a cost")
    low: float | None = Field(description="lower end of its interval")
    high: float | None = Field(description="upper end of its interval")


class Comparison(Part):
    """One metric of one treatment against a baseline; null bounds: too few rounds for an interval."""

    metric: str = Field(description="its name")
    unit: str = Field(description="base unit of the metric; the ratio has none")
    better: Better = Field(description="which direction is an improvement")
    baseline: str = Field(description="name of the treatment that it is compared with")
    treatment: str = Field(description="name of the treatment")
    ratio: float | None = Field(description="exp of the Hodges-Lehmann estimate of ln(treatment / baseline)")
    low: float | None = Field(description="lower end of the ratio's interval")
    high: float | None = Field(description="upper end of the ratio's interval")
    overhead: Overhead = Field(description="the same as a cost")
    rounds: int = Field(description="rounds in which both sides have a value")
    verdict: Verdict = Field(description="what the interval shows")
    mean_ratio: float | None = Field(description="exp of the mean of ln(treatment / baseline); stalls move it")
    p95_ratio: float | None = Field(description="of the slow tails; null with fewer than 200 rounds")
    baseline_stalls: float = Field(description="share of the baseline's runs slower than 1.5 times their median")
    treatment_stalls: float = Field(description="the same of the treatment's runs")
    stalls_p: float = Field(description="Fisher's exact test of the two")
    carry_over: float | None = Field(description="log ratio with the baseline first minus that with it second")
    carry_over_p: float | None = Field(description="of that, by permutation; null: the order never changed")
    emulated: bool = Field(description="either side is")
    warnings: list[str] = Field(description="its notices as sentences")
    verdict_code: VerdictCode = Field(description="the verdict as an identifier")
    notice_codes: list[Code] = Field(description="what casts doubt on it; `notices` of the run has causes and cures")


class Standing(Part):
    """One treatment in a ranking; overheads against the best, fractions, above 0 is a cost."""

    treatment: str = Field(description="its name")
    overhead: float | None = Field(description="estimate; null: no round has both it and the best")
    low: float | None = Field(description="lower end of its interval; null: too few rounds, or the best itself")
    high: float | None = Field(description="upper end of its interval")
    top: bool = Field(description="no other is shown to beat it")
    tie: bool = Field(description="its interval lies within same_within of the best")
    beaten_by: list[str] = Field(description="names of those shown to be better, best first")
    emulated: bool = Field(description="a boot of it, or its host, ran on an emulated CPU")


class Ranking(Part):
    """One metric of one layer's treatments, where there are three or more."""

    metric: str = Field(description="its name")
    layer: str = Field(description="host, vm or nested")
    side: str = Field(description="as of its treatments")
    standings: list[Standing] = Field(description="best first")
    rounds: int = Field(description="in which two treatments or more have a value")
    incomplete: int = Field(description="of these, in which not all have")
    same_within: float = Field(description="what makes a tie: a fraction, from the plan")
    unranked: list[str] = Field(description="treatments with values in fewer than half of the rounds")
