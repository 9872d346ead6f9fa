"""The QEMU command line, as text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fake_machine import FakeMachine, Reply
from vmtax.hypervisor.qemu import Qemu
from vmtax.hypervisor.qmp import Qmp, QmpError, parse_usernet
from vmtax.hypervisor.spec import Drive, GuestSpec, command_line, data_arguments, kernel_arguments, machine_type

GOLDEN = Path(__file__).parent.parent / "golden" / "argv"
INITRD, CONSOLE = PurePosixPath("/run/x/initrd"), PurePosixPath("/run/x/console")
PLAIN = GuestSpec(
    name="vm",
    vcpus=2,
    memory_bytes=2**30,
    accelerator="tcg",
    qemu=Qemu(("qemu-system-x86_64",), "9.0", ""),
    kernel="/image/vmlinux",
    initrd="/image/initrd",
    root="/image/root.erofs",
)
LIMITED = replace(PLAIN, data=Drive("/var/tmp/disk.raw", iops_limit=970))
MEASURED = replace(PLAIN, accelerator="kvm", data=Drive("/var/tmp/disk.raw"), tap="vt1")


@pytest.mark.parametrize(("name", "spec"), [("emulated", PLAIN), ("kvm-disk-tap", MEASURED), ("iops-limit", LIMITED)])
def test_the_command_line_is_the_golden_one(name: str, spec: GuestSpec) -> None:
    assert "\n".join(command_line(spec, INITRD, CONSOLE)) + "\n" == (GOLDEN / f"{name}.txt").read_text()


def test_mitigations_are_off_only_where_asked_for() -> None:
    assert "mitigations" not in kernel_arguments(PLAIN)
    assert "mitigations=off" in kernel_arguments(replace(PLAIN, mitigations="off")).split()


def test_layers_come_right_behind_the_root_and_the_data_disk_behind_them() -> None:
    spec = replace(PLAIN, layers=("/packs/zfs,1.erofs", "/packs/more.erofs"), data=Drive("/var/tmp/disk.raw"))
    words = kernel_arguments(spec).split()
    assert [word for word in words if "layer" in word] == ["vmtax.layer=/dev/vdb", "vmtax.layer=/dev/vdc"]
    assert spec.data_device == "/dev/vdd" and replace(spec, layers=()).data_device == "/dev/vdb"
    drives = [word for word in command_line(spec, INITRD, CONSOLE) if "if=none" in word]
    assert [word.rpartition("file=")[2] for word in drives] == [
        *("/image/root.erofs", "/packs/zfs,,1.erofs", "/packs/more.erofs", "/var/tmp/disk.raw")
    ]
    assert all("readonly=on" in word for word in drives[:3]) and "readonly" not in drives[3]
    assert {
        bus: replace(spec, data=Drive("/d", bus)).data_device for bus in ("ide", "sata", "virtio-scsi", "nvme")
    } == {
        "ide": "/dev/sda",
        "sata": "/dev/sda",
        "virtio-scsi": "/dev/sda",
        "nvme": "/dev/nvme0n1",
    }
    assert PLAIN.data_device is None


@pytest.mark.parametrize(
    ("drive", "expected"),
    [
        (Drive("/d"), "-drive if=none,id=data,format=raw,cache=none,aio=native,file=/d"
         " -device virtio-blk-pci,drive=data,serial=data"),
        (Drive("/d", format="qcow2", iothread=True, queues=4, discard="unmap"),
         "-object iothread,id=thread"
         " -drive if=none,id=data,format=qcow2,cache=none,aio=native,discard=unmap,file=/d"
         " -device virtio-blk-pci,drive=data,serial=data,iothread=thread,num-queues=4"),
        (Drive("/d", bus="virtio-scsi", iothread=True, queues=2),
         "-object iothread,id=thread -drive if=none,id=data,format=raw,cache=none,aio=native,file=/d"
         " -device virtio-scsi-pci,id=scsi,iothread=thread,num_queues=2"
         " -device scsi-hd,drive=data,serial=data,bus=scsi.0"),
        (Drive("/d", bus="sata", iothread=True, queues=2),
         "-drive if=none,id=data,format=raw,cache=none,aio=native,file=/d -device ide-hd,drive=data,serial=data"),
    ],
)  # fmt: skip
def test_a_disk_brings_what_its_bus_needs_and_nothing_its_bus_cannot(drive: Drive, expected: str) -> None:
    assert " ".join(data_arguments(drive)) == expected
    assert machine_type(drive) == "q35" and machine_type(replace(drive, bus="ide")) == "pc"


def test_a_treatments_levels_make_a_disk() -> None:
    levels = {"disk.bus": "sata", "disk.iothread": "on", "disk.queues": "4", "disk.discard": "unmap", "zfs.sync": "off"}
    assert Drive.of_levels("/d", levels) == Drive("/d", bus="sata", iothread=True, queues=4, discard="unmap")
    assert Drive.of_levels("/d", {"disk.queues": "auto"}) == Drive("/d") == Drive.of_levels("/d", {})


@given(
    path=st.text(st.characters(codec="ascii", exclude_characters="\n\0"), min_size=1),
    bus=st.sampled_from(["virtio", "ide", "nvme"]),
    cache=st.sampled_from(["none", "writeback", "unsafe"]),
    limit=st.integers(0, 10**6),
    forwards=st.lists(st.integers(1, 65535), max_size=3),
)
def test_no_guest_can_be_reached_from_the_network(
    path: str, bus: str, cache: str, limit: int, forwards: list[int]
) -> None:
    spec = replace(PLAIN, root=path, data=Drive(path, bus, cache, iops_limit=limit), forwards=tuple(forwards))
    argv = command_line(spec, INITRD, CONSOLE)
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
