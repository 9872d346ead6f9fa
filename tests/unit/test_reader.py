"""Commands on a host without leaving anything there: here, and through a stand-in for the ssh client."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vmtax.core.machines import ran_out
from vmtax.machine import MachineLost
from vmtax.machine.login_shell import WindowsThere
from vmtax.machine.reader import LocalReader, SshReader
from vmtax.machine.remote_command import ENTRY
from vmtax.machine.ssh import ssh_route
from vmtax.testbed.host.hosts import open_reader

# Of any client: it prints its version at once, and connects to nothing.
VERSION = 'case " $* " in *" -V "*) exit 0;; esac'
# Takes ssh's options, prints what a login script might, and is the far shell.
CLIENT = """echo "$@" >"$ASKED"
while [ "$1" != -- ]; do shift; done
shift
echo "welcome to the far host"
exec sh -c "$*"
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The arguments that the stand-in for ssh was given."""
    return stand_in(CLIENT, tmp_path, monkeypatch)


def stand_in(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ssh").write_text(f"#!/bin/sh\n{VERSION}\n{script}")
    (tmp_path / "bin/ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    return tmp_path / "asked"


def test_outcomes_are_those_of_the_command(asked: Path) -> None:
    text = "one 'two' \"three\"\n$HOME `id` ; & | \\ ü\n"
    with open_reader("ssh://root@far:2222") as reader:
        for runner in (reader, LocalReader()):
            assert runner.try_run("printf", "%s", text).stdout == text
            assert runner.try_run("printf", "no newline").stdout == "no newline"
            failed = runner.try_run("sh", "-c", "echo wrong >&2; exit 7")
            assert (failed.ok, failed.code, failed.stdout, failed.stderr) == (False, 7, "", "wrong\n")
            assert runner.try_run("no-such-command").code == 127
            assert len(runner.try_run("seq", "100000").stdout) == 588895, "more than a pipe holds"
            late = runner.try_run("sleep", "30", timeout=0.3)
            assert late.timed_out and late.seconds < 10
            assert runner.try_run("cat").stdout == "", "standard input is empty, not the next command"
            assert runner.try_run("sh", "-c", "echo $LC_ALL").stdout == "C.UTF-8\n"
    given, _, entry = asked.read_text().partition(" root@far -- ")
    words = given.split()
    assert (words[:3], entry) == (["-T", "-p", "2222"], f"{ENTRY}\n")
    assert {"ControlMaster=no", "UpdateHostKeys=no"} <= set(words), "neither a socket nor a key is written"


@pytest.mark.parametrize(
    ("code", "seconds", "late"),
    [
        (124, 5.0, True),
        (137, 7.0, True),
        (124, 4.9, False),
        (137, 4.9, False),
        (0, 5.1, False),
        (1, 5.1, False),
        (125, 5.0, True),  # uutils with -k, which is what coreutils says of its own failure
        (143, 5.1, True),  # busybox
        (125, 0.0, False),
        (127, 0.1, False),
    ],
)
def test_a_command_ran_out_of_time_where_its_limit_ended_it_or_killed_it(code: int, seconds: float, late: bool) -> None:
    assert ran_out(code, seconds, 5.0) is late


def test_a_login_that_fails_is_reported_in_the_client_s_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in("echo 'far: Permission denied (publickey).' >&2\nexit 255\n", tmp_path, monkeypatch)
    with (
        pytest.raises(MachineLost, match=r"host: ssh far: far: Permission denied \(publickey\)"),
        open_reader("ssh://far"),
    ):
        pass


def test_a_line_that_breaks_is_a_lost_machine(asked: Path) -> None:
    reader = SshReader(ssh_route("ssh://far"))
    reader.log_in()
    reader._ssh.kill()
    with pytest.raises(MachineLost, match="the connection is gone"):
        reader.try_run("true")
    reader.close()


def test_a_far_side_that_says_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in("exec sleep 60\n", tmp_path, monkeypatch)
    monkeypatch.setattr("vmtax.machine.reader.LOGIN_SECONDS", 0.2)
    with pytest.raises(MachineLost, match="no answer"), open_reader("ssh://far"):
        pass


@pytest.mark.parametrize("then", ["exit 1", "exec sleep 60"])
def test_windows_is_told_from_a_far_side_that_hangs(then: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its shell does not know our entry, says so, and ends or stays."""
    answers = f"case $* in *%OS%*) echo 'Windows_NT$env:OS';; *) echo 'is not recognized' >&2; {then};; esac"
    stand_in(f"{answers}\n", tmp_path, monkeypatch)
    monkeypatch.setattr("vmtax.machine.reader.LOGIN_SECONDS", 3.0)
    with pytest.raises(WindowsThere, match=r"is Windows, whose shell is cmd\.exe"), open_reader("ssh://far"):
        pass
