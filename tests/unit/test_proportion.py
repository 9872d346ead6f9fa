"""Exact bounds of a proportion, against scipy's and against what they promise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from vmtax import stats

counts = st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
confidences = st.floats(0.5, 0.999)


def test_none_of_three_hundred_is_at_most_one_percent() -> None:
    assert stats.upper_bound(0, 300) == pytest.approx(0.009936, abs=1e-6)
    assert stats.upper_bound(0, 298) > 0.01 > stats.upper_bound(0, 299)
    assert stats.lower_bound(300, 300) == pytest.approx(1 - 0.009936, abs=1e-6)


@pytest.mark.parametrize(("count", "of"), [(0, 1), (1, 1), (0, 2143), (1, 2143), (7, 20), (1902, 2143), (2143, 2143)])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
@pytest.mark.varied(5)
def test_the_bounds_are_those_of_scipy(count: int, of: int, confidence: float) -> None:
    at_most = binomtest(count, of, alternative="less").proportion_ci(confidence, "exact").high
    at_least = binomtest(count, of, alternative="greater").proportion_ci(confidence, "exact").low
    assert stats.upper_bound(count, of, confidence) == pytest.approx(at_most, rel=1e-9)
    assert stats.lower_bound(count, of, confidence) == pytest.approx(at_least, rel=1e-9)


@given(counts, confidences)
def test_at_its_bound_so_few_or_so_many_have_the_chance_that_is_left(seen: tuple[int, int], confidence: float) -> None:
    count, of = seen
    at_most, at_least = stats.upper_bound(count, of, confidence), stats.lower_bound(count, of, confidence)
    assert 0 <= at_least <= count / of <= at_most <= 1
    if count < of:
        assert binom.cdf(count, of, at_most) == pytest.approx(1 - confidence, rel=1e-6)
    if count:
        assert binom.sf(count - 1, of, at_least) == pytest.approx(1 - confidence, rel=1e-6)


@given(counts)
def test_what_is_lost_and_what_is_kept_mirror_each_other(seen: tuple[int, int]) -> None:
    count, of = seen
    assert stats.upper_bound(count, of) == pytest.approx(1 - stats.lower_bound(of - count, of), abs=1e-9)


@given(counts)
def test_more_tries_without_an_event_say_more(seen: tuple[int, int]) -> None:
    _, of = seen
    assert stats.upper_bound(0, of + 1) < stats.upper_bound(0, of)


@pytest.mark.parametrize(("count", "of"), [(0, 0), (-1, 3), (4, 3)])
def test_what_is_no_proportion_is_refused(count: int, of: int) -> None:
    for bound in (stats.upper_bound, stats.lower_bound):
        with pytest.raises(ValueError, match="no proportion"):
            bound(count, of)
    with pytest.raises(ValueError, match="confidence"):
        stats.upper_bound(1, 3, 1.0)
