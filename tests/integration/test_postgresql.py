"""PostgreSQL as a writer, for real. `make prove-postgresql` builds its pack and runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import measured
from vmtax.image import postgresql
from vmtax.image.cache import Image
from vmtax.image.packs import Pack
from vmtax.workload.durability import guest
from vmtax.workload.durability.postgresql import ROOT
from vmtax.workload.durability.records import header
from vmtax.workload.durability.source import guest_source

pytestmark = pytest.mark.pack
NAME = "postgresql"
ROWS = 100
FINE = {"lost": 0, "torn": 0, "words": ""}
PLAN = """\
name: durability-postgresql
layers: [vm]
guest: {vcpus: 1, memory: 512MiB}
factors: {disk.format: [raw], disk.cache: [none, unsafe], disk.aio: [threads]}
workloads:
  - durability: {writers: [append-fsync-4k, sqlite-wal, postgresql, lying-postgresql], seconds: 20, states: 30}
precision: none
rounds: {min: 1, max: 1}
"""
SAFE, UNSAFE = "vm", "vm disk.cache=unsafe"


@pytest.fixture(scope="module")
def pack() -> Pack:
    found = postgresql.PACK.current()
    if found is None:
        pytest.fail("there is no PostgreSQL pack: make prove-postgresql")
    return found


@pytest.fixture(scope="module")
def program(pack: Pack, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """What runs in guests, with the pack as a directory of this host, whose kernel need not have erofs."""
    tree = tmp_path_factory.mktemp("pack") / "tree"
    subprocess.run(("fsck.erofs", f"--extract={tree}", str(pack.path)), check=True, capture_output=True)
    text = guest_source()
    assert ROOT in text
    return (sys.executable, "-I", "-S", "-c", text.replace(ROOT, str(tree)))


@pytest.fixture
def device(tmp_path: Path) -> Iterator[str]:
    """A loop device with an empty ext4."""
    file = tmp_path / "disk"
    with file.open("wb") as disk:
        disk.truncate(192 * 2**20)
    subprocess.run(("mkfs.ext4", "-q", "-F", str(file)), check=True)
    argv = ("losetup", "--find", "--show", str(file))
    loop = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    yield loop
    subprocess.run(("losetup", "--detach", loop), check=True)


def change(device: str, mountpoint: Path, work: Callable[[Path], object]) -> None:
    """Change the server's files."""
    guest.mount(device, str(mountpoint))
    try:
        work(mountpoint / NAME / "data")
    finally:
        guest.unmount(str(mountpoint))
        guest.wait_until_free(device)  # the namespaces of killed servers end a moment later


def where(directory: Path, number: int) -> tuple[Path, int]:
    """A file below that directory that holds a record, and where in it."""
    sought = header(NAME, number, 0)
    found = ((path, path.read_bytes().find(sought)) for path in directory.rglob("*") if path.is_file())
    return next((path, at) for path, at in found if at >= 0)


def test_a_killed_server_loses_nothing_and_damage_is_found(
    program: tuple[str, ...], device: str, tmp_path: Path
) -> None:
    mountpoint = tmp_path / "mnt"
    mountpoint.mkdir()
    guest.mount(device, str(mountpoint))
    try:
        argv = (*program, "write", str(mountpoint), str(2**30), NAME)
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writing:
            assert writing.stdout and writing.stdout.readline() == "ready\n"
            for number, line in enumerate(writing.stdout, 1):
                assert line == f"ack {NAME} {number}\n"
                if number == ROWS:
                    writing.kill()
                    break
    finally:
        guest.unmount(str(mountpoint))
        guest.wait_until_free(device)  # the namespaces of killed servers end a moment later

    def found(acknowledged: int = ROWS) -> dict[str, Any]:
        """Twice: the first leaves the file system to nobody."""
        lines = "".join(json.dumps({"state": state, "acknowledged": {NAME: acknowledged}}) + "\n" for state in (1, 2))
        argv = (*program, "verify", device, str(mountpoint), NAME)
        done = subprocess.run(argv, input=lines, check=True, capture_output=True, text=True)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        assert [(one["state"], one["file_system"], one.get("error")) for one in answers] == [
            (1, "", None),
            (2, "", None),
        ]
        first, second = (dict(one["writers"][NAME]) for one in answers)
        assert first == second
        return first

    whole = tmp_path / "whole"
    subprocess.run(("cp", device, str(whole)), check=True)
    assert found() == FINE
    more = found(10 * ROWS)
    assert more["torn"] == 0 and 0 < more["lost"] <= 9 * ROWS and more["words"].endswith(" is missing")

    def zero_from(place: tuple[Path, int], length: int | None = None) -> None:
        path, at = place
        data = path.read_bytes()
        end = len(data) if length is None else at + length
        path.write_bytes(data[:at] + bytes(end - at) + data[end:])

    subprocess.run(("cp", str(whole), device), check=True)
    change(device, mountpoint, lambda data: zero_from(where(data / "pg_wal", ROWS)))
    answer = found()
    assert answer["torn"] == 0 and 0 < answer["lost"] < 5, "the end of the log was not written"

    subprocess.run(("cp", str(whole), device), check=True)
    change(device, mountpoint, lambda data: zero_from(where(data / "base", 1), 4))
    assert found()["torn"] == 1, "a page has another checksum"

    subprocess.run(("cp", str(whole), device), check=True)
    change(device, mountpoint, lambda data: zero_from((data / "base/1/1255", 2 * 8192 + 4000), 100))
    answer = found()
    assert (answer["lost"], answer["torn"]) == (0, 1), "a table of another database"
    assert answer["words"].startswith("pg_checksums: ") and "checksum verification failed" in answer["words"]

    subprocess.run(("cp", str(whole), device), check=True)
    change(device, mountpoint, lambda data: [path.unlink() for path in (data / "pg_wal").glob("0*")])
    answer = found()
    assert (answer["lost"], answer["torn"]) == (ROWS, 1)
    assert answer["words"].startswith("the server did not recover: ")


def test_a_power_cut_loses_no_transaction_but_where_flushes_are_ignored(
    pack: Pack, image: Image, tmp_path: Path
) -> None:
    plan, disks = tmp_path / "plan.yaml", tmp_path / "disks"
    plan.write_text(PLAN)
    disks.mkdir()
    data = measured(str(plan), "--disk-dir", str(disks), directory=tmp_path)
    assert data["facts"]["host"]["postgresql_pack"] == {"version": pack.version, "digest": pack.digest}
    counts = {
        (row["treatment"], row["metric"].removeprefix("durability.")): row["value"]
        for row in data["measurements"]
        if row["metric"].startswith("durability.")
    }
    for name in (SAFE, UNSAFE):
        assert counts[name, f"power-cut.{NAME}.states"] > 20
        assert counts[name, f"guest-killed.{NAME}.lost"] == counts[name, f"guest-killed.{NAME}.torn"] == 0
        assert counts[name, f"power-cut.lying-{NAME}.lost"] > 0
    assert counts[SAFE, f"power-cut.{NAME}.lost"] == counts[SAFE, f"power-cut.{NAME}.torn"] == 0
    assert counts[UNSAFE, f"power-cut.{NAME}.lost"] > 0
