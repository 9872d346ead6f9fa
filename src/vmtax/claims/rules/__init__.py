"""The rules, one module for each or for a family of them."""

from __future__ import annotations

from vmtax.claims.finding import Rule
from vmtax.claims.rules import (
    bases,
    digits,
    evidence,
    headlines,
    labels,
    limits,
    means,
    noise,
    options,
    queues,
    setups,
    shares,
)

RULES: tuple[Rule, ...] = (
    Rule("R1", "a percentage and its base", bases.check),
    Rule("R2", "the mean of printed runs", means.check),
    Rule("R3", "shares add to the whole", shares.check),
    Rule("R4", "Little's law: rate times latency is the queue", queues.check),
    Rule("R5", "what the printed digits carry", digits.check),
    Rule("R6", "set-ups are alike", setups.check),
    Rule("R7", "a tool of fixed duration shows no run time", options.check_duration),
    Rule("R8", "nothing is faster than what it goes through", limits.check),
    Rule("R9", "a difference is larger than the noise", noise.check),
    Rule("R10", "labels and figures do not contradict each other", labels.check),
    Rule("R11", "a headline stands for its rows", headlines.check),
    Rule("R12", "options have an effect", options.check_effect),
    Rule("R13", "runs, method, source and unit are stated", evidence.check),
)
