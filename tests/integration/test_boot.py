"""Guests on this host and in a guest, for real."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from tests.integration.conftest import booted
from vmtax.design.disk import CacheMode, DiskSettings
from vmtax.hypervisor import BootFailed, BootPatience, Credentials, Drive, Guest, GuestSpec, Nic, Tap, boot, choose
from vmtax.image.place import IN_GUEST
from vmtax.machine import CommandFailed, MachineLost, ssh
from vmtax.machine.local import LocalMachine
from vmtax.meter import below
from vmtax.meter.facts import read_facts
from vmtax.network import Segment
from vmtax.testbed.layers.nested import IMAGE_QEMU
from vmtax.testbed.subjects.sites import disks_of


@pytest.mark.machines
def test_a_guest_answers_carries_a_nested_guest_and_ends(
    shared_local: LocalMachine, credentials: Credentials, spec: GuestSpec
) -> None:
    carrier_spec = replace(spec, memory_bytes=2 * 2**30, carries=True)
    with booted(shared_local, carrier_spec, credentials, shared_local) as carrier:
        assert carrier.machine.path == "host/vm"
        assert 0 < carrier.kernel_seconds < carrier.ready_seconds
        assert carrier.machine.run("nproc").strip() == "2", "its first CPU, which runs no guests, is not counted"
        # Mitigations are a factor: they must never be off by accident.
        assert "mitigations" not in carrier.machine.read_text("/proc/cmdline")

        carrier.machine.run("modprobe", "kvm_amd")
        nested_spec = replace(
            spec,
            accelerator="kvm",
            hypervisor=IMAGE_QEMU,
            kernel=IN_GUEST.kernel,
            initrd=IN_GUEST.initrd,
            root=IN_GUEST.root,
        )
        accelerator = choose(carrier.machine, nested_spec, credentials, shared_local, lambda event: None)
        assert accelerator.name == "kvm", accelerator.reason  # genuine KVM, on emulated SVM

        with booted(carrier.machine, nested_spec, credentials, shared_local) as nested:
            assert nested.machine.path == "host/vm/vm"
            boot_ids = {
                machine.read_text("/proc/sys/kernel/random/boot_id") for machine in (carrier.machine, nested.machine)
            }
            assert len(boot_ids) == 2, "two different kernels answered"
            assert nested.shut_down() < 20
        assert carrier.shut_down() < 20
        assert carrier.warnings == []


def test_an_emulated_guest_reads_that_it_is(
    shared_local: LocalMachine, credentials: Credentials, spec: GuestSpec
) -> None:
    """So it would be as a host under test."""
    with booted(shared_local, replace(spec, vcpus=1), credentials, shared_local) as guest:
        machine = guest.machine
        facts = read_facts(machine)
        assert (facts["virtualized"], facts["hypervisor"], facts["emulated_cpu"]) == (True, "qemu", True)
        told = machine.run(*below.CPUID)
        assert below.signatures(told)[0] == "TCGTCGTCGTCG", "by the instruction, not by what stands in for it"


def test_files_and_commands_of_a_guest(
    shared_local: LocalMachine,
    credentials: Credentials,
    spec: GuestSpec,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with boot(shared_local, spec, credentials, shared_local) as guest:
        machine = guest.machine
        text = "one 'two' \"three\" $HOME `id` ; & | \\ ü\n"
        assert machine.run("printf", "%s", text) == text, "arguments stay arguments through ssh's shell"
        machine.write_text(PurePosixPath("/tmp/a file"), text)
        here = tmp_path / "here"
        assert machine.read_text("/tmp/a file") == text
        here.write_text(text)
        machine.push(here, PurePosixPath("/tmp/pushed"))
        assert machine.read_text("/tmp/pushed") == text
        with pytest.raises(CommandFailed, match=r"host/vm: cat /nowhere: exit code 1\n.*No such file"):
            machine.read_text("/nowhere")
        late = machine.try_run("sleep", "60", timeout=1)
        assert late.timed_out and late.seconds < 15
        monkeypatch.setattr(ssh, "DEAD_SECONDS", 8.0)
        # What it leaves keeps its output.
        slow = machine.try_run("sh", "-c", "echo said; setsid sleep 601 &", timeout=1)
        assert (slow.timed_out, slow.stdout) == (True, "said\n"), "it has not ended, but the machine answers"
        assert machine.try_run("pgrep", "-x", "-f", "sleep 601").code == 1, "it is ended"
        sleeper = machine.start("sleep", "600")
        assert machine.succeeds("kill", "-0", str(sleeper.pid))
        sleeper.stop()
        assert not machine.succeeds("kill", "-0", str(sleeper.pid))
        guest.process.stop()
        with pytest.raises(MachineLost):
            machine.run("true")


def test_a_panic_is_reported_with_the_last_console_lines(
    local: LocalMachine, credentials: Credentials, spec: GuestSpec
) -> None:
    """A root disk that is no file system: the guest's init ends, the kernel panics.

    An emulating QEMU ends by an assertion of its own now and then (`iotlb_to_section`): then the second one tells.
    """
    with (
        pytest.raises(BootFailed, match=r"(?s)the guest kernel panicked.*Kernel panic - not syncing"),
        booted(local, replace(spec, root="/dev/zero"), credentials, local),
    ):
        pass


def test_a_guest_that_never_answers_is_given_up(local: LocalMachine, credentials: Credentials, spec: GuestSpec) -> None:
    with (
        pytest.raises(BootFailed, match="not ready within 1 s"),
        boot(local, spec, credentials, local, patience=BootPatience(ready=1.0)),
    ):
        pass


def test_qemu_that_dies_at_start_says_why(local: LocalMachine, credentials: Credentials, spec: GuestSpec) -> None:
    with (
        pytest.raises(BootFailed, match=r"(?s)QEMU ended.*/nowhere/vmlinux"),
        boot(local, replace(spec, kernel="/nowhere/vmlinux"), credentials, local),
    ):
        pass


@pytest.mark.machines
@pytest.mark.parametrize("bus", ["sata", "nvme"])
def test_two_disks_of_one_bus_are_distinguished(
    bus: str, shared_local: LocalMachine, credentials: Credentials, spec: GuestSpec, tmp_path: Path
) -> None:
    """Linux looks at them at the same time: on SATA the second was /dev/sda in one boot of one."""
    sizes = {name: size * 2**20 for name, size in (("data", 64), ("fresh", 32))}
    for name, size in sizes.items():
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
    settings = DiskSettings(bus=bus, cache=CacheMode.WRITEBACK, aio="threads")
    both = tuple(Drive(str(tmp_path / name), settings, name=name) for name in sizes)
    with booted(shared_local, replace(spec, disks=both), credentials, shared_local) as guest:
        found = disks_of(guest)
        assert [int(guest.machine.run("blockdev", "--getsize64", str(disk))) for disk in found] == [*sizes.values()]


@pytest.mark.machines
def test_two_guests_at_once_have_disks_and_addresses_of_their_own(
    local: LocalMachine, credentials: Credentials, spec: GuestSpec, tmp_path: Path
) -> None:
    segment = Segment(local, local.token[:6])
    addresses = {"left": "10.77.0.21", "right": "10.77.0.22"}
    guests: dict[str, Guest] = {}
    with contextlib.ExitStack() as stack:
        for number, (name, address) in enumerate(addresses.items()):
            disk, tap = tmp_path / name, segment.tap_name()
            disk.write_text(name.ljust(2**20))
            own = replace(
                spec,
                name=name,
                vcpus=1,
                disks=(Drive(str(disk), DiskSettings(cache=CacheMode.WRITEBACK, aio="threads")),),
                cards=(Nic(Tap(tap), f"52:54:00:76:75:{number:02x}"),),
            )
            attach = functools.partial(segment.attach, tap)
            guests[name] = stack.enter_context(booted(local, own, credentials, local, attach))
            commands = f"address add {address}/24 dev eth1\nlink set eth1 up\n"
            guests[name].machine.run("ip", "-batch", "-", input=commands)
        for name, other in (("left", "right"), ("right", "left")):
            machine = guests[name].machine
            assert machine.path == f"host/{name}" and machine.run("head", "-c", "5", "/dev/vdb").strip() == name
            machine.run("busybox", "ping", "-c", "1", "-w", "20", addresses[other], timeout=30)
        guests["left"].machine.run("dd", "if=/dev/zero", "of=/dev/vdb", "bs=64k", "count=1", "conv=fsync")
        assert guests["left"].shut_down() is not None and guests["right"].machine.succeeds("true")
    assert not (tmp_path / "left").read_bytes()[:5].strip(b"\0") and (tmp_path / "right").read_text().strip() == "right"
