"""Live migration, for real: a guest moves between two QEMUs of this host, or stays where it was."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import booted, measured
from vmtax.design.migration import MigrationSettings, Mode
from vmtax.hypervisor import AWAITED, Credentials, Guest, GuestSpec, Move, MoveFailed, Qemu, boot
from vmtax.image.cache import Image
from vmtax.machine.local import LocalMachine
from vmtax.testbed.host.migration import meeting


@pytest.mark.machines
@pytest.mark.parametrize("whose", ["image", "host"])
def test_a_guest_moves_or_stays_where_it_was(
    whose: str, local: LocalMachine, credentials: Credentials, spec: GuestSpec, qemu: Qemu
) -> None:
    """With the image's QEMU, and with this host's own, which may be another version."""
    runs_it = qemu if whose == "image" else Qemu.probe(local)
    spec = replace(spec, vcpus=1, hypervisor=runs_it, meeting=meeting(local, runs_it))
    with booted(local, spec, credentials, local) as guest:
        before = state(guest)

        def failure(other: GuestSpec, how: Move, *, killed: bool = False) -> str:
            with boot(local, replace(other, incoming=AWAITED), credentials, local) as destination:
                if killed:
                    threading.Timer(1.0, destination.process.stop).start()
                with pytest.raises(MoveFailed) as found:
                    guest.move_to(destination, how)
            assert state(guest) == before, "it runs on at the source"
            return str(found.value)

        quick, slow = Move(MigrationSettings(), 60.0), Move(MigrationSettings(), 60.0, 2**20)
        larger = failure(replace(spec, memory_bytes=2 * spec.memory_bytes), quick)
        assert "Size mismatch" in larger and larger.endswith("the guest runs on at the source") and "\n" not in larger
        other_cpu = failure(replace(spec, settings=replace(spec.settings, model="x86-64-v2")), quick)
        assert "another CPU model: x86-64-v2, not host" in other_cpu
        assert "the guest runs on at the source" in failure(spec, slow, killed=True)
        late = failure(spec, replace(slow, seconds=1.0))
        assert "no end within 1 s" in late and "the guest runs on at the source" in late

        with (
            boot(local, replace(spec, incoming=AWAITED), credentials, local) as second,
            boot(local, replace(spec, incoming=AWAITED), credentials, local) as third,
        ):
            short = MigrationSettings(downtime_limit=0.05, auto_converge=True)
            packed = MigrationSettings(mode=Mode.MULTIFD, compression="zstd")
            for destination, settings in ((second, short), (third, packed)):
                left, moved = guest.process, guest.move_to(destination, Move(settings, 60.0))
                assert left.poll() is not None and guest.process is destination.process
                assert state(guest) == before
                assert 0 <= moved.downtime_seconds < moved.total_seconds < 60 and moved.sent_bytes > 2**20
            assert guest.shut_down() is not None


def state(guest: Guest) -> Any:
    """What no other guest has, and no reboot leaves."""
    return guest.machine.read_text("/proc/sys/kernel/random/boot_id")


PLAN = """\
name: migration-tiny
layers: [vm]
guest: {vcpus: 1, memory: 512MiB}
factors: {migration.mode: [multifd]}
workloads:
  - migration: {rate: 100, seconds: 1, load: 1}
  - boot
primary: [boot.ready_seconds]
rounds: {min: 1, max: 1}
"""


def test_a_plan_measures_a_migration_from_the_peer(image: Image, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN)
    began = time.monotonic()
    data = measured(str(plan), directory=tmp_path)
    have = {row["metric"]: row["value"] for row in data["measurements"] if row["treatment"] == "vm"}
    assert 0.01 <= have["migration.downtime_seconds"] < time.monotonic() - began
    assert have["migration.before_p50_seconds"] > 0 and have["migration.after_p50_seconds"] > 0
    assert have["migration.lost_packets"] <= 100 * (have["migration.downtime_seconds"] + 1)
    assert have["boot.shutdown_seconds"] > 0, "it is shut down at its destination"
