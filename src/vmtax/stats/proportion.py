"""Exact bounds of a proportion, from k events in n trials. Pure numbers.

Source: Clopper & Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial",
Biometrika 26 (1934), written with quantiles of the beta distribution as in Brown, Cai & DasGupta, "Interval estimation
for a binomial proportion", Statistical Science 16 (2001), section 4.2.1. Each bound is one-sided: the whole error
probability, `1 - confidence`, is on its side, so that 0 of 300 is at most 1.0 % at 95 %.
"""

from __future__ import annotations

CONFIDENCE = 0.95


def upper_bound(count: int, of: int, confidence: float = CONFIDENCE) -> float:
    """The largest proportion at which `count` or fewer of `of` independent trials have a probability of 1 - confidence.

    A fraction; 1 if all of them happened. The true proportion is at most this in a share of `confidence` or more of all
    such experiments. Raises ValueError without trials or for an impossible count.
    """
    _check(count, of, confidence)
    if count == of:
        return 1.0
    if count == 0:
        return float(1 - (1 - confidence) ** (1 / of))  # the same, without importing scipy
    from scipy.special import betaincinv

    return float(betaincinv(count + 1, of - count, confidence))


def lower_bound(count: int, of: int, confidence: float = CONFIDENCE) -> float:
    """The smallest proportion at which `count` or more of `of` independent trials have a probability of 1 - confidence.

    A fraction; 0 if none of them happened. Raises ValueError as `upper_bound` does.
    """
    _check(count, of, confidence)
    if count == 0:
        return 0.0
    if count == of:
        return float((1 - confidence) ** (1 / of))
    from scipy.special import betaincinv

    return float(betaincinv(count, of - count + 1, 1 - confidence))


def _check(count: int, of: int, confidence: float) -> None:
    if not 0 <= count <= of or of < 1:
        raise ValueError(f"{count} of {of} is no proportion")
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence is between 0 and 1, not {confidence}")
