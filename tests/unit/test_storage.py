"""The disk under test: what is written to it, and what is remembered of that."""

from __future__ import annotations

import json

import pytest

from tests.fake_machine import FakeMachine, Reply
from vmtax.machine import CommandFailed
from vmtax.storage import StorageError, fill
from vmtax.workload import Site
from vmtax.workload.fio import INCOMPRESSIBLE, PATTERNS, Disk, DiskParameters

SIZE = 32 * 2**20
# What would make fio's data easy to compress or to recognize.
REGULAR = ("zero_buffers", "buffer_pattern", "buffer_compress", "dedupe", "allrandrepeat", "verify")


def filled(written: object) -> tuple[FakeMachine, object]:
    answer = json.dumps({"jobs": [{"write": {"io_bytes": written}}]})
    machine = FakeMachine(answers={lambda argv: "fio" in argv: f"fio: a note\n{answer}\n"})
    return machine, fill(machine, ("bwrap",), "/mnt/disk.raw", SIZE, allocation="raw file", when="at first").to_json()


def test_a_disk_is_written_in_full_once_and_how_is_kept() -> None:
    machine, first = filled(SIZE)
    (argv,) = machine.calls
    assert argv[:2] == ("bwrap", "fio") and f"--size={SIZE}" in argv and "--rw=write" in argv
    assert isinstance(first, dict)
    assert (first["allocation"], first["size"], first["written"], first["when"]) == ("raw file", SIZE, SIZE, "at first")
    assert "--refill_buffers=1 --randrepeat=0" in first["by"] and first["started"] > 0


@pytest.mark.parametrize("written", [SIZE - 4096, 0, "nonsense"])
def test_a_disk_that_was_not_written_in_full_is_refused(written: object) -> None:
    with pytest.raises(StorageError, match=f"of the {SIZE} bytes of /mnt/disk.raw were written"):
        filled(written)


@pytest.mark.parametrize(
    ("words", "error", "told"),
    [
        ("bwrap: execvp fio: No such file or directory", StorageError, "host: the image has no fio"),
        ("fio: pid=9, err=28/file:filesetup.c: No space left on device", CommandFailed, "its disk is full or failing"),
    ],
)
def test_a_fill_that_cannot_be_says_why(words: str, error: type[Exception], told: str) -> None:
    machine = FakeMachine(answers={lambda argv: "fio" in argv: Reply(stderr=words, code=1)})
    with pytest.raises(error, match=told):
        fill(machine, ("bwrap",), "/mnt/disk.raw", SIZE, allocation="raw file", when="at first")


def test_all_data_written_is_incompressible() -> None:
    machine, _ = filled(SIZE)
    site = Site(machine, "vm", 2, (), disk="/dev/vdb", fresh_disk="/dev/vdc")
    disk = Disk(DiskParameters(patterns=tuple(PATTERNS)))
    commands = [machine.calls[0], *(tuple(disk.command(site, case)) for case in PATTERNS)]
    assert len(commands) == 1 + len(PATTERNS)
    for argv in commands:
        assert set(INCOMPRESSIBLE) <= set(argv)
        assert not [word for word in argv if any(option in word for option in REGULAR)]
