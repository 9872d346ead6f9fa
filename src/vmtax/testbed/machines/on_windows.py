"""The testbed of a host with Windows, and of a VM with Windows on it if the user names one: the same programs work in
both as they run. No guest is booted, and nothing of either is changed but for a directory of ours.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PureWindowsPath
from typing import Any, NoReturn

from vmtax.core.layers import EXISTING, EXISTING_PATH
from vmtax.core.machines import MachineError, MachineLost
from vmtax.core.records import Json, Treatment
from vmtax.core.units import count_of
from vmtax.hypervisor import BootFailed, Guest
from vmtax.machine.local import LocalMachine
from vmtax.machine.ssh import ssh_route
from vmtax.machine.windows.machine import WindowsMachine, connect_guest
from vmtax.meter.hyper_v import HyperVCard, HyperVFacts, read_hyper_v
from vmtax.meter.windows import is_restarted, read_booted
from vmtax.meter.windows_ledger import WindowsLedger
from vmtax.plan.schema import Plan
from vmtax.storage.file import FirstWrite
from vmtax.testbed.host import needs
from vmtax.testbed.session.base import RunningSubject, RunningTreatment
from vmtax.testbed.session.cloning import ClonedBoot
from vmtax.testbed.session.session import CannotMeasure, Emit, TestbedOptions, close_machine
from vmtax.testbed.session.windows_way import (
    UNPROVED,
    WindowsLogin,
    carry_there,
    programs_here,
    unpacked,
    windows_login,
)
from vmtax.testbed.subjects import senders
from vmtax.testbed.subjects.existing import sized, without_programs
from vmtax.testbed.subjects.windows import DISK_FILE, filled, refuse_little_room
from vmtax.workload import Site, Workload
from vmtax.workload.site import Link
from vmtax.workload.transfer import PROGRAM, Transfer

HOST = "host"  # the layer, and the host's path
# The names by which a VM of Hyper-V may know the host that runs it, and by which that knows the VM.
PHYSICAL_HOST, VM_NAME = (
    rf'reg query "HKLM\SOFTWARE\Microsoft\Virtual Machine\Guest\Parameters" /v {value}'
    for value in ("PhysicalHostName", "VirtualMachineName")
)
NETBIOS = 15  # characters of a host's name that the VM may know
COMPARED = (  # facts
    *("os", "windows_power_plan", "windows_vbs", "windows_hvci", "windows_defender_real_time"),
    "windows_mitigations_off",
)
FAR_END = "The far end of `transfer` is the machine that ran vmtax."
AS_THEY_ARE = "File caches stay as they are, and other programs of Windows go on."


@dataclass(frozen=True, slots=True)
class WindowsHosts:
    """The host and the VM, connected and read; nothing is on them yet."""

    local: LocalMachine
    host: WindowsLogin
    hyper_v: HyperVFacts
    vm: WindowsLogin | None = None  # None: only the host is measured
    vm_name: str = ""  # by which Hyper-V knows it; "": it does not say

    @property
    def layers(self) -> Mapping[str, WindowsLogin]:
        return {HOST: self.host, **({EXISTING: self.vm} if self.vm else {})}

    @property
    def running_vms(self) -> int:
        """Of Hyper-V, as far as it says."""
        return sum(guest.runs for guest in self.hyper_v.guests)

    @property
    def other_vms(self) -> int:
        """Those that run beside the one that is measured."""
        return max(0, self.running_vms - (self.vm is not None))

    def facts(self, layer: str) -> Json:
        """What is stored of one of them."""
        login = self.layers[layer]
        facts = login.facts.to_json() | {"uuid": login.uuid}
        if layer == HOST and self.hyper_v.is_host:  # under its own hypervisor, which says nothing about another one
            facts |= {"virtualized": None, "hyper_v_vms_running": self.running_vms}
        if layer == EXISTING and self.cards:
            facts["hyper_v_cards"] = [*self.cards]
        return facts

    @property
    def cards(self) -> Sequence[str]:
        """Those of the VM in words, as far as Hyper-V says; without the names of switches, which are private."""
        named = (guest.cards for guest in self.hyper_v.guests if self.vm_name and guest.name == self.vm_name)
        return [f"card {number}{_way_of(card)}" for number, card in enumerate(next(named, ()), start=1)]


@contextlib.contextmanager
def connected_to_windows(url: str, options: TestbedOptions, warn: Callable[[str], None]) -> Iterator[WindowsHosts]:
    """Log in to both. At exit, remove what is ours; `warn` gets what is left. Raises MachineError and CannotMeasure."""
    with contextlib.ExitStack() as stack:
        local = LocalMachine("local")
        stack.callback(close_machine, local, warn)

        def entered(name: str, path: str) -> WindowsMachine:
            machine = connect_guest(local, ssh_route(name), path)
            stack.callback(close_machine, machine, warn)
            if isinstance(machine, WindowsMachine):
                return machine
            raise CannotMeasure(
                f"{name}: is no Windows, and its host {url} is: programs are compared with the same build of them"
            )

        host = windows_login(url, entered(url, HOST), options.target.directory, "--disk-dir")
        login = None
        if vm := options.existing:
            login = windows_login(vm.name, entered(vm.name, EXISTING_PATH), vm.directory)
        name = _registered(login.there, VM_NAME) if login else ""
        found = WindowsHosts(local, host, read_hyper_v(host.there), login, name)
        refuse_strangers(found)
        yield found


def refuse_strangers(hosts: WindowsHosts) -> None:
    """Raises CannotMeasure unless the VM may be one of that host's."""
    vm = hosts.vm
    if vm is None:
        return
    if vm.facts.is_vm is False:
        raise CannotMeasure(f"{vm.name} is no VM: it says that no hypervisor runs it")
    if vm.uuid and vm.uuid == hosts.host.uuid:
        raise CannotMeasure(f"{vm.name} is the same machine as its host, {hosts.host.name}")
    named, own = _physical_host(vm.there), hosts.host.there.carry("hostname").stdout.strip().lower()
    if named and own and named.partition(".")[0][:NETBIOS] != own[:NETBIOS]:
        raise CannotMeasure(f"{vm.name} runs on {named}, and {hosts.host.name} is {own}: name that host")


def _physical_host(there: WindowsMachine) -> str:
    """As the VM knows it; "" if it does not."""
    return _registered(there, PHYSICAL_HOST).lower()


def _registered(there: WindowsMachine, query: str) -> str:
    """The text of a value of the registry; "" if there is none."""
    said = there.carry(query)
    return said.stdout.partition("REG_SZ")[2].strip() if said.code == 0 else ""


def fitted_to_windows(plan: Plan, hosts: WindowsHosts) -> Plan:
    """The plan with the VM's size and without workloads for which Windows has no programs.

    Raises CannotMeasure, StorageError, MachineError, and BadInput if no workload is left.
    """
    vm = hosts.vm
    plan = without_programs(sized(plan, vm) if vm else plan, vm or hosts.host)
    if wants_transfer(plan):
        for login in hosts.layers.values():
            senders.refuse_nowhere(login.name, login.there)
    if (cpus := hosts.host.facts.cpus or 0) < plan.guest.vcpus:
        whose = f"{vm.name} has" if vm else "the plan wants"
        raise CannotMeasure(f"{hosts.host.name} has {cpus} CPUs, and {whose} {plan.guest.vcpus}: not the same can work")
    for layer, login in hosts.layers.items():
        option = "--disk-dir" if layer == HOST else "--guest-dir"
        refuse_little_room(login.name, login.there, login.home, needs.disk_size(plan.build_workloads()), option)
    return plan


class WindowsTestbed:
    """Implements `Testbed`."""

    host_emulated = False
    power = None

    def __init__(self, plan: Plan, hosts: WindowsHosts, emit: Emit) -> None:
        """Brings the programs, and writes the disks under test in full. Raises MachineError and StorageError."""
        self.plan = plan
        self.hosts = hosts
        self.workloads: Sequence[Workload[Any]] = plan.build_workloads()
        programs, transfers = unpacked(hosts.local, emit), wants_transfer(plan)
        self.digests = {name: digest for name, digest in programs.items() if transfers or not name.startswith(PROGRAM)}
        for login in hosts.layers.values():
            carry_there(login.there, login.home, hosts.local, self.digests, emit)
        self.booted = {layer: login.facts.booted for layer, login in hosts.layers.items()}
        self.links: dict[str, Link] = {}
        if transfers:
            program = programs_here(hosts.local) / PROGRAM
            for layer, login in hosts.layers.items():
                self.links[layer] = senders.open_far_end(login.name, login.there, hosts.local, program)
        self.written: dict[str, FirstWrite] = {}
        if size := needs.disk_size(self.workloads):
            self.written = {layer: filled(login.there, size) for layer, login in hosts.layers.items()}

    @property
    def notes(self) -> Sequence[str]:
        at_once = f"Programs have up to {count_of(self.plan.guest.vcpus, 'thread')} at work"
        own = (f"{at_once}, as the VM has CPUs, and Windows chooses on which CPUs of the host they run.", AS_THEY_ARE)
        if self.hosts.vm is None:
            own = (f"{at_once}, and Windows chooses on which CPUs they run.", AS_THEY_ARE)
        far = (FAR_END,) if self.links else ()
        known = self.hosts.vm is None or _physical_host(self.hosts.vm.there)
        unseen = () if known else (f"That the VM runs on {self.hosts.host.name} is not verified.",)
        cards = tuple(f"The VM's {card}." for card in self.hosts.cards)
        return (*own, *far, *cards, *unseen, UNPROVED)

    @property
    def impossible(self) -> Mapping[str, str]:
        return {}

    def host_facts(self) -> dict[str, Json]:
        return {login.there.path: self._facts(layer) for layer, login in self.hosts.layers.items()}

    def _facts(self, layer: str) -> Json:
        facts = self.hosts.facts(layer) | {"windows_programs": dict(self.digests)}
        if layer in self.written:
            facts["disk"] = {"directory": str(self.hosts.layers[layer].there.directory)}
        return facts

    def guest_facts(self, running: RunningTreatment, guest: Guest) -> NoReturn:
        raise AssertionError("no guest is booted")

    def clone_facts(self, running: RunningTreatment, boot: ClonedBoot) -> NoReturn:
        raise AssertionError("nothing is cloned")

    def facts_path(self, treatment: Treatment, path: str) -> str:
        return path

    def differences(self, facts: Mapping[str, Json]) -> list[str]:
        return []  # there are no sides

    def layer_differences(self, facts: Mapping[str, Json]) -> list[str]:
        if self.hosts.vm is None:
            return []
        host, vm = facts[HOST], facts[EXISTING_PATH]
        return [
            f"{name.removeprefix('windows_').replace('_', ' ')} differs between the layers, so a part of any difference"
            f" may be its: host: {_word(host.get(name))}; VM: {_word(vm.get(name))}"
            for name in COMPARED
            if host.get(name) != vm.get(name)
        ]

    def first_writes(self, treatment: Treatment) -> tuple[str, Json]:
        written = self.written.get(treatment.layer)
        path = self._login(treatment).there.path
        return path, ({HOST: written.to_json()} if written else {})

    @contextlib.contextmanager
    def opened(self, treatment: Treatment) -> Iterator[RunningTreatment]:
        there = self._login(treatment).there
        if not there.answers():
            raise MachineError(f"{there.path}: does not answer as it did")
        self._refuse_restarted(treatment.layer, there)
        file = str(_file(there)) if treatment.layer in self.written else None
        link = self.links.get(treatment.layer)
        site = Site(there, treatment.layer, self.plan.guest.vcpus, (), disk=file, link=link)
        subject = RunningSubject(site, path=there.path)
        host = self.hosts.host.there
        ledger = WindowsLedger(host, self.hosts.vm_name if self.hosts.vm else None)
        yield RunningTreatment((subject,), host, meters=(ledger,), guest_meters=())

    def _refuse_restarted(self, layer: str, there: WindowsMachine) -> None:
        """Raises BootFailed once after each restart of that Windows: what was measured in its round was before it."""
        before, now = self.booted.get(layer), read_booted(there)
        self.booted[layer] = now or before
        if is_restarted(before, now):
            name = self.hosts.layers[layer].name
            raise BootFailed(f"{name} was restarted during the run, at {now} UTC: this round of it does not count")

    def check(self, *, ask: bool = True) -> None:
        if ask:
            for login in self.hosts.layers.values():
                _refuse_lost(login.there)

    def check_host(self, treatment: Treatment) -> None:
        _refuse_lost(self._login(treatment).there)

    def _login(self, treatment: Treatment) -> WindowsLogin:
        return self.hosts.layers[treatment.layer]


def _way_of(card: HyperVCard) -> str:
    """What it asks for, and whether it has a virtual function; that its packets go by that is not known."""
    asked = "" if card.weight is None else f" (IovWeight {card.weight})"
    if card.has_function is None:
        return f"{asked} may have a virtual function or not"
    return f"{asked} has {'a virtual function (SR-IOV)' if card.has_function else 'no virtual function'}"


def wants_transfer(plan: Plan) -> bool:
    return any(one.name == Transfer.name for one in plan.workloads)


def _refuse_lost(there: WindowsMachine) -> None:
    if not there.answers():
        raise MachineLost(f"{there.path}: does not answer as it did")


def _file(there: WindowsMachine) -> PureWindowsPath:
    return there.directory / DISK_FILE


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "not known" if value is None else str(value)
