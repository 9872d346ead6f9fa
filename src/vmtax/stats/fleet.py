"""Many hosts, with the host as the unit: their mean, the interval of the next host, and which of them are odd.

Each host has an estimate (a log ratio) and the variance of its error, both from its own rounds. Pure numbers.

Sources: Paule & Mandel, J. Res. Natl. Bur. Stand. 87 (1982), for the variance between hosts; Hartung & Knapp, Stat.
Med. 20 (2001), for the interval of the mean; Nagashima, Noma & Furukawa, Stat. Methods Med. Res. 28 (2019), for the
prediction interval, which takes into account how little is known of the variance between hosts. The test for odd hosts
is robust: odd ones do not hide each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from vmtax.stats.arrays import Vector, np
from vmtax.stats.false_discovery import discoveries
from vmtax.stats.interval import ALPHA

FEWEST_HOSTS = 8  # for a test of which host is odd
MOST_FREEDOM = 9  # of that test: with more, hosts whose variance is by chance found too small accuse each other
FEWEST_TO_PREDICT = 3  # hosts, for an interval of the next one
ODD_RATE = 0.04  # false discovery rate of odd hosts: below 5 %, because the variance between hosts is estimated
SIMULATED = (
    400_000  # values, for the distribution that the hosts' deviations would have without a variance of their own
)
FEWEST_SIMULATED, MOST_SIMULATED = 400, 4000  # fleets
PREDICTED, GRID = 10_000, 500  # hosts that are drawn for the next one; variances between hosts that are tried
STEPS = 60  # bisections: to a part in 10^18 of where they begin
SEED = 20261127


@dataclass(frozen=True, slots=True)
class HostEstimate:
    """The figure of one host."""

    log: float  # estimate, in log
    error: float  # standard error of it, in log, above 0
    freedom: int  # degrees of freedom of the error: rounds - 1


@dataclass(frozen=True, slots=True)
class FleetMean:
    """The mean over hosts; all fields but `hosts` in log."""

    hosts: int
    mean: float
    low: float  # of the 95 % interval of the mean
    high: float
    between: float  # standard deviation between hosts, beyond the errors of their own
    next_low: float | None  # of the 95 % prediction interval, in which the next host lies; None: too few hosts
    next_high: float | None


@dataclass(frozen=True, slots=True)
class HostDeviation:
    """How far one host is from the fleet."""

    deviation: float  # from the fleet's median, in log
    p: float  # p-value of it
    is_odd: bool


def fleet_mean(hosts: Sequence[HostEstimate], alpha: float = ALPHA) -> FleetMean:
    """The mean by random effects. Raises ValueError for fewer than two hosts, and for an error that is not above 0."""
    values, variances, _ = _arrays(hosts)
    count = len(values)
    if count < 2:
        raise ValueError(f"a mean over hosts needs 2 or more; has {count}")
    between = between_hosts(values, variances)
    weights = 1 / (variances + between)
    mean = float((weights * values).sum() / weights.sum())
    scatter = float((weights * (values - mean) ** 2).sum()) / (count - 1)
    # It is below 1 by chance: Roever, Knapp & Friede, BMC Med. Res. Methodol. 15 (2015)
    error = math.sqrt(max(1.0, scatter) / float(weights.sum()))
    from scipy.special import stdtrit

    width = float(stdtrit(count - 1, 1 - alpha / 2)) * error
    ends: tuple[float | None, float | None] = (None, None)
    if count >= FEWEST_TO_PREDICT:
        ends = _next(values, variances, mean, error, alpha)
    return FleetMean(count, mean, mean - width, mean + width, math.sqrt(between), *ends)


def _next(values: Vector, variances: Vector, mean: float, error: float, alpha: float) -> tuple[float, float]:
    """Ends of the interval in which the next host lies: quantiles of hosts that are drawn around a drawn mean, with a
    variance between them that is drawn from its confidence distribution.
    """
    rng = np.random.default_rng(SEED)
    squares = np.sort(rng.chisquare(len(values) - 1, PREDICTED))
    # The weighted sum of squares falls with the variance between hosts: where it is one of those drawn
    largest = 4 * float(((values - values.mean()) ** 2).sum()) / squares[0] + 1e-300
    grid = np.concatenate(([0.0], np.geomspace(largest * 1e-9, largest, GRID)))
    weights = 1 / (variances + grid[:, None])
    centres = (weights * values).sum(axis=1) / weights.sum(axis=1)
    sums = (weights * (values - centres[:, None]) ** 2).sum(axis=1)
    between = rng.permutation(np.interp(squares, sums[::-1], grid[::-1]))
    drawn = mean + np.sqrt(between) * rng.normal(size=PREDICTED) + error * rng.standard_t(len(values) - 1, PREDICTED)
    low, high = np.quantile(drawn, (alpha / 2, 1 - alpha / 2))
    return float(low), float(high)


def between_hosts(values: Vector, variances: Vector) -> float:
    """The variance between hosts by Paule and Mandel: with it, the weighted sum of squares is as large as its degrees
    of freedom; 0 if it is smaller without. Both of shape `(hosts,)`.
    """

    def excess(between: float) -> float:
        weights = 1 / (variances + between)
        mean = (weights * values).sum() / weights.sum()
        return float((weights * (values - mean) ** 2).sum()) - (len(values) - 1)

    return _root(excess, float(((values - values.mean()) ** 2).sum()))


def odd_hosts(hosts: Sequence[HostEstimate], rate: float = ODD_RATE) -> tuple[HostDeviation, ...]:
    """Each host's deviation from the others, in their order; none is odd among fewer than FEWEST_HOSTS.

    The centre is the weighted median. The variance between hosts is what makes the median of the standardised
    deviations as large as it is on average among hosts without one, by simulation: half of the hosts may be odd without
    an effect on it. Then each host's deviation has Student's t with the freedom of its own rounds, but no more than
    MOST_FREEDOM, and no more than Satterthwaite's, in which the variance between hosts has half a degree of freedom for
    each host beyond the first six; this and MOST_FREEDOM are from simulation (tools/prove/fleet.py).
    """
    values, variances, freedom = _arrays(hosts)
    if len(values) < FEWEST_HOSTS:
        centre = _weighted_median(values, 1 / variances) if len(values) else 0.0
        return tuple(HostDeviation(float(value) - centre, 1.0, False) for value in values)
    usual = _usual_deviation(tuple(sorted(int(count) for count in freedom)))

    def excess(between: float) -> float:
        weights = 1 / (variances + between)
        deviations = np.abs(values - _weighted_median(values, weights)) * np.sqrt(weights)
        return float(np.median(deviations)) - usual

    between = _root(excess, float(((values - np.median(values)) ** 2).max()))
    weights = 1 / (variances + between)
    deviations = values - _weighted_median(values, weights)
    from scipy.special import stdtr

    certain = np.minimum(freedom, MOST_FREEDOM)
    if between:
        together = variances**2 / freedom + between**2 / ((len(values) - 6) / 2)
        certain = np.minimum(certain, (variances + between) ** 2 / together)
    p_values = 2 * stdtr(certain, -np.abs(deviations) * np.sqrt(weights))
    claims = discoveries(p_values, rate)
    return tuple(
        HostDeviation(float(deviation), float(p), claim)
        for deviation, p, claim in zip(deviations, p_values, claims, strict=True)
    )


def _arrays(hosts: Sequence[HostEstimate]) -> tuple[Vector, Vector, Vector]:
    """(estimates, variances of their errors, degrees of freedom). Raises ValueError for impossible ones."""
    values, errors, freedom = (
        np.array([getattr(host, name) for host in hosts], dtype=np.float64) for name in ("log", "error", "freedom")
    )
    if not (np.isfinite(values).all() and np.isfinite(errors).all() and (errors > 0).all() and (freedom > 0).all()):
        raise ValueError("each host needs a finite estimate with an error above 0, of two rounds or more")
    return values, errors**2, freedom


def _root(excess: Callable[[float], float], beyond: float) -> float:
    """Where a falling function crosses 0, between 0 and some multiple of `beyond`; 0 if it is not above 0 at 0."""
    if not excess(0.0) > 0:
        return 0.0
    low, high = 0.0, max(beyond, 1e-300)
    while excess(high) > 0:
        high *= 4
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high


def _weighted_median(values: Vector, weights: Vector) -> float:
    """The first value at which half of the weight is reached."""
    order = values.argsort(kind="stable")
    reached = np.cumsum(weights[order])
    return float(values[order][int(np.searchsorted(reached, reached[-1] / 2))])


@lru_cache(maxsize=64)
def _usual_deviation(freedom: tuple[int, ...]) -> float:
    """Median, over simulated fleets of equal hosts, of the median of the standardised deviations."""
    fleets = max(FEWEST_SIMULATED, min(MOST_SIMULATED, SIMULATED // len(freedom)))
    drawn = np.random.default_rng(SEED).standard_t(np.array(freedom), (fleets, len(freedom)))
    return float(np.median(np.median(np.abs(drawn - np.median(drawn, axis=1, keepdims=True)), axis=1)))
