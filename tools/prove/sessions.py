"""Before and after, where nothing was changed but the session: how often a difference is claimed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tools.prove.bar import Bar
from vmtax import stats

SEED = 20261121
SESSION_SD = 0.01  # of a session's speed, in log
ROUND_SD = 0.02  # of one round within a session, in log
ROUNDS = 30
CALIBRATIONS = (3, 5, 10)
CHANGE = 0.05  # in log


def bars(experiments: int = 2000) -> Iterator[Bar]:
    """False positives of `stats.compare_sessions`, and of an interval within sessions as the control."""
    rng = np.random.default_rng(SEED)

    def session() -> stats.Vector:
        """Log values of one session's rounds, shape `(ROUNDS,)`."""
        return rng.normal(rng.normal(0, SESSION_SD), ROUND_SD, ROUNDS)

    def levels(count: int) -> list[stats.Level]:
        return [stats.level(session()) for _ in range(count)]

    def share(claims: Callable[[], bool]) -> float:
        return sum(claims() for _ in range(experiments)) / experiments

    def claimed(each: int, calibrations: int = 0, change: float = 0.0) -> bool:
        known = stats.between_sessions([one.log for one in levels(calibrations)]) if calibrations else None
        after = [stats.Level(one.log + change, one.error) for one in levels(each)]
        result = stats.compare_sessions(levels(each), after, known)
        return result.low is not None and result.high is not None and not result.low <= 1 <= result.high

    def decided() -> bool:
        return stats.compare_sessions(levels(1), levels(1)).low is not None

    def naive() -> bool:
        low, high = stats.interval(session() - session()) or (-np.inf, np.inf)
        return not low <= 0 <= high

    yield _at_most("sessions: one a side, nothing stored: decided", share(decided), 0)
    for each in (5, 3, 2):
        yield _at_most(
            f"sessions: {each} a side, 1 % session sd: false positives", share(lambda n=each: claimed(n)), 0.065
        )
    for known in CALIBRATIONS:
        what = f"sessions: one a side, sd from {known} calibrations: false positives"
        yield _at_most(what, share(lambda k=known: claimed(1, k)), 0.065)
    found = share(lambda: claimed(5, change=-CHANGE))
    yield Bar("sessions: 5 a side, a real change of 5 %: found", ">= 99 %", f"{100 * found:.1f} %", found >= 0.99)
    control = share(naive)
    yield Bar(
        "sessions, control: intervals within one session a side", "> 40 %", f"{100 * control:.1f} %", control > 0.4
    )


def _at_most(what: str, figure: float, most: float) -> Bar:
    return Bar(what, f"<= {100 * most:.1f} %" if most else "0 %", f"{100 * figure:.1f} %", figure <= most)
