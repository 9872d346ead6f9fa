"""Ratios with exact intervals, stopping rules, rankings. Pure numbers; imports nothing of vmtax, usable on its own.

`paired_ratio` compares two rows of numbers, `log_ratio_interval` is the interval underneath; PrecisionRule and
DecisionRule say when a run may stop; `rank` sorts many treatments; `factor_effects` estimates the effect of each
factor; `weighted_places` sorts treatments by weighted scores, under many sets of weights. `upper_bound` and
`lower_bound` are those of a proportion, such as 0 of 300. `variance_components`, `iterations_per_boot` and
`steady_state` plan the iterations of a boot.
"""

from vmtax.stats.arrays import Floats, Vector
from vmtax.stats.boots import MOST_ITERATIONS, VarianceComponents, iterations_per_boot, variance_components
from vmtax.stats.effects import LevelEffect, factor_effects
from vmtax.stats.interval import (
    ALPHA,
    TooFewRounds,
    hodges_lehmann,
    interval,
    log_ratio_interval,
    minimum_rounds,
    reduce_iterations,
    rounds_needed,
    signed_rank_rank,
)
from vmtax.stats.proportion import CONFIDENCE, lower_bound, upper_bound
from vmtax.stats.ranking import RankedTreatments, rank
from vmtax.stats.ratio import P95_ROUNDS, STALL, CarryOver, PairedRatio, Stalls, paired_ratio
from vmtax.stats.sessions import (
    FEWEST_SESSIONS,
    BetweenSessions,
    SessionLevel,
    SessionResult,
    between_sessions,
    compare_sessions,
    level,
    merged,
)
from vmtax.stats.sessions import Method as SessionMethod
from vmtax.stats.steady import Steady, steady_state
from vmtax.stats.stopping import LOOKS, PRECISION_ALPHA, DecisionRule, Look, PrecisionRule, look_alpha
from vmtax.stats.weights import Mean, drawn_weights, weight_corners, weighted, weighted_places

__all__ = [
    "ALPHA",
    "CONFIDENCE",
    "FEWEST_SESSIONS",
    "LOOKS",
    "MOST_ITERATIONS",
    "P95_ROUNDS",
    "PRECISION_ALPHA",
    "STALL",
    "BetweenSessions",
    "CarryOver",
    "DecisionRule",
    "Floats",
    "LevelEffect",
    "Look",
    "Mean",
    "PairedRatio",
    "PrecisionRule",
    "RankedTreatments",
    "SessionLevel",
    "SessionMethod",
    "SessionResult",
    "Stalls",
    "Steady",
    "TooFewRounds",
    "VarianceComponents",
    "Vector",
    "between_sessions",
    "compare_sessions",
    "drawn_weights",
    "factor_effects",
    "hodges_lehmann",
    "interval",
    "iterations_per_boot",
    "level",
    "log_ratio_interval",
    "look_alpha",
    "lower_bound",
    "merged",
    "minimum_rounds",
    "paired_ratio",
    "rank",
    "reduce_iterations",
    "rounds_needed",
    "signed_rank_rank",
    "steady_state",
    "upper_bound",
    "variance_components",
    "weight_corners",
    "weighted",
    "weighted_places",
]
