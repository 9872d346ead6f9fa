"""Least squares whose errors are alike within clusters: coefficients, their covariance, t intervals.

Source: Cameron & Miller, "A Practitioner's Guide to Cluster-Robust Inference", J. Human Resources 50 (2015), equations
10 to 12: the sandwich estimator with the correction G/(G-1) · (N-1)/(N-K), and t with G-1 degrees of freedom, for G
clusters, N values and K coefficients. The tests compare it with statsmodels.
"""

from __future__ import annotations

from dataclasses import dataclass

from vmtax.stats.arrays import Matrix, Vector, np, npt


@dataclass(frozen=True, slots=True)
class ClusteredFit:
    """A fit of K coefficients."""

    coefficients: Vector  # shape (K,)
    covariance: Matrix  # of the coefficients, shape (K, K)
    clusters: int  # G

    def interval(self, number: int, alpha: float) -> tuple[float, float]:
        """Of the coefficient with that index, at confidence 1 - alpha."""
        from scipy.special import stdtrit  # here, because importing it takes most of a second

        reach = float(stdtrit(self.clusters - 1, 1 - alpha / 2)) * self._error(number)
        return float(self.coefficients[number]) - reach, float(self.coefficients[number]) + reach

    def p(self, number: int) -> float:
        """The two-sided p-value that the coefficient with that index is 0."""
        from scipy.special import stdtr

        error = self._error(number)
        if error == 0:  # values without noise
            return float(self.coefficients[number] == 0)
        return float(2 * stdtr(self.clusters - 1, -abs(float(self.coefficients[number])) / error))

    def _error(self, number: int) -> float:
        """The standard error of the coefficient with that index."""
        return float(np.sqrt(self.covariance[number, number]))


def clustered_fit(design: Matrix, values: Vector, clusters: npt.ArrayLike) -> ClusteredFit:
    """Least squares of `values`, shape (N,), on `design`, shape (N, K), of full column rank with K < N.

    `clusters`: shape (N,), equal for values whose errors may be alike. Raises ValueError for fewer than two clusters,
    and for a design that leaves no value over.
    """
    count, width = design.shape
    names, cluster = np.unique(clusters, return_inverse=True)
    if len(names) < 2 or width >= count:
        raise ValueError(f"needs two clusters and more values than coefficients, not {len(names)}, {count} and {width}")
    inverse = np.linalg.pinv(design)
    coefficients = inverse @ values
    scores = np.zeros((len(names), width))
    np.add.at(scores, cluster, design * (values - design @ coefficients)[:, None])
    half = scores @ (inverse @ inverse.T)  # inverse @ inverse.T is (X'X)^-1
    correction = len(names) / (len(names) - 1) * (count - 1) / (count - width)
    return ClusteredFit(coefficients, correction * half.T @ half, len(names))
