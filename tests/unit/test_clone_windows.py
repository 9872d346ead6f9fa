"""Clones of a Windows that are measured: their programs, their disk under test, and what refuses it."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from tests.fake_machine import FakeClock, FakeMachine
from tests.unit.test_attach import UUID
from tests.unit.test_clone import PARTS, host, xml
from tests.unit.test_clone_watched import windows
from tests.unit.test_windows_agent import FarAgent
from vmtax.analysis.builds import is_like
from vmtax.attach import DomainError
from vmtax.attach.clone import Cloned, guests
from vmtax.attach.clone.definition import Definition
from vmtax.attach.clone.edit import edited
from vmtax.attach.clone.guests import CALM_SECONDS, QUIET_SECONDS, SEEN_SECONDS, LinuxGuest, WindowsGuest
from vmtax.attach.clone.windows_disk import LIST, WRITABLE, chosen, parse_disks
from vmtax.attach.domain import Domain
from vmtax.cli.existing_vm import on_existing
from vmtax.core.layers import CLONE, CLONE_PATH
from vmtax.core.records import Metric, Treatment
from vmtax.image.disc import SECTOR, write_disc
from vmtax.image.place import Placed
from vmtax.machine.windows.command_line import encoded
from vmtax.machine.windows.machine import WindowsClone
from vmtax.plan.schema import load
from vmtax.testbed.layers import clone as layer
from vmtax.testbed.session import windows_way
from vmtax.testbed.session.cloning import ClonedBoot, Cloning
from vmtax.testbed.session.observed import Watched
from vmtax.testbed.session.windows_disc import ProgramsDisc, put_disc
from vmtax.testbed.subjects.existing import fitted
from vmtax.workload.fio import Disk, DiskParameters

SERIAL, SIZE = "vmtax-0a1b2c3d-data", 2**30
SYSTEM = "disk=0|GPT|4|True|False|68719476736|\r\n"
OURS = f"disk=1|RAW|0|False|False|{SIZE}|{SERIAL}\r\n"
MARK = "vmtax.0a1b2c3d"
GUEST = WindowsGuest(PurePosixPath("/var/tmp/p/programs.iso"), MARK)


def entered(far: FarAgent, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> WindowsClone:
    """A clone whose Windows has that agent; its clock is a fake."""
    far.rules |= {"%PROCESSOR_ARCHITECTURE%": (b"AMD64\r\n", b"", 0), "%USERPROFILE%": (b"C:\\profile\r\n", b"", 0)}
    far.rules.setdefault(MARK, (b"E:\r\n", b"", 0))
    clock = FakeClock()
    monkeypatch.setattr(guests, "time", MagicMock(monotonic=clock.time, sleep=clock.sleep))
    monkeypatch.setattr(guests, "LibvirtVm", lambda domain: SimpleNamespace(agent=far))
    machine = GUEST.enter(cast("Any", None), CLONE_PATH, cast("Any", SimpleNamespace(scratch=tmp_path)), "win1")
    assert isinstance(machine, WindowsClone)
    return machine


@dataclass
class Lister(FarAgent):
    """An agent whose PowerShell lists these disks, time after time; the last answer lasts."""

    lists: list[str] = field(default_factory=list)

    def guest_exec(self, given: dict[str, Any]) -> dict[str, int]:
        self.rules[encoded(LIST)] = (self.lists[0].encode(), b"", 0)
        started = super().guest_exec(given)
        if encoded(LIST) in self.lines[-1] and len(self.lists) > 1:
            self.lists.pop(0)
        return started


# The disc


def files_of(disc: bytes) -> dict[str, bytes]:
    """What a reader of ECMA-119 finds in its root."""
    volume = disc[16 * SECTOR : 17 * SECTOR]
    assert volume[:7] == b"\1CD001\1" and disc[17 * SECTOR :][:7] == b"\xffCD001\1"
    assert len(disc) == SECTOR * int.from_bytes(volume[80:84], "little") == SECTOR * int.from_bytes(volume[84:88])
    root, found = volume[156:190], {}
    start, size = SECTOR * int.from_bytes(root[2:6], "little"), int.from_bytes(root[10:14], "little")
    rest = disc[start : start + size]
    while rest and rest[0]:
        record, rest = rest[: rest[0]], rest[rest[0] :]
        where, length = int.from_bytes(record[2:6], "little"), int.from_bytes(record[10:14], "little")
        assert (where, length) == (int.from_bytes(record[6:10]), int.from_bytes(record[14:18]))
        name = record[33 : 33 + record[32]].decode("latin-1")
        if not record[25] & 2:
            found[name] = disc[SECTOR * where : SECTOR * where + length]
    return found


def test_a_disc_holds_its_files(tmp_path: Path) -> None:
    contents = {"fio.exe": os.urandom(3 * SECTOR + 1), "stockfish.exe": b"x" * SECTOR, MARK: b""}
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    write_disc(tmp_path / "disc", "VMTAX", {name: tmp_path / name for name in contents})
    found = files_of((tmp_path / "disc").read_bytes())
    assert found == {f"{name.upper()};1": data for name, data in contents.items()}


def test_a_disc_is_put_where_every_qemu_reads_it(tmp_path: Path) -> None:
    machine = FakeMachine("host", {("chmod", "444", "/var/tmp/p/programs.iso"): ""})
    made = ProgramsDisc(PurePosixPath(tmp_path / "programs.iso"), MARK, {"fio.exe": "1"})
    Path(made.file).touch()
    assert put_disc(made, machine, PurePosixPath("/var/tmp/p")) == replace(made, file=GUEST.disc)


@pytest.mark.parametrize(("kind", "bus"), [("pc-q35-7.2", "sata"), ("pc-i440fx-7.2", "ide")])
def test_the_drive_is_on_a_bus_for_which_every_windows_has_a_driver(kind: str, bus: str) -> None:
    parts = replace(PARTS, image="", disc="/var/tmp/p/programs.iso")
    text = xml().replace("pc-q35-7.2", kind)
    clone = ET.fromstring(edited(Definition.of(text, "web1"), parts, {"disk.bus": "sata"}))
    (drive,) = [each for each in clone.findall("devices/disk") if each.get("device") == "cdrom"]
    assert drive.find("target").get("bus") == bus and drive.find("readonly") is not None  # type: ignore[union-attr]
    assert drive.find("source").get("file") == parts.disc  # type: ignore[union-attr]
    names = [each.find("target").get("dev") for each in clone.findall("devices/disk")]  # type: ignore[union-attr]
    assert len(names) == len(set(names)) == 3
    assert [each.get("name") for each in clone.findall("devices/channel/target")] == ["org.qemu.guest_agent.0"]


# Its disk under test


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SYSTEM + OURS, None),
        (OURS.replace(SERIAL, f"  {SERIAL}\0 "), None),
        (OURS.replace("|False|False|", "|False|True|"), None),  # which is set before it is written
        (SYSTEM, ""),
        ("not a list\r\ndisk=x\r\n", ""),
        (OURS + OURS.replace("disk=1", "disk=2"), f"2 disks have the serial number {SERIAL}"),
        (OURS.replace("RAW|0", "MBR|0"), "it has 0 partitions (MBR), and ours has none"),
        (OURS.replace("RAW|0", "GPT|1"), "it has 1 partitions (GPT), and ours has none"),
        (OURS.replace("RAW|0", "RAW|"), "it has partitions, as far as is known (RAW)"),
        (OURS.replace("RAW", ""), "of an unknown style"),
        (OURS.replace("|False|False|", "|True|False|"), "Windows says that it runs from it"),
        (OURS.replace("|False|False|", "||False|"), "Windows says that it runs from it"),
        (OURS.replace(str(SIZE), "512"), f"it has 512 bytes, and ours {SIZE}"),
    ],
)
def test_only_a_blank_disk_with_our_serial_number_is_written(text: str, words: str | None) -> None:
    if words is None or not words:
        disk = chosen(parse_disks(text), SERIAL, SIZE, "win1")
        assert (disk and disk.device) == (None if words == "" else r"\\.\PhysicalDrive1")
        return
    with pytest.raises(DomainError) as refused:
        chosen(parse_disks(text), SERIAL, SIZE, "win1")
    assert words in str(refused.value)


def found_by(far: Lister, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    return GUEST.find(entered(far, monkeypatch, tmp_path), SERIAL, SIZE, "libvirt:win1")


def test_the_disk_is_awaited_and_made_writable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    readonly = OURS.replace("|False|False|", "|False|True|")
    far = Lister(lists=[SYSTEM, SYSTEM, SYSTEM + readonly, OURS])
    assert found_by(far, monkeypatch, tmp_path) == r"\\.\PhysicalDrive1"
    assert [line for line in far.lines if encoded(WRITABLE.format(1)) in line]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (SYSTEM, f"sees no disk with the serial number {SERIAL} within {SEEN_SECONDS:.0f} s: it has no driver"),
        (OURS.replace("|False|False|", "|False|True|"), "keeps the disk under test read-only"),
        (OURS.replace("RAW|0", "GPT|2"), f"\\\\.\\PhysicalDrive1, with the serial number {SERIAL}, is not written"),
        ("", "which disks its Windows has is not known: Get-Disk printed none"),
    ],
)
def test_a_disk_that_is_not_ours_for_sure_is_refused(
    answer: str, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(DomainError) as refused:
        found_by(Lister(lists=[answer]), monkeypatch, tmp_path)
    assert words in str(refused.value) and "\n" not in str(refused.value)
    assert "a clone of libvirt:win1" in str(refused.value)


def test_programs_are_run_from_the_disc_and_nothing_is_left_to_remove(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    far = FarAgent()
    machine = entered(far, monkeypatch, tmp_path)
    site = SimpleNamespace(machine=machine, disk=r"\\.\PhysicalDrive1", prefix=(), lead=0)
    workload = Disk(DiskParameters(patterns=("randwrite-4k-qd32",)))
    machine.run(*workload.command(cast("Any", site), "randwrite-4k-qd32"))
    line = far.lines[-1]
    assert "E:\\fio.exe --name" in line and r"--filename=\\.\PhysicalDrive1 " in line and "windowsaio" in line
    assert f'cd /d "C:\\profile\\{machine.name}"' in line
    before = len(far.asked)
    machine.close()
    assert len(far.asked) == before and not [each for each in far.lines if "schtasks" in each or "rmdir" in each]


def test_a_disc_without_a_drive_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(DomainError, match=rf"no drive within {SEEN_SECONDS:.0f} s"):
        entered(FarAgent(rules={MARK: (b"", b"", 0)}), monkeypatch, tmp_path)
    with pytest.raises(DomainError, match="answered 'C:' when asked"):
        entered(FarAgent(rules={MARK: (b"C:\r\n", b"", 0)}), monkeypatch, tmp_path)


@pytest.mark.parametrize(
    ("shares", "waited", "doubt"),
    [
        ((0.9, 0.5, 0.02), 3 * CALM_SECONDS, ""),
        ((0.5,), QUIET_SECONDS, "were not seen to take less than 10 % of one"),
        ((None,), QUIET_SECONDS, "libvirt does not say"),
    ],
)
def test_a_windows_is_left_alone_until_its_cpus_rest(
    shares: tuple[float | None, ...], waited: float, doubt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, left, spent = FakeClock(), list(shares), [0.0]

    def ask(verb: str, *words: str) -> SimpleNamespace:
        if len(spent) > 1:
            share = left.pop(0) if len(left) > 1 else left[0]
            spent.append(spent[-1] + (share or 0.0) * CALM_SECONDS * 1e9)
        else:
            spent.append(0.0)
        lines = [f"  vcpu.{number}.time={spent[-1] / 2:.0f}\n" for number in (0, 1)]
        return SimpleNamespace(stdout="" if shares == (None,) else "Domain: 'copy'\n" + "".join(lines))

    monkeypatch.setattr(guests, "time", MagicMock(monotonic=clock.time, sleep=clock.sleep))
    began = clock.now
    said = GUEST.settle(cast("Any", SimpleNamespace(ask=ask)))
    assert (doubt in said and bool(said) == bool(doubt)) and clock.now - began == pytest.approx(waited)


# Which VM is cloned so


def test_a_windows_is_cloned_with_what_is_done_in_it_said_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows_way.windows, "PACK", SimpleNamespace(current=lambda: None))  # also where it was built
    domain, _ = windows()
    vm = Cloning.of((domain, "running"), PurePosixPath("/var/tmp"))
    assert vm.measures == ("chess", "disk") and not vm.is_watched
    assert "a disc of ours with fio and stockfish" in vm.announced and "never run on Windows itself" in vm.announced
    assert "until its CPUs rest, 5 minutes at most" in vm.announced and "builds these programs" in vm.announced
    assert any("never run on Windows itself" in note for note in vm.notes)
    assert any("CPU does not" in note for note in vm.notes)
    debian = Cloning.of(
        (Domain(host(), "web1", UUID, "qemu:///system", 2, 2**30), "running"), PurePosixPath("/var/tmp")
    )
    assert (debian.measures, debian.has_disc) == (None, False) and "fio" not in debian.announced


def test_plan_windows_on_its_clones_leaves_out_what_cannot_be() -> None:
    domain, _ = windows()
    vm = Cloning.of((domain, "running"), PurePosixPath("/var/tmp"))
    plan = fitted(on_existing(load("windows"), None, CLONE), vm)
    assert [each.name for each in plan.workloads] == ["disk"] and plan.layers == ("host", CLONE)
    impossible = vm.impossible(plan.treatments()[0])
    assert [*impossible] == ["clone disk.bus=ide"] and "is a q35" in impossible["clone disk.bus=ide"]
    old = replace(vm, definition=Definition.of(xml().replace("pc-q35-7.2", "pc-i440fx-7.2"), "web1"))
    assert old.impossible(plan.treatments()[0]) == {}, "KVM has Hyper-V's interface, and that machine IDE"


def test_what_is_recorded_of_it_has_its_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    domain, _ = windows()
    vm = Cloning.of((domain, "running"), PurePosixPath("/var/tmp"))
    vm.discs.append(ProgramsDisc(GUEST.disc, MARK, {"fio.exe": "1"}))
    facts = vm.facts(entered(FarAgent(), monkeypatch, tmp_path))
    assert (facts["uuid"], facts["cpus_online"], facts["windows_programs"]) == (UUID, 2, {"fio.exe": "1"})
    assert facts["os"] == "Windows"


def test_a_vm_that_is_off_may_turn_out_to_be_a_windows() -> None:
    clone = cast("Any", SimpleNamespace(is_windows=lambda: True))
    with pytest.raises(DomainError, match=r"^win1: its clones say that they are Windows, and its definition, by which"):
        LinuxGuest(Placed("/root", "/k", "/i")).enter(clone, CLONE_PATH, cast("Any", None), "win1")


def test_a_clone_of_a_windows_is_one_subject(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = FakeMachine("host", {(lambda argv: "vmtax-find" in argv): "4242\n", (lambda argv: argv[0] == "sh"): ""})
    there = MagicMock(spec=WindowsClone)
    clone = Cloned(cast("Any", MagicMock(uuid=UUID)), there, r"\\.\PhysicalDrive1", 9.0)
    cloning = MagicMock(is_watched=False, is_windows=True, is_emulated=False, uuid=UUID)
    cloning.take.return_value.why_void.return_value = ""
    cloning.booted.return_value.__enter__.return_value = clone
    on = MagicMock(cloning=cloning, host=machine, lead=0, disks=None)
    on.plan.guest.vcpus = 2
    stack = MagicMock(enter_context=lambda context: context.__enter__())
    guests_, (subject,) = layer.open_layer(on, Treatment("clone", CLONE), stack, [])
    assert (guests_, subject.machine, subject.offer(Watched)) == ((), CLONE_PATH, None)
    assert (subject.site.machine, subject.site.disk, subject.site.vcpus) == (there, r"\\.\PhysicalDrive1", 2)
    recorded = subject.offer(ClonedBoot)
    assert recorded is not None and (recorded.qemu, recorded.accelerator) == (4242, "kvm")


def test_the_cpu_of_its_clones_is_compared_with_that_of_its_clones_alone() -> None:
    nodes, writes = Metric("chess.nodes_per_second", "1/s", "higher"), Metric("disk.write-1m.iops", "1/s", "higher")
    facts = {CLONE_PATH: {"windows_programs": {"fio.exe": "1"}}, "host": {}}
    lone, one, another = Treatment("host", "host"), Treatment("clone", CLONE), Treatment("clone b", CLONE)
    assert not is_like(nodes, lone, one, facts) and is_like(writes, lone, one, facts)
    assert is_like(nodes, one, another, facts) and is_like(nodes, lone, one, {CLONE_PATH: {}, "host": {}})
