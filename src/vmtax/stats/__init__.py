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
from vmtax.stats.sessions import (
    BetweenSessions,
    Level,
    SessionResult,
    between_sessions,
    compare_sessions,
    level,
    merged,
)
from vmtax.stats.sessions import Method as SessionMethod

__all__ = [
    "ALPHA",
    "PRECISION_ALPHA",
    "BetweenSessions",
    "Estimate",
    "Floats",
    "Level",
    "SessionMethod",
    "SessionResult",
    "Vector",
    "between_sessions",
    "compare_sessions",
    "estimate",
    "hodges_lehmann",
    "interval",
    "level",
    "merged",
    "minimum_rounds",
    "precise_enough",
    "reduce_iterations",
    "rounds_needed",
    "signed_rank_rank",
]
