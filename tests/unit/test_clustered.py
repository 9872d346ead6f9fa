"""Least squares with clustered errors gives what statsmodels gives."""

from __future__ import annotations

import numpy as np
import pytest

from vmtax.stats.clustered import ClusteredFit, clustered_fit


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.varied(8)
def test_a_fit_is_that_of_statsmodels(seed: int) -> None:
    from statsmodels.regression.linear_model import OLS  # here, because importing it takes longer than the test

    rng = np.random.default_rng(seed)
    width, groups = int(rng.integers(1, 7)), int(rng.integers(2, 30))
    # Clusters of unequal sizes, with names that are not in order and leave gaps.
    clusters = rng.permutation(np.repeat(rng.permutation(3 * groups)[:groups], rng.integers(1, 6, groups) + width))
    design = rng.normal(size=(len(clusters), width)) * 10.0 ** rng.integers(-2, 3, width)
    values = design @ rng.normal(size=width) + rng.normal(size=3 * groups)[clusters] + rng.normal(size=len(clusters))
    fit = clustered_fit(design, values, clusters)
    oracle = OLS(values, design).fit(cov_type="cluster", cov_kwds={"groups": clusters}, use_t=True)
    assert fit.coefficients == pytest.approx(oracle.params, rel=1e-10, abs=1e-10)
    assert fit.covariance == pytest.approx(oracle.cov_params(), rel=1e-10, abs=1e-10 * oracle.cov_params().max())
    for alpha in (0.05, 0.01):
        intervals = [fit.interval(number, alpha) for number in range(width)]
        assert np.array(intervals) == pytest.approx(oracle.conf_int(alpha), rel=1e-9, abs=1e-10)
    assert [fit.p(number) for number in range(width)] == pytest.approx(list(oracle.pvalues), rel=1e-8, abs=1e-12)


def test_too_few_clusters_or_values_are_refused() -> None:
    with pytest.raises(ValueError, match="two clusters"):
        clustered_fit(np.ones((4, 1)), np.arange(4.0), np.zeros(4))
    with pytest.raises(ValueError, match="more values than coefficients"):
        clustered_fit(np.eye(3), np.arange(3.0), np.arange(3.0))


def test_values_without_noise_have_an_effect_for_sure_or_none() -> None:
    design, clusters = np.array([[1.0, 0.0], [1.0, 1.0]] * 3), np.repeat(np.arange(3), 2)
    fit = clustered_fit(design, design @ [0.0, 2.0], clusters)
    assert fit.coefficients == pytest.approx([0.0, 2.0], abs=1e-12) and fit.interval(1, 0.05) == pytest.approx((2, 2))
    exact = ClusteredFit(np.array([0.0, 2.0]), np.zeros((2, 2)), 3)
    assert [exact.p(0), exact.p(1)] == [1.0, 0.0]
