"""The QEMU command line, as text."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fake_machine import FakeMachine, Reply
from vmtax.design.disk import CacheMode, DiskSettings
from vmtax.design.factors import FACTORS
from vmtax.design.guest import GuestSettings
from vmtax.design.migration import MigrationSettings
from vmtax.design.settings import UnknownLevel
from vmtax.design.size import SizeSettings
from vmtax.hypervisor import FRESH_ID, Credentials, Drive, GuestSpec, Nic, Passed, Qemu, Tap, UserNetwork, boot
from vmtax.hypervisor.base import BootFailed
from vmtax.hypervisor.qemu.argv import kernel_arguments
from vmtax.hypervisor.qemu.drives import block_node, disk_arguments, machine_type
from vmtax.hypervisor.qemu.qmp import Qmp, QmpError, parse_usernet

GOLDEN = Path(__file__).parent.parent / "golden" / "argv"
INITRD, CONSOLE = PurePosixPath("/run/x/initrd"), PurePosixPath("/run/x/console")
QEMU = Qemu(("qemu-system-x86_64",), "9.0", "")
CONFINED = Qemu(("qemu-system-x86_64",), "10.0", "", tree="/image/tree", has_sandbox=True, user=1879048199)
PLAIN = GuestSpec(
    name="vm",
    vcpus=2,
    memory_bytes=2**30,
    accelerator="tcg",
    hypervisor=QEMU,
    kernel="/image/vmlinux",
    initrd="/image/initrd",
    root="/image/root.erofs",
)


def on(bus: str) -> Drive:
    return Drive("/d", DiskSettings(bus=bus))


LIMITED = replace(PLAIN, disks=(Drive("/var/tmp/disk.raw", iops_limit=970),))
MEASURED = replace(PLAIN, accelerator="kvm", disks=(Drive("/var/tmp/disk.raw"),), cards=(Nic(Tap("vt1")),))
SCSI = Drive("/d", DiskSettings(bus="virtio-scsi", iothread=True, queues=2))
VHOST = replace(
    PLAIN,
    accelerator="kvm",
    hypervisor=CONFINED,
    cards=(Nic(Tap("vt1", vhost=True)),),
    settings=GuestSettings(mitigations="off"),
    talkative=True,
    preallocated=True,
    within=("sh", "-c", "x"),
)
PASSED = replace(
    PLAIN,
    accelerator="kvm",
    hypervisor=CONFINED,
    cards=(Passed("0000:01:00.0"),),
    disks=(on("ide"),),
)
STANDBY = replace(
    PASSED, cards=(Nic(Tap("vt1", vhost=True), stands_by=True, primary=Passed("0000:01:10.0")),), disks=()
)


def command_line(spec: GuestSpec) -> tuple[str, ...]:
    assert isinstance(spec.hypervisor, Qemu)
    return spec.hypervisor.command_line(spec, INITRD, CONSOLE)


def two(drive: Drive) -> tuple[Drive, Drive]:
    return drive, replace(drive, path="/f", name=FRESH_ID)


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("emulated", PLAIN),
        ("kvm-disk-tap", MEASURED),
        ("iops-limit", LIMITED),
        ("fresh-scsi", replace(PLAIN, disks=two(SCSI))),
        ("fresh-sata", replace(PLAIN, disks=two(on("sata")))),
        ("vhost", VHOST),
        ("passed", PASSED),
        ("standby", STANDBY),
    ],
)
def test_the_command_line_is_the_golden_one(name: str, spec: GuestSpec) -> None:
    assert "\n".join(command_line(spec)) + "\n" == (GOLDEN / f"{name}.txt").read_text()
    assert spec.hypervisor.can(spec) is None


def test_a_description_is_what_a_shell_takes() -> None:
    words = shlex.split(QEMU.describe(MEASURED))
    assert words == list(QEMU.command_line(MEASURED, PurePosixPath("/image/initrd"), PurePosixPath("console")))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"disks": (Drive("/a"), Drive("/b"))}, "two of its disks are called data"),
        ({"cards": (Nic(Tap("a")), Nic(Tap("b")))}, "two of its network cards are called network"),
        ({"disks": tuple(replace(on("ide"), name=f"d{n}") for n in range(3))}, "3 disks on ide, which takes 2"),
        ({"disks": (on("ide"),), "iommu": True}, "only the older PC has IDE, and that has no IOMMU"),
        ({"disks": (on("ide"),), "cards": STANDBY.cards}, "IDE, and that has no PCI Express port"),
        ({"disks": (on("nvme"),), "incoming": "/state"}, "cannot load a saved guest that has an NVMe disk"),
    ],
)
def test_what_qemu_cannot_have_is_said_before_a_boot(change: dict[str, Any], reason: str) -> None:
    machine: Any = FakeMachine("host")
    with pytest.raises(BootFailed, match=f"host/vm: .*{reason}"):
        boot(machine, replace(PLAIN, **change), machine, machine)


def test_a_full_disk_of_the_parent_is_named_in_one_line() -> None:
    full = Reply(code=1, stderr="cat: write error: No space left on device\n")
    machine: Any = FakeMachine("host", {lambda argv: argv[0] == "sh": full, lambda argv: argv[0] == "rm": ""})
    with (
        pytest.raises(BootFailed, match=r"^host/vm: what boots it .* No space left on device; make room there$"),
        boot(machine, PLAIN, Credentials(Path("/key"), Path("/known")), machine),
    ):
        pass


def test_several_guests_disks_and_cards_have_names_of_their_own() -> None:
    disks = (Drive("/a"), replace(on("nvme"), name="log"), Drive("/c", name="more"))
    cards = (
        Nic(Tap("vt1", queues=4)),
        Nic(UserNetwork("10.1.0.0/24", "10.1.0.1"), "52:54:00:00:00:02", name="peer"),
        Nic(Tap("vt2"), "52:54:00:00:00:03", name="functions", model="igb", own_port=True),
    )
    spec = replace(PLAIN, name="second", disks=disks, cards=cards, incoming="tcp:127.0.0.1:4444")
    assert [spec.device(disk.name) for disk in disks] == ["/dev/vdb", "/dev/nvme0n1", "/dev/vdc"]
    argv = command_line(spec)
    assert (
        argv[argv.index("-incoming") + 1] == "tcp:127.0.0.1:4444"
        and argv[argv.index("-name") + 1] == "second,debug-threads=on"
    )
    devices = [argv[number + 1] for number, word in enumerate(argv) if word == "-device"]
    assert devices[-4:] == [
        "virtio-net-pci,netdev=network,romfile=,mac=52:54:00:76:74:01,mq=on,vectors=10",
        "virtio-net-pci,netdev=peer,romfile=,mac=52:54:00:00:00:02",
        "pcie-root-port,id=functions-port,chassis=1,slot=1",
        "igb,netdev=functions,bus=functions-port,romfile=,mac=52:54:00:00:00:03",
    ]


def test_mitigations_are_off_only_where_asked_for() -> None:
    assert "mitigations" not in kernel_arguments(PLAIN)
    assert "mitigations=off" in kernel_arguments(replace(PLAIN, settings=GuestSettings(mitigations="off"))).split()


def test_layers_come_behind_the_disks_which_so_keep_their_names() -> None:
    spec = replace(PLAIN, layers=("/packs/zfs,1.erofs", "/packs/more.erofs"), disks=(Drive("/var/tmp/disk.raw"),))
    words = kernel_arguments(spec).split()
    assert [word for word in words if "layer" in word] == ["vmtax.layer=/dev/vdc", "vmtax.layer=/dev/vdd"]
    assert spec.device() == replace(spec, layers=()).device() == "/dev/vdb"
    assert replace(spec, disks=(on("nvme"),)).layer_devices == ("/dev/vdb", "/dev/vdc")
    drives = [word for word in command_line(spec) if "if=none" in word]
    assert [word.rpartition("file=")[2] for word in drives] == [
        *("/image/root.erofs", "/var/tmp/disk.raw", "/packs/zfs,,1.erofs", "/packs/more.erofs")
    ]
    assert all("readonly=on" in drives[number] for number in (0, 2, 3)) and "readonly" not in drives[1]
    packed = replace(spec, packs=("/packs/kernel.erofs",))
    assert packed.pack_devices == ("/dev/vde",) and packed.layer_devices == spec.layer_devices
    assert kernel_arguments(packed) == kernel_arguments(spec), "no pack is laid over anything"
    assert [word for word in command_line(packed) if "kernel.erofs" in word] == [
        "if=none,id=pack0,format=raw,readonly=on,file=/packs/kernel.erofs"
    ]
    on_bus = {bus: Drive("/d", DiskSettings(bus=bus)) for bus in ("ide", "sata", "virtio-scsi", "nvme")}
    assert {bus: replace(spec, disks=(drive,)).device() for bus, drive in on_bus.items()} == {
        "ide": "/dev/sda",
        "sata": "/dev/sda",
        "virtio-scsi": "/dev/sda",
        "nvme": "/dev/nvme0n1",
    }
    assert PLAIN.device() is None


@pytest.mark.parametrize(
    ("drive", "expected"),
    [
        (Drive("/d"), "-drive if=none,id=data,format=raw,cache=none,aio=native,file=/d"
         " -device virtio-blk-pci,drive=data,serial=data"),
        (Drive("/d", DiskSettings(format="qcow2", iothread=True, queues=4, discard="unmap")),
         "-object iothread,id=thread"
         " -drive if=none,id=data,format=qcow2,cache=none,aio=native,discard=unmap,file=/d"
         " -device virtio-blk-pci,drive=data,serial=data,iothread=thread,num-queues=4"),
        (Drive("/d", DiskSettings(discard="unmap", detect_zeroes="unmap")),
         "-drive if=none,id=data,format=raw,cache=none,aio=native,discard=unmap,detect-zeroes=unmap,file=/d"
         " -device virtio-blk-pci,drive=data,serial=data"),
        (Drive("/d", DiskSettings(iothread=4, queues=4)),
         "-object iothread,id=thread -object iothread,id=thread1 -object iothread,id=thread2"
         " -object iothread,id=thread3"
         " -drive if=none,id=data,format=raw,cache=none,aio=native,file=/d"
         ' -device {"driver":"virtio-blk-pci","drive":"data","serial":"data","iothread-vq-mapping":'
         '[{"iothread":"thread"},{"iothread":"thread1"},{"iothread":"thread2"},{"iothread":"thread3"}],"num-queues":4}'),
        (Drive("/d", DiskSettings(bus="virtio-scsi", iothread=2)),
         "-object iothread,id=thread -object iothread,id=thread1"
         " -drive if=none,id=data,format=raw,cache=none,aio=native,file=/d"
         ' -device {"driver":"virtio-scsi-pci","id":"scsi","iothread-vq-mapping":[{"iothread":"thread"},'
         '{"iothread":"thread1"}]}'
         ' -device {"driver":"scsi-hd","drive":"data","serial":"data","bus":"scsi.0"}'),
        (Drive("/d", DiskSettings(bus="virtio-scsi", iothread=True, queues=2)),
         "-object iothread,id=thread -drive if=none,id=data,format=raw,cache=none,aio=native,file=/d"
         " -device virtio-scsi-pci,id=scsi,iothread=thread,num_queues=2"
         " -device scsi-hd,drive=data,serial=data,bus=scsi.0"),
        (Drive("/d", DiskSettings(bus="sata", iothread=True, queues=2)),
         "-drive if=none,id=data,format=raw,cache=none,aio=native,file=/d -device ide-hd,drive=data,serial=data"),
    ],
)  # fmt: skip
def test_a_disk_brings_what_its_bus_needs_and_nothing_its_bus_cannot(drive: Drive, expected: str) -> None:
    assert " ".join(disk_arguments([drive])) == expected
    assert machine_type([drive]) == "q35" and machine_type([drive, Drive("/d", DiskSettings(bus="ide"))]) == "pc"


OTHER = {
    **dict.fromkeys(("guest.vcpus", "disk.snapshots"), ("1", "77")),
    "guest.memory": ("256MiB", "5GiB", "300MiB"),
    "migration.downtime_limit": ("1ms", "45ms", "1999s"),
    "migration.load": ("1MiB", "77MiB", "3GiB"),
}


def test_every_factor_with_other_levels_between_two_ends_is_tried() -> None:
    assert {name for name, factor in FACTORS.items() if factor.others and factor.others.ends} == OTHER.keys()


@pytest.mark.parametrize(("name", "level"), [(name, level) for name, levels in OTHER.items() for level in levels])
def test_a_level_that_is_not_listed_is_read_and_written(name: str, level: str) -> None:
    kinds = (DiskSettings, SizeSettings, MigrationSettings)
    (kind,) = (kind for kind in kinds if name in {each.name for each in kind.factors().values()})
    assert kind.of({name: level}).levels[name] == level


def test_a_treatments_levels_make_a_disk() -> None:
    levels = {"disk.bus": "sata", "disk.iothread": "on", "disk.queues": "4", "zfs.recordsize": "1MiB", "a.b": "c"}
    found = DiskSettings.of(levels)
    assert found == DiskSettings(bus="sata", iothread=True, queues=4, recordsize=2**20)
    assert {**levels, **found.levels} == {**found.levels, "a.b": "c"}, "and back"
    assert DiskSettings.of({"disk.queues": "auto"}) == DiskSettings() == DiskSettings.of({})
    with pytest.raises(UnknownLevel, match="=fast is none of its levels: none, writeback, "):
        DiskSettings.of({"disk.cache": "fast"})


def test_a_cache_mode_says_what_qemu_does_with_it() -> None:
    assert [mode for mode in CacheMode if mode.is_direct] == ["none", "directsync"]
    assert [mode for mode in CacheMode if mode.is_writethrough] == ["writethrough", "directsync"]
    assert [mode for mode in CacheMode if mode.ignores_flushes] == ["unsafe"]
    node = block_node(Drive("/d", DiskSettings(cache=CacheMode.DIRECTSYNC, discard="unmap", format="qcow2")))
    cache = {"direct": True, "no-flush": False}
    assert node.pop("file") == {
        **{"driver": "file", "filename": "/d", "aio": "native", "cache": cache, "discard": "unmap"}
    }
    assert node == {"node-name": "data", "driver": "qcow2", "cache": cache, "discard": "unmap"}


@given(
    path=st.text(st.characters(codec="ascii", exclude_characters="\n\0"), min_size=1),
    bus=st.sampled_from(["virtio", "ide", "nvme"]),
    cache=st.sampled_from(CacheMode),
    limit=st.integers(0, 10**6),
    ports=st.lists(st.integers(1, 65535), max_size=3),
)
def test_no_guest_can_be_reached_from_the_network(
    path: str, bus: str, cache: CacheMode, limit: int, ports: list[int]
) -> None:
    drive = Drive(path, DiskSettings(bus=bus, cache=cache), iops_limit=limit)
    behind = UserNetwork("10.1.0.0/24", "10.1.0.1", "10.1.0.3", tuple(ports))
    spec = replace(PLAIN, root=path, disks=(drive,), cards=(Nic(behind),))
    argv = command_line(spec)
    assert all(argv) and not any("\n" in word for word in argv)
    for word in argv:
        if word.startswith("user,"):
            assert "restrict=on" in word.split(",")
            assert all(part.startswith("hostfwd=tcp:127.0.0.1:") for part in word.split(",") if "hostfwd" in part)
    drives = [word for word in argv if "if=none" in word]
    # The path comes last and its commas are doubled, so that no path can add an option.
    assert all(word.endswith(f"file={path.replace(',', ',,')}") for word in drives)
    assert "readonly=on" in drives[0] and f"cache={cache}" in drives[1]


def test_forwarded_ports_are_read_from_what_qemu_prints() -> None:
    text = (
        "Hub -1 (management):\r\n"
        "  Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ\r\n"
        "  TCP[HOST_FORWARD]  13       127.0.0.1 46341       10.0.2.15    22     0     0\r\n"
        "  TCP[HOST_FORWARD]  14       127.0.0.1 40001       10.0.2.15  5201     0     0\r\n"
        "  UDP[236 sec]       15       127.0.0.1 40002       10.0.2.15    53     0     0\r\n"
    )
    assert parse_usernet(text) == {22: 46341, 5201: 40001}


def qmp(*lines: str) -> Qmp:
    machine = FakeMachine(answers={("qemu",): Reply(stdout="".join(f"{line}\n" for line in lines))})
    return Qmp(machine.start("qemu"), timeout=2)


GREETING, READY = '{"QMP": {"version": {}}}', '{"return": {}}'


def test_qmp_passes_over_events() -> None:
    client = qmp(GREETING, READY, '{"event": "RTC_CHANGE"}', '{"return": {"status": "running"}}')
    assert client.execute("query-status") == {"status": "running"}
    assert [event["event"] for event in client.events] == ["RTC_CHANGE"], "they can be looked at afterwards"


def test_qmp_repeats_what_qemu_refuses_and_notices_its_end() -> None:
    client = qmp(GREETING, READY, '{"error": {"class": "GenericError", "desc": "no such thing"}}')
    with pytest.raises(QmpError, match="refused nonsense: no such thing"):
        client.execute("nonsense")
    with pytest.raises(QmpError, match="QEMU ended"):
        client.execute("query-status")
    with pytest.raises(QmpError, match="QEMU ended"):
        qmp()


def words_after(option: str, spec: GuestSpec) -> str:
    words = command_line(spec)
    return words[words.index(option) + 1]


def having(**levels: str) -> GuestSpec:
    return replace(
        PLAIN, settings=GuestSettings.of({name.replace("_", ".", 1): level for name, level in levels.items()})
    )


@pytest.mark.parametrize(
    ("spec", "option", "value"),
    [
        (having(cpu_model="host"), "-cpu", "max"),
        (replace(PLAIN, accelerator="kvm"), "-cpu", "host"),
        (having(cpu_model="x86-64-v2"), "-cpu", "qemu64,+cx16,+lahf-lm,+popcnt,+pni,+sse4.1,+sse4.2,+ssse3,enforce"),
        (having(cpu_model="Nehalem"), "-cpu", "Nehalem,enforce"),
        (replace(having(cpu_hyperv="time"), accelerator="kvm"), "-cpu", "host,kvm=off,hv-vpindex,hv-time"),
        (having(cpu_hyperv="hidden", cpu_model="Nehalem"), "-cpu", "Nehalem,enforce,kvm=off"),
        (having(cpu_topology="sockets"), "-smp", "2,sockets=2,cores=1,threads=1"),
        (replace(having(cpu_topology="sockets"), vcpus=1), "-smp", "1,maxcpus=2,sockets=2,cores=1,threads=1"),
        (replace(PLAIN, vcpus=1), "-smp", "1,maxcpus=2"),
        (replace(PLAIN, vcpus=1, accelerator="kvm"), "-smp", "1"),
        (having(cpu_timer="hpet"), "-machine", "q35,hpet=on,mem-merge=off"),
        (having(cpu_timer="tsc"), "-append", "console=ttyS0 panic=-1 quiet clocksource=tsc tsc=reliable"),
        (having(cpu_topology="threads"), "-smp", "2,sockets=1,cores=1,threads=2"),
        (having(guest_hpet="on"), "-machine", "q35,hpet=on,mem-merge=off"),
        (having(guest_hpet="off"), "-machine", "q35,hpet=off,mem-merge=off"),
        (replace(PLAIN, accelerator="kvm"), "-machine", "q35,hpet=off,mem-merge=off"),
        (replace(having(guest_hpet="on"), accelerator="kvm"), "-machine", "q35,hpet=on,mem-merge=off"),
        (replace(having(cpu_timer="hpet"), accelerator="kvm"), "-machine", "q35,hpet=on,mem-merge=off"),
        (having(memory_merge="on"), "-machine", "q35,mem-merge=on"),
        (having(memory_backing="memfd"), "-machine", "q35,mem-merge=off,memory-backend=ram"),
        (having(memory_backing="memfd"), "-object", "memory-backend-memfd,id=ram,size=1024M,share=on"),
        (
            having(memory_backing="2MiB"),
            "-object",
            "memory-backend-memfd,id=ram,size=1024M,share=on,hugetlb=on,hugetlbsize=2M,prealloc=on",
        ),
        (
            having(memory_backing="1GiB"),
            "-object",
            "memory-backend-memfd,id=ram,size=1024M,share=on,hugetlb=on,hugetlbsize=1024M,prealloc=on",
        ),
    ],
)
def test_each_level_of_cpu_and_memory_is_written(spec: GuestSpec, option: str, value: str) -> None:
    assert words_after(option, spec) == value


def test_without_huge_pages_qemu_is_started_by_what_forbids_them() -> None:
    words = command_line(having(memory_backing="4k"))
    assert words[0] == "/usr/bin/python3" and "prctl(41, 1" in words[4] and words[5] == "qemu-system-x86_64"
    assert "prctl" not in " ".join(command_line(PLAIN))


@pytest.mark.parametrize(
    ("changes", "smp", "kept_free"),
    [
        ({"carries": True}, "3", ["isolcpus=0"]),
        (
            {"carries": True, "vcpus": 4, "settings": GuestSettings(topology="threads")},
            "6,sockets=1,cores=3,threads=2",
            ["isolcpus=0,1"],  # its core
        ),
        ({"carries": True, "accelerator": "kvm"}, "2", []),
        ({"carries": True, "vcpus": 1}, "1,maxcpus=2", []),
        ({}, "2", []),
    ],
)
def test_an_emulated_guest_that_carries_guests_keeps_its_first_cpu_free(
    changes: dict[str, Any], smp: str, kept_free: list[str]
) -> None:
    spec = replace(PLAIN, **changes)
    assert words_after("-smp", spec) == smp
    assert [word for word in words_after("-append", spec).split() if word.startswith("isolcpus")] == kept_free


def test_one_defence_alone_is_turned_off_on_the_kernels_command_line() -> None:
    assert kernel_arguments(having(cpu_mitigations="off")).endswith(" mitigations=off")
    assert kernel_arguments(having(cpu_mitigations="no-spectre_v2")).endswith(" spectre_v2=off")
    assert " mds=off tsx_async_abort=off " in kernel_arguments(having(cpu_mitigations="no-cpu-buffers"))


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (replace(having(cpu_topology="threads"), vcpus=3), "an even number of CPUs, not 3"),
        (replace(having(memory_backing="1GiB"), memory_bytes=1536 * 2**20), "in multiples of that"),
    ],
)
def test_a_shape_that_does_not_fit_is_said_before_a_boot(spec: GuestSpec, reason: str) -> None:
    assert reason in (spec.hypervisor.can(spec) or "")
