"""A run belongs to one process, which is not the next one with its number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from vmtax.core.records import State
from vmtax.store.owner import Owner, state_of, this_process

HERE = this_process()
GONE = 2**22 + 1  # above the highest process id that Linux gives


@pytest.mark.parametrize(
    ("owner", "alive"),
    [
        (HERE, True),
        (replace(HERE, start="1"), False),
        (replace(HERE, start=""), False),
        (replace(HERE, boot="another boot"), False),
        (replace(HERE, pid=GONE), False),
    ],
    ids=["this process", "an earlier one of its number", "an unknown start", "before a reboot", "one that is gone"],
)
def test_a_run_is_running_while_the_process_that_owns_it_is(owner: Owner, alive: bool) -> None:
    assert owner.alive() is alive
    assert state_of("running", owner) == ("running" if alive else "interrupted")


@pytest.mark.parametrize("state", ["complete", "interrupted", "failed"])
def test_a_run_that_ended_stays_so_whoever_lives(state: State) -> None:
    assert state_of(state, HERE) == state


def test_an_owner_from_a_damaged_cell_is_nobody() -> None:
    damaged: Any = "not a number"
    assert not Owner(damaged, HERE.boot, HERE.start).alive()
