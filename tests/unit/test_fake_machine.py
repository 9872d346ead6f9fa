"""The fake is exact: what is not scripted fails, time passes only by script, undoing runs in reverse."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from tests.fake_machine import FakeMachine, Reply
from vmtax.machine import CommandFailed, MachineLost


def test_an_unknown_command_fails_the_test_and_is_named() -> None:
    machine = FakeMachine("host/vm", {("true",): ""})
    with pytest.raises(AssertionError, match=r"host/vm: unknown command: \('rm', '-rf', '/'\)"):
        machine.try_run("rm", "-rf", "/")


def test_one_answer_repeats_and_a_list_is_used_up() -> None:
    machine = FakeMachine(answers={("uname",): "Linux\n", ("step",): ["one", Reply(code=3), MachineLost("gone")]})
    assert [machine.run("uname"), machine.run("uname")] == ["Linux\n", "Linux\n"]
    assert machine.run("step") == "one"
    assert machine.unused() == [("step",)]
    with pytest.raises(CommandFailed, match="exit code 3"):
        machine.run("step")
    with pytest.raises(MachineLost):
        machine.run("step")
    assert machine.unused() == []
    with pytest.raises(AssertionError, match="more than the 3 scripted times"):
        machine.run("step")


def test_a_predicate_matches_and_input_is_recorded() -> None:
    machine = FakeMachine(answers={lambda argv: argv[0] == "tee": ""})
    machine.write_text(PurePosixPath("/scratch/a"), "text")
    assert machine.calls == [("tee", "/scratch/a")]
    assert machine.inputs == [(("tee", "/scratch/a"), "text")]


def test_time_is_faked_and_limits_hold() -> None:
    machine = FakeMachine(answers={("slow",): Reply(seconds=90.0)})
    before = machine.clock.time()
    assert machine.try_run("slow").timed_out
    assert machine.clock.time() - before == 60.0
    assert machine.try_run("slow", timeout=100.0).seconds == 90.0


def test_a_process_runs_in_fake_time() -> None:
    machine = FakeMachine(answers={("qemu",): Reply(stdout="hello\n", seconds=5.0, code=1)})
    process = machine.start("qemu")
    assert process.stdout.readline() == b"hello\n"
    with pytest.raises(TimeoutError):
        process.wait(2.0)
    assert process.poll() is None
    assert process.wait(10.0) == 1
    other = machine.start("qemu")
    other.stop()
    assert other.wait(0.0) == -15


def test_undoing_runs_in_reverse_and_goes_on_after_a_failure(tmp_path: Path) -> None:
    machine = FakeMachine(answers={("umount", "/mnt"): Reply(code=32, stderr="busy")})
    (tmp_path / "disk").write_text("x")
    disk = PurePosixPath("/scratch/disk")
    machine.remove_later(disk)
    machine.push(tmp_path / "disk", disk)
    machine.undo_later("umount", "/mnt")
    tap = machine.undo_later("ip", "link", "del", "tap0")
    tap.undo()
    tap.undo()
    machine.close()
    assert machine.undone == [("ip", "link", "del", "tap0"), ("umount", "/mnt"), disk]
    assert machine.undo_list == []
    assert machine.files == {}
    with pytest.raises(MachineLost):
        tap.undo()


def test_a_failed_undo_says_so() -> None:
    machine = FakeMachine(answers={("umount", "/mnt"): Reply(code=32, stderr="busy")})
    with pytest.raises(CommandFailed, match="busy"):
        machine.undo_later("umount", "/mnt").undo()
