"""Stopping: the rules by themselves, and as a plan states them. That they keep their error rates shows `make prove`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from vmtax.core.records import Comparison, Metric
from vmtax.design.stopping import Stopping
from vmtax.stats import DecisionRule, PrecisionRule, look_alpha

RATE, TIME = Metric("a.rate", "1/s", "higher"), Metric("a.time", "s", "lower")
NOISE = np.random.default_rng(3).normal(0, 0.001, 60)


def test_precision_is_looked_at_every_other_pair_from_the_tenth_on() -> None:
    rule = PrecisionRule(0.01, most=15)
    assert [n for n in range(1, 16) if rule.look(NOISE[:n]).stop] == [10, 12, 14, 15]
    wild = 100 * NOISE
    assert [n for n in range(1, 16) if rule.look(wild[:n]).stop] == [15], "wide to the end"
    assert rule.look(NOISE[:12] + 5).stop, "only the width decides"
    assert rule.look(NOISE[:5]).low is None, "no interval, not a narrow one"
    assert not rule.look([0.01] * 12).stop, "no width at all is no precision"


@pytest.mark.parametrize(
    ("looks", "alpha", "each"),
    [
        ((1, 2, 3, 4, 5), 0.05, 0.0158),  # Jennison & Turnbull (2000), table 2.1: C_P(5, 0.05) = 2.413
        ((1, 2), 0.05, 0.0294),  # 2.178
        ((1, 2, 3, 4, 5, 6, 7, 8, 9, 10), 0.05, 0.0106),  # 2.555
        ((1, 2, 3, 4, 5), 0.01, 0.0028),  # 2.986
        ((7,), 0.05, 0.05),
        ((100, 101), 0.05, 0.0457),  # nearly one look: the bivariate normal distribution, by scipy.integrate.quad
    ],
)
@pytest.mark.varied(1)
def test_alpha_of_a_look_agrees_with_the_printed_tables(looks: tuple[int, ...], alpha: float, each: float) -> None:
    assert look_alpha(looks, alpha) == pytest.approx(each, abs=0.00006)


def test_a_decision_falls_only_at_looks_and_beyond_the_margin() -> None:
    rule = DecisionRule(margin=math.log(1.03))
    assert rule.look_alpha == pytest.approx(0.0131, abs=0.0001)
    clear, equal, on_it = 0.1 + NOISE, NOISE, rule.margin + NOISE
    assert [n for n in range(1, 30) if rule.look(clear[:n]).stop][:2] == [8, 9]
    assert rule.look(equal[:8]).stop, "settled as well: not worse by that much"
    assert not rule.look(on_it[:40]).stop
    assert rule.look(on_it[:60]).stop, "the last look"
    assert rule.look(clear[:7]).low is None
    assert rule.look(clear[:11]) == rule.look(clear[:8]), "between looks nothing new is said"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PrecisionRule(0.0), "half_width is above 0"),
        (lambda: PrecisionRule(0.01, first=4), "first is at least 6 at alpha 0.035, not 4"),
        (lambda: PrecisionRule(0.01, every=0), "every is at least 1"),
        (lambda: PrecisionRule(0.01, most=9), "most is not below first"),
        (lambda: DecisionRule(looks=(8, 8)), "looks are rising numbers of pairs"),
        (lambda: DecisionRule(looks=()), "looks are rising numbers of pairs"),
        (lambda: DecisionRule(looks=(4, 60)), "the first look is at 7 pairs or more"),
        (lambda: DecisionRule(alpha=0.0), "alpha lies between 0 and 1"),
        (lambda: PrecisionRule(0.01).look([math.nan]), "finite numbers"),
        (lambda: DecisionRule().look([]), "finite numbers"),
    ],
)
@pytest.mark.varied(5)
def test_rules_that_make_no_sense_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def contrast(low: float | None, high: float | None, metric: Metric = RATE) -> Comparison:
    return Comparison(metric, "host", "vm", 1.0, low, high, 12, "worse")


def stopping(**changes: Any) -> Stopping:
    return Stopping(**{"rounds_min": 7, "rounds_max": 60, "precision": 0.02, "worse_than": None, **changes})


def test_a_plan_stops_when_every_primary_interval_is_narrow() -> None:
    narrow, wide = contrast(0.49, 0.50), contrast(0.8, 0.9)
    rule = stopping()
    assert rule.why_over(12, [narrow, narrow]) == "after 12 rounds, every primary interval is within ±2 %"
    assert rule.why_over(12, [narrow, wide]) is None
    assert rule.why_over(12, [narrow, contrast(None, None)]) is None
    assert rule.why_over(11, [narrow]) is None and rule.why_over(8, [narrow]) is None
    assert rule.why_over(12, []) is None, "a metric without a result is not precise"
    assert rule.why_over(60, [wide]) == "after 60 rounds, the most that the plan allows (rounds.max)"
    assert stopping(precision=None).why_over(12, [narrow]) is None
    assert (rule.first_look, stopping(rounds_min=11).first_look, stopping(precision=None).first_look) == (10, 12, None)


def test_a_plan_stops_when_its_question_is_answered_for_every_primary_contrast() -> None:
    rule = stopping(precision=None, worse_than=0.03)
    slower, alike, unclear = contrast(0.90, 0.96), contrast(0.98, 1.01), contrast(0.95, 1.0)
    assert [rule.answer(c) for c in (slower, alike, unclear, contrast(None, None))] == [
        *("yes", "no", "undecided", "undecided"),
    ]
    assert rule.answer(contrast(1.04, 1.2, TIME)) == "yes"
    assert rule.answer(contrast(0.5, 1.02, TIME)) == "no", "much better is not worse"
    settled = "after 12 rounds, it is settled for every primary contrast whether it is worse by more than 3 %"
    assert rule.why_over(12, [slower, alike]) == settled
    assert rule.why_over(12, [slower, unclear]) is None
    assert rule.why_over(10, [slower, alike]) is None, "no look"
    assert rule.looks == (8, 12, 18, 27, 40, 60) and rule.first_look == 8
    assert rule.alpha == pytest.approx(0.0131, abs=0.0001)
    both = stopping(worse_than=0.03)
    assert both.why_over(12, [contrast(0.965, 0.975)]) == "after 12 rounds, every primary interval is within ±2 %"


def test_no_result_ends_a_run_before_the_fewest_rounds_of_its_plan() -> None:
    narrow, slower = contrast(0.49, 0.50), contrast(0.90, 0.96)
    assert stopping(rounds_min=14).why_over(12, [narrow]) is None
    assert stopping(rounds_min=14).why_over(14, [narrow]) is not None
    question = stopping(rounds_min=14, precision=None, worse_than=0.03)
    assert question.why_over(12, [slower]) is None and question.looks == (18, 27, 40, 60)


@pytest.mark.parametrize(
    ("metric", "low", "high", "answer"),
    [
        (RATE, 0.4, 0.499, "yes"),  # half of a rate is 50 % less
        (RATE, 0.501, 0.66, "no"),
        (RATE, 0.49, 0.51, "undecided"),
        (TIME, 1.501, 1.6, "yes"),
        (TIME, 1.0, 1.499, "no"),
        (TIME, 1.49, 1.51, "undecided"),
    ],
)
def test_a_margin_is_a_share_of_the_metric_s_own_unit(metric: Metric, low: float, high: float, answer: str) -> None:
    assert stopping(worse_than=0.5).answer(contrast(low, high, metric)) == answer


def test_a_fixed_number_of_rounds_is_not_looked_at() -> None:
    rule = stopping(rounds_min=20, rounds_max=20)
    assert rule.alpha == 0.05
    assert rule.why_over(12, [contrast(0.99, 1.0)]) is None
    assert rule.why_over(20, []) == "after 20 rounds, as planned"
    assert stopping(precision=None).alpha == 0.05, "nor is what results cannot end"
