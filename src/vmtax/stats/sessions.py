"""Compare before and after, with the session as the unit. Intervals within a session do not include what changes by
itself from one session of a machine to the next (METHOD.md, *Sessions*), so this part is estimated from several
sessions, or no interval is given.

A session is represented by its *level*: the logarithm of a metric of one treatment, a single number. Sources: Welch,
"The generalization of 'Student's' problem ...", Biometrika 34 (1947); Satterthwaite, Biometrics Bulletin 2 (1946).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from vmtax.stats.arrays import Floats, Vector, np
from vmtax.stats.interval import hodges_lehmann

FEWEST_SESSIONS = 3  # fewest for a standard deviation between sessions: two have only one degree of freedom

# Asymptotic variance of the Hodges-Lehmann estimate over that of the mean, for normal data (Hodges & Lehmann 1963).
_HL_VARIANCE = math.pi / 3

Method = Literal["welch", "stored", "other side", "none"]


@dataclass(frozen=True, slots=True)
class SessionLevel:
    """One session of one metric and treatment."""

    log: float  # Hodges-Lehmann of the rounds' logarithms
    error: float  # its standard error within the session, in log


@dataclass(frozen=True, slots=True)
class BetweenSessions:
    """How much the levels of one machine and metric vary from session to session."""

    sd: float  # of the levels, in log; includes the variation of rounds within a session
    df: int  # degrees of freedom of sd
    sessions: int  # that were used


@dataclass(frozen=True, slots=True)
class SessionResult:
    """A ratio of after to before; all fields are dimensionless."""

    ratio: float  # exp(mean level after - mean level before)
    low: float | None  # interval of the ratio; None: impossible, and why_undecided says why
    high: float | None
    sessions: tuple[int, int]  # before, after
    method: Method  # source of the variance between sessions
    why_undecided: str | None = None


def level(logs: Floats) -> SessionLevel:
    """The level of one session from one log value per round, shape `(n,)`, n >= 2. Raises ValueError for fewer.

    The error is `sqrt(pi/3) sd / sqrt(n)`, as if rounds were independent; drift of the machine, which makes them
    dependent, also affects the levels of sessions and is included in the variance between them.
    """
    center = hodges_lehmann(logs)
    count = len(logs)
    if count < 2:
        raise ValueError(f"a session's level needs 2 rounds or more; has {count}")
    return SessionLevel(center, math.sqrt(_HL_VARIANCE / count) * float(np.std(np.asarray(logs), ddof=1)))


def merged(levels: Sequence[SessionLevel]) -> SessionLevel:
    """Several sessions as one replicate: their mean, with its error as if they were independent."""
    count = len(levels)
    return SessionLevel(sum(one.log for one in levels) / count, math.hypot(*(one.error for one in levels)) / count)


def between_sessions(*groups: Sequence[float]) -> BetweenSessions:
    """Standard deviation of levels (log) around the mean of their own group, pooled.

    A group consists of sessions of one machine and metric without changes between them. The variation of rounds within
    a session is not subtracted: with 3 to 10 sessions, the difference of two uncertain variances would often be 0, and
    every interval then too narrow. Raises ValueError with fewer than FEWEST_SESSIONS in total, if no two are in one
    group, and if a level is not finite or all are equal, which measured levels never are.
    """
    logs = [np.asarray(group, dtype=np.float64) for group in groups if len(group) > 1]
    sessions, df = sum(map(len, logs)), sum(len(group) - 1 for group in logs)
    if sessions < FEWEST_SESSIONS or df < FEWEST_SESSIONS - 1:
        raise ValueError(f"a variance between sessions needs {FEWEST_SESSIONS} sessions or more; has {sessions}")
    variance = sum(_spread(group) for group in logs) / df
    if not 0 < variance < math.inf:
        raise ValueError(f"levels of sessions are finite and differ, but their variance is {variance!r}")
    return BetweenSessions(math.sqrt(variance), df, sessions)


def compare_sessions(
    before: Sequence[SessionLevel],
    after: Sequence[SessionLevel],
    stored: BetweenSessions | None = None,
    confidence: float = 0.95,
) -> SessionResult:
    """The ratio of after to before, with an interval if there are enough sessions to estimate the drift.

    With two or more on each side: Welch's t interval of the levels. With an sd of 1 % between sessions and of 2 %
    between their 30 rounds, it excludes 1 in 4.2 % of 20,000 simulated comparisons of equal sides with five sessions
    each, 3.7 % with three, 2.3 % with two, and 6.3 % with two against five. The exact rank-sum interval needs four on
    each side; with eight, one side varying three times as much as the other, it excludes 1 in 6.3 %, Welch's in 4.9 %.

    With one on a side: t quantile (df of the stored sd) times `sqrt(sd^2 (1/n + 1/m) + error_before^2 +
    error_after^2)`; if nothing is stored, the sd of the other side if that has FEWEST_SESSIONS. Without either there is
    no interval. Raises ValueError for an empty side and for a level that is not finite.
    """
    if not before or not after:
        raise ValueError("a side needs one session or more")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence lies between 0 and 1, such as 0.95, not at {confidence!r}")
    sides = [np.array([one.log for one in side]) for side in (before, after)]
    errors = np.array([one.error for side in (before, after) for one in side])
    if not all(np.isfinite(numbers).all() for numbers in (*sides, errors)):
        raise ValueError("the level of a session and its error must be finite")
    counts = (len(before), len(after))
    method, variance, df = _variance(sides, before, after, stored)
    shift = float(sides[1].mean() - sides[0].mean())
    if variance is None:
        return SessionResult(math.exp(shift), None, None, counts, "none", _why(counts))
    if not variance > 0:
        why = "the sessions of each side are equal to the last digit, so they are no measurements of their own"
        return SessionResult(math.exp(shift), None, None, counts, "none", why)
    from scipy.special import stdtrit

    width = float(stdtrit(df, (1 + confidence) / 2)) * math.sqrt(variance)
    return SessionResult(math.exp(shift), math.exp(shift - width), math.exp(shift + width), counts, method)


def _variance(
    sides: Sequence[Vector],
    before: Sequence[SessionLevel],
    after: Sequence[SessionLevel],
    stored: BetweenSessions | None,
) -> tuple[Method, float | None, float]:
    """(source, variance of the difference of the sides' means, its degrees of freedom); None if unknown."""
    if min(len(before), len(after)) > 1:
        parts = [_spread(side) / (side.size - 1) / side.size for side in sides]
        weights = sum(part**2 / (side.size - 1) for part, side in zip(parts, sides, strict=True))
        return "welch", sum(parts), sum(parts) ** 2 / weights if weights else 1.0
    larger = max(sides, key=len)
    if stored is None and larger.size < FEWEST_SESSIONS:
        return "none", None, 0.0
    sd, df = (stored.sd, stored.df) if stored else (math.sqrt(_spread(larger) / (larger.size - 1)), larger.size - 1)
    within = sum(merged(levels).error ** 2 for levels in (before, after))
    variance = sd**2 * sum(1 / side.size for side in sides) + within if sd else 0.0
    return "stored" if stored else "other side", variance, df


def _spread(values: Vector) -> float:
    """Sum of squares around the mean; exactly 0 if all are equal."""
    shifted = values - values[0]
    return float(((shifted - shifted.mean()) ** 2).sum())


def _why(sessions: tuple[int, int]) -> str:
    before, after = sessions
    return (
        f"{before} session{'' if before == 1 else 's'} before and {after} after do not show how much the machine"
        " drifts from session to session"
    )
