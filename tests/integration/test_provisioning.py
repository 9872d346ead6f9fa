"""Disks under test made for real on this machine: used, refused, broken, and gone afterwards."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from tests.integration.conftest import HANGS, leftovers, under_way, vmtax
from vmtax.core.records import Treatment
from vmtax.hypervisor import Accelerator, Credentials, Qemu
from vmtax.hypervisor.confine import Reach, alone, enter_tree, image_program
from vmtax.image.cache import Image
from vmtax.image.place import Placed
from vmtax.machine.local import LocalMachine
from vmtax.plan.schema import parse
from vmtax.storage import StorageError, Target
from vmtax.storage.empty import MIB
from vmtax.storage.ground import Area, refuse_used, table
from vmtax.storage.page_cache import Bound
from vmtax.storage.undo import NO_PARTITIONS
from vmtax.testbed.host import disks
from vmtax.testbed.host.cpus import Cpu, CpuTopology
from vmtax.testbed.host.disks import Disks, bound
from vmtax.testbed.machines.provision import not_opened
from vmtax.testbed.session.examine import Examined, Platform
from vmtax.testbed.session.session import Session

SIZE = 16 * 2**20
PLAN = """\
name: disks
layers: [{layer}]
factors: {{{factors}}}
workloads: [{{disk: {{patterns: [randread-4k-qd1], size: 16MiB, seconds: 1}}}}]
rounds: {{min: {rounds}, max: {rounds}}}
"""


@pytest.fixture
def ours(local: LocalMachine) -> PurePosixPath:
    """The run's own directory, as the environment makes it."""
    path = PurePosixPath(f"/var/tmp/vmtax-{local.token}-disk")
    local.remove_later(path)
    local.run("mkdir", "-m", "700", str(path))
    return path


Making = Callable[..., Disks]


@pytest.fixture
def make(local: LocalMachine, ours: PurePosixPath, placed: Placed) -> Making:
    """Provision what a plan's factors ask of guests, with `target`."""
    assert placed.tree is not None
    qemu_img = image_program(placed.tree, "qemu-img", Reach(write=(str(ours),)), *alone(root=True))

    def made(wanted: Sequence[Treatment], target: Target = Target(), fresh: int = 0) -> Disks:  # noqa: B008 (frozen)
        mark = f"vmtax-{local.token[:8]}"
        return disks.provision(
            local, target, ours, mark, qemu_img, disks.DiskOrder(wanted, SIZE, fresh), lambda event: None
        )

    return made


def guests(factors: str) -> list[Treatment]:
    return parse(PLAN.format(layer="vm", factors=factors, rounds=1)).treatments()[0]


@pytest.fixture
def loop(shared_local: LocalMachine, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Makes loop devices of zeros, which stand for a user's disks."""
    undoings = []

    def made(size: str = "1G") -> str:
        path = tmp_path / f"device{len(undoings)}"
        shared_local.run("truncate", "-s", size, str(path))
        device = shared_local.run("losetup", "--find", "--show", str(path)).strip()
        undoings.append(shared_local.undo_later("losetup", "-d", device))
        return device

    yield made
    for undoing in undoings:
        undoing.undo()


def nothing_is_left(local: LocalMachine) -> bool:
    local.close()
    assert local.left == []
    seen = [Path("/proc/mounts").read_text(), subprocess.run(["losetup", "-a"], capture_output=True, text=True).stdout]
    return local.token not in "".join(seen) and leftovers(local.token) == []


def test_every_file_system_format_and_preallocation(
    local: LocalMachine, make: Making, placed: Placed, qemu: Qemu
) -> None:
    systems = guests("disk.filesystem: [as-is, none, ext4, xfs, btrfs]")
    forms = guests("disk.format: [qcow2, raw], disk.preallocation: [falloc, off, metadata, full]")
    others = guests(
        "disk.format: [qcow2], disk.cluster_size: [16KiB], disk.lazy_refcounts: [on], disk.extended_l2: [on]"
    )
    unsafe = guests("disk.filesystem: [ext4], disk.barriers: [off]")
    wanted = [*systems, *forms, *others, *unsafe]
    assert placed.tree is not None
    tree = placed.tree
    made = make(wanted, fresh=4 * 2**20)
    paths = [made.of(treatment).path for treatment in wanted]
    assert len(set(paths)) == len(made.made) == 5 + 7 + 1 + 1 - 1, "as-is with its defaults is asked for twice"
    assert disks.why_not(made, wanted, qemu) == {}
    mounted = [local.run("stat", "-f", "-c", "%T", str(path.parent)).strip() for path in paths[2:5]]
    assert mounted == ["ext2/ext3", "xfs", "btrfs"] and made.of(systems[1]).is_device
    options = local.run("findmnt", "-n", "-o", "OPTIONS", "--target", str(made.of(unsafe[0]).path))
    assert {"nobarrier", "barrier=0"} & set(options.strip().split(","))
    written = disks.fill_all(
        made, lambda disk: (*enter_tree(tree, root=True), *bound(disk), "--"), wanted, lambda event: None
    )
    assert len(written) == len(made.made) and {first.written for first in written.values()} == {SIZE}
    assert made.fresh(systems[1]) is None, "the data on a bare device are unknown"
    fresh = made.fresh(systems[2])
    assert fresh is not None and local.succeeds("test", "-s", str(fresh.disk.path))
    fresh.remove()
    assert not local.succeeds("test", "-e", str(fresh.disk.path))
    assert nothing_is_left(local)


def test_what_qemu_cannot_open_here_is_found_with_its_reason(local: LocalMachine, make: Making, qemu: Qemu) -> None:
    plain, qcow2 = guests("disk.format: [raw, qcow2]")
    cached = replace(plain, name="cached", levels={**plain.levels, "disk.cache": "writeback"})
    made = make([plain, qcow2, cached])
    local.run("dd", "if=/dev/urandom", f"of={made.of(qcow2).path}", "bs=4k", "count=1", "conv=notrunc", "status=none")
    found = disks.why_not(made, [plain, qcow2, cached], qemu)
    assert found.keys() == {qcow2.name, "cached"}
    assert "qcow2" in found[qcow2.name] and "aio=native" in found["cached"]
    assert all(f"QEMU {qemu.version} does not open it here" in reason for reason in found.values())


@pytest.mark.parametrize("system", ["", "ramfs"])
def test_what_qemu_refuses_in_the_directory_is_seen_before_the_question(
    local: LocalMachine, placed: Placed, image: Image, qemu: Qemu, tmp_path: Path, system: str
) -> None:
    """ramfs has no O_DIRECT."""
    if system:
        local.undo_later("umount", str(tmp_path))
        local.run("mount", "-t", system, system, str(tmp_path))
    factors = "disk.cache: [none, writeback], disk.format: [raw, qcow2], disk.filesystem: [as-is, ext4]"
    plan = parse(PLAN.format(layer="host, vm", factors=factors, rounds=1))
    on = Examined(
        session=Session(local, image, Credentials.make(local), lambda event: None),
        host=local,
        plan=plan,
        workloads=plan.build_workloads(emulated=True),
        placed=placed,
        topology=CpuTopology((Cpu(0, 0), Cpu(1, 1))),
        unbound="",
        is_root=True,
        why_warm="",
        host_emulated=False,
        target=Target(PurePosixPath(tmp_path)),
        platform=Platform(qemu, Accelerator("tcg", "")),
    )
    found = not_opened(on)
    assert sorted(found) == (["vm", "vm disk.format=qcow2"] if system else [])
    assert all(f"QEMU {qemu.version} does not open it here" in reason for reason in found.values()), found
    assert list(tmp_path.iterdir()) == [] and nothing_is_left(local)


def test_an_empty_device_is_used_and_left_empty(
    local: LocalMachine, make: Making, loop: Callable[[str], str], tmp_path: Path
) -> None:
    device = loop("1G")
    name = tmp_path / "by-id"  # as udev names devices
    name.symlink_to(device)
    wanted = guests("disk.filesystem: [none, ext4, xfs]")
    made = make(wanted, Target(devices=(str(name),)))
    first = made.of(wanted[0])
    assert first.is_device and str(first.path).startswith(device)
    local.run("dd", "if=/dev/urandom", f"of={first.path}", "bs=1M", "count=16", "oflag=direct", "status=none")
    assert "vmtax-" in local.run("sfdisk", "-d", device)
    with copy_of_mounts() as mounts:
        assert made.of(wanted[1]).lies_on in mounts
        assert nothing_is_left(local)
    is_empty(device)


@contextlib.contextmanager
def copy_of_mounts() -> Iterator[str]:
    """The mounts of which another program here has a copy meanwhile, as `ip netns exec` gives it one."""
    command = ["unshare", "--mount", "--propagation", "slave", "sh", "-c", "echo; exec sleep 600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
        try:
            assert program.stdout is not None and program.stdout.readline()
            yield Path(f"/proc/{program.pid}/mounts").read_text()
        finally:
            program.kill()


def is_empty(device: str) -> None:
    with contextlib.closing(LocalMachine()) as again:
        assert again.guard.left == [] and device not in again.read_text("/proc/mounts")
        refuse_used(again, device, erase=False)


def test_a_disk_that_has_another_name_after_a_reboot_is_emptied_all_the_same(loop: Callable[[str], str]) -> None:
    now, before, mark = loop("64M"), loop("64M"), "vmtax-1a2b3c4d"
    for device, name in ((now, mark), (before, "vmtax-another1")):
        subprocess.run(["sfdisk", "-q", device], input=table(name, [Area("lvm", 8 * MIB)]), text=True, check=True)
    for _ in range(2):
        subprocess.run([*NO_PARTITIONS, before, mark], check=True)
        kept = subprocess.run(["wipefs", "-n", now, before], capture_output=True, text=True).stdout
        assert {line.split()[0] for line in kept.splitlines()[1:]} == {Path(before).name}, "that is another's"


def test_a_partition_that_is_still_open_stays_listed(loop: Callable[[str], str]) -> None:
    """As by a QEMU that was killed: the kernel writes what it had cached before it closes the disk."""
    device, mark = loop("64M"), "vmtax-1a2b3c4d"
    subprocess.run(["sfdisk", "-q", device], input=table(mark, [Area("lvm", 8 * MIB)]), text=True, check=True)
    subprocess.run(["partx", "-u", device], check=True)
    with Path(f"{device}p1").open("rb"):
        busy = subprocess.run([*NO_PARTITIONS, device, mark], capture_output=True, text=True)
    assert busy.returncode != 0 and f"in use: {device}p1" in busy.stderr
    assert mark in subprocess.run(["sfdisk", "-d", device], capture_output=True, text=True).stdout, "it is known again"
    subprocess.run([*NO_PARTITIONS, device, mark], check=True)
    assert not Path(f"{device}p1").exists()


def ext4(device: str) -> None:
    subprocess.run(["mkfs.ext4", "-q", device], check=True)


def partitioned(device: str) -> None:
    subprocess.run(["sfdisk", "-q", device], input=b"label: gpt\nsize=10MiB\n", check=True)


def swap(device: str) -> None:
    subprocess.run(["mkswap", device], check=True, capture_output=True)


def unknown(device: str) -> None:
    Path(device).write_bytes(b"\0" * 70000 + b"somebody's")


def in_the_middle(device: str) -> None:
    with Path(device).open("r+b") as file:
        file.seek(3 * MIB)
        file.write(b"IMPORTANT DATABASE ROWS")


def behind_zeros(device: str) -> None:
    ext4(device)
    with Path(device).open("r+b") as file:
        file.write(b"\0" * MIB)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (ext4, "(ext4)"),
        (swap, "(swap)"),
        (partitioned, "gpt"),
        (unknown, "data of an unknown kind"),
        (in_the_middle, "byte 3145728"),
        (behind_zeros, "unknown"),
    ],
)
def test_what_a_device_holds_is_lost_only_where_it_may_be(
    local: LocalMachine, make: Making, loop: Callable[[str], str], content: Callable[[str], None], words: str
) -> None:
    device = loop("128M")
    content(device)
    wanted = guests("disk.filesystem: [none]")
    with pytest.raises(StorageError) as raised:
        make(wanted, Target(devices=(device,)))
    line = str(raised.value)
    assert words in line and f"--erase {device} lets it be lost" in line and "\n" not in line
    made = make(wanted, Target(devices=(device,), erase=frozenset({device})))
    assert made.of(wanted[0]).is_device
    assert nothing_is_left(local)


def test_a_device_in_use_is_refused_also_where_it_may_be_erased(
    local: LocalMachine, make: Making, loop: Callable[[str], str], tmp_path: Path
) -> None:
    one, two, small = loop("128M"), loop("128M"), loop("8M")
    local.run("blockdev", "--setro", small)
    with pytest.raises(StorageError, match=f"{small} is read-only"):
        make(guests("disk.filesystem: [none]"), Target(devices=(small,), erase=frozenset({small})))
    local.run("blockdev", "--setrw", small)
    subprocess.run(["mkfs.btrfs", "-q", "-f", one, two], check=True)
    mount = tmp_path / "mount"
    mount.mkdir()
    subprocess.run(["mount", one, str(mount)], check=True)
    wanted = guests("disk.filesystem: [none]")
    try:
        for device in (one, two):
            with pytest.raises(StorageError, match=f"{device} (is in use|cannot be had alone).*; name another$"):
                make(wanted, Target(devices=(device,), erase=frozenset({device})))
        assert subprocess.run(["btrfs", "scrub", "start", "-B", str(mount)], capture_output=True).returncode == 0
    finally:
        subprocess.run(["umount", str(mount)], check=True)
    # As QEMU has the disk of a guest: open, not claimed.
    with Path(small).open("rb"), pytest.raises(StorageError, match=f"in use: open in .* {os.getpid()} "):
        make(wanted, Target(devices=(small,), erase=frozenset({small})))
    with pytest.raises(StorageError, match="has 8 MiB, 20 MiB are needed"):
        make(wanted, Target(devices=(small,)))
    with pytest.raises(StorageError, match="/dev/null is no block device"):
        make(wanted, Target(devices=("/dev/null",)))
    assert nothing_is_left(local)


def test_a_directory_that_is_too_small_or_cannot_hold_a_device(
    local: LocalMachine, ours: PurePosixPath, make: Making
) -> None:
    local.undo_later("umount", str(ours))
    local.run("mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(ours))
    make(guests("disk.format: [raw]"))
    with pytest.raises(StorageError, match=f"{ours} has 8 MiB free, 32 MiB are needed; name another directory"):
        make(guests("disk.format: [qcow2]"))
    with pytest.raises(StorageError, match=f"{ours} has 8 MiB free, 0.3 GiB are needed; name another directory"):
        make(guests("disk.filesystem: [ext4]"))
    assert nothing_is_left(local)


def test_a_tool_that_is_missing_is_named_before_anything_is_made(
    local: LocalMachine, ours: PurePosixPath, make: Making, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for tool in ("sh", "id", "cat"):
        (tmp_path / tool).symlink_to(f"/usr/bin/{tool}")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StorageError, match=r"mkfs\.xfs is missing there: apt-get install xfsprogs"):
        make(guests("disk.filesystem: [xfs]"))
    monkeypatch.undo()
    assert local.run("ls", str(ours)) == ""


def test_a_bound_of_the_page_cache_goes_with_its_last_process(local: LocalMachine) -> None:
    made = Bound.make(local, f"vmtax-{local.token[:8]}-1")
    inside = local.start(*made.enter, "sleep", "600")
    while str(inside.pid) not in local.read_text(made.directory / "cgroup.procs").split():
        time.sleep(0.05)
    made.set_limit(2**25)
    assert 2**25 <= int(local.read_text(made.directory / made.limit)) < 2**26
    assert nothing_is_left(local) and not Path(made.directory).exists()


def test_sigkill_in_mid_run_leaves_nothing_of_a_disk(
    image: Image, loop: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in ("DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    device = loop("1G")
    (tmp_path / "p.yaml").write_text(PLAN.format(layer="host", factors="disk.filesystem: [ext4, none]", rounds=40))
    command = ("run", "p.yaml", "--yes", "--emulate", "--disk-device", device)
    with under_way(*command, directory=tmp_path, trials=1) as (process, token):
        assert device in Path("/proc/mounts").read_text()
        process.kill()
        process.wait()
        deadline = time.monotonic() + HANGS
        while leftovers(token) and time.monotonic() < deadline:
            time.sleep(0.1)
    is_empty(device)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--disk-dir", "/nowhere"), "no directory /nowhere; name another with --disk-dir"),
        (
            ("--disk-device", "/dev/nosuch"),
            "/dev/nosuch is no block device (lsblk: /dev/nosuch: not a block device); `lsblk` shows what there is",
        ),
        (("--disk-group", "vg0"), "--disk-group vg0: no disk of this plan would be on it"),
    ],
)
def test_a_target_that_cannot_be_costs_one_clear_line(
    image: Image, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    (tmp_path / "p.yaml").write_text(PLAN.format(layer="host", factors="disk.filesystem: [none]", rounds=1))
    done = vmtax("run", "p.yaml", "--yes", "--emulate", *options, directory=tmp_path)
    assert done.returncode == 2 and words in done.stderr.splitlines()[-1]
