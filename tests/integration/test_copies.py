"""Copies of a guest's disk, and the witness of what was acknowledged."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from vmtax.design.disk import DiskSettings
from vmtax.experiment.durability import Witness
from vmtax.machine import MachineError
from vmtax.machine.local import LocalMachine
from vmtax.storage import Backing
from vmtax.storage.copies import Copies, fetch

MIB = 2**20


def copies(local: LocalMachine, directory: Path, settings: DiskSettings) -> Copies:
    return Copies(local, directory, ("qemu-img",), settings, 8 * MIB)


def test_a_copy_over_a_line_has_the_same_bytes_and_holes(local: LocalMachine, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with source.open("wb") as file:
        file.write(b"begin")
        file.seek(40 * MIB)
        file.write(b"end")
        file.truncate(48 * MIB)
    target.write_bytes(b"x" * 64 * MIB)
    elsewhere = LocalMachine("elsewhere")
    try:
        fetch(elsewhere, local, PurePosixPath(source), target)
        assert target.read_bytes() == source.read_bytes()
        assert target.stat().st_blocks * 512 < MIB
        with pytest.raises(MachineError, match=r"elsewhere: .*/none was not copied: .*No such file"):
            fetch(elsewhere, local, PurePosixPath(tmp_path / "none"), target)
    finally:
        elsewhere.close()


def test_of_a_raw_disk_what_is_written_is_what_a_guest_sees(local: LocalMachine, tmp_path: Path) -> None:
    files = copies(local, tmp_path, DiskSettings())
    files.keep_before(local, Backing(PurePosixPath("/nowhere"), DiskSettings(), 8 * MIB))
    assert files.before.read_bytes() == files.disk.read_bytes() == bytes(8 * MIB)
    assert files.image == files.disk and files.check_and_convert() == ""


def test_of_a_qcow2_file_the_state_is_checked_and_converted(local: LocalMachine, tmp_path: Path) -> None:
    settings, made = DiskSettings(format="qcow2", preallocation="off"), tmp_path / "made"
    local.run("qemu-img", "create", "-q", "-f", "qcow2", str(made), str(8 * MIB))
    (tmp_path / "kept").mkdir()
    files = copies(local, tmp_path / "kept", settings)
    files.keep_before(local, Backing(PurePosixPath(made), settings, 8 * MIB))
    inode = files.disk.stat().st_ino
    local.run("qemu-io", "-f", "qcow2", "-c", "write -q -P 0x61 0 64k", str(files.image))
    assert files.check_and_convert() == ""
    assert files.disk.read_bytes() == b"a" * 65536 + bytes(8 * MIB - 65536)
    assert files.disk.stat().st_ino == inode, "the guest that looks has it open"
    image = bytearray(files.image.read_bytes())
    image[3 * 65536 : 3 * 65536 + 8] = bytes(8)  # the L1 table's only entry: then clusters are left over
    files.image.write_bytes(image)
    assert files.check_and_convert() == "", "clusters that nobody uses are no damage"
    image[:4] = b"none"
    files.image.write_bytes(image)
    assert "not" in files.check_and_convert(), "what cannot be opened"
    assert files.disk.read_bytes() == bytes(8 * MIB)


def test_an_image_that_is_bad_from_the_beginning_is_no_state(local: LocalMachine, tmp_path: Path) -> None:
    settings, made = DiskSettings(format="qcow2"), tmp_path / "made"
    made.write_bytes(b"no image" * 1000)
    (tmp_path / "kept").mkdir()
    with pytest.raises(MachineError, match="never written to"):
        copies(local, tmp_path / "kept", settings).keep_before(local, Backing(PurePosixPath(made), settings, 8 * MIB))


def test_the_witness_keeps_the_newest_number_of_each_writer() -> None:
    witness = Witness()
    for line in (
        "ready",
        "ack append-fsync-4k 1",
        "ack control 7",
        "ack append-fsync-4k 2",
        "error control disk is full",
    ):
        witness.hear(line)
    witness.note((4096, 0))
    witness.note(None)
    witness.hear("ack control 8")
    witness.note((4096, 512))
    witness.hear("ack control 9")
    witness.note((4096, 512))
    assert witness.heard == [
        ((4096, 0), {"append-fsync-4k": 2, "control": 7}),
        ((4096, 512), {"append-fsync-4k": 2, "control": 9}),
    ]
    assert witness.errors == ["control disk is full"]
