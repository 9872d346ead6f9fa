"""One measurement on a host at a time, whoever asks, by real guards."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from vmtax.core.errors import BUSY, BadInput
from vmtax.machine import hold as hold_module
from vmtax.machine.hold import EARLIER, TURN_SECONDS, Hold, Turn
from vmtax.machine.local import LocalMachine
from vmtax.testbed.session.exclusive import LOCK, MACHINE_ID, Claim, HostBusy, hold, ids_of
from vmtax.testbed.session.session import Hosts

pytestmark = pytest.mark.usefixtures("lists")
OURS, THEIRS = Claim("1" * 16, "we measure there"), Claim("2" * 16, "they measure there")
HOLDER = """
import sys
from vmtax.machine.local import LocalMachine
from vmtax.testbed.session.exclusive import Claim
print(repr(Claim("3" * 16, "a third measures there").holder(LocalMachine())), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _own_name(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setenv(LOCK, f"test-{id(request)}")


@contextmanager
def machines(*paths: str) -> Iterator[list[LocalMachine]]:
    """Each with a guard of its own."""
    opened = [LocalMachine(path) for path in paths]
    try:
        yield opened
    finally:
        for machine in opened:
            machine.close()


def test_the_second_is_told_who_measures_and_comes_in_when_the_first_has_ended() -> None:
    with machines("host") as [second]:
        with machines("host") as [first]:
            assert OURS.holder(first) == ""
            assert OURS.holder(first) == "", "once more"
            assert THEIRS.holder(second) == "we measure there"
        assert THEIRS.holder(second) == ""


def test_two_hosts_of_a_run_that_are_one_machine_do_not_exclude_each_other() -> None:
    with machines("host", "ssh://twin") as [host, twin]:
        hold(Hosts(host, host, other=twin), OURS)


def test_all_hosts_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with machines("host", "ssh://b", "host") as [first, busy, third]:
        monkeypatch.setenv(LOCK, "b")
        assert THEIRS.holder(busy) == ""
        taken = first.guard.hold

        def hold_elsewhere(name: str, words: str) -> str:
            return taken("a", words)

        monkeypatch.setattr(first.guard, "hold", hold_elsewhere)
        with machines("ssh://b") as [ours], pytest.raises(HostBusy) as caught:
            hold(Hosts(first, first, other=ours), OURS)
        assert str(caught.value) == "ssh://b: they measure there; wait until that has ended, as `vmtax run --wait` does"
        assert caught.value.exit_code == BUSY == 6
        monkeypatch.setenv(LOCK, "a")
        assert THEIRS.holder(third) == "", "the first host is free again"


def test_who_waits_says_for_whom_once_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    with machines("host") as [ours], machines("host") as [theirs]:
        assert THEIRS.holder(theirs) == ""
        naps = iter(["stays", "stays", "ends"])

        def sleep(_: float) -> None:
            if next(naps) == "ends":
                theirs.close()

        monkeypatch.setattr("vmtax.testbed.session.exclusive.time", SimpleNamespace(sleep=sleep))
        hold(Hosts(ours, ours), OURS, tell_waiting=said.append)
        assert said == ["host: they measure there"]
        assert not list(naps)


@pytest.mark.variations
def test_three_who_wait_come_in_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one asks first whenever the host is free; the second is killed, and the third stops asking."""
    with machines("host") as [fourth], machines("host") as [third], machines("host") as [first]:
        with machines("host") as [second]:
            with machines("host") as [holder]:
                assert THEIRS.holder(holder) == ""
                assert [OURS.holder(each) for each in (first, second, third, fourth)] == ["they measure there"] * 4
            assert OURS.holder(third) == OURS.holder(second) == EARLIER
            assert OURS.holder(first) == ""
            first.guard.let_go()
            assert OURS.holder(third) == EARLIER
        assert OURS.holder(fourth) == EARLIER
        assert OURS.holder(first) == EARLIER, "who had it comes last"
        assert OURS.holder(third) == ""


def test_who_asks_no_more_loses_his_turn_after_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped, asks = Hold(), Hold()
    holder = Hold()
    assert holder.take("turns", "holds") == ""
    assert stopped.take("turns", "stopped") == asks.take("turns", "asks") == "holds"
    holder.let_go()
    assert asks.take("turns", "asks") == EARLIER
    now = time.monotonic() + TURN_SECONDS + 1
    monkeypatch.setattr(hold_module.time, "monotonic", lambda: now)
    assert asks.take("turns", "asks") == ""
    assert stopped.take("turns", "stopped") == "asks"
    asks.let_go()
    assert stopped.take("turns", "stopped") == ""
    stopped.let_go()


def test_who_needs_two_hosts_waits_at_the_busy_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs that need the same two hosts, in either order, do not wait for each other."""
    with machines("a", "b") as [a, b], machines("a") as [other], machines("b") as [holder]:
        for each in (a, other):
            on_host(each, "a", monkeypatch)
        for each in (b, holder):
            on_host(each, "b", monkeypatch)
        assert THEIRS.holder(holder) == ""
        with pytest.raises(HostBusy, match="b: they measure there"):
            hold(Hosts(a, a, other=b), OURS)
        assert THEIRS.holder(other) == "", "the first host, which they do not use, is free"


def on_host(machine: LocalMachine, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let that machine be another one than those of other names."""
    take = machine.guard.hold
    monkeypatch.setattr(machine.guard, "hold", lambda lock, words: take(f"{lock}-{name}", words))


def test_lines_that_are_no_turns_are_no_turns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of a kernel that shows names of others, cut or odd ones, and of one that shows nothing."""
    turn = Turn()
    turn.keep("odd")
    sockets = tmp_path / "unix"
    monkeypatch.setattr(hold_module, "SOCKETS", str(sockets))
    assert turn.is_next(), "there is no such file"
    begins = "0000: 00000002 00000000 00000000 0001 01 1"
    for odd in ("", "1/2", "1/2/x", "1/2/99999999999/3", "-1/2/99999999999", f"{'9' * 30}/1/1", "\udcff/1/1", "²/1/1"):
        sockets.write_bytes(
            f"{begins} @vmtax-odd/{odd}\n{begins} @vmtax-odder/1/1/9999999999\n".encode("utf-8", "replace")
        )
        assert turn.is_next(), odd
    sockets.write_text(f"{begins} @vmtax-odd/1/1/9999999999\n")
    assert not turn.is_next()
    turn.leave()


def test_a_stranger_is_told_with_all_of_his_words() -> None:
    with machines("host") as [machine], closing(socket.socket(socket.AF_UNIX)) as stranger:
        stranger.bind(f"\0vmtax-{os.environ[LOCK]}")
        stranger.listen()
        stranger.settimeout(20.0)
        thread = threading.Thread(target=lambda: stranger.accept()[0].close())
        thread.start()
        said = OURS.holder(machine)
        thread.join()
    assert said == f"process {os.getpid()} of user {os.geteuid()}"


def test_a_killed_run_leaves_the_host_to_the_next() -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline() == b"''\n"
        with machines("host") as [machine]:
            assert OURS.holder(machine) == "a third measures there"
            process.send_signal(signal.SIGKILL)
            process.wait()
            hold(Hosts(machine, machine), OURS, tell_waiting=lambda who: None)


def test_other_values_of_the_variable_measure_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with machines("host", "host") as [first, second]:
        assert OURS.holder(first) == ""
        monkeypatch.setenv(LOCK, "other-cores")
        assert THEIRS.holder(second) == ""


@pytest.mark.parametrize("value", [" ", "a b", "x" * 61, "\udcff", "../x", "a\nb"])
@pytest.mark.varied(3)
def test_a_value_that_names_no_lock_is_refused_in_a_line(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOCK, value)
    with machines("host") as [machine], pytest.raises(BadInput) as caught:
        OURS.holder(machine)
    assert str(caught.value).startswith("VMTAX_LOCK=") and "\n" not in str(caught.value)


def test_a_claim_says_who_from_where_since_when_and_what() -> None:
    claim = Claim.of("vmtax run quick")
    assert re.fullmatch(r".+ on .+ measures there since 20[\d-]+ [\d:]+ UTC: vmtax run quick", claim.words), claim.words
    assert claim.token != Claim.of("").token and replace(claim, token="a") != claim


@pytest.mark.parametrize("words", [b"", b"\xff\x1b[31m" * 400])
def test_a_stranger_who_takes_the_name_is_named_by_his_process(words: bytes) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as stranger:
        stranger.bind("\0vmtax-stranger")
        stranger.listen()
        with subprocess.Popen([sys.executable, "-c", ASKS], stdout=subprocess.PIPE, text=True) as child:
            connection, _ = stranger.accept()
            with connection:
                connection.sendall(words)
            answer = child.communicate()[0]
    assert ("process" in answer and "of user" in answer) if not words else len(answer) <= 4000


ASKS = "from vmtax.machine.hold import Hold; print(ascii(Hold().take('stranger', 'ours')))"


def test_a_stranger_who_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hold_module, "READ_SECONDS", 0.01)
    with closing(socket.socket(socket.AF_UNIX)) as stranger:
        stranger.bind("\0vmtax-silent")
        hold = Hold()
        assert hold.take("silent", "ours").startswith("another process"), "which does not listen"
        stranger.listen()
        assert "of user" in hold.take("silent", "ours")
        hold.let_go()


def test_what_is_let_go_is_free_at_once() -> None:
    first, second = Hold(), Hold()
    for _ in range(20):
        assert first.take("free", "first") == ""
        assert second.take("free", "second") == "first"
        first.let_go()
        assert second.take("free", "second") == ""
        second.let_go()


def test_a_machine_has_one_name_in_a_shared_store_whatever_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOCK, "beside-others")
    with machines("host", "ssh://another-name") as [first, second]:
        hosts = Hosts(first, first, second)
        [name, again] = ids_of(hosts)
    assert name == again
    lock, _, identity = name.partition(" ")
    assert lock == "beside-others" and MACHINE_ID.fullmatch(identity)
