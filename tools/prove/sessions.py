"""Before and after, where nothing was changed but the session: how often a difference is claimed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tools.prove.bar import Bar, above, at_least, at_most
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

    def levels(count: int) -> list[stats.SessionLevel]:
        return [stats.level(session()) for _ in range(count)]

    def share(claims: Callable[[], bool]) -> float:
        return sum(claims() for _ in range(experiments)) / experiments

    def claimed(each: int, calibrations: int = 0, change: float = 0.0) -> bool:
        known = stats.between_sessions([one.log for one in levels(calibrations)]) if calibrations else None
        after = [stats.SessionLevel(one.log + change, one.error) for one in levels(each)]
        result = stats.compare_sessions(levels(each), after, known)
        return result.low is not None and result.high is not None and not result.low <= 1 <= result.high

    def decided() -> bool:
        return stats.compare_sessions(levels(1), levels(1)).low is not None

    def naive() -> bool:
        low, high = stats.interval(session() - session()) or (-np.inf, np.inf)
        return not low <= 0 <= high

    yield at_most("sessions: one a side, nothing stored: decided", 0, share(decided))
    for each in (5, 3, 2):
        what = f"sessions: {each} a side, 1 % session sd: false positives"
        yield at_most(what, 0.065, share(lambda n=each: claimed(n)))
    for known in CALIBRATIONS:
        what = f"sessions: one a side, sd from {known} calibrations: false positives"
        yield at_most(what, 0.065, share(lambda k=known: claimed(1, k)))
    found = share(lambda: claimed(5, change=-CHANGE))
    yield at_least("sessions: 5 a side, a real change of 5 %: found", 0.99, found)
    yield above("sessions, control: intervals within one session a side: false positives", 0.4, share(naive))
