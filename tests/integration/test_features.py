"""What a disk can do, asked of real QEMUs; and a host's disk that is really full under a real guest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from vmtax.design.disk import CacheMode, DiskSettings
from vmtax.design.features import FEATURES, Feature
from vmtax.hypervisor import Credentials, Drive, GuestSpec, Qemu
from vmtax.hypervisor.qemu.img import create_image
from vmtax.machine.local import LocalMachine
from vmtax.storage import Backing
from vmtax.storage.features import features
from vmtax.storage.full import stops_when_full

SIZE = 16 * 2**20


@pytest.fixture(params=["the image's", "the host's"])
def either_qemu(request: pytest.FixtureRequest, shared_local: LocalMachine, qemu: Qemu) -> Qemu:
    return qemu if request.param == "the image's" else Qemu.probe(shared_local)


def asked(machine: LocalMachine, qemu: Qemu, directory: Path, **levels: str) -> dict[str, Feature]:
    """Of a disk that takes its blocks when it is written. `disk.` is left out of the levels' names."""
    named = {f"disk.{name}": level for name, level in {"preallocation": "off", **levels}.items()}
    settings = DiskSettings.of(named)
    path = directory / "disk"
    machine.run(*create_image(settings, str(path), SIZE))
    backing = Backing(PurePosixPath(path), settings)
    found = features(machine, qemu, backing, Drive(str(path), settings), PurePosixPath(directory))
    assert tuple(feature.name for feature in found) == tuple(FEATURES)
    assert [Feature.from_json(feature.to_json()) for feature in found] == list(found)
    assert sorted(file.name for file in directory.iterdir()) == ["disk"], "what was tried on is gone"
    return {feature.name: feature for feature in found}


@pytest.fixture
def on_disk(shared_local: LocalMachine) -> Iterator[Path]:
    """A directory with O_DIRECT, on ext4."""
    entry = shared_local.remove_later(PurePosixPath("/var/tmp/vmtax-test-features"))
    shared_local.run("mkdir", "/var/tmp/vmtax-test-features")
    yield Path("/var/tmp/vmtax-test-features")
    entry.undo()


def states(found: dict[str, Feature]) -> str:
    return " ".join(name for name, feature in found.items() if feature.state == "yes")


def test_a_raw_file_and_a_qcow2_file(shared_local: LocalMachine, either_qemu: Qemu, on_disk: Path) -> None:
    raw = asked(shared_local, either_qemu, on_disk, preallocation="falloc")
    assert states(raw) == "durable file pause-on-full migration"
    assert "does not support" in raw["savevm"].words, "in QEMU's own words"
    assert "it cannot fill up" in raw["pause-on-full"].words
    sparse = asked(shared_local, either_qemu, on_disk, format="qcow2", preallocation="off", cluster_size="2MiB")
    assert states(sparse) == "durable savevm snapshots file thin migration"
    full = asked(shared_local, either_qemu, on_disk, format="qcow2", preallocation="full", lazy_refcounts="on")
    assert states(full) == "durable savevm snapshots file migration"
    assert full["pause-on-full"].state == "not tried"
    assert "takes 100 % of its size" in full["thin"].words


@pytest.mark.parametrize("bus", ["ide", "sata", "virtio-scsi", "nvme"])
def test_the_bus_decides_what_can_be_saved(shared_local: LocalMachine, qemu: Qemu, on_disk: Path, bus: str) -> None:
    found = asked(shared_local, qemu, on_disk, bus=bus, format="qcow2", preallocation="metadata", iothread="on")
    saved = "" if bus == "nvme" else "savevm "
    assert states(found) == f"durable {saved}snapshots file thin{'' if bus == 'nvme' else ' migration'}"
    if bus == "nvme":
        assert "non-migratable device" in found["migration"].words


def test_what_loses_flushed_data(shared_local: LocalMachine, qemu: Qemu, on_disk: Path) -> None:
    unsafe = asked(shared_local, qemu, on_disk, cache="unsafe", aio="threads")["durable"]
    assert (unsafe.state, unsafe.how) == ("no", "documented")
    memory = Path("/dev/shm/vmtax-test-features")
    entry = shared_local.remove_later(PurePosixPath(memory))
    memory.mkdir()
    found = asked(shared_local, qemu, memory, cache="writeback", aio="threads")["durable"]
    assert found.state == "no" and "tmpfs, kept in memory" in found.words
    entry.undo()


def test_a_block_device(shared_local: LocalMachine, qemu: Qemu, on_disk: Path) -> None:
    shared_local.run("truncate", "-s", str(SIZE), str(on_disk / "device"))
    loop = shared_local.run("losetup", "-f", "--show", str(on_disk / "device")).strip()
    entry = shared_local.undo_later("losetup", "-d", loop)
    try:
        drive = Drive(loop)
        backing = Backing(PurePosixPath(loop), DiskSettings(filesystem="none"))
        found = {f.name: f for f in features(shared_local, qemu, backing, drive, PurePosixPath(on_disk))}
        assert states(found) == "durable pause-on-full migration"
        assert found["file"].words == "a block special file" and found["thin"].words == "a whole device"
    finally:
        entry.undo()


def test_what_cannot_be_tried_says_why(shared_local: LocalMachine, qemu: Qemu, on_disk: Path) -> None:
    path = on_disk / "disk"
    shared_local.run("truncate", "-s", str(SIZE), str(path))
    backing = Backing(PurePosixPath(path), DiskSettings(preallocation="off"))
    impossible = Drive(str(path), DiskSettings(cache=CacheMode.WRITEBACK, aio="native"))
    found = {f.name: f for f in features(shared_local, qemu, backing, impossible, PurePosixPath(on_disk))}
    assert states(found) == "durable file thin" and found["savevm"].state == "not tried"
    assert "aio=native" in found["savevm"].words
    missing = features(shared_local, qemu, backing, Drive(str(path)), PurePosixPath(on_disk), qemu_img=("no-such",))
    assert {f.state for f in missing if f.name in ("savevm", "snapshots", "thin")} == {"not tried"}


@pytest.mark.parametrize(
    ("bus", "form"),
    [
        ("virtio", "qcow2"),
        pytest.param("ide", "raw", marks=pytest.mark.machines),
        pytest.param("nvme", "raw", marks=pytest.mark.machines),
    ],
)
def test_a_full_disk_pauses_the_guest_and_nothing_is_lost(
    shared_local: LocalMachine, spec: GuestSpec, credentials: Credentials, bus: str, form: str
) -> None:
    found = stops_when_full(shared_local, spec, DiskSettings(bus=bus, format=form), credentials, shared_local)
    if bus == "nvme":
        assert found.state == "no" and "was not paused, its write failed" in found.words, found
    else:
        assert found.state == "yes" and "all data were there" in found.words, found
    assert str(shared_local.scratch) not in shared_local.run("cat", "/proc/mounts") + shared_local.run("losetup", "-a")
