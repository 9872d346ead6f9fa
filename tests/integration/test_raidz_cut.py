"""RAIDZ1 in a power cut: four disks whose writes are logged, and their states, with all of them and without some."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

from tests.integration.conftest import booted
from vmtax.design.disk import CacheMode, DiskSettings
from vmtax.experiment.durability import _Verifier, _written
from vmtax.hypervisor import Credentials, Drive, Guest, GuestSpec
from vmtax.image.packs import Pack
from vmtax.machine.local import LocalMachine
from vmtax.storage import Backing
from vmtax.storage.copies import Copies
from vmtax.storage.power_cut import Disk, opened
from vmtax.storage.power_cuts import Disks, State, States, at_rest
from vmtax.testbed.base import Cut, HostDisk, HostDisks
from vmtax.workload.durability import Counts, Durability, DurabilityParameters
from vmtax.workload.durability.records import issued
from vmtax.workload.durability.stacks import Stack

MIB = 2**20
SIZE = 256 * MIB  # of each of the pool's disks
NAMES = ("a", "b", "c", "d")
STACK = Stack("dataset", "pool/disk", "zfs", "disk.raw")
WORKLOAD = Durability(DurabilityParameters(writers=("append-fsync-4k", "sqlite-wal"), size="64MiB", seconds=4))


def make_pool(host: Guest) -> str:
    """The device of the guest's disk that is written to."""
    machine = host.machine
    devices = [host.spec.device(name) or "" for name in NAMES]
    machine.run("modprobe", "-a", "zfs", "loop")
    for device in devices:
        machine.run("sfdisk", "-q", device, input="label: gpt\nsize=250MiB\n")
    parts = [f"{device}1" for device in devices]
    machine.run("zpool", "create", "-f", "-o", "ashift=12", "-O", "mountpoint=none", "pool", "raidz1", *parts)
    machine.run("zfs", "create", "-o", "mountpoint=/pool", "pool/disk")
    machine.run("truncate", "-s", str(64 * MIB), "/pool/disk.raw")
    return machine.run("losetup", "--find", "--show", "/pool/disk.raw").strip()


@contextlib.contextmanager
def checked(local: LocalMachine, credentials: Credentials, spec: GuestSpec, below: HostDisks) -> Iterator[_Verifier]:
    settings = DiskSettings(cache=CacheMode.WRITEBACK, aio="threads")
    drives = [Drive(str(disk.copies.disk), settings, name=name) for disk, name in zip(below.disks, NAMES, strict=True)]
    with booted(local, replace(spec, name="checking", disks=tuple(drives)), credentials, local) as guest:
        raw: list[str] = []
        verifier = _Verifier(guest, NAMES, WORKLOAD, "", raw, below.stack)
        try:
            yield verifier
        finally:
            verifier.end()
            print(*raw, sep="\n")


def test_a_raidz_keeps_everything_without_one_disk_and_nothing_without_two(
    shared_local: LocalMachine, credentials: Credentials, spec: GuestSpec, zfs_pack: Pack, tmp_path: Path
) -> None:
    drives, found = [], []
    for name in NAMES:
        disk, log = tmp_path / f"{name}.raw", tmp_path / f"{name}.writes"
        for path in (disk, log):
            path.touch()
        with disk.open("r+b") as file:
            file.truncate(SIZE)
        drives.append(Drive(str(disk), DiskSettings(aio="threads"), name=name, log=str(log)))
        (tmp_path / name).mkdir()
        copies = Copies(shared_local, tmp_path / name, (), DiskSettings(), SIZE)
        copies.begin_with(disk)  # all zeros: the log has everything
        found.append(HostDisk(log, 0, copies))
    spec = replace(spec, layers=(str(zfs_pack.path),), memory_bytes=2**30)
    seen = {gone: Counts() for gone in (0, 1, 2)}
    with contextlib.ExitStack() as ends:
        with booted(shared_local, replace(spec, name="host", disks=tuple(drives)), credentials, shared_local) as host:
            device = make_pool(host)
            whole = at_rest([disk.log for disk in found], 60)
            assert whole is not None
            below = HostDisks(tuple(found), whole, STACK)
            disk = Backing(PurePosixPath("/pool/disk.raw"), size=64 * MIB)
            log, first = PurePosixPath("/none"), found[0].copies
            cut = Cut(device, host, "", disk, log, first, lambda: contextlib.nullcontext(host), below)
            witness = _written(shared_local, host, cut, WORKLOAD, random.Random(1))
        histories = [ends.enter_context(opened(one.log)) for one in found]
        states = States(histories, witness.heard, lambda data: issued(data, WORKLOAD.writers))
        kept = [Disk(each, one.copies.before, one.copies.flushed) for each, one in zip(histories, found, strict=True)]
        disks = Disks(kept, [one.copies.image for one in found])
        ends.callback(disks.close)
        drawn = states.draw(8, seed=1)
        assert len(drawn) == 8 and sum(bool(state.gone) for state in drawn) == 4
        disks.write(State(drawn[0].moments))  # with all partitions, which the guest's kernel looks for when it boots
        with checked(shared_local, credentials, spec, below) as verifier:
            last = drawn[-1].moments
            for state in (*drawn, State(last), State(last, (1, 3)), State(last, (0,))):
                disks.write(state)
                known = states.acknowledged(state)
                verifier.verify(seen[len(state.gone)], states.words(state), known, "", without_disk=bool(state.gone))
    print(json.dumps(witness.acknowledged), len(witness.heard))
    for gone, least in ((0, 4), (1, 4)):
        assert seen[gone].states >= least and seen[gone].lost == 0
        assert seen[gone].of_writer["control"]["lost"] > 0
    assert (seen[2].states, seen[2].lost, seen[2].file_system_damaged) == (1, 1, 1)
    assert (seen[1].states_without_disk, seen[1].lost_without_disk) == (seen[1].states, 0)
