"""One treatment against its baseline: what is reported beside the ratio, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vmtax import stats
from vmtax.stats.ratio import CarryOver, Stalls

BEFORE = np.exp(np.random.default_rng(1).normal(0, 0.02, 40))
NOISE = np.exp(np.random.default_rng(2).normal(0, 0.02, 40))


def test_a_clear_difference() -> None:
    found = stats.paired_ratio(BEFORE, BEFORE * 1.1 * NOISE)
    assert found.low is not None and found.high is not None
    assert 1.08 < found.low < found.ratio < found.high < 1.12
    assert (found.pairs, found.carry_over, found.stalls.differ) == (40, None, False)
    assert found.mean_ratio == pytest.approx(found.ratio, abs=0.01)
    assert found.p95_ratio == pytest.approx(1.1, abs=0.05)


def test_tails_and_stalls_are_those_of_numpy() -> None:
    rng = np.random.default_rng(3)
    for size in (*range(1, 40), 200):
        before, after = np.exp(rng.normal(0, 1, (2, size)))
        for better, share in (("lower", 0.95), ("higher", 0.05)):
            found = stats.paired_ratio(before, after, better=better)
            assert found.p95_ratio == np.quantile(after, share) / np.quantile(before, share), "to the last bit"
            for row, stalled in ((before, found.stalls.baseline), (after, found.stalls.treatment)):
                slow = row > 1.5 * np.median(row) if better == "lower" else row < np.median(row) / 1.5
                assert stalled == slow.mean()


@example([(1.0, 1.0)] * 6)
@given(st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3)), min_size=1, max_size=15))
def test_swapping_the_sides_inverts_everything(pairs: list[tuple[float, float]]) -> None:
    before, after = map(list, zip(*pairs, strict=True))
    there, back = stats.paired_ratio(before, after), stats.paired_ratio(after, before)
    assert back.ratio == pytest.approx(1 / there.ratio)
    assert back.mean_ratio == pytest.approx(1 / there.mean_ratio)
    assert back.p95_ratio == pytest.approx(1 / there.p95_ratio)
    assert (back.stalls.baseline, back.stalls.treatment) == (there.stalls.treatment, there.stalls.baseline)
    ratios = [one / other for one, other in pairs]
    assert not there.coarse or max(map(ratios.count, ratios)) > len(pairs) / 2, "most are equal"
    assert (there.low is None) == (len(pairs) < 6 or there.coarse)
    if there.low is not None and there.high is not None:
        assert (back.low, back.high) == pytest.approx((1 / there.high, 1 / there.low))


@pytest.mark.parametrize("better", ["lower", "higher"])
def test_stalls_of_one_side_show_in_the_mean_and_are_reported(better: str) -> None:
    times = BEFORE * NOISE
    times[::5] *= 4
    values = (BEFORE, times) if better == "lower" else (1 / BEFORE, 1 / times)
    found = stats.paired_ratio(*values, better=better)
    assert (found.stalls.baseline, found.stalls.treatment) == (0.0, 0.2)
    assert found.stalls.p == pytest.approx(0.0053, abs=0.0001)  # 0 and 8 of 40
    assert abs(math.log(found.ratio)) < 0.05 < 0.2 < abs(math.log(found.mean_ratio))
    assert found.stalls.differ


def test_carry_over_is_reported_where_it_is_and_only_there() -> None:
    first = np.arange(40) % 3 == 0
    after = BEFORE * NOISE * np.where(first, 1.05, 1.0)
    found = stats.paired_ratio(BEFORE, after, baseline_first=first.tolist())
    assert found.carry_over is not None
    assert found.carry_over.estimate == pytest.approx(math.log(1.05), abs=0.015)
    assert found.carry_over.p == 0.001
    assert found.carry_over.matters
    without = stats.paired_ratio(BEFORE, BEFORE * NOISE, baseline_first=first.tolist())
    assert without.carry_over is not None and not without.carry_over.matters
    assert stats.paired_ratio(BEFORE, after, baseline_first=[True] * 40).carry_over is None


@pytest.mark.parametrize(("p", "stalls", "order"), [(0.009, True, True), (0.01, True, False), (0.05, False, False)])
def test_chance_explains_one_order_in_a_hundred_and_one_stall_in_twenty(p: float, stalls: bool, order: bool) -> None:
    assert (Stalls(0.0, 0.2, p).differ, CarryOver(0.1, p).matters) == (stalls, order)


def test_few_rounds_and_values_without_scatter_have_no_interval() -> None:
    one = stats.paired_ratio([2.0], [3.0])
    assert (one.ratio, one.low, one.pairs) == (pytest.approx(1.5), None, 1)
    same = stats.paired_ratio([5.0] * 8, [5.5] * 8)
    assert (same.ratio, same.low, same.high, same.coarse) == (pytest.approx(1.1), None, None, True)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ([1.0, math.nan], [1.0, 1.0], r"baseline\[1\] is nan: a ratio needs finite values above 0"),
        ([1.0], [math.inf], r"treatment\[0\] is inf"),
        ([1.0], [0.0], r"treatment\[0\] is 0.0"),
        ([1.0], [-1.0], r"treatment\[0\] is -1.0"),
        ([1.0, 2.0], [1.0], "one value for each round, not 2 and 1: leave out the rounds in which one is missing"),
        ([1e300], [1e-300], "the ratios go to 1e600: no number holds them"),
        ([], [], "baseline needs one row of values, at least one"),
        ([[1.0]], [[1.0]], "baseline needs one row"),
    ],
)
def test_what_has_no_ratio_is_refused(before: list[float], after: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stats.paired_ratio(before, after)


def test_a_confidence_is_a_fraction() -> None:
    with pytest.raises(ValueError, match=r"confidence lies between 0 and 1, such as 0\.95, not at 95"):
        stats.paired_ratio([1.0], [1.0], confidence=95)


def test_orders_must_fit() -> None:
    with pytest.raises(ValueError, match="one entry for each of 2 rounds, not 1"):
        stats.paired_ratio([1.0, 2.0], [1.0, 2.0], baseline_first=[True])
