"""How another host is named, and that no client but the login reaches it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from vmtax.machine import CommandFailed, MachineLost
from vmtax.machine.local import LocalMachine
from vmtax.machine.processes import marked
from vmtax.machine.remote_command import USUAL_PATH
from vmtax.machine.ssh import NO_SESSION, REFUSED, SshMachine, connect_host, ssh_route


@pytest.mark.parametrize(
    ("url", "destination", "port"),
    [
        ("ssh://host", "host", ""),
        ("ssh://root@host", "root@host", ""),
        ("ssh://root@host:2222", "root@host", "2222"),
        ("ssh://host:22/", "host", "22"),
        ("ssh://root@[::1]", "root@::1", ""),
        ("ssh://[fe80::1]:2222", "fe80::1", "2222"),
    ],
)
def test_a_url_is_what_ssh_takes(url: str, destination: str, port: str) -> None:
    found = ssh_route(url)
    assert (found.destination, found.options) == (destination, ("-p", port) if port else ())


@pytest.fixture
def machine() -> Iterator[SshMachine]:
    local = LocalMachine()
    yield SshMachine("host", local, "nobody@localhost", is_guest=True)
    local.close()


def test_a_client_without_its_master_fails_and_does_not_log_in_anew(machine: SshMachine) -> None:
    argv = machine.client()
    settings = subprocess.run(
        [argv[0], "-G", *argv[1 : argv.index("-T")], "nobody@localhost"], capture_output=True, text=True, check=True
    ).stdout
    assert "proxycommand false" in settings.splitlines(), "what ssh itself makes of the options"
    assert subprocess.run(argv, capture_output=True, timeout=300).returncode == 255


def test_a_login_that_has_become_hopeless_is_given_up(
    machine: SshMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, and not when its time is over: what would answer has ended."""
    (tmp_path / "ssh").write_text('#!/bin/sh\ncase " $* " in *" -N "*) exec sleep 600 ;; esac\n')  # no login
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("vmtax.machine.ssh.ASK_SECONDS", 0.1)
    answers = iter([False, True])
    with pytest.raises(MachineLost, match="given up"):
        machine.connect(20.0, lambda: next(answers))
    with pytest.raises(MachineLost, match="no answer within 0 s"):
        machine.connect(0.3, lambda: False)
    with pytest.raises(ZeroDivisionError):
        machine.connect(20.0, lambda: bool(1 // 0))
    assert not list(marked(machine.local.token)), "no client is left, whatever is raised"


# Logs in and ends as ssh does; else it is the far shell, whose login prints something first.
CLIENT = """#!/bin/sh
echo "$@" >>"$ASKED"
case " $* " in *" -N "*|*" -O "*|*" -V "*) exit 0;; esac
while [ "$1" != -- ]; do shift; done
shift
printf 'welcome\\n{}\\n1234\\n> '
PATH=${FAR_PATH:-$PATH} exec /bin/sh -c "$*"
"""


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SshMachine]:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ssh").write_text(CLIENT)
    (tmp_path / "bin/ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    local = LocalMachine()
    yield connect_host(local, ssh_route("ssh://far"))
    local.close()


def test_what_a_login_prints_is_no_part_of_any_answer(far: SshMachine, tmp_path: Path) -> None:
    text = "one 'two' \"three\" $HOME `id` ; & | \\ ü\n"
    assert far.run("printf", "%s", text) == text
    assert far.run("cat", input=text) == text
    far.push(Path(__file__), PurePosixPath(tmp_path / "pushed"))
    assert (tmp_path / "pushed").read_text() == Path(__file__).read_text()
    process = far.start("sh", "-c", 'read -r line; echo "$$ $line"; exec sleep 600')
    process.stdin.write(b"hello\n")
    process.stdin.flush()
    assert process.stdout.readline() == f"{process.pid} hello\n".encode()
    kept = tmp_path / "kept"
    kept.touch()
    far.remove_later(PurePosixPath(kept))
    assert far.run("pwd") == "/\n"
    token = far.token
    assert process.pid in marked(token)
    far.close()
    assert not kept.exists() and marked(token) == []
    assert token not in (tmp_path / "asked").read_text(), "it is on no command line"


# A master connection without a free session, on a busy machine: the client's output ends before its last words.
BUSY = """#!/bin/sh
case " $* " in *" -N "*|*" -O "*|*" -V "*) exit 0;; esac
cat > /dev/null &
exec >&-
sleep 0.1
echo "mux_client_request_session: session request failed: Session open refused by peer" >&2
exit 255
"""


def test_a_refused_session_is_tried_on_new_connections_however_late_the_client_says_so(
    far: SshMachine, tmp_path: Path
) -> None:
    (tmp_path / "bin/ssh").write_text(BUSY)
    refuses = r"host: its ssh server refuses commands, on new connections too"
    with pytest.raises(MachineLost, match=refuses):
        far.start("sleep", "600")
    with pytest.raises(MachineLost, match=refuses):
        far.push(Path(__file__), PurePosixPath(tmp_path / "pushed"))
    (tmp_path / "bin/ssh").write_text(CLIENT)
    far.close()


@pytest.mark.parametrize(
    ("connection", "words", "alive", "another"),
    [
        (0, REFUSED, True, True),  # it has no session left
        (1, REFUSED, False, True),
        (1, NO_SESSION, False, True),  # an additional one that is gone
        (1, NO_SESSION, True, False),  # it works: the command may have begun
        (0, NO_SESSION, False, False),  # without the first, all is lost
        (0, "", False, False),
        (1, "sh: 1: nothing: not found", False, False),  # the command's own words
    ],
)
@pytest.mark.varied(4)
def test_a_command_is_tried_on_another_connection_only_where_it_has_not_begun(
    machine: SshMachine, monkeypatch: pytest.MonkeyPatch, connection: int, words: str, alive: bool, another: bool
) -> None:
    monkeypatch.setattr(machine, "_connections", [0, 1])
    monkeypatch.setattr(machine, "_alive", lambda number: alive)
    assert machine.tries_another(connection, f"ssh: {words}\n" if words else "") is another
    assert machine._connections == ([0] if another and words == NO_SESSION else [0, 1])


def test_a_search_path_with_relative_parts_is_not_used_there(far: SshMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = os.environ["PATH"]
    assert far.run("sh", "-c", "echo $PATH").strip() == usual
    for part in ("", ".", "bin"):
        for path in (f"{usual}:{part}", f"{part}:{usual}", f"/bin:{part}:{usual}"):
            monkeypatch.setenv("FAR_PATH", path)
            assert far.run("sh", "-c", "echo $PATH").strip() == USUAL_PATH
    far.close()


def test_a_far_side_that_does_not_begin_is_shown_by_what_came_instead(far: SshMachine, tmp_path: Path) -> None:
    (tmp_path / "bin/ssh").write_text(CLIENT.replace("PATH=${FAR_PATH:-$PATH} exec", "exit 3 #"))
    with pytest.raises(MachineLost, match=r"host: true did not begin: instead came 'welcome.*1234"):
        far.run("true")
    with pytest.raises(MachineLost, match=r"host: sleep was not started: it was to begin, instead came 'welcome"):
        far.start("sleep", "600")
    with pytest.raises(CommandFailed, match=r"dd of=/nowhere/x .*: exit code 3"):
        far.push(Path(__file__), PurePosixPath("/nowhere/x"))
    (tmp_path / "bin/ssh").write_text(CLIENT.replace("PATH=${FAR_PATH:-$PATH} exec", "exit 0 #"))
    with pytest.raises(MachineLost, match=r"host: nothing was copied: it"):
        far.push(Path(__file__), PurePosixPath(tmp_path / "pushed"))
    (tmp_path / "bin/ssh").write_text(CLIENT)
    far.close()
