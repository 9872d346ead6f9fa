"""A guard that is left to a process: it ends with that, and takes nothing from it before."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.unit.test_guard import eventually
from vmtax.hypervisor.confine import FIRST_USER, USERS
from vmtax.machine import MachineError, guarded, processes
from vmtax.machine import guard as guard_module
from vmtax.machine.local import LocalMachine

pytestmark = pytest.mark.usefixtures("lists")


def test_what_is_left_to_a_process_is_undone_when_that_ends(tmp_path: Path, lists: Path) -> None:
    machine = LocalMachine()
    kept = Path(machine.scratch)
    process = machine.start("sleep", "600")
    machine.leave_to(process.pid)
    machine.close()
    time.sleep(0.3)
    assert kept.is_dir() and len(list(lists.iterdir())) == 1 and process.poll() is None
    assert f'"started": {processes.start_of(process.pid)}' in next(lists.iterdir()).read_text()
    os.kill(process.pid, signal.SIGKILL)
    eventually(lambda: list(lists.iterdir()) == [])
    assert not kept.exists()
    process.stop()


def test_a_guard_that_is_killed_takes_nothing_from_a_process_that_was_to_outlive_it(lists: Path) -> None:
    machine = LocalMachine()
    kept, guard = Path(machine.scratch), machine.guard._process
    process = machine.start("sleep", "600")
    machine.leave_to(process.pid)
    guard.kill()
    guard.wait()
    for still_there in (True, False):
        if not still_there:
            process.stop()
        other = LocalMachine()
        assert other.guard.recovered == (0 if still_there else 1)
        assert kept.is_dir() == still_there and (process.poll() is None) == still_there
        other.close()
    assert list(lists.iterdir()) == []


def test_an_interrupted_handing_over_ends_it_all(lists: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = LocalMachine()
    kept = Path(machine.scratch)
    process = machine.start("sleep", "600")

    def interrupted(*_: object, **wanted: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(machine.guard, "_answer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        machine.leave_to(process.pid)
    machine.close()
    assert not kept.exists() and process.poll() is not None and list(lists.iterdir()) == []


def test_nothing_can_be_left_to_a_process_that_is_gone(tmp_path: Path) -> None:
    machine = LocalMachine()
    with pytest.raises(MachineError, match="the guard cannot wait for process 4194305"):
        machine.leave_to(2**22 + 1)  # more than Linux counts to
    machine.close()


def test_a_process_that_is_another_users_or_began_later_is_not_the_one_that_was_to_outlive_its_guard() -> None:
    process = subprocess.Popen(["sleep", "600"], env={"VMTAX_RUN": "0123"})
    try:
        start = processes.start_of(process.pid)
        assert start is not None
        for record, is_it in (
            ({"outlive": process.pid}, True),
            ({"outlive": process.pid, "started": start}, True),
            ({"outlive": process.pid, "started": start - 1}, False),
        ):
            assert guard_module.is_outlived(json.dumps(record), "0123") == is_it
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "geteuid", lambda: 4242)
            assert not guard_module.is_outlived(json.dumps({"outlive": process.pid}), "0123")
    finally:
        process.kill()
        process.wait()


def test_a_process_that_just_executes_its_program_is_not_overlooked() -> None:
    """The caller of execve goes on a moment before /proc shows the new environment."""
    for _ in range(200):
        process = subprocess.Popen(["sleep", "600"], env={"VMTAX_RUN": "0123"})
        seen = processes.carries(process.pid, "0123")
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        is_zombie_seen = processes.carries(process.pid, "0123")
        process.wait()
        assert seen and not is_zombie_seen


def test_the_users_that_a_qemu_becomes_are_ours() -> None:
    assert range(FIRST_USER, FIRST_USER + USERS) == processes.QEMU_USERS


def test_the_logs_of_what_outlives_its_guard_stay_short(
    tmp_path: Path, lists: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = guarded.guard_source().replace("MOST_LOG = 2**26", "MOST_LOG = 2**20")
    text = text.replace("LOG_SECONDS = 2.0", "LOG_SECONDS = 0.05")
    monkeypatch.setattr("vmtax.machine.guarded.guard_source", lambda: text)
    machine = LocalMachine()
    process = machine.start("sleep", "600")
    long, short, link, elsewhere = (tmp_path / name for name in ("long", "short", "link", "elsewhere"))
    for path, size in ((long, 2**21), (short, 2**19), (elsewhere, 2**21)):
        path.write_bytes(b"x" * size)
    link.symlink_to(elsewhere)
    machine.leave_to(process.pid, [str(path) for path in (link, short, long)])
    eventually(lambda: long.stat().st_size == 0)
    assert (short.stat().st_size, elsewhere.stat().st_size) == (2**19, 2**21)
    os.kill(process.pid, signal.SIGKILL)
    eventually(lambda: list(lists.iterdir()) == [])
    process.stop()


def test_a_process_that_appears_after_a_look_that_saw_none_is_ended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen(["sleep", "600"])
    looks = iter([[], [process.pid], [], []])
    monkeypatch.setattr(processes, "marked", lambda token: next(looks))
    try:
        processes.end_processes("0123", float("inf"))
        assert list(looks) == []
    finally:
        process.kill()  # one that was ended has ended already
    assert process.wait() == -signal.SIGTERM
