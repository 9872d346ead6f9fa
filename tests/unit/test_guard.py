"""The real guard: what it undoes, in which order, and whom it outlives."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from tests.command import HANGS
from vmtax.machine import CommandFailed, MachineError, MachineLost, guarded, tree
from vmtax.machine import guard as guard_module
from vmtax.machine.guard import boot_id, read_list
from vmtax.machine.local import LocalMachine
from vmtax.machine.pipes import listen
from vmtax.machine.processes import marked

pytestmark = pytest.mark.usefixtures("lists")


def eventually(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HANGS
    while not what():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)


def append(path: Path, word: str) -> tuple[str, ...]:
    return ("sh", "-c", 'echo "$1" >> "$2"', "sh", word, str(path))


def test_the_list_is_undone_in_reverse_and_is_gone(tmp_path: Path, lists: Path) -> None:
    machine = LocalMachine()
    log = tmp_path / "log"
    for word in ("first", "second", "third"):
        machine.undo_later(*append(log, word))
    assert len(list(lists.iterdir())) == 1
    machine.close()
    assert log.read_text().split() == ["third", "second", "first"]
    assert list(lists.iterdir()) == []


def test_what_is_undone_now_is_not_undone_again(tmp_path: Path) -> None:
    machine = LocalMachine()
    log = tmp_path / "log"
    entry = machine.undo_later(*append(log, "once"))
    entry.undo()
    entry.undo()
    machine.close()
    assert log.read_text().split() == ["once"]


def test_an_undo_that_fails_says_why_and_does_not_stop_the_others(tmp_path: Path) -> None:
    machine = LocalMachine()
    log = tmp_path / "log"
    machine.undo_later(*append(log, "done"))
    failing = machine.undo_later("sh", "-c", "echo it is stuck >&2; exit 3")
    with pytest.raises(CommandFailed, match="it is stuck"):
        failing.undo()
    machine.undo_later("/nowhere/at/all")
    machine.close()
    assert log.read_text().split() == ["done"]
    assert len(machine.left) == 2 and "it is stuck" in machine.left[1]


def test_an_undo_by_a_script_that_fails_is_named_and_its_text_is_not_printed() -> None:
    machine = LocalMachine("host")
    try:
        entry = machine.undo_later("sh", "-c", '[ "$1" = never ] || { echo "still there" >&2; exit 1; }', "end", "x")
        with pytest.raises(CommandFailed, match=r"host: end x: exit code 1\n  still there"):
            entry.undo()
    finally:
        machine.close()


def test_what_cannot_be_undone_is_tried_again_at_the_next_start(tmp_path: Path, lists: Path) -> None:
    flag, log = tmp_path / "flag", tmp_path / "log"
    machine = LocalMachine()
    machine.undo_later("sh", "-c", 'test -e "$1" && echo undone >> "$2"', "sh", str(flag), str(log))
    machine.remove_later(PurePosixPath(tmp_path / "nothing"))
    machine.close()
    assert len(list(lists.iterdir())) == 1
    second = LocalMachine()
    assert second.guard.recovered == 1 and "exit code 1" in second.guard.left[0]
    second.close()
    flag.touch()
    third = LocalMachine()
    assert third.guard.left == []
    third.close()
    assert log.read_text() == "undone\n", "only what had failed"
    assert list(lists.iterdir()) == []


def test_a_killed_guard_is_made_up_for_at_the_end_of_the_same_run(tmp_path: Path, lists: Path) -> None:
    machine = LocalMachine()
    kept = tmp_path / "kept"
    kept.mkdir()
    machine.remove_later(PurePosixPath(kept))
    process = machine.start("sleep", "600")
    machine.guard._process.kill()
    machine.close()
    assert not kept.exists() and process.poll() is not None and list(lists.iterdir()) == []


def test_what_a_killed_guard_could_not_undo_stays_listed(tmp_path: Path, lists: Path) -> None:
    machine = LocalMachine()
    machine.undo_later("sh", "-c", "echo it is stuck >&2; exit 3")
    machine.guard._process.kill()
    machine.close()
    assert "it is stuck" in machine.left[0]
    (kept,) = lists.iterdir()
    assert "it is stuck" in kept.read_text()


def test_a_machine_without_its_guard_says_so() -> None:
    machine = LocalMachine()
    machine.check_guard()
    machine.guard._process.kill()
    machine.guard._process.wait()
    with pytest.raises(MachineLost, match="guard"):
        machine.check_guard()
    machine.close()


def test_a_guard_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(MachineError, match=r"file.*Not a directory; set XDG_STATE_HOME"):
        LocalMachine().run("true")
    monkeypatch.setattr("vmtax.machine.local.PYTHON", "/nowhere/python3")
    with pytest.raises(MachineError, match="/nowhere/python3: the system's python3 must be there"):
        LocalMachine().run("true")


def test_processes_that_ignore_sigterm_are_ended_and_children_too() -> None:
    machine = LocalMachine()
    machine.start("sh", "-c", "trap '' TERM; sleep 600 & sleep 600")
    eventually(lambda: len(marked(machine.token)) == 3)
    machine.close()
    assert marked(machine.token) == []


# Sets up one of everything, prints where it is, and waits to be killed.
CHILD = """
import json, sys, time
from pathlib import PurePosixPath
from vmtax.machine.local import LocalMachine
from vmtax.machine.pipes import listen
machine = LocalMachine()
process = machine.start("sleep", "600")
machine.undo_later("sh", "-c", 'echo undone > "$1"', "sh", sys.argv[1])
print(json.dumps([machine.token, str(machine.scratch), machine.guard._process.pid]), flush=True)
time.sleep(600)
"""


def start_child(flag: Path) -> tuple[subprocess.Popen[str], str, Path, int]:
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(flag)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child.stdout as stdout:
        token, scratch, guard = json.loads(stdout.readline())
    assert Path(scratch).is_dir() and marked(token)
    return child, token, Path(scratch), guard


def test_sigkill_of_vmtax_leaves_nothing(tmp_path: Path, lists: Path) -> None:
    child, token, scratch, _ = start_child(tmp_path / "flag")
    child.kill()
    child.wait()
    eventually(lambda: list(lists.iterdir()) == [])
    assert (tmp_path / "flag").read_text() == "undone\n"
    assert not scratch.exists() and marked(token) == []


def test_sigkill_of_the_guard_too_is_made_up_for_at_the_next_start(tmp_path: Path, lists: Path) -> None:
    child, token, scratch, guard = start_child(tmp_path / "flag")
    os.kill(guard, signal.SIGKILL)
    child.kill()
    child.wait()
    assert scratch.exists() and marked(token) != []
    machine = LocalMachine()
    try:
        assert machine.guard.recovered == 1
        assert not scratch.exists() and marked(token) == []
        assert (tmp_path / "flag").read_text() == "undone\n"
    finally:
        machine.close()


@pytest.mark.variations
def test_two_runs_do_not_touch_each_other(tmp_path: Path) -> None:
    first, second = LocalMachine(), LocalMachine()
    kept = tmp_path / "kept"
    kept.mkdir()
    first.remove_later(PurePosixPath(kept))
    process = first.start("sleep", "600")
    assert second.guard.recovered == 0
    second.close()
    assert kept.is_dir() and process.poll() is None
    first.close()
    assert not kept.exists() and process.poll() is not None


def test_after_a_reboot_only_files_and_what_lasts_are_removed(tmp_path: Path, lists: Path) -> None:
    log, kept = tmp_path / "log", tmp_path / "kept"
    lists.mkdir(parents=True)
    for boot, name in (("another", "one"), (boot_id(), "two"), ("", "three")):
        kept.touch()
        entries = [
            {"boot": boot},
            {"add": 1, "remove": str(kept)},
            {"add": 2, "argv": append(log, name)},
            {"add": 3, "argv": append(log, f"{name}-volume"), "lasting": True},
        ]
        (lists / f"{name}.undo").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
        machine = LocalMachine()
        assert machine.guard.recovered == 1
        machine.close()
        assert not kept.exists() and list(lists.iterdir()) == []
    assert log.read_text().split() == ["one-volume", "two-volume", "two", "three-volume", "three"]


def test_what_lasts_is_said_to_the_guard(lists: Path) -> None:
    machine = LocalMachine()
    machine.undo_later("true", lasting=True)
    machine.undo_later("true")
    (text,) = [path.read_text() for path in lists.iterdir()]
    assert [entry.get("lasting") for entry in read_list(text).values()] == [True, None]
    machine.close()


def test_the_token_is_on_no_command_line(tmp_path: Path) -> None:
    machine = LocalMachine()
    process = machine.start("sleep", "600")
    for pid in (machine.guard._process.pid, process.pid):
        assert machine.token.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    machine.close()


@pytest.mark.parametrize(
    "line", ["garbage", "[]", "[" * 100_000, "{}", '{"undo": "x"}', "x" * 3_000_000, '{"outlive": -1}']
)
@pytest.mark.varied(2)
def test_what_a_guard_does_not_understand_is_an_error_and_not_its_end(tmp_path: Path, line: str) -> None:
    machine = LocalMachine()
    kept = tmp_path / "kept"
    kept.touch()
    machine.remove_later(PurePosixPath(kept))
    stdin = machine.guard._process.stdin
    assert stdin is not None
    stdin.write(line.encode() + b"\n")
    stdin.flush()
    assert machine.guard._answer(error=str)["error"]
    machine.check_guard()
    machine.close()
    assert not kept.exists()


def test_a_guard_that_was_killed_is_shown_by_its_signal() -> None:
    machine = LocalMachine()
    machine.check_guard()
    machine.guard._process.kill()
    eventually(lambda: machine.guard.is_gone)
    with pytest.raises(MachineLost, match=r"the guard ended: killed by signal 9 \(SIGKILL\)"):
        machine.check_guard(ask=False)
    machine.close()


def test_what_prints_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmtax.machine.local.listen", functools.partial(listen, most=2**20))
    machine = LocalMachine()
    with pytest.raises(CommandFailed, match="it printed more than"):
        machine.run("yes")
    machine.close()


def test_a_guard_that_undoes_for_long_is_heard_and_one_that_is_silent_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = guarded.guard_source()
    monkeypatch.setattr(guarded, "SILENT_SECONDS", 1.0)
    for busy, seconds, is_heard in ((0.2, 1.5, True), (600.0, 2.5, False)):
        text = source.replace("BUSY_SECONDS = 5.0", f"BUSY_SECONDS = {busy}")
        monkeypatch.setattr("vmtax.machine.guarded.guard_source", lambda text=text: text)
        machine = LocalMachine()
        entry = machine.undo_later("sleep", str(seconds))
        if is_heard:
            entry.undo()
        else:
            with pytest.raises(MachineLost, match="does not answer"):
                entry.undo()
        machine.undo_later("sleep", str(seconds))
        started = time.monotonic()
        assert machine.guard.close() == is_heard
        assert is_heard == (time.monotonic() - started > seconds - 0.1)


def test_a_guard_whose_disk_does_not_answer_names_it(lists: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = guarded.guard_source().replace("BUSY_SECONDS = 5.0", "BUSY_SECONDS = 0.1")
    sync = "        os.fsync(descriptor)\n"
    assert text.count(sync) == 1
    text = text.replace(sync, "        signal.pause()\n")  # until the guard is ended
    monkeypatch.setattr("vmtax.machine.guarded.guard_source", lambda: text)
    monkeypatch.setattr(guarded, "SILENT_SECONDS", 1.0)
    machine = LocalMachine()
    with pytest.raises(MachineLost) as caught:
        machine.undo_later("true")
    waits = rf"host: a disk does not answer there: fsync of {lists}/{machine.token}.undo takes [12] s already"
    assert re.fullmatch(waits, str(caught.value)), caught.value


class Clock:
    """Stands in for the guard's own `time`: only what is undone takes any."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_what_dead_guards_left_keeps_a_start_for_two_minutes_at_most(
    lists: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists.mkdir(parents=True, mode=0o700)
    for number in range(50):
        entries = [{"add": key, "argv": ["hangs"]} for key in range(20)] + [{"add": 20, "argv": ["works"]}]
        (lists / f"{number:04}.undo").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    clock, done = Clock(), []

    def command(argv: list[str], seconds: float) -> str:
        done.append(argv[0])
        if argv == ["works"]:
            return ""
        clock.now += seconds
        return "no end"

    monkeypatch.setattr(guard_module, "time", clock)
    monkeypatch.setattr(guard_module, "command", command)
    descriptor = os.open(lists, os.O_RDONLY)
    count, left = guard_module.recover(descriptor)
    os.close(descriptor)
    assert clock.now <= 120 and count == 1 and done.count("works") == 1
    assert len(left) == 20 + 49 and left[-1] == "0049.undo: not reached in 120 s, tried again at the next start"
    assert len(list(lists.iterdir())) == 50, "what is not reached stays listed"


def test_what_hangs_leaves_time_for_what_was_set_up_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, limits = Clock(), list[float]()

    def command(argv: list[str], seconds: float) -> str:
        limits.append(seconds)
        clock.now += seconds if argv == ["hangs"] else 0.0
        return "no end" if argv == ["hangs"] else ""

    monkeypatch.setattr(guard_module, "time", clock)
    monkeypatch.setattr(guard_module, "command", command)
    entries: dict[int, dict[str, object]] = {1: {"argv": ["works"]}} | {n: {"argv": ["hangs"]} for n in (2, 3, 4)}
    descriptor = os.open(tmp_path / "list", os.O_RDWR | os.O_CREAT)
    left = guard_module.undo_all("0123", entries, descriptor, clock.monotonic() + 120)
    os.close(descriptor)
    assert left == ['["hangs"]: no end'] * 3 and limits == [60, 30, 15, 7.5]


def test_a_removal_that_takes_too_long_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(path: str) -> None:
        while True:
            signal.pause()

    monkeypatch.setattr(tree, "remove", endless)
    assert "not all removed" in guard_module.undo({"remove": str(tmp_path)}, 0.05)


def test_what_a_background_process_says_fills_neither_a_disk_nor_our_memory() -> None:
    machine = LocalMachine()
    process = machine.start("sh", "-c", "head -c 3000000 /dev/zero >&2; echo last words >&2; exit 3")
    assert process.wait(30.0) == 3
    assert process.stderr_tail().endswith("last words\n") and len(process._last_words) <= 2**16
    process.stop()
    assert process.stderr_tail().endswith("last words\n")
    machine.close()
