"""The standard streams at the real entry point: closed, full, unread, and in encodings that lack what is printed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import vmtax
from tests.sample import sample_experiment
from vmtax.store import Store
from vmtax.system.streams import WIDEST

RUN = f"{sys.executable} -m vmtax"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    (home / ".local/share/vmtax").mkdir(parents=True)
    with Store(home / ".local/share/vmtax/vmtax.sqlite") as store:
        store.put(sample_experiment(rounds=7))
    return home


def shell(line: str, home: Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """`line` in bash, where `vmtax` is the program."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("XDG_", "PYTHONIO", "LC_", "LANG"))}
    script = f'vmtax() {{ {RUN} "$@"; }}\n{line}'
    environment = {**kept, "HOME": str(home), "COLUMNS": "80", **variables}
    return subprocess.run(["bash", "-c", script], cwd=home, env=environment, capture_output=True, timeout=300)


@pytest.mark.parametrize("command", ["runs", "--version", "run --help"])
@pytest.mark.varied(1)
def test_nothing_is_lost_without_a_word(command: str, home: Path) -> None:
    closed, full = shell(f"vmtax {command} >&-", home), shell(f"vmtax {command} >/dev/full", home)
    assert (closed.returncode, closed.stderr) == (1, b"vmtax: standard output: Bad file descriptor\n")
    assert (full.returncode, full.stderr) == (1, b"vmtax: standard output: No space left on device\n")


def test_a_reader_that_has_gone_is_no_error(home: Path) -> None:
    done = shell("vmtax show --full | true; echo ${PIPESTATUS[0]}", home)
    assert int(done.stdout) == 128 + signal.SIGPIPE
    assert done.stderr == b""


@pytest.mark.variations
def test_an_error_without_stderr_stays_off_stdout(home: Path) -> None:
    done = shell("vmtax show nosuch 2>&-", home)
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", b"")


def test_no_file_takes_the_place_of_a_closed_stream(home: Path) -> None:
    done = shell("vmtax report -o r.html >&- 2>&- <&-; echo $?", home)
    assert done.stdout == b"1\n"
    assert (home / "r.html").read_bytes().startswith(b"<!doctype html>")
    store = (home / ".local/share/vmtax/vmtax.sqlite").read_bytes()
    assert store.startswith(b"SQLite format 3") and b"vmtax: " not in store


@pytest.mark.parametrize(
    "variables",
    [
        {"PYTHONIOENCODING": "latin-1"},
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    ],
)
@pytest.mark.varied(1)
def test_what_an_encoding_lacks_is_written_in_what_it_has(variables: dict[str, str], home: Path) -> None:
    done = shell("vmtax show --full", home, **variables)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "latin-1" in variables.values() or done.stdout.isascii()
    assert re.search(rb"(?<!\w)-\d", done.stdout), "a minus sign is a minus sign"


@pytest.mark.variations
def test_a_name_that_is_not_utf_8_is_written_to_and_said(home: Path) -> None:
    done = shell("vmtax report -o $'\\xff.html'", home, PYTHONUTF8="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "\N{REPLACEMENT CHARACTER}.html\n".encode(), b"")
    assert os.path.exists(os.fsencode(home) + b"/\xff.html")  # noqa: PTH110 (a Path holds no bytes)


@pytest.mark.parametrize("columns", ["100000000", "9" * 5000, "²"])
@pytest.mark.varied(1)
def test_an_impossible_width_is_forgotten(columns: str, home: Path) -> None:
    environment = {**os.environ, "XDG_DATA_HOME": f"{home}/.local/share", "COLUMNS": columns, "TERMINAL_WIDTH": columns}
    for word in ("--help", "show"):
        done = vmtax(word, cwd=home, environment=environment)
        assert (done.returncode, done.stderr) == (0, "")
        assert max(map(len, done.stdout.splitlines())) <= WIDEST


def test_a_working_directory_that_is_gone_is_named(home: Path) -> None:
    done = shell("mkdir gone; cd gone; rmdir ../gone; vmtax run --disk-dir d", home)
    assert (done.returncode, done.stderr) == (
        2,
        b"vmtax: the working directory does not exist any more: change to one that does\n",
    )


@pytest.mark.parametrize("limit", ["-n 4", "-f 0", "-v 700000"])
@pytest.mark.varied(1)
def test_a_limit_is_no_traceback(limit: str, home: Path) -> None:
    done = shell(f"ulimit {limit}; vmtax show --full | cat", home)
    assert b"Traceback" not in done.stderr and b"fault" not in done.stderr
    assert len(done.stderr.splitlines()) <= 1
