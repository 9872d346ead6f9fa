"""Intervals against printed tables, against themselves under symmetry, and against simulated machines."""

from __future__ import annotations

import itertools
import math
import random
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtax import stats

log_ratios = st.lists(st.floats(-3, 3), min_size=1, max_size=25)


@pytest.mark.parametrize(
    ("n", "alpha", "critical"),
    [
        # Two-sided critical values of T in Wilcoxon & Wilcox (1964); None: the table has a dash.
        (5, 0.05, None),
        (6, 0.05, 0),
        (7, 0.05, 2),
        (10, 0.05, 8),
        (20, 0.05, 52),
        (50, 0.05, 434),
        (7, 0.01, None),
        (8, 0.01, 0),
        (20, 0.01, 37),
    ],
)
def test_rank_agrees_with_the_printed_tables(n: int, alpha: float, critical: int | None) -> None:
    assert stats.signed_rank_rank(n, alpha) == (None if critical is None else critical + 1)


@pytest.mark.parametrize("n", [1, 2, 9, 60, 200])
def test_rank_is_exact(n: int) -> None:
    """Against the same count in whole numbers, which cannot round."""
    counts = [1]
    for rank in range(1, n + 1):
        longer = counts + [0] * rank
        counts = [a + b for a, b in zip(longer, [0] * rank + counts, strict=True)]
    for twentieths in (1, 2, 5):
        k = sum(40 * tail <= twentieths * 2**n for tail in itertools.accumulate(counts))
        assert stats.signed_rank_rank(n, twentieths / 20) == (k or None)


def test_many_rounds_go_on_where_counting_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = {(n, alpha): stats.signed_rank_rank(n, alpha) or 0 for n in (200, 600) for alpha in (0.05, 0.0131, 0.001)}
    stats.signed_rank_rank.cache_clear()
    monkeypatch.setattr(sys.modules["vmtax.stats.interval"], "EXACT_ROUNDS", 100)
    for (n, alpha), k in exact.items():
        assert k - 1 <= (stats.signed_rank_rank(n, alpha) or 0) <= k
    stats.signed_rank_rank.cache_clear()


def test_no_interval_exactly_below_the_fewest_rounds() -> None:
    for alpha in (0.05, 0.035, 0.0131, 0.0625):  # the last is 2**-4 itself: equality suffices
        fewest = stats.minimum_rounds(alpha)
        assert stats.interval([0.1] * (fewest - 1), alpha) is None
        assert stats.interval([0.1] * fewest, alpha) == (0.1, 0.1)
    assert (stats.minimum_rounds(0.05), stats.minimum_rounds(0.0625)) == (6, 5)


def test_known_interval() -> None:
    estimate, low, high = stats.log_ratio_interval([0.0, 0.0, 0.0, 0.1, 0.1, 0.9])
    assert (low, high) == (0.0, 0.9)  # k = 1: the extremes
    assert estimate == pytest.approx(0.05)  # 11th of 21 Walsh averages
    with pytest.raises(stats.TooFewRounds, match="an interval at 95 % needs 6 rounds or more, not 5"):
        stats.log_ratio_interval([0.1] * 5)


@pytest.mark.parametrize("n", [6, 9])
def test_limits_are_those_of_the_inverted_test(n: int) -> None:
    """The interval holds just those shifts that the exact test, by all 2^n signs, does not refuse."""
    values = np.random.default_rng(n).normal(size=n)
    _, low, high = stats.log_ratio_interval(values)
    signs = np.array(list(itertools.product([0, 1], repeat=n)))
    for shift, inside in ((low + 1e-9, True), (low - 1e-9, False), (high - 1e-9, True), (high + 1e-9, False)):
        moved = values - shift
        ranks = np.abs(moved).argsort().argsort() + 1
        drawn, seen = signs @ ranks, ranks[moved > 0].sum()
        p = 2 * min((drawn <= seen).mean(), (drawn >= seen).mean())
        assert (p > 0.05) == inside


@given(st.lists(st.floats(-3, 3), min_size=6, max_size=25))
def test_swapping_sides_mirrors_the_interval(values: list[float]) -> None:
    estimate, low, high = stats.log_ratio_interval(values)
    mirrored = stats.log_ratio_interval([-value for value in values])
    assert mirrored == pytest.approx((-estimate, -high, -low))
    assert low <= estimate <= high


@given(log_ratios, st.floats(-2, 2), st.randoms(use_true_random=False))
def test_estimate_follows_a_shift_and_ignores_order(values: list[float], shift: float, random: random.Random) -> None:
    moved = [value + shift for value in values]
    random.shuffle(moved)
    assert stats.hodges_lehmann(moved) == pytest.approx(stats.hodges_lehmann(values) + shift, abs=1e-9)


def reduced(*boots: list[float]) -> list[float]:
    return stats.reduce_iterations(np.array(boots)).tolist()


@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=12), st.sampled_from([1e-9, 1e3, 8.0]))
def test_iterations_reduce_alike_in_any_unit(values: list[float], factor: float) -> None:
    (number,) = reduced(values)
    assert min(values) * (1 - 1e-9) <= number <= max(values) * (1 + 1e-9)
    assert reduced([value * factor for value in values]) == pytest.approx([number * factor])


def test_reduction_is_geometric_and_resists_one_stall() -> None:
    assert reduced([0.1]) == [0.1]  # to the last digit
    assert reduced([100.0, 400.0], [3.0, 12.0]) == pytest.approx([200.0, 6.0])
    assert reduced([100.0, 100.0, 100.0, 100.0, 9000.0]) == pytest.approx([100.0])


@pytest.mark.parametrize("bad", [0.0, -2.0, math.nan, math.inf])
def test_a_boot_without_a_logarithm_has_no_number(bad: float) -> None:
    first, second = reduced([1.0, bad], [2.0, 2.0])
    assert math.isnan(first) and second == pytest.approx(2.0)


@pytest.mark.parametrize("values", [[], [math.nan], [math.inf, 0.0], [[1.0, 2.0]]])
def test_estimate_refuses_what_is_not_finite(values: list[float]) -> None:
    with pytest.raises(ValueError, match="finite numbers"):
        stats.log_ratio_interval(values)


def test_rounds_needed() -> None:
    assert stats.rounds_needed(cv=0.03, half_width=math.log(1.02)) == 18
    assert stats.rounds_needed(cv=0.03, half_width=0.03) == 8  # 2 * 1.96**2 = 7.68
    with pytest.raises(ValueError, match="half-width"):
        stats.rounds_needed(0.03, 0.0)


def test_an_interval_misses_no_difference_in_about_five_of_a_hundred_runs() -> None:
    """A/A on skewed noise with a common drift, sides in random order: 30 rounds, 1500 runs, sd of the share 0.6 %."""
    random = np.random.default_rng(20260101)
    runs, rounds = 1500, 30
    noise = random.gamma(4.0, 0.01, size=(runs, rounds, 2)) + np.linspace(0.0, 0.1, rounds * 2).reshape(rounds, 2)
    sign = random.choice([-1.0, 1.0], size=(runs, rounds))
    differences = (noise[:, :, 1] - noise[:, :, 0]) * sign
    bounds = [stats.interval(row) for row in differences]
    missed = sum(bound is None or not bound[0] <= 0 <= bound[1] for bound in bounds) / runs
    assert 0.03 < missed < 0.068
