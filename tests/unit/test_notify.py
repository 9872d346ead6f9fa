"""The command of --notify: refused before a run if it cannot be run, and told how the run ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sample import sample_experiment
from vmtax.cli.app import BadUse
from vmtax.cli.notify import notified, words_of
from vmtax.store import Store

RUN = sample_experiment(rounds=1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store") as store:
        yield store


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("mail 'open", "No closing quotation"),
        ("", "there is no program"),
        ("/no/such -x", "there is no program '/no/such'"),
    ],
)
def test_what_cannot_be_run_is_refused_beforehand(command: str, why: str) -> None:
    with pytest.raises(BadUse, match=why):
        words_of(command)


def test_the_command_is_told_how_the_run_ended_also_after_ctrl_c(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "told"
    words = words_of(f"sh -c 'echo $VMTAX_RUN $VMTAX_STATE >> {file}; exit 3'")
    with notified(store, words):
        store.put(RUN)
    with pytest.raises(KeyboardInterrupt), notified(store, words):
        store.put(replace(RUN, id="20261121-0413-quick-0009", state="interrupted"))
        raise KeyboardInterrupt
    assert file.read_text().splitlines() == [f"{RUN.id} complete", "20261121-0413-quick-0009 interrupted"]


def test_a_run_that_went_on_is_told_of_and_no_earlier_one(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "told"
    words = words_of(f"sh -c 'echo $VMTAX_RUN $VMTAX_STATE >> {file}'")
    store.put(replace(RUN, state="interrupted"))
    with notified(store, words):
        pass
    assert not file.exists(), "it was stopped before"
    with notified(store, words):
        store.resume(RUN.id)
        store.finish(RUN.id, "complete", RUN.created + 60.0, seconds=60.0)
    assert file.read_text() == f"{RUN.id} complete\n"


def test_nothing_is_told_where_nothing_began_and_a_failing_command_is_a_warning(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "told"
    with notified(store, words_of(f"touch {file}")):
        pass
    assert not file.exists()
    with notified(store, words_of("false")):
        store.put(RUN)
    assert capsys.readouterr().err == "vmtax: --notify: false ended with 1\n"
