"""Snapshots and backups of a disk of a real guest while fio works on it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from tests.integration.conftest import booted
from vmtax.design.disk import CacheMode, DiskSettings, During
from vmtax.hypervisor import Credentials, Drive, GuestSpec
from vmtax.machine.local import LocalMachine
from vmtax.testbed.session.copying import Copying, Spare

SIZE = 64 * 2**20
FIO = (
    *("fio", "--name=x", "--filename=/dev/vdb", "--direct=1", "--ioengine=libaio", "--rw=randwrite", "--bs=4k"),
    *(f"--size={SIZE}", "--time_based", "--runtime=4", "--output-format=json"),
)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def written(copying: Copying, machine: Any) -> tuple[Any, dict[str, Any]]:
    """What is read of one trial with the guest's own times of it."""
    with copying.around("data", 4.0, awaited=True):
        copying.begin()
        output = machine.run(*FIO)
        found = copying.end()
    return found, json.loads(output[output.index("{") :])["jobs"][0]["write"]


@pytest.mark.parametrize(
    ("cache", "iothread"),
    [
        (CacheMode.NONE, 1),
        *(pytest.param(*one, marks=pytest.mark.machines) for one in ((CacheMode.WRITEBACK, 0), (CacheMode.NONE, 0))),
        pytest.param(CacheMode.WRITEBACK, 1, marks=pytest.mark.machines),
    ],
)
def test_a_disk_is_copied_while_it_is_written_and_is_then_as_the_guest_left_it(
    shared_local: LocalMachine, credentials: Credentials, spec: GuestSpec, cache: CacheMode, iothread: int
) -> None:
    directory = Path(f"/var/tmp/vmtax-copying-{os.getpid()}")
    directory.mkdir()
    shared_local.remove_later(PurePosixPath(directory))
    disk, spare = directory / "disk.raw", directory / "spare"
    disk.write_bytes(os.urandom(SIZE))
    spare.touch()
    settings = DiskSettings(cache=cache, aio="threads", iothread=iothread)
    drive = Drive(str(disk), settings, spare=str(spare), auto_read_only=False)
    try:
        with booted(shared_local, dataclasses.replace(spec, disks=(drive,)), credentials, shared_local) as guest:
            spares = {"data": Spare(PurePosixPath(spare), SIZE)}
            for what in (During.SNAPSHOT, During.BACKUP, During.SNAPSHOT):
                before = digest(disk)
                found, figures = written(Copying(shared_local, guest, what, spares), guest.machine)
                assert not found.void and found.rows["bytes"] > 0 and figures["total_ios"] > 100
                assert figures["lat_ns"]["max"] > 0
                assert digest(disk) != before  # what was written after a snapshot has been merged
                inside = guest.machine.run("sha256sum", "/dev/vdb").split()[0]
                guest.machine.run("sync")
                assert digest(disk) == inside
            assert spare.stat().st_size
            assert guest.cause_of_death() is None
    finally:
        shared_local.run("rm", "-rf", "--one-file-system", str(directory))
