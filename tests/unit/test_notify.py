"""The command of --notify: refused before a run if it cannot be run, and told how the run ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sample import sample_experiment
from vmtax.cli.app import BadUse
from vmtax.cli.notify import notify, seen, words_of
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


def test_the_command_is_told_how_the_run_ended_and_nothing_about_other_hosts(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "told"
    words = words_of(f"sh -c 'echo $VMTAX_RUN_ID $VMTAX_RUN_STATE >> {file}; exit 3'")
    before = seen(store, "local")
    store.put(RUN)
    notify(words, store, "local", before)
    before = seen(store, "local")
    store.put(replace(RUN, id="20261121-0413-quick-0009", state="interrupted"))
    store.put(replace(RUN, id="20261121-0414-quick-000a", host="ssh://b"))
    notify(words, store, "local", before)
    assert file.read_text().splitlines() == [f"{RUN.id} complete", "20261121-0413-quick-0009 interrupted"]


def test_nothing_is_told_where_nothing_began(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "told"
    store.put(RUN)
    notify(words_of(f"touch {file}"), store, "local", seen(store, "local"))
    assert not file.exists()


def test_what_the_command_prints_is_not_in_the_answer_and_its_failure_is_a_warning(
    store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    before = seen(store, "local")
    store.put(RUN)
    notify(words_of("sh -c 'echo mailed; exit 1'"), store, "local", before)
    out, err = capfd.readouterr()
    assert out == "" and err.splitlines() == ["mailed", "vmtax: --notify: sh ended with 1"]
