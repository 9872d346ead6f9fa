"""RAIDZ1 in a power cut: four disks whose writes are logged, and their states, with all of them and without some."""

from __future__ import annotations

import contextlib
import json
import os
import random
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from tests.integration.conftest import booted
from vmtax.design.disk import CacheMode, DiskSettings
from vmtax.experiment.checkers import Checks
from vmtax.experiment.durability import _written
from vmtax.hypervisor import Credentials, Drive, Guest, GuestSpec
from vmtax.image.packs import Pack
from vmtax.lab.write_logs import SpareLog
from vmtax.machine.local import LocalMachine
from vmtax.storage import Backing
from vmtax.storage.copies import Copies
from vmtax.storage.power_cut import opened
from vmtax.storage.power_cuts import DiskState, States
from vmtax.testbed.session.base import Cut
from vmtax.testbed.storage import host_disk
from vmtax.testbed.storage.cutting import CHECKED_ID, HOST_ID
from vmtax.workload.durability import Counts, Durability, DurabilityParameters
from vmtax.workload.durability.records import issued
from vmtax.workload.durability.stacks import Stack

pytestmark = pytest.mark.machines

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


def test_a_raidz_keeps_everything_without_one_disk_and_nothing_without_two(
    shared_local: LocalMachine, credentials: Credentials, spec: GuestSpec, zfs_pack: Pack, tmp_path: Path
) -> None:
    spares = [SpareLog(name, tmp_path / f"{name}.raw", tmp_path / f"{name}.writes", SIZE) for name in NAMES]
    for spare in spares:
        for path in (spare.disk, spare.log):
            path.touch()
        os.truncate(spare.disk, SIZE)
    drives = [Drive(str(one.disk), DiskSettings(aio="threads"), name=one.serial, log=str(one.log)) for one in spares]
    spec = replace(spec, layers=(str(zfs_pack.path),), memory_bytes=2**30)
    seen = {gone: Counts() for gone in (0, 1, 2)}

    def boot_checker(guests: Copies, below: Sequence[Copies]) -> AbstractContextManager[Guest]:
        settings = DiskSettings(cache=CacheMode.WRITEBACK, aio="threads")
        names = (CHECKED_ID, *(HOST_ID.format(number) for number in range(1, len(below) + 1)))
        disks = zip((guests, *below), names, strict=True)
        disks_of = tuple(Drive(str(one.disk), settings, name=name) for one, name in disks)
        return booted(shared_local, replace(spec, name="checking", disks=disks_of), credentials, shared_local)

    with contextlib.ExitStack() as ends:
        with booted(shared_local, replace(spec, name="host", disks=tuple(drives)), credentials, shared_local) as host:
            device = make_pool(host)
            settings = DiskSettings.of({"disk.volume": "raidz1-dataset"})
            disk = Backing(PurePosixPath("/pool/disk.raw"), settings, 64 * MIB, lies_on="pool/disk")
            for name in NAMES:
                (tmp_path / name).mkdir()
            each = [Copies(shared_local, tmp_path / name, (), DiskSettings(), SIZE) for name in NAMES]
            below = host_disk.keep(host.machine, spares, disk, each)
            assert below.stack == STACK
            for one in below.disks:
                with opened(one.log) as history:
                    assert history.entries[history.place(one.since) - 1].end == one.since, "its size is no whole blocks"
            (tmp_path / "guest").mkdir()
            guests = Copies(shared_local, tmp_path / "guest", (), DiskSettings(), disk.size)
            guests.keep_before(shared_local, disk)
            cut = Cut(device, host, "", disk, PurePosixPath("/none"), guests, boot_checker, host_disks=below)
            witness = _written(shared_local, host, cut, WORKLOAD, random.Random(1))
        histories = [ends.enter_context(opened(one.log, one.since)) for one in below.disks]
        states = States(histories, witness.heard, lambda data: issued(data, WORKLOAD.writers))
        drawn = states.draw(6, seed=1)
        assert len(drawn) == 6 and sum(bool(state.gone) for state in drawn) == 3
        with Checks(cut, WORKLOAD, histories, states).opened() as checker:
            last = drawn[-1].moments
            for state in (*drawn, DiskState(last), DiskState(last, (0,)), DiskState(last, (1, 3))):
                one = checker.check(state)
                print(states.words(state), one.words())
                seen[len(state.gone)].add(
                    one.answer, states.acknowledged(state), one.image, without_disk=bool(state.gone)
                )
    print(json.dumps(witness.acknowledged), len(witness.heard))
    for gone, least in ((0, 2), (1, 2)):
        assert seen[gone].states >= least and seen[gone].lost == 0
        assert seen[gone].of_writer["control"]["lost"] > 0
    assert (seen[2].states, seen[2].lost, seen[2].file_system_damaged) == (1, 1, 1)
    assert (seen[1].states_without_disk, seen[1].lost_without_disk) == (seen[1].states, 0)
