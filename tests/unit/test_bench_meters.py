"""What make bench says of meters: a difference matters above one percent, and above what no difference looks like."""

from __future__ import annotations

import pytest

from tools.bench_meters import verdict
from vmtax import stats

QUIET = [1 + 0.0001 * step for step in (-3, 2, 0, 1, -1, 3, -2, 0)]
NOISY = [1 + 0.02 * step for step in (-3, 2, 0, 1, -1, 3, -2, 0)]


@pytest.mark.parametrize(
    ("off", "again", "more", "said"),
    [
        (QUIET, QUIET[::-1], 0.001, "less than 1 %"),
        (NOISY, NOISY[::-1], 0.02, "within the noise floor"),
        (QUIET, QUIET[::-1], 0.03, "MORE than 1 % and than the noise floor"),
    ],
)
def test_a_difference_is_set_against_one_percent_and_against_nothing(
    off: list[float], again: list[float], more: float, said: str
) -> None:
    on = [value * (1 + more) for value in again]
    assert verdict(stats.paired_ratio(off, on), stats.paired_ratio(off, again)) == said


def test_too_few_rounds_show_nothing() -> None:
    few = stats.paired_ratio(QUIET[:3], QUIET[1:4])
    assert verdict(few, few) == "within the noise floor"
