"""The answers about published claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from vmtax.analysis.analysis import Analysis
from vmtax.claims.beside import own_figures, own_ratios
from vmtax.claims.checked import Checked
from vmtax.claims.finding import Verdict
from vmtax.claims.rules import RULES
from vmtax.claims.schema import PublishedClaim
from vmtax.claims.words import Says, Word
from vmtax.report.answers.part import AnswerRecord


@dataclass(frozen=True)
class ClaimLine(AnswerRecord):
    """A claim that comes with vmtax."""

    name: str  # its name, for `vmtax claim`
    source: str  # who published it, where
    year: int | None  # the year; null: not known
    plan: str | None  # the plan that repeats its experiment; null: there is none
    verdict: Verdict  # the worst that the rules find in it


@dataclass(frozen=True)
class ClaimFinding(AnswerRecord):
    """One thing that is wrong or doubtful in a claim."""

    rule: str  # number of the rule, R1 to R13
    name: str  # what the rule looks at
    verdict: Verdict  # wrong: it contradicts its own figures; doubtful: more is claimed than they carry
    where: str  # the table and the rows, for people; empty: the whole claim
    text: str  # what is printed, and what would be right


@dataclass(frozen=True)
class ClaimNumber(AnswerRecord):
    """A printed comparison of two rows, recomputed."""

    table: str  # title of the table
    row: str  # the row that is compared
    base: str | None  # the row that it is compared with; null: it has none
    word: Word  # what was printed; share, loss and gain: per cent of the speed; more and less: per cent of the
    # figure; times: a ratio; difference: in the table's unit; scaled: the figure times a factor
    says: Says  # how exactly it was said
    printed: float  # the printed number
    recomputed: float  # what follows from the two figures
    low: float  # the smallest value that their printed digits allow
    high: float  # the largest one
    other_base: float | None  # what follows with the other row as the base; null: the word has no base
    verdict: Literal["right", "wrong"]  # whether the printed number follows from the figures


@dataclass(frozen=True)
class ClaimCheck(AnswerRecord):
    """What the rules find in a claim."""

    name: str  # its name, or the path of its file
    source: str  # who published it, where
    year: int | None  # the year; null: not known
    verdict: Verdict  # the worst of the findings
    findings: Sequence[ClaimFinding]  # wrong ones first
    numbers: Sequence[ClaimNumber]  # every printed comparison
    silent: Sequence[str]  # numbers of the rules that had no data to look at


@dataclass(frozen=True)
class ClaimRowAnswer(AnswerRecord):
    """A configuration and its published figure."""

    name: str  # the configuration
    value: float  # its figure, or the mean of its runs
    low: float  # the smallest value that its printed digits allow
    high: float  # the largest one


@dataclass(frozen=True)
class ClaimTableAnswer(AnswerRecord):
    """A published table."""

    title: str  # its title
    unit: str  # unit of its figures, as printed
    better: Literal["lower", "higher"]  # which figures are better
    rows: Sequence[ClaimRowAnswer]  # its configurations


@dataclass(frozen=True)
class OwnFigureAnswer(AnswerRecord):
    """The figure of a run that corresponds to a published one."""

    table: str  # title of the table
    row: str  # the configuration
    metric: str  # name of the run's metric
    value: float  # median of the run, in the metric's unit
    emulated: bool  # whether guests were emulated


@dataclass(frozen=True)
class OwnRatioAnswer(AnswerRecord):
    """A published comparison, and the same of a run. Ratios are of the speed; of the figures if the word is more, less
    or times.
    """

    table: str  # title of the table
    row: str  # the configuration that is compared
    base: str  # the configuration that it is compared with
    word: Word  # what was published
    metric: str  # name of the run's metric
    published: float  # ratio of the published figures
    own: float  # ratio of the run's medians
    low: float | None  # lower end of its interval; null: too few rounds, or not compared in rounds
    high: float | None  # upper end of its interval
    same_direction: bool | None  # whether both are above 1 or both below; null: one is 1 within half a per cent
    inside: bool | None  # whether the published ratio is inside the interval; null: there is none
    emulated: bool  # whether guests were emulated


@dataclass(frozen=True)
class ShownClaim(AnswerRecord):
    """A published claim; with the figures of a run beside it, if one was given."""

    name: str  # its name, or the path of its file
    source: str  # who published it, where
    year: int | None  # the year; null: not known
    url: str | None  # where to read it; null: not known
    setups: Mapping[str, Mapping[str, str]]  # configuration -> what is known of it
    tables: Sequence[ClaimTableAnswer]  # its figures
    scaled: Sequence[str]  # how vmtax's plan differs from it
    run: str | None  # id of the run beside it; null: none was given
    figures: Sequence[OwnFigureAnswer]  # figures of the run that correspond to published ones
    ratios: Sequence[OwnRatioAnswer]  # comparisons of the run that correspond to published ones


def claim_line(name: str, found: Checked) -> ClaimLine:
    return ClaimLine(name, found.claim.source, found.claim.year, found.claim.plan, found.verdict)


def claim_check(name: str, found: Checked) -> ClaimCheck:
    names = {rule.number: rule.name for rule in RULES}
    return ClaimCheck(
        *(name, found.claim.source, found.claim.year, found.verdict),
        [ClaimFinding(one.rule, names[one.rule], one.verdict, one.where, one.text) for one in found.findings],
        [
            ClaimNumber(
                *(one.table.title, one.derived.of, one.derived.base, one.derived.word, one.derived.says),
                *(
                    one.printed.value,
                    one.recomputed.stated.value,
                    one.recomputed.stated.low,
                    one.recomputed.stated.high,
                ),
                one.recomputed.other.value if one.recomputed.other else None,
                "wrong" if one.verdict == "wrong" else "right",
            )
            for one in found.numbers
        ],
        found.silent,
    )


def shown_claim(name: str, claim: PublishedClaim, analysis: Analysis | None) -> ShownClaim:
    figures = own_figures(claim, analysis) if analysis else ()
    ratios = own_ratios(claim.tables, analysis) if analysis else ()
    return ShownClaim(
        *(name, claim.source, claim.year, claim.url, claim.setup),
        [
            ClaimTableAnswer(
                *(table.title, table.unit, table.better),
                [
                    ClaimRowAnswer(row, one.figure.value, one.figure.low, one.figure.high)
                    for row, one in table.rows.items()
                ],
            )
            for table in claim.tables
        ],
        claim.scaled,
        analysis.experiment.id if analysis else None,
        [OwnFigureAnswer(one.table.title, one.name, one.metric.name, one.value, one.emulated) for one in figures],
        [
            OwnRatioAnswer(
                *(one.table.title, one.derived.of, one.derived.base or "", one.derived.word, one.metric.name),
                published=one.published,
                own=one.own,
                low=one.low,
                high=one.high,
                same_direction=one.same_direction,
                inside=one.is_inside,
                emulated=one.emulated,
            )
            for one in ratios
        ],
    )
