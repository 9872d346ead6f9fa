"""The program of plan `durability` on a real ext4: writers that are killed, and states of a device that are mounted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vmtax.workload.durability.source import guest_source

PROGRAM = (sys.executable, "-I", "-S", "-c", guest_source())
NAMES = ("append-fsync-4k", "overwrite-dsync-16k", "rename-fdatasync-4k", "sqlite-wal", "sqlite-rollback", "control")
BLOCK = 4096
# Other tests copy all mounts that they see into namespaces of their own, where a device of ours would stay in use for
# minutes: so they see none. Constant texts, what they mount and run stays arguments.
APART = ("unshare", "--mount", "sh", "-c")
MOUNTED = 'mount "$1" "$2" && shift 2 && exec "$@"'
LEAVES_NOTHING = 'where=$1; shift; "$@" && ! grep -qF "$where" /proc/mounts'


def output(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def device(tmp_path: Path) -> Iterator[str]:
    """A loop device with an empty ext4."""
    file = tmp_path / "disk"
    with file.open("wb") as disk:
        disk.truncate(64 * 2**20)
    output("mkfs.ext4", "-q", "-F", "-b", str(BLOCK), str(file))
    loop = output("losetup", "--find", "--show", str(file))
    yield loop
    output("losetup", "--detach", loop)


@pytest.fixture
def acknowledged(device: str, tmp_path: Path) -> dict[str, int]:
    """What was acknowledged on the device until the writers were killed."""
    mountpoint = tmp_path / "mnt"
    mountpoint.mkdir()
    last: dict[str, int] = {}
    argv = (*APART, MOUNTED, "sh", device, str(mountpoint), *PROGRAM, "write", str(mountpoint), str(2**22), *NAMES)
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout and program.stdout.readline() == "ready\n"
        for line in program.stdout:  # to the end: what was printed before it was killed counts
            word, name, number = line.split()
            assert word == "ack" and int(number) == last.get(name, 0) + 1
            last[name] = int(number)
            if len(last) == len(NAMES) and min(last.values()) == 20:
                program.kill()
    return last


def verified(device: str, tmp_path: Path, acknowledged: dict[str, int], *options: str, states: int = 1) -> list[Any]:
    lines = "".join(json.dumps({"state": state, "acknowledged": acknowledged}) + "\n" for state in range(states))
    argv = (*APART, LEAVES_NOTHING, "sh", str(tmp_path), *PROGRAM, "verify", device, str(tmp_path / "mnt"))
    done = subprocess.run((*argv, *acknowledged, *options), input=lines, check=True, capture_output=True, text=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["state"] for answer in answers] == list(range(states))
    return answers


def block_of(device: str, name: str, number: int) -> int:
    """Where on the device a block of a writer's file is, in bytes."""
    return int(output("debugfs", "-R", f"bmap {name}/data {number}", device)) * BLOCK


def put(device: str, at: int, data: bytes) -> None:
    with Path(device).open("r+b") as disk:
        disk.seek(at)
        disk.write(data)
        os.fsync(disk.fileno())


def test_killed_writers_lose_nothing_and_damage_is_found(
    device: str, tmp_path: Path, acknowledged: dict[str, int]
) -> None:
    fine = {"lost": 0, "torn": 0, "words": ""}
    for options in ((), ("--no-check", "--options", "barrier=0,lazytime,rw")):
        for answer in verified(device, tmp_path, acknowledged, *options, states=2):
            assert answer == {"state": answer["state"], "file_system": "", "writers": dict.fromkeys(acknowledged, fine)}

    put(device, block_of(device, "append-fsync-4k", 2), bytes(BLOCK))
    put(device, block_of(device, "sqlite-wal", 1), b"\xaa" * 100)
    (answer,) = verified(device, tmp_path, acknowledged)
    found = {name: writer for name, writer in answer["writers"].items() if writer != fine}
    assert found.keys() == {"append-fsync-4k", "sqlite-wal"} and answer["file_system"] == ""
    assert found["append-fsync-4k"] == {"lost": 1, "torn": 0, "words": "record 3 is zeros"}
    assert found["sqlite-wal"]["torn"] == 1

    put(device, 1024 + 16, b"\xff\xff")  # the count of free inodes, in the superblock
    (answer,) = verified(device, tmp_path, acknowledged)
    assert answer["file_system"].startswith(("mount refused: ", "e2fsck: "))
    put(device, 1024, bytes(1024))
    first, second = verified(device, tmp_path, acknowledged, states=2)
    for state in (first, second):
        assert state["file_system"].startswith("mount refused: Invalid argument ("), "with what the kernel says"
