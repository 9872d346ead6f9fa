"""A choice as QEMU, libvirt, Proxmox and a shell take it, as text; the real ones are asked in tests/integration."""

from __future__ import annotations

import shlex

import pytest

from vmtax.design.factors import DISK, FACTORS
from vmtax.recommend import export_disk, lines

GIB = 2**30
ZVOL = "-o volblocksize=16384 -o compression=lz4 -o sync=standard -o primarycache=all"


def commands(levels: dict[str, str], path: str | None = None) -> list[str]:
    return [shlex.join(argv) for argv in export_disk(levels, path, 10 * GIB).backing]


@pytest.mark.parametrize(
    ("levels", "path", "expected"),
    [
        ({}, "/images/a.raw", ["qemu-img create -q -f raw -o preallocation=falloc /images/a.raw 10G"]),
        (
            {"disk.format": "qcow2", "disk.preallocation": "metadata", "disk.cluster_size": "16KiB"},
            "/images/a.qcow2",
            [
                "qemu-img create -q -f qcow2 -o preallocation=metadata,cluster_size=16384,lazy_refcounts=off,"
                "extended_l2=off /images/a.qcow2 10G"
            ],
        ),
        (
            {"disk.volume": "lvm", "disk.filesystem": "none"},
            "/dev/fast/a",
            ["lvcreate --name a --size 10G fast"],
        ),
        (
            {"disk.volume": "lvm-thin", "disk.filesystem": "none"},
            None,
            ["lvcreate --type thin --name vm1 --virtualsize 10G VG/THINPOOL"],
        ),
        (
            {"disk.volume": "zvol", "disk.filesystem": "none", "zfs.volblocksize": "16KiB", "zfs.recordsize": "1MiB"},
            None,
            [f"zfs create {ZVOL} -V 10G POOL/vm1"],
        ),
        (
            {"disk.volume": "raidz1-dataset", "zfs.compression": "zstd"},
            None,
            [
                "zpool create -o ashift=12 POOL raidz1 DISK1 DISK2 DISK3 DISK4",
                "zfs create -o recordsize=131072 -o compression=zstd -o sync=standard -o primarycache=all POOL/vm1",
                "qemu-img create -q -f raw -o preallocation=falloc /POOL/vm1/vm1.raw 10G",
            ],
        ),
        (
            {"disk.volume": "lvm", "disk.filesystem": "ext4", "disk.barriers": "off"},
            None,
            [
                "lvcreate --name vm1 --size 11G VG",
                "mkfs.ext4 /dev/VG/vm1",
                "mkdir -p /srv/vm1",
                "mount -o barrier=0 /dev/VG/vm1 /srv/vm1",
                "qemu-img create -q -f raw -o preallocation=falloc /srv/vm1/vm1.raw 10G",
            ],
        ),
        (
            {"disk.volume": "zvol", "disk.filesystem": "ext4", "disk.preallocation": "off"},
            None,
            [
                f"zfs create {ZVOL} -V 11G POOL/vm1",
                "mkfs.ext4 /dev/zvol/POOL/vm1",
                "mkdir -p /srv/vm1",
                "mount /dev/zvol/POOL/vm1 /srv/vm1",
                "qemu-img create -q -f raw -o preallocation=off /srv/vm1/vm1.raw 10G",
            ],
        ),
        ({"disk.filesystem": "none"}, "/dev/sdx", []),
        (
            {"disk.filesystem": "none", "disk.format": "qcow2", "disk.preallocation": "full"},
            "/dev/sdx",
            ["qemu-img create -q -f qcow2 -o cluster_size=65536,lazy_refcounts=off,extended_l2=off /dev/sdx 10G"],
        ),
    ],
)
def test_the_commands_make_what_the_disk_is_kept_in(
    levels: dict[str, str], path: str | None, expected: list[str]
) -> None:
    assert commands(levels, path) == expected


def test_sizes_are_written_as_every_tool_reads_them() -> None:
    assert [export_disk({}, "/a", size).backing[0][-1] for size in (32 * GIB, 3 * 2**20, 1000)] == ["32G", "3M", "1000"]
    odd = export_disk({"disk.volume": "lvm", "disk.filesystem": "ext4"}, size=GIB).backing[0]
    assert odd[odd.index("--size") + 1] == "1127M", "with room for the file system's own"


def test_a_path_stays_one_word_everywhere() -> None:
    path = "/images/a, 'b' & <c>.raw"
    found = export_disk({}, path)
    assert found.backing[0][-2] == path
    assert f"file={path.replace(',', ',,')}" in found.qemu[1]
    assert "file=\"/images/a, 'b' &amp; &lt;c&gt;.raw\"" in found.libvirt
    assert shlex.quote(path) in "\n".join(lines(found)), "not broken at its spaces"


def test_several_iothreads_share_the_queues_of_a_disk_or_of_its_controller() -> None:
    threads = "<iothreads><iothread id='1'/><iothread id='2'/></iothreads>"
    on_disk = export_disk({"disk.iothread": "2", "disk.queues": "4"}).libvirt
    assert on_disk.startswith("<iothreads>2</iothreads>") and f"queues='4'>{threads}</driver>" in on_disk
    on_scsi = export_disk({"disk.iothread": "2", "disk.bus": "virtio-scsi"}).libvirt
    assert f"model='virtio-scsi'><driver>{threads}</driver></controller>" in on_scsi
    assert on_scsi.count(threads) == 1


def test_proxmox_gets_its_documented_options() -> None:
    levels = {
        "disk.bus": "virtio-scsi",
        "disk.cache": "none",
        "disk.aio": "io_uring",
        "disk.iothread": "on",
        "disk.queues": "4",
        "disk.discard": "unmap",
        "disk.format": "qcow2",
        "disk.preallocation": "metadata",
    }
    found = export_disk(levels, size=10 * GIB)
    assert [" ".join(argv) for argv in found.proxmox] == [
        "pvesm set STORAGE --preallocation metadata",
        "qm set VMID --scsihw virtio-scsi-single --scsi0"
        " STORAGE:10,cache=none,aio=io_uring,discard=on,detect_zeroes=0,format=qcow2,iothread=1,queues=4",
    ]
    (plain,) = export_disk({"disk.filesystem": "none", "disk.volume": "lvm"}, size=10 * GIB).proxmox
    assert " ".join(plain) == "qm set VMID --virtio0 STORAGE:10,cache=none,aio=native,detect_zeroes=0"


@pytest.mark.parametrize(
    ("levels", "where", "words"),
    [
        ({"disk.bus": "nvme"}, "proxmox", "no bus for QEMU's emulated NVMe"),
        ({"disk.bus": "nvme"}, "libvirt", "no bus for QEMU's emulated NVMe"),
        ({"disk.bus": "ide"}, "libvirt", "machine='pc'"),
        ({"disk.iothread": "2"}, "libvirt", "take libvirt 10.0"),
        ({"disk.iothread": "2"}, "proxmox", "cannot set disk.iothread=2"),
        ({"disk.queues": "4"}, "proxmox", "cannot set disk.queues=4"),
        ({"disk.discard": "unmap", "disk.detect_zeroes": "on"}, "proxmox", "cannot set disk.detect_zeroes=on"),
        ({"disk.format": "qcow2", "disk.extended_l2": "on"}, "proxmox", "cannot set disk.extended_l2=on"),
        (
            {"disk.format": "qcow2", "disk.volume": "lvm", "disk.filesystem": "none"},
            "proxmox",
            "no qcow2 on a bare volume",
        ),
        ({"disk.bus": "virtio-scsi", "disk.queues": "1"}, "proxmox", "cannot set disk.queues=1: queues= begins with 2"),
        (
            {"disk.volume": "zvol", "disk.filesystem": "none", "zfs.sync": "always", "zfs.volblocksize": "16KiB"},
            "proxmox",
            "compression=lz4, sync=always, primarycache=all: by `zfs set` on the storage's dataset, from which its"
            " volumes have it. volblocksize is the storage's: `pvesm set STORAGE --blocksize 16384`.",
        ),
    ],
)
def test_what_cannot_be_exported_is_reported(levels: dict[str, str], where: str, words: str) -> None:
    found = export_disk(levels)
    notes = found.proxmox_notes if where == "proxmox" else found.libvirt_notes
    assert words.replace("no qcow2 on a bare volume", "qcow2 on a bare volume") in " ".join(notes)
    if levels.get("disk.bus") == "nvme":
        assert found.libvirt == "" and found.proxmox == ()
    unbroken = ("if=none", "vq-mapping", "<", "-o preallocation", "--virtio0")
    assert all(len(line) <= 80 or any(words in line for words in unbroken) for line in lines(found))


def test_proxmox_is_given_a_bare_device_itself() -> None:
    """A storage and a size would make a new volume elsewhere."""
    found = export_disk({"disk.filesystem": "none", "disk.volume": "plain", "disk.discard": "unmap"})
    (command,) = found.proxmox
    disk = "/dev/disk/by-id/DEVICE,cache=none,aio=native,discard=on,detect_zeroes=0"
    assert command == ("qm", "set", "VMID", "--virtio0", disk)
    notes = " ".join(found.proxmox_notes)
    assert "STORAGE" not in notes and "not migrated" in notes and "none of its storages" in notes
    assert found.forms()[0].notes == ("nothing is to be made: the disk is /dev/disk/by-id/DEVICE itself.",)
    (named,) = export_disk({"disk.filesystem": "none"}, "/dev/sdx").proxmox
    assert named[-1].startswith("/dev/sdx,cache=")


@pytest.mark.parametrize(
    ("levels", "path", "lies_on", "not_wanted"),
    [
        ({"disk.volume": "lvm"}, "/dev/fast/a", "type lvm on the group fast:", "`lvcreate` above is not for it."),
        ({"disk.volume": "lvm-thin"}, None, "lvmthin on the thin pool VG/THINPOOL:", "`lvcreate` above is not for it."),
        ({"disk.volume": "zvol"}, "/dev/zvol/tank/vms/a", "zfspool on tank/vms:", "`zfs create` above is not for it."),
        ({"disk.volume": "raidz1-zvol"}, None, "zfspool on POOL:", "is not for it, but the `zpool create` is."),
    ],
)
def test_proxmox_makes_a_bare_volume_itself_and_the_note_says_where(
    levels: dict[str, str], path: str | None, lies_on: str, not_wanted: str
) -> None:
    found = export_disk({**levels, "disk.filesystem": "none"}, path)
    assert "--virtio0 STORAGE:32,cache=" in " ".join(found.proxmox[-1])
    assert lies_on in found.proxmox_notes[-1] and found.proxmox_notes[-1].endswith(not_wanted)


@pytest.mark.parametrize(
    ("levels", "directory"),
    [
        ({}, "/var/lib/libvirt/images"),
        ({"disk.volume": "lvm", "disk.filesystem": "xfs"}, "/srv/vm1"),
        ({"disk.filesystem": "ext4"}, "/srv/vm1"),
        ({"disk.volume": "raidz1-dataset"}, "/POOL/vm1"),
    ],
)
def test_proxmox_makes_an_image_itself_where_the_commands_above_made_room(
    levels: dict[str, str], directory: str
) -> None:
    note = export_disk(levels).proxmox_notes[-1]
    assert f"type dir in the file system of {directory}:" in note
    assert "`qemu-img create` above is not for it" in note and "zpool" not in note and "lvcreate" not in note


CONTEXTS: tuple[dict[str, str], ...] = (
    {"disk.format": "qcow2"},
    {"disk.bus": "virtio-scsi"},
    {"disk.volume": "zvol", "disk.filesystem": "none"},
    {"disk.volume": "dataset"},
    {"disk.volume": "lvm", "disk.filesystem": "ext4"},
)


@pytest.mark.parametrize("name", FACTORS)
def test_a_factor_is_said_by_the_forms_or_is_a_condition(name: str) -> None:
    """A new factor that no form says must not be chosen: see conditions.py."""
    levels = FACTORS[name].levels
    changes = any(len({str(export_disk({**context, name: level})) for level in levels}) > 1 for context in CONTEXTS)
    assert changes == (name in DISK)


def test_proxmox_heeds_queues_of_a_controller_for_one_disk_only_and_takes_no_single_queue() -> None:
    def told(**levels: str) -> str:
        *_, command = export_disk(
            {"disk.bus": "virtio-scsi", **{f"disk.{name}": level for name, level in levels.items()}}
        ).proxmox
        return " ".join(command)

    assert "--scsihw virtio-scsi-single" in told(queues="2") and told(queues="2").endswith("queues=2")
    assert "--scsihw virtio-scsi-pci" in told(queues="1") and "queues" not in told(queues="1")


@pytest.mark.parametrize(
    "levels", [{"disk.volume": "zvol", "disk.filesystem": "ext4"}, {"disk.volume": "raidz1-dataset"}]
)
def test_properties_of_what_was_made_above_are_not_shown_again(levels: dict[str, str]) -> None:
    """Proxmox's storage is a directory there."""
    of_zfs = {"zfs.sync": "always", "zfs.recordsize": "1MiB", "zfs.volblocksize": "16KiB"}
    notes = " ".join(export_disk({**levels, **of_zfs}).proxmox_notes)
    assert "zfs set" not in notes and "blocksize" not in notes and "recordsize" not in notes


def test_a_volume_has_no_recordsize() -> None:
    levels = {"disk.volume": "zvol", "disk.filesystem": "none", "zfs.recordsize": "1MiB"}
    assert "recordsize" not in " ".join(export_disk(levels).proxmox_notes)
