"""The effect of each factor, over all treatments that have it: least squares on logs, with rounds as blocks.

Sources: Montgomery, "Design and Analysis of Experiments", blocked factorial designs; errors clustered by boot, and
Wald's test as F, as in Cameron & Miller, J. Human Resources 50 (2015); Holm, Scand. J. Statistics 6 (1979).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vmtax.stats.arrays import Matrix, Vector, np
from vmtax.stats.clustered import ClusteredFit, clustered_fit
from vmtax.stats.interval import ALPHA

Term = tuple[str, ...]  # one factor, or two that interact


@dataclass(frozen=True, slots=True)
class LevelEffect:
    """The effect of one level of a factor against its first level; or the interaction of two levels."""

    factors: Term
    levels: tuple[str, ...]  # one for each factor
    ratio: float  # exp(coefficient): the metric at this level / at the first level
    low: float  # of the interval for this level alone: with many levels some exclude 1 by chance
    high: float
    p: float  # of this level alone
    share: float  # of the variance within rounds, explained by the whole term, 0 to 1
    term_p: float  # of the whole term, all its levels at once; adjusted for all terms that were requested together


def factor_effects(
    levels: Sequence[Mapping[str, str]], logs: Matrix, alpha: float = ALPHA, *, by_round: bool = False
) -> tuple[LevelEffect, ...]:
    """Main effects, each averaged over the other factors, then two-way interactions; factors in order of appearance.

    `levels`: for each treatment, factor -> level; a factor's first level is its baseline. `logs`: shape `(rounds,
    treatments)` or `(rounds, treatments, iterations)`, NaN for missing values; iterations of one boot are one cluster.
    `by_round`: a whole round is one cluster, because some of its treatments share a boot of the host. A factor with one
    level has no effect; factors that the treatments cannot distinguish from earlier ones are left out, and so are
    interactions that they cannot distinguish from main effects. If only terms with a `term_p` of alpha or less are
    claimed, some claim is false in at most about that share of calls. Raises ValueError if there are too few data for a
    fit.
    """
    values = np.asarray(logs, dtype=np.float64)
    if values.ndim == 2:
        values = values[:, :, None]
    if np.isinf(values).any():
        raise ValueError("needs finite logs, NaN where there is none; some are infinite")
    if values.ndim != 3 or values.shape[1] != len(levels):
        raise ValueError(f"needs logs of shape (rounds, {len(levels)}, iterations), not {np.shape(logs)}")
    data = _Data(levels, values, by_round=by_round)
    mains: list[Term] = []
    for name in data.known:
        if data.full_rank([*mains, (name,)]):
            mains.append((name,))
    effects: list[LevelEffect] = []
    if mains:
        effects += data.effects(mains, mains, alpha)
        separate = [name for (name,) in mains]
        pairs = [pair for pair in itertools.combinations(separate, 2) if data.separable(mains, pair)]
        for pair in pairs:
            effects += data.effects([*mains, pair], [pair], alpha)
    return tuple(_adjusted(effects))


def _adjusted(effects: Sequence[LevelEffect]) -> Iterator[LevelEffect]:
    """Adjust `term_p` of each term for the number of terms, by Holm."""
    terms = {effect.factors: effect.term_p for effect in effects}
    largest, adjusted = 0.0, dict[Term, float]()
    for rank, term in enumerate(sorted(terms, key=terms.__getitem__)):
        largest = max(largest, min(1.0, (len(terms) - rank) * terms[term]))
        adjusted[term] = largest
    return (replace(effect, term_p=adjusted[effect.factors]) for effect in effects)


class _Data:
    """Rows of one regression, after subtracting the rounds' levels."""

    def __init__(self, levels: Sequence[Mapping[str, str]], values: Matrix, *, by_round: bool) -> None:
        rounds, treatments, _ = values.shape
        where = np.argwhere(~np.isnan(values))
        self.rounds, self.treatments = where[:, 0], where[:, 1]
        self.clusters = self.rounds if by_round else self.rounds * treatments + self.treatments
        self.by_round = by_round
        self.blocks = np.eye(rounds)[:, np.bincount(self.rounds, minlength=rounds) > 0][self.rounds]
        self.y: Vector = values[tuple(where.T)]
        self.levels = levels
        self.known: dict[str, tuple[str, ...]] = {}
        for name in dict.fromkeys(name for entry in levels for name in entry):
            seen = tuple(dict.fromkeys(entry[name] for entry in levels if name in entry))
            if len(seen) > 1 and all(name in entry for entry in levels):
                self.known[name] = seen
        self.within = self._unexplained([])

    def columns(self, term: Term) -> Iterator[tuple[tuple[str, ...], Vector]]:
        """(levels, 0/1 column) of each combination of levels other than the first ones."""
        for combination in itertools.product(*(self.known[name][1:] for name in term)):
            of_treatment = [
                float(all(entry[name] == level for name, level in zip(term, combination, strict=True)))
                for entry in self.levels
            ]
            yield combination, np.array(of_treatment)[self.treatments]

    def design(self, terms: Sequence[Term]) -> Matrix:
        return np.column_stack([self.blocks, *(column for term in terms for _, column in self.columns(term))])

    def full_rank(self, terms: Sequence[Term]) -> bool:
        design = self.design(terms)
        return int(np.linalg.matrix_rank(design)) == int(design.shape[1])

    def separable(self, mains: Sequence[Term], pair: Term) -> bool:
        return self.full_rank([*mains, pair]) and self.design([*mains, pair]).shape[1] < len(self.y)

    def effects(self, terms: Sequence[Term], wanted: Sequence[Term], alpha: float) -> Iterator[LevelEffect]:
        """The `wanted` effects of a fit of `terms`."""
        fit = self._fit(terms)
        place = self.blocks.shape[1]
        full = self._unexplained(terms)
        for term in terms:
            levels = [combination for combination, _ in self.columns(term)]
            if term in wanted:
                share = 0.0
                if self.within > 0:
                    share = (self._unexplained([other for other in terms if other != term]) - full) / self.within
                together = self._p(fit, place, len(levels))
                for number, combination in enumerate(levels, start=place):
                    ratio, low, high = map(math.exp, (fit.coefficients[number], *fit.interval(number, alpha)))
                    yield LevelEffect(term, combination, ratio, low, high, fit.p(number), max(share, 0.0), together)
            place += len(levels)

    def _p(self, fit: ClusteredFit, place: int, count: int) -> float:
        """The p-value that `count` coefficients from `place` on are all 0: Wald's statistic, as F.

        Fitted rounds and effects are subtracted from the boots' degrees of freedom: with few boots, the estimated
        errors would otherwise be too small.
        """
        from scipy.stats import f

        where = slice(place, place + count)
        estimates, errors = fit.coefficients[where], fit.covariance[where, where]
        statistic = float(estimates @ np.linalg.pinv(errors, hermitian=True) @ estimates) / count
        return float(f.sf(statistic, count, self._freedom(len(fit.coefficients))))

    def _freedom(self, fitted: int) -> int:
        """Number of clusters minus the number of parameters fitted across them: if a round is a cluster, its level does
        not count.
        """
        return len(np.unique(self.clusters)) - fitted + (self.blocks.shape[1] if self.by_round else 0)

    def _fit(self, terms: Sequence[Term]) -> ClusteredFit:
        design = self.design(terms)
        if self._freedom(design.shape[1]) <= 0 or np.linalg.matrix_rank(design) < design.shape[1]:
            what = "rounds" if self.by_round else "boots"
            raise ValueError(
                f"{len(np.unique(self.clusters))} {what} are too few, or their levels too much alike, to separate the "
                f"effects of {design.shape[1] - self.blocks.shape[1]} levels: run more rounds or more configurations"
            )
        return clustered_fit(design, self.y, self.clusters)

    def _unexplained(self, terms: Sequence[Term]) -> float:
        design = self.design(terms)
        solution = np.linalg.lstsq(design, self.y, rcond=None)[0]
        return float(((self.y - design @ solution) ** 2).sum())
