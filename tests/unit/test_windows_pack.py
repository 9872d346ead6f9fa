"""The pack for Windows: its sources, what makes it another one, and what its programs print."""

from __future__ import annotations

import hashlib
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.fake_machine import FakeMachine, Reply
from tests.unit.test_workload import EVERY, GOLDEN, parsed
from vmtax.image import packs, windows
from vmtax.image.cache import ImageError
from vmtax.image.packs import Pack
from vmtax.image.windows import ARCHIVES, KEPT, SourceArchive, fetch, unpack
from vmtax.workload.fio import Disk, DiskParameters

FIO = ARCHIVES[0]
REFUSED = "Err:1 http://x\nE: Failed to fetch http://x  404  Not Found [IP: 203.0.113.80 80]\nE: Download Failed\n"


def debian(argv: tuple[str, ...]) -> bool:
    return any(word.startswith(packs.ARCHIVE) for word in argv)


def snapshots(argv: tuple[str, ...]) -> bool:
    return any(word.startswith(KEPT) for word in argv)


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda archive: archive.name)
def test_a_source_is_named_by_its_digests(archive: SourceArchive) -> None:
    assert re.fullmatch(r"[0-9a-f]{64}", archive.sha256) and re.fullmatch(r"[0-9a-f]{40}", archive.sha1)
    assert archive.file == f"{archive.name}_{archive.version}.orig.tar.gz" and archive.path.startswith("pool/main/")


def test_a_source_comes_from_debian_s_archive_with_its_digest(tmp_path: Path) -> None:
    machine: Any = FakeMachine("host", {debian: ""})
    assert fetch(machine, FIO, tmp_path) == tmp_path / FIO.file
    assert machine.calls[-1][-3:] == (
        f"http://deb.debian.org/debian/{FIO.path}",
        str(tmp_path / FIO.file),
        f"SHA256:{FIO.sha256}",
    )


def test_a_source_that_debian_has_removed_comes_from_its_snapshots(tmp_path: Path) -> None:
    machine: Any = FakeMachine("host", {debian: Reply(code=100, stderr=REFUSED), snapshots: ""})
    assert fetch(machine, FIO, tmp_path).name == FIO.file
    assert machine.calls[-1][-3] == f"https://snapshot.debian.org/file/{FIO.sha1}/{FIO.file}"
    assert machine.calls[-1][-1] == f"SHA256:{FIO.sha256}", "its digest is checked there too"


def test_a_source_that_is_nowhere_is_named_with_both_answers(tmp_path: Path) -> None:
    machine: Any = FakeMachine("host", {debian: Reply(code=100, stderr=REFUSED), snapshots: Reply(code=100)})
    with pytest.raises(ImageError) as caught:
        fetch(machine, FIO, tmp_path)
    assert str(caught.value) == (
        "building the pack for Windows: the source of fio 3.41: Failed to fetch http://x  404  Not Found [IP:"
        f" 203.0.113.80 80]; {KEPT}/{FIO.sha1}/{FIO.file}: no answer"
    )


def test_what_it_is_built_of_makes_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {windows.PACK.key()}
    for name, value in (("LAYOUT", 999), ("ARCHIVES", ARCHIVES[1:]), ("_file", lambda name: b""), ("EPOCH", "0")):
        with monkeypatch.context() as changed:
            changed.setattr(windows, name, value)
            keys.add(windows.PACK.key())
    assert len(keys) == 5


def test_the_script_builds_every_program_and_keeps_its_licence() -> None:
    text = windows._file(windows.SCRIPT).decode()
    assert all(name in text for name in windows.PROGRAMS)
    for licence in ("fio", "stockfish", "gcc", "mingw-w64"):
        assert f" programs/licences/{licence}\n" in text
    path = Path(windows.__file__).parent / windows.SCRIPT
    assert path.stat().st_mode & stat.S_IXUSR and text.startswith("#!/bin/sh\n") and "\nset -e\n" in text


def test_the_programs_of_a_pack_are_named_by_their_digests(tmp_path: Path) -> None:
    pack = Pack(tmp_path / "pack.erofs", "any", "1", "key", 1, "00")
    machine: Any = FakeMachine("host", {lambda argv: argv[0] == "fsck.erofs": ""})
    with pytest.raises(
        ImageError, match=r"has no fio\.exe and no stockfish\.exe and .*; `vmtax image windows --again`"
    ):
        unpack(pack, machine, tmp_path)
    for name in windows.PROGRAMS:
        (tmp_path / name).write_bytes(b"MZ")
    digest = hashlib.sha256(b"MZ").hexdigest()
    assert unpack(pack, machine, tmp_path) == dict.fromkeys(windows.PROGRAMS, digest)


# What its programs printed under Wine 8.


def test_fio_for_windows_prints_what_is_read_of_fio() -> None:
    case = "randread-4k-qd1"
    figures = parsed("disk", case, "windows-fio.txt")
    workload = Disk(DiskParameters(patterns=(case,)))
    output = (GOLDEN / "windows-fio.txt").read_text()
    assert "windowsaio" in output and "disk_util" not in output
    assert workload.operations(case, output) == (16 << 20) / 4096
    assert figures[f"disk.{case}.iops"] > 0
    assert figures[f"disk.{case}.p99_seconds"] >= figures[f"disk.{case}.p50_seconds"] > 0


def test_stockfish_for_windows_searches_the_positions_that_it_searches_on_linux() -> None:
    assert b"\r\n" in (GOLDEN / "windows-chess.txt").read_bytes(), "reading it as text makes one line end of both"
    theirs, ours = ((GOLDEN / name).read_text() for name in ("windows-chess.txt", "chess.txt"))
    assert EVERY["chess"].signature("one-thread", theirs) == EVERY["chess"].signature("one-thread", ours)
    assert parsed("chess", "", "windows-chess.txt") == {"chess.nodes_per_second": 395091}
