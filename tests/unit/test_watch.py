"""Which run `vmtax watch` follows: it takes the same names as every other command, and only a run that goes on."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sample import sample_experiment
from vmtax.cli.app import BadUse
from vmtax.cli.watch import watch
from vmtax.experiment import progress
from vmtax.store import Store

MADE = sample_experiment(rounds=1)
ENDED = dataclasses.replace(MADE, id="ended", label="night", trials=())


@pytest.fixture
def followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """What was followed, in a store with a run that ended and one that begins."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    seen: list[object] = []
    monkeypatch.setattr(progress, "follow", seen.append)
    with Store() as store:
        store.put(ENDED)
        store.begin(dataclasses.replace(MADE, id="going-on", label="night", boots=(), trials=(), state="running"))
        yield seen


@pytest.mark.parametrize("name", ["", "last", "going-on", "going", "night"])
def test_the_run_that_goes_on_is_followed(
    name: str, followed: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    watch(name)
    assert len(followed) == 1
    assert capsys.readouterr().err.startswith("run going-on\n")


def test_a_run_that_has_ended_is_not(followed: list[object]) -> None:
    with pytest.raises(BadUse, match="run ended is not running"):
        watch("ended")
    assert not followed
