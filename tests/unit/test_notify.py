"""The command of --notify: refused before a run if it cannot be run, and told how the run ended."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.sample import sample_experiment
from vmtax.cli.app import BadUse
from vmtax.cli.notify import checked_command, notify, seen
from vmtax.store import Store

RUN = sample_experiment(rounds=1)


def open_reader(fifo: Path) -> BinaryIO:
    """Its end, without waiting for a writer; reading from it then waits for the end of all that wrote."""
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    return os.fdopen(reader, "rb")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store") as store:
        yield store


def test_a_run_that_was_resumed_is_told_of_too(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "told"
    store.put(RUN)
    notify(f"echo $VMTAX_RUN_ID >> {file}", store, "local", {(RUN.id, "interrupted", 1, 0)})
    assert file.read_text() == f"{RUN.id}\n"


def test_its_shell_is_there_whatever_is_in_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert checked_command("echo done") == "echo done"
    with pytest.raises(BadUse, match="no program touch"):
        checked_command("touch done")


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("mail 'open", "quoted|matching"),
        ("echo done |", "end of file"),
        ("", "there is no program"),
        ("# later", "there is no program"),
        ("/no/such -x", "there is no program /no/such"),
        ("no-such-program | cat", "there is no program no-such-program"),
    ],
)
def test_what_cannot_be_run_is_refused_beforehand(command: str, why: str) -> None:
    with pytest.raises(BadUse, match=why):
        checked_command(command)


def test_the_command_is_told_how_the_run_ended_and_nothing_about_other_hosts(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "told"
    words = checked_command(f"echo $VMTAX_RUN_ID $VMTAX_RUN_STATE | cat >> {file}; exit 3")
    before = seen(store, "local")
    store.put(RUN)
    notify(words, store, "local", before)
    before = seen(store, "local")
    store.put(replace(RUN, id="20261121-0413-quick-0009", state="interrupted"))
    store.put(replace(RUN, id="20261121-0414-quick-000a", host="ssh://b"))
    notify(words, store, "local", before)
    assert file.read_text().splitlines() == [f"{RUN.id} complete", "20261121-0413-quick-0009 interrupted"]


@pytest.mark.parametrize(
    "command", ["f () { true; }; f", "A=b true", "{ true; }", "(true)", "! false", "test -d / && true", "$HOME/x"]
)
def test_what_only_a_shell_understands_is_taken(command: str) -> None:
    assert checked_command(command) == command


def test_a_pipe_that_does_not_end_is_ended_with_all_its_programs(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("vmtax.cli.notify.MOST_SECONDS", 0.1)
    before, fifo = seen(store, "local"), tmp_path / "fifo"
    os.mkfifo(fifo)
    store.put(RUN)
    with open_reader(fifo) as reader:
        notify(checked_command(f"sleep 600 > {fifo} | sleep 601"), store, "local", before)
        assert reader.read() == b"", "whoever had it open is gone"
    assert "had not ended after 0.1 s, and was ended" in capsys.readouterr().err


def test_nothing_is_told_where_nothing_began(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "told"
    store.put(RUN)
    notify(checked_command(f"touch {file}"), store, "local", seen(store, "local"))
    assert not file.exists()


def test_what_the_command_prints_is_not_in_the_answer_and_its_failure_is_a_warning(
    store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    before = seen(store, "local")
    store.put(RUN)
    notify(checked_command("echo mailed; exit 1"), store, "local", before)
    out, err = capfd.readouterr()
    assert out == "" and err.splitlines() == ["mailed", "vmtax: --notify ended with 1"]
