"""Stopping rules: what looking often costs, and how soon they are through."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from tools.prove import noise
from tools.prove.bar import Bar, above, at_least, at_most
from vmtax import stats
from vmtax.stats import DecisionRule, PrecisionRule

MOST = 120


def bars(experiments: int = 2000) -> Iterator[Bar]:
    source = np.random.default_rng(20261122)
    yield from _precision(source, experiments)
    yield from _decision(source, experiments)


def _precision(source: np.random.Generator, experiments: int) -> Iterator[Bar]:
    rule = PrecisionRule(0.01, most=MOST)
    steady = noise.random_order(source, noise.independent(source, experiments, 2 * MOST, 0.02))
    quiet = noise.random_order(source, noise.independent(source, experiments, 2 * MOST, 0.01))
    rough = noise.random_order(source, noise.walk_with_outliers(source, experiments, 2 * MOST))
    for name, differences, limit in (
        ("cv 2 %", steady, 42),
        ("cv 1 %", quiet, 14),
        ("AR(1) walk, 5 % doubled outliers", rough, 45),
    ):
        pairs, wrong = zip(*(_precise(rule, row) for row in differences), strict=True)
        yield at_most(f"PrecisionRule, {name}: mean pairs to ±1 %", limit, float(np.mean(pairs)), "pairs")
        yield at_most(f"PrecisionRule, {name}: A/A false positives", 0.06, float(np.mean(wrong)))


def _precise(rule: PrecisionRule, differences: noise.Matrix) -> tuple[int, bool]:
    """(pairs when it stopped, whether the interval then excluded 0)."""
    for pairs in range(rule.first, rule.most + 1, rule.every):
        look = rule.look(differences[:pairs])
        if look.stop:
            assert look.low is not None and look.high is not None
            return pairs, not look.low <= 0 <= look.high
    raise AssertionError("it stops at `most`")


def _decision(source: np.random.Generator, experiments: int) -> Iterator[Bar]:
    rule = DecisionRule()
    last = rule.looks[-1]
    equal = noise.random_order(source, noise.independent(source, experiments, 2 * last))
    yield at_least("DecisionRule: all its intervals cover the truth", 0.94, 1 - np.mean([_missed(r) for r in equal]))
    yield above("control: a plain interval after every pair", 0.20, float(np.mean([_peeked(row) for row in equal])))
    for effect, share, limit in ((0.03, 0.99, 25), (0.10, 0.99, 15)):
        shifted = noise.random_order(source, noise.independent(source, experiments, 2 * last)) + math.log1p(effect)
        pairs, found = zip(*(_decided(rule, row) for row in shifted), strict=True)
        yield at_least(f"DecisionRule, {effect:.0%} effect at cv 3 %: found", share, float(np.mean(found)))
        yield at_most(f"DecisionRule, {effect:.0%} effect at cv 3 %: mean pairs", limit, float(np.mean(pairs)), "pairs")
    alpha = stats.look_alpha((1, 2, 3, 4, 5), 0.05)
    yield Bar("five equal looks: alpha for each", "0.0158 ± 0.0003", f"{alpha:.4f}", abs(alpha - 0.0158) <= 0.0003)
    alpha = rule.look_alpha
    yield Bar(f"looks {rule.looks}: alpha for each", "0.0131 ± 0.0001", f"{alpha:.4f}", abs(alpha - 0.0131) <= 1e-4)


def _missed(differences: noise.Matrix) -> bool:
    rule = DecisionRule(margin=math.inf)  # nothing is ever settled: every look is taken
    looks = [rule.look(differences[:pairs]) for pairs in rule.looks]
    return any(look.low is not None and look.high is not None and not look.low <= 0 <= look.high for look in looks)


def _peeked(differences: noise.Matrix) -> bool:
    bounds: Sequence[tuple[float, float] | None] = [
        stats.interval(differences[:pairs]) for pairs in range(6, differences.size + 1)
    ]
    return any(bound is not None and not bound[0] <= 0 <= bound[1] for bound in bounds)


def _decided(rule: DecisionRule, differences: noise.Matrix) -> tuple[int, bool]:
    """(pairs when it stopped, whether the interval then lay above 0)."""
    for pairs in rule.looks:
        look = rule.look(differences[:pairs])
        if look.stop:
            return pairs, look.low is not None and look.low > 0
    raise AssertionError("it stops at the last look")
