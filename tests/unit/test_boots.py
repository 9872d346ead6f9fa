"""Variance components and planned iterations against simulation, against the textbook's ANOVA, and against search."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtax import stats
from vmtax.stats import VarianceComponents

variances = st.floats(1e-8, 1e-1)
seconds = st.floats(0.05, 1e3)
DRAWS = 60  # of noise; `make prove` has more


def test_components_of_a_balanced_design_by_hand() -> None:
    """Means 0 and 2 of logs, deviations of 1 in each boot: within 2, between (4 - 2) / 2 (mean squares 4 and 2)."""
    boots = [[math.exp(-1), math.exp(1)], [math.exp(1), math.exp(3)]]
    found = stats.variance_components(boots)
    assert (found.within, found.between) == (pytest.approx(2.0), pytest.approx(1.0))
    assert found.share_between == pytest.approx(1 / 3) and (found.boots, found.iterations) == (2, 4)


def test_simulated_components_are_recovered_from_boots_of_unequal_length() -> None:
    random = np.random.default_rng(1)
    found = []
    for _ in range(400):
        sizes = random.integers(1, 12, size=10)
        boots = [np.exp(random.normal(0, 0.02) + random.normal(0, 0.01, size=size)) for size in sizes]
        found.append(stats.variance_components([boot.tolist() for boot in boots]))
    # Clamping is rare here, so both estimates are unbiased but for it.
    assert np.mean([c.between for c in found]) == pytest.approx(4e-4, rel=0.06)
    assert np.mean([c.within for c in found]) == pytest.approx(1e-4, rel=0.04)


def test_boots_that_do_not_differ_have_no_variance_between() -> None:
    found = stats.variance_components([[1.0, 1.2, 0.8], [0.8, 1.0, 1.2]])
    assert found.between == 0.0 and found.within > 0 and found.share_between == 0.0
    assert stats.variance_components([[2.0, 2.0], [2.0, 2.0]]).share_between == 0.0


@given(st.lists(st.lists(st.floats(0.1, 10), min_size=2, max_size=6), min_size=2, max_size=6), st.floats(1e-6, 1e6))
def test_components_have_no_unit_and_no_order(boots: list[list[float]], factor: float) -> None:
    found = stats.variance_components(boots)
    scaled = stats.variance_components([[value * factor for value in reversed(boot)] for boot in reversed(boots)])
    assert scaled.within == pytest.approx(found.within, abs=1e-9)
    assert scaled.between == pytest.approx(found.between, abs=1e-9)
    assert 0 <= found.share_between <= 1


@pytest.mark.parametrize(
    ("boots", "words"),
    [
        ([[1.0, 2.0]], "two boots or more"),
        ([[1.0], [2.0]], "has 2 with 2 iterations"),
        ([], "has 0 with 0"),
        ([[1.0, 0.0], [1.0, 2.0]], "above 0"),
        ([[1.0, math.nan], [1.0, 2.0]], "above 0"),
    ],
)
def test_too_little_for_components_is_said(boots: list[list[float]], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        stats.variance_components(boots)


@given(variances, variances, seconds, seconds)
def test_no_other_number_of_iterations_buys_more(between: float, within: float, iteration: float, boot: float) -> None:
    planned = stats.iterations_per_boot(VarianceComponents(between, within, 9, 99), iteration, boot, most=50)
    price = [(boot + r * iteration) * (between + within / r) for r in range(1, 51)]
    assert price[planned - 1] == pytest.approx(min(price), rel=1e-9)


def test_the_planned_number_is_the_best_of_a_simulated_hour() -> None:
    """Boots of 10 s, iterations of 1 s, sd 1 % between and 2 % within: sqrt(10 * 4) = 6.3."""
    components = VarianceComponents(1e-4, 4e-4, 30, 360)
    assert stats.iterations_per_boot(components, 1.0, 10.0) == 6
    random = np.random.default_rng(7)

    def spread(iterations: int) -> float:
        boots = int(3600 / (10 + iterations))
        means = random.normal(0, 0.01, (4000, boots)) + random.normal(0, 0.02 / math.sqrt(iterations), (4000, boots))
        return float(means.mean(axis=1).std())

    at_planned = spread(6)
    assert at_planned < 0.95 * spread(1) and at_planned < 0.95 * spread(20)


def test_planned_iterations_at_the_edges() -> None:
    def planned(between: float, within: float, boot: float = 4.0) -> int:
        return stats.iterations_per_boot(VarianceComponents(between, within, 3, 36), 1.0, boot)

    assert planned(0.0, 1e-4) == stats.MOST_ITERATIONS
    assert planned(1e-4, 0.0) == planned(0.0, 0.0) == planned(1e-4, 1e-4, boot=0.0) == 1
    assert planned(5e-324, 1.0) == stats.MOST_ITERATIONS
    with pytest.raises(ValueError, match="above 0"):
        stats.iterations_per_boot(VarianceComponents(1e-4, 1e-4, 3, 36), 0.0, 4.0)


def noisy(random: np.random.Generator, boots: int, length: int, shape: object = 0.0) -> list[list[float]]:
    """Boots with 1 % of noise and a level of their own, about a course in logs."""
    logs = random.normal(0, 0.01, (boots, length)) + random.normal(0, 0.03, (boots, 1)) + shape
    rows: list[list[float]] = np.exp(logs).tolist()
    return rows


@pytest.mark.parametrize(("boots", "length"), [(1, 12), (3, 12), (6, 12), (3, 30), (2, 40)])
@pytest.mark.varied(2)
def test_white_noise_has_no_warm_up(boots: int, length: int) -> None:
    random = np.random.default_rng(length)
    changes = sum(stats.steady_state(noisy(random, boots, length)).warm_up != 0 for _ in range(DRAWS))
    assert changes <= 0.05 * DRAWS


def test_skewed_noise_with_stalls_has_none_either() -> None:
    random = np.random.default_rng(3)
    made = [random.gamma(2, 0.01, (6, 12)) + 0.5 * (random.random((6, 12)) < 0.03) for _ in range(DRAWS)]
    assert sum(stats.steady_state(np.exp(logs).tolist()).warm_up != 0 for logs in made) <= 0.07 * DRAWS


@pytest.mark.parametrize("planted", [1, 3, 5])
@pytest.mark.varied(1)
def test_a_planted_warm_up_is_found(planted: int) -> None:
    random = np.random.default_rng(planted)
    course = 0.05 * (np.arange(12) < planted)
    found = [stats.steady_state(noisy(random, 6, 12, course)) for _ in range(100)]
    assert sum(steady.warm_up == planted for steady in found) >= 93
    assert f"steady after {planted} in 6 boots of 12 iterations" in {steady.reason for steady in found}


def test_a_warm_up_that_some_boots_have_counts_for_all() -> None:
    random = np.random.default_rng(5)
    course = 0.05 * (np.arange(12) < 2) * np.array([[1], [1], [1], [0], [0], [0]])
    assert stats.steady_state(noisy(random, 6, 12, course)).warm_up == 2


@pytest.mark.parametrize("length", [12, 40])
def test_drift_is_no_steady_state(length: int) -> None:
    random = np.random.default_rng(length)
    found = [stats.steady_state(noisy(random, 6, length, np.linspace(0, 0.1, length))) for _ in range(50)]
    assert sum(steady.warm_up is None for steady in found) >= 48
    assert all("no steady state: still changing at iteration" in s.reason for s in found if s.warm_up is None)


def test_values_without_noise() -> None:
    assert stats.steady_state([[5.0] * 12] * 3).warm_up == 0
    assert stats.steady_state([[6.0, 6.0] + [5.0] * 10] * 3).warm_up == 2


@pytest.mark.parametrize(("series", "words"), [([], "not in 0"), ([[1.0] * 7], "not in 7"), ([[0.0] * 12], "above 0")])
def test_series_that_tell_nothing_are_refused(series: list[list[float]], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        stats.steady_state(series)
