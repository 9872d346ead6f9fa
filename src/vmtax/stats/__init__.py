"""Ratios with exact intervals, stopping rules, rankings. Pure numbers; imports nothing of vmtax, usable on its own.

`paired_ratio` compares two rows of numbers, `log_ratio_interval` is the interval underneath; PrecisionRule and
DecisionRule say when a run may stop; `rank` sorts many treatments; `factor_effects` estimates the effect of each
factor; `weighted_places` sorts treatments by weighted scores, under many sets of weights. `upper_bound` and
`lower_bound` are those of a proportion, such as 0 of 300. `variance_components`, `iterations_per_boot` and
`steady_state` plan the iterations of a boot. `steps` finds where a figure changed from run to run, and `most_change`
how far it can have changed since. `fleet_mean`, `odd_hosts` and `by_group` are about many hosts: the host is the unit.
`paired` is the change of one of them, `repeated` the mean of its runs, and `run_drift` what it changes by itself.
"""

from vmtax.stats.arrays import Floats, Vector
from vmtax.stats.boots import MOST_ITERATIONS, VarianceComponents, iterations_per_boot, variance_components
from vmtax.stats.effects import LevelEffect, factor_effects
from vmtax.stats.false_discovery import discoveries, family_discoveries
from vmtax.stats.fleet import (
    FEWEST_HOSTS,
    ODD_RATE,
    FleetMean,
    HostDeviation,
    HostEstimate,
    fleet_mean,
    odd_hosts,
)
from vmtax.stats.groups import Groups, by_group
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
from vmtax.stats.paired import PairedChange, paired
from vmtax.stats.proportion import CONFIDENCE, lower_bound, upper_bound
from vmtax.stats.ranking import RankedTreatments, rank
from vmtax.stats.ratio import P95_ROUNDS, STALL, CarryOver, PairedRatio, Stalls, paired_ratio
from vmtax.stats.repeats import RunDrift, repeated, run_drift
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
from vmtax.stats.steps import FEWEST_RUNS, LevelStep, RunTrend, largest_step, most_change, steps, trend
from vmtax.stats.stopping import LOOKS, PRECISION_ALPHA, DecisionRule, Look, PrecisionRule, look_alpha
from vmtax.stats.weights import Mean, drawn_weights, weight_corners, weighted, weighted_places

__all__ = [
    "ALPHA",
    "CONFIDENCE",
    "FEWEST_HOSTS",
    "FEWEST_RUNS",
    "FEWEST_SESSIONS",
    "LOOKS",
    "MOST_ITERATIONS",
    "ODD_RATE",
    "P95_ROUNDS",
    "PRECISION_ALPHA",
    "STALL",
    "BetweenSessions",
    "CarryOver",
    "DecisionRule",
    "FleetMean",
    "Floats",
    "Groups",
    "HostDeviation",
    "HostEstimate",
    "LevelEffect",
    "LevelStep",
    "Look",
    "Mean",
    "PairedChange",
    "PairedRatio",
    "PrecisionRule",
    "RankedTreatments",
    "RunDrift",
    "RunTrend",
    "SessionLevel",
    "SessionMethod",
    "SessionResult",
    "Stalls",
    "Steady",
    "TooFewRounds",
    "VarianceComponents",
    "Vector",
    "between_sessions",
    "by_group",
    "compare_sessions",
    "discoveries",
    "drawn_weights",
    "factor_effects",
    "family_discoveries",
    "fleet_mean",
    "hodges_lehmann",
    "interval",
    "iterations_per_boot",
    "largest_step",
    "level",
    "log_ratio_interval",
    "look_alpha",
    "lower_bound",
    "merged",
    "minimum_rounds",
    "most_change",
    "odd_hosts",
    "paired",
    "paired_ratio",
    "rank",
    "reduce_iterations",
    "repeated",
    "rounds_needed",
    "run_drift",
    "signed_rank_rank",
    "steady_state",
    "steps",
    "trend",
    "upper_bound",
    "variance_components",
    "weight_corners",
    "weighted",
    "weighted_places",
]
