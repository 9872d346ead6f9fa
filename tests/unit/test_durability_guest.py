"""The program of plan `durability` in a guest that checks states, and the text of it that is shipped."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.durable import COUNT, FINE, LATE_SECONDS, PROGRAM, one, without_flushes, written
from vmtax.workload.durability import guest
from vmtax.workload.durability.checks import check


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    without_flushes(monkeypatch)


# States of a device.


class Disk:
    """Says what is done to a device whose files are in a plain directory."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.refused: OSError | None = None
        for name in ("mount", "unmount", "forget"):
            patch.setattr(guest, name, lambda *given, name=name: self._do(name))
        patch.setattr(guest, "wait_until_free", lambda device: None)
        patch.setattr(guest, "file_system_problem", lambda device: self._do("e2fsck") or "e2fsck: bad")

    def _do(self, name: str) -> None:
        self.done.append(name)
        if name == "mount" and self.refused:
            raise self.refused


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_a_file_system_that_another_namespace_still_has_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "device").touch()
    really, busy = os.open, [errno.EBUSY, errno.EBUSY]

    def opened(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if not str(path).endswith("device"):  # pytest's, when it removes the test's directory
            return really(path, flags, mode, dir_fd=dir_fd)
        assert flags == os.O_RDONLY | os.O_EXCL
        if busy:
            raise OSError(busy.pop(), "busy")
        return really(path, os.O_RDONLY)

    monkeypatch.setattr(os, "open", opened)
    guest.wait_until_free(str(tmp_path / "device"))
    assert not busy
    busy[:] = [errno.EBUSY] * 10**6
    monkeypatch.setattr(guest, "BUSY_SECONDS", 0.1)
    with pytest.raises(OSError, match="busy"):
        guest.wait_until_free(str(tmp_path / "device"))
    busy[:] = [errno.ENXIO]
    with pytest.raises(OSError, match="busy"):
        guest.wait_until_free(str(tmp_path / "device"))
    assert not busy, "nothing to wait for"


def answers(directory: Path, names: list[str], *lines: object, thorough: bool = True) -> Iterator[Any]:
    reading, writing = os.pipe()
    texts = iter([line if isinstance(line, str) else json.dumps(line) for line in lines])
    guest.verify(texts, guest.Output(writing), "/dev/none", str(directory), names, "", thorough)
    os.close(writing)
    with os.fdopen(reading) as output:
        return iter([json.loads(line) for line in output])


def test_a_state(tmp_path: Path, disk: Disk) -> None:
    written(tmp_path, "append-fsync-4k", "control")
    acknowledged = {"append-fsync-4k": COUNT + 2, "control": 0}
    (answer,) = answers(tmp_path, ["append-fsync-4k", "control"], {"state": 12, "acknowledged": acknowledged})
    lost = {"lost": 2, "torn": 0, "words": f"record {COUNT + 1} is missing: the file ends"}
    assert answer == {"state": 12, "file_system": "e2fsck: bad", "writers": {"append-fsync-4k": lost}}
    assert disk.done == ["forget", "mount", "unmount", "e2fsck", "forget"]
    disk.done.clear()
    (answer,) = answers(tmp_path, ["control"], {"state": 13, "acknowledged": {"control": 3}}, thorough=False)
    assert answer["file_system"] == "" and disk.done == ["forget", "mount", "unmount", "forget"]


def test_after_a_failed_state_it_goes_on(tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    good = {"state": 1, "acknowledged": {"control": 1}}
    lines = ["garbage", "[]", {"acknowledged": {"control": True}}, {"acknowledged": {"other": 1}}, good]
    *bad, fine = answers(tmp_path, ["control"], *lines)
    assert [answer["state"] for answer in bad] == [None] * 4 and all(answer["error"] for answer in bad)
    assert "error" not in fine and fine["writers"]["control"]["lost"] == 1
    log = tmp_path / "kmsg"
    log.write_text("6,1,1,-;before\n")
    monkeypatch.setattr(guest, "KERNEL_LOG", str(log))

    def refuse(*given: object) -> None:
        with log.open("a") as file:
            file.write("3,339,5140900,-;EXT4-fs (vdb): bad; geometry\n SUBSYSTEM=block\n")
        raise OSError(errno.EUCLEAN, os.strerror(errno.EUCLEAN))

    with monkeypatch.context() as refusing:
        refusing.setattr(guest, "mount", refuse)
        (refused,) = answers(tmp_path, ["control"], good)
    words = "mount refused: Structure needs cleaning (EXT4-fs (vdb): bad; geometry)"
    assert refused == {"state": 1, "file_system": words, "writers": {}}
    monkeypatch.setattr(guest, "KERNEL_LOG", str(tmp_path / "none"))
    disk.refused = OSError(errno.EUCLEAN, os.strerror(errno.EUCLEAN))
    disk.done.clear()
    (refused,) = answers(tmp_path, ["control"], good)
    assert refused == {"state": 1, "file_system": "mount refused: Structure needs cleaning", "writers": {}}
    disk.refused = None
    monkeypatch.setattr(guest, "check", lambda *given: 1 // 0)
    disk.done.clear()
    (failed,) = answers(tmp_path, ["control"], good)
    assert failed["error"] and disk.done[-2:] == ["mount", "unmount"], "nothing stays mounted"


# The program as it is shipped.


def test_the_program_by_itself(tmp_path: Path) -> None:
    names = ["overwrite-fsync-4k", "sqlite-wal", "control"]
    argv = (*PROGRAM, "write", str(tmp_path), "20480", *names)
    reading, writing = os.pipe()  # an input that does not end
    done = subprocess.run(argv, stdin=reading, capture_output=True, text=True, timeout=LATE_SECONDS)
    os.close(reading)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")
    first, *lines = done.stdout.splitlines()
    assert first == "ready"
    assert sorted(lines) == sorted(f"ack {name} {number}" for name in names for number in range(1, 6))
    assert check(str(tmp_path), dict.fromkeys(names, 5)) == dict.fromkeys(names, FINE)


def test_it_ends_with_its_input(tmp_path: Path) -> None:
    argv = (*PROGRAM, "write", str(tmp_path), str(2**40), "append-dsync-4k", "--pause", "0.001")
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin and program.stdout
        watchdog = threading.Timer(LATE_SECONDS, program.kill)
        watchdog.start()
        lines = [program.stdout.readline() for _ in range(20)]
        program.stdin.close()
        last = [*lines, *program.stdout][-1]
        assert program.wait() == 0
        watchdog.cancel()
    assert last.startswith("ack ") and one(tmp_path, "append-dsync-4k", int(last.split()[2])) == FINE


def test_nothing_is_written_where_no_directory_is(tmp_path: Path) -> None:
    argv = (*PROGRAM, "write", str(tmp_path / "none"), "4096", "control")
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as done:
        assert done.stdout and done.stderr
        assert done.stdout.read() == f"error control {tmp_path}/none/control: No such file or directory\n"
        assert done.stderr.read() == f"{tmp_path}/none: No such file or directory\n"
    assert done.returncode == 1


def test_verify_without_a_device(tmp_path: Path) -> None:
    line = json.dumps({"state": 4, "acknowledged": {"control": 1}}) + "\n"
    done = subprocess.run(
        (*PROGRAM, "verify", str(tmp_path / "none"), str(tmp_path / "mnt"), "control", "--no-check"),
        input=line * 2,
        capture_output=True,
        text=True,
        timeout=LATE_SECONDS,
    )
    answer = {"state": 4, "file_system": "", "writers": {}, "error": f"{tmp_path}/none: No such file or directory"}
    assert [json.loads(text) for text in done.stdout.splitlines()] == [answer, answer]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["write", "/nowhere", "4096", "append-fsync-8k"], "the size must be"),
        (["write", "/nowhere", "4096", "control", "control"], "each NAME must be given once"),
        (["verify", "/dev/none", "/mnt"], "NAME"),
    ],
)
def test_a_wrong_command_line(words: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        guest.main(words)
    assert ended.value.code == 2 and problem in capsys.readouterr().err
