"""A small share of `make hostile`, which has all of it."""

from __future__ import annotations

import pytest

from tools.hostile.__main__ import CATEGORIES, tried

SHARE = 0.02
SEED = 20261122


@pytest.mark.parametrize("category", CATEGORIES)
def test_a_share_of_the_hostile_cases(category: str) -> None:
    count = 0
    failed = []
    for case, complaints in tried(category, SEED, SHARE):
        count += 1
        failed += [f"{case.name}: {complaint}" for complaint in complaints]
    assert count > 0
    assert failed == []
