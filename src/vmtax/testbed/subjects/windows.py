"""A Windows of the user's as it runs, examined and provided with a disk under test: what `layers.existing` measures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath, PureWindowsPath

from vmtax.core.machines import MachineLost
from vmtax.core.records import Json
from vmtax.core.units import format_room
from vmtax.machine import Machine
from vmtax.machine.windows.machine import WindowsMachine
from vmtax.meter.windows import is_restarted, read_booted
from vmtax.storage import Target
from vmtax.storage.file import HEADROOM, FirstWrite, StorageError, fill
from vmtax.testbed.host.cpus import Cpu, CpuTopology
from vmtax.testbed.host.disks import WHEN
from vmtax.testbed.session.examine import Examined
from vmtax.testbed.session.session import CannotMeasure
from vmtax.testbed.session.ways import OwnVm
from vmtax.testbed.session.windows_way import WindowsInside, programs_here
from vmtax.testbed.subjects.provisioned import Provisioned
from vmtax.testbed.subjects.senders import open_ends, refuse_unreached
from vmtax.workload import Site
from vmtax.workload.transfer import PROGRAM, Transfer

DISK_FILE = "disk.bin"


def refuse_little_room(
    name: str, there: WindowsMachine, home: PureWindowsPath, size: int, option: str = "--guest-dir"
) -> None:
    """Raises StorageError if a disk under test of that many bytes does not fit where it is to lie, which `option` names
    for a Windows that is entered by a login.

    If Windows does not say how much is free, fio is what finds out.
    """
    free = there.free_bytes(home) if size else None
    if free is not None and free < size * HEADROOM:
        raise StorageError(
            f"{name}: {home} has {format_room(free)} free, {format_room(size)} are needed; name"
            f"{f' another directory with {option}, or' if name.startswith('ssh:') else ''} a smaller"
            " workloads.disk.size in the plan"
        )


def examined_windows(on: Examined, vm: OwnVm, inside: WindowsInside) -> Examined:
    """Raises CannotMeasure if it is no VM, and StorageError if its disk under test does not fit."""
    if inside.facts.is_vm is False:
        raise CannotMeasure(f"{vm.name} is no VM: it says that no hypervisor runs it")
    there = _windows(inside.machine)
    refuse_little_room(vm.name, there, there.directory, on.disk_size if on.has_disks else 0)
    plan = on.plan.model_copy(update={"layers": ("host",)})
    return Examined(
        session=on.session,
        host=inside.machine,
        plan=plan,
        workloads=plan.build_workloads(emulated=on.emulated),
        placed=inside.placed,
        topology=CpuTopology(tuple(Cpu(number, number) for number in range(vm.size().vcpus))),
        unbound="",
        is_root=False,
        why_warm="",
        host_emulated=False,
        target=Target(PurePosixPath(str(there.directory))),
        platform=None,
        notes=inside.notes,
        entered=inside.on(on.host),
    )


def provision_windows(on: Examined) -> Provisioned:
    """With its disk under test written in full. Raises StorageError, CommandFailed and MachineError."""
    here = Provisioned(**vars(on))
    if not on.has_disks:
        return here
    return replace(here, written={"host": filled(_there(on), on.disk_size)})


def filled(there: WindowsMachine, size: int) -> FirstWrite:
    """Write a disk under test of that many bytes in full. Raises StorageError, CommandFailed and MachineError."""
    file = there.directory / DISK_FILE
    written = fill(there, (), str(file), size, allocation="file", when=WHEN)
    if (has := there.size(file)) != size:
        raise StorageError(f"{there.path}: {file} has {has} bytes after {size} were written: another file was")
    return written


def with_links(on: Provisioned, vm: Provisioned) -> tuple[Provisioned, Provisioned]:
    """The host and that VM, with their links for workload `transfer` if it is wanted. Raises MachineError."""
    if not vm.wants(Transfer.name):
        return on, vm
    ends = open_ends(on, _there(vm), programs_here(on.session.local) / PROGRAM)
    refuse_unreached(_there(vm).path, ends.vm)
    return replace(on, link=ends.host), replace(vm, link=ends.vm)


def windows_site(on: Provisioned) -> Site:
    """Where its programs work. Raises MachineLost if its owner, or an update, restarted it since it was entered."""
    entered = on.entered
    assert isinstance(entered, WindowsInside)
    now = read_booted(_there(on))
    if is_restarted(entered.facts.booted, now):
        raise MachineLost(f"{on.host.path}: that Windows was restarted during the run, at {now} UTC")
    file = str(_file(on)) if on.has_disks else None
    return Site(on.host, "host", on.plan.guest.vcpus, (), disk=file, link=on.link, lead=on.lead)


def windows_facts(on: Examined) -> Json:
    """What is stored of it."""
    entered = on.entered
    assert isinstance(entered, WindowsInside)
    facts = entered.facts.to_json() | {"uuid": entered.uuid, "windows_programs": dict(entered.programs)}
    return facts | ({"disk": {"directory": str(on.target.directory)}} if on.has_disks else {})


def is_windows(on: Examined) -> bool:
    return isinstance(on.entered, WindowsInside)


def _there(on: Examined) -> WindowsMachine:
    return _windows(on.host)


def _windows(machine: Machine) -> WindowsMachine:
    assert isinstance(machine, WindowsMachine)
    return machine


def _file(on: Examined) -> PureWindowsPath:
    return _there(on).directory / DISK_FILE
