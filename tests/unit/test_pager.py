"""`show` on a terminal goes through a pager, as git's answers do; elsewhere it does not."""

from __future__ import annotations

import contextlib
import os
import pty
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.command import vmtax
from tests.sample import sample_experiment
from vmtax.store import Store
from vmtax.system import pager


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    with Store(home / "vmtax/vmtax.sqlite") as store:
        store.put(sample_experiment(rounds=2))
    return home


def on_terminal(home: Path, *words: str, **environment: str) -> str:
    """What a terminal shows of a command."""
    ours, theirs = pty.openpty()
    usual = {"XDG_DATA_HOME": str(home), "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "PAGER", "LESS")}
    with ThreadPoolExecutor(1) as pool:
        text = pool.submit(_read, ours)
        variables = {**kept, **usual, **environment}
        try:
            done = vmtax("show", *words, cwd=home, environment=variables, terminal=os.ttyname(theirs))
        finally:
            os.close(theirs)  # which ends what reads
    os.close(ours)
    assert done.returncode == 0
    return text.result()


def _read(terminal: int) -> str:
    """All that comes until the other end is closed."""
    parts = []
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 65536):
            parts.append(part)
    return b"".join(parts).decode()


def marker(tmp_path: Path) -> str:
    """A pager that says that it was used, and how."""
    script = tmp_path / "pager"
    script.write_text('#!/bin/sh\necho "paged LESS=$LESS $1"; cat\n')
    script.chmod(0o755)
    return f"{script} first"


def test_a_terminal_is_paged_by_what_the_environment_names(home: Path, tmp_path: Path) -> None:
    text = on_terminal(home, PAGER="false", VMTAX_PAGER=marker(tmp_path))
    assert "paged LESS=FRX first" in text and "CPU, chess" in text
    assert "\x1b[" in text, "colours are for a terminal"
    assert "paged LESS=-S first" in on_terminal(home, PAGER=marker(tmp_path), LESS="-S")


def test_no_pager_where_it_is_not_wanted_or_not_there(home: Path, tmp_path: Path) -> None:
    assert "paged" not in on_terminal(home, "--no-pager", PAGER=marker(tmp_path))
    for name in ("", "cat", "/nonexistent", "'unclosed"):
        assert "CPU, chess" in on_terminal(home, PAGER=name)
    assert "paged" not in on_terminal(home, "--json", PAGER=marker(tmp_path))


def test_no_color_is_honoured(home: Path) -> None:
    colour = re.compile(r"\x1b\[(\d+;)*[34]\d")
    assert colour.search(on_terminal(home, "--no-pager"))
    assert not colour.search(on_terminal(home, "--no-pager", NO_COLOR="1"))


def test_a_pipe_gets_plain_text_without_padding(home: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_DATA_HOME": str(home), "PAGER": marker(tmp_path), "TERM": "xterm"}
    environment.pop("COLUMNS", None)
    for words in ((), ("--full",)):
        done = vmtax("show", *words, cwd=home, environment=environment)
        assert done.returncode == 0
        lines = done.stdout.splitlines()
        assert "paged" not in done.stdout and "\x1b" not in done.stdout
        assert max(map(len, lines)) <= 80 and all(line == line.rstrip() for line in lines)


def test_a_pager_that_cannot_be_started_is_said(tmp_path: Path) -> None:
    assert not pager.page("text", [str(tmp_path)])
