"""Ratios with exact intervals, and when to stop. Pure numbers; imports nothing of vmtax and is usable on its own."""

from vmtax.stats.interval import (
    ALPHA,
    PRECISION_ALPHA,
    Estimate,
    Floats,
    Vector,
    estimate,
    hodges_lehmann,
    interval,
    minimum_rounds,
    precise_enough,
    reduce_iterations,
    rounds_needed,
    signed_rank_rank,
)

__all__ = [
    "ALPHA",
    "PRECISION_ALPHA",
    "Estimate",
    "Floats",
    "Vector",
    "estimate",
    "hodges_lehmann",
    "interval",
    "minimum_rounds",
    "precise_enough",
    "reduce_iterations",
    "rounds_needed",
    "signed_rank_rank",
]
