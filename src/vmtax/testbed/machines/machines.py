"""The testbed of real machines: one host, two hosts, or one host with two QEMUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from vmtax.core.events import NoticeEvent
from vmtax.core.layers import CLONE, EXISTING
from vmtax.core.records import Json, Treatment
from vmtax.hypervisor import Credentials, Guest
from vmtax.image import kernel, postgresql
from vmtax.image.cache import Image
from vmtax.image.place import place
from vmtax.meter.facts import qemu_facts, read_facts
from vmtax.plan.schema import Plan
from vmtax.testbed import layers
from vmtax.testbed.host import needs
from vmtax.testbed.machines.interleave import examine_all, provision_all
from vmtax.testbed.machines.provision import check_bounds
from vmtax.testbed.parts import destination
from vmtax.testbed.session.base import RunningTreatment
from vmtax.testbed.session.cloning import ClonedBoot, Cloning
from vmtax.testbed.session.examine import Examined
from vmtax.testbed.session.power import Power
from vmtax.testbed.session.session import Emit, Hosts, Session, TestbedOptions, Wired
from vmtax.testbed.session.watching import Watching
from vmtax.testbed.subjects import existing, host_facts
from vmtax.testbed.subjects.provisioned import Provisioned
from vmtax.workload import Workload
from vmtax.workload.build import Build


class Machines:
    """Implements `Testbed`."""

    def __init__(self, sides: Sequence[Provisioned]) -> None:
        """`sides`: the hosts, or QEMUs, on which treatments are measured, the plan's own first."""
        self.sides = sides

    @property
    def own(self) -> Provisioned:
        """The plan's own side; the other side measures the same."""
        return self.sides[0]

    def side_of(self, treatment: Treatment) -> Provisioned:
        return next(side for side in self.sides if side.side == treatment.side)

    @property
    def plan(self) -> Plan:
        return self.own.plan

    @property
    def workloads(self) -> Sequence[Workload[Any]]:
        return self.own.workloads

    @property
    def host_emulated(self) -> bool:
        return any(side.host_emulated for side in self.sides)

    @property
    def power(self) -> Power | None:
        return self.own.session.power

    @property
    def notes(self) -> Sequence[str]:
        return [note for side in self.sides for note in side.notes]

    @property
    def impossible(self) -> Mapping[str, str]:
        return {name: why for side in self.sides for name, why in side.impossible.items()}

    def host_facts(self) -> dict[str, Json]:
        return host_facts.host_facts(self.sides)

    def guest_facts(self, running: RunningTreatment, guest: Guest) -> Json:
        facts = read_facts(guest.machine)
        if guest in running.outer:
            facts["qemu"] = qemu_facts(guest.machine)
        facts["command_line"] = list(guest.argv)
        return facts

    def clone_facts(self, running: RunningTreatment, boot: ClonedBoot) -> Json:
        cloning = self.own.cloning
        assert cloning is not None, "what is recorded is a clone of it"
        return cloning.facts(running.subjects[0].site.machine)

    def facts_path(self, treatment: Treatment, path: str) -> str:
        return self.side_of(treatment).facts_path(path)

    def differences(self, facts: Mapping[str, Json]) -> list[str]:
        return host_facts.side_differences(facts, self.sides)

    def layer_differences(self, facts: Mapping[str, Json]) -> list[str]:
        return host_facts.layer_differences(facts, self.sides)

    def first_writes(self, treatment: Treatment) -> tuple[str, Json]:
        side = self.side_of(treatment)
        if treatment.layer == EXISTING and side.existing is not None:
            side = side.existing
        return side.host.path, {layer: written.to_json() for layer, written in side.first_writes.items()}

    def opened(self, treatment: Treatment) -> AbstractContextManager[RunningTreatment]:
        return layers.opened(self.side_of(treatment), treatment)

    def check(self, *, ask: bool = True) -> None:
        for side in self.sides:
            side.check_guards(ask=ask)

    def check_host(self, treatment: Treatment) -> None:
        side = self.side_of(treatment)
        side.host.try_run("true", timeout=20)
        if treatment.layer == EXISTING and side.existing is not None:  # entered once, so it is lost for the run
            side.existing.host.answers()
        if treatment.layer == CLONE and side.cloning is not None:
            side.cloning.check()
        if treatment.layer == EXISTING and side.watching is not None:
            side.watching.check()
        side.check_guards()


def examined(hosts: Hosts, image: Image, emit: Emit, plan: Plan, options: TestbedOptions) -> list[Examined]:
    """The hosts, or QEMUs, on which the plan will be measured, the plan's own first. Nothing is set up there.

    Raises CannotMeasure, and what its parts raise.
    """
    builds = any(choice.name == Build.name for choice in plan.workloads)
    pack = kernel.PACK.current() if builds else None
    session = Session(
        hosts.local,
        image,
        Credentials.make(hosts.local),
        emit,
        kernel_pack=pack,
        postgresql_pack=postgresql.PACK.current() if needs.databases(plan) else None,
        wired=_wired(hosts, image, emit, options),
        power=Power(plan.host, options.power_cut) if options.power_cut else None,
    )
    sides = examine_all(hosts, session, plan, options)
    if hosts.destination is not None:
        sides = [replace(side, destination=destination.examined(side, hosts.destination, options)) for side in sides]
    if isinstance(vm := hosts.existing, Cloning):
        vm.take(hosts.local, emit)
        sides = [replace(side, cloning=vm, notes=(*side.notes, *vm.notes)) for side in sides]
    elif isinstance(vm, Watching):
        sides = [replace(side, watching=vm, notes=(*side.notes, *vm.notes)) for side in sides]
    elif vm is not None:
        sides = [replace(side, existing=existing.examined(side, vm, options)) for side in sides]
    for side in sides:
        check_bounds(side)
    return sides


def _wired(hosts: Hosts, image: Image, emit: Emit, options: TestbedOptions) -> Wired | None:
    """The peer with the image on it, if the command line names one."""
    wire, peer = options.wire, hosts.peer
    if wire is None or peer is None:
        return None
    tree = place(peer, hosts.local, image, emit).tree
    assert tree is not None, "an image on a host has its tree"
    return Wired(peer, wire, tree)


def set_up(
    sides: Sequence[Examined], emit: Emit, check: Callable[[Mapping[str, Json]], None] = lambda facts: None
) -> Machines:
    """Set up on the examined hosts what the plan needs; the hosts' guards undo it.

    `check` gets the hosts' facts before anything is made. Raises what it and the parts raise.
    """
    check(host_facts.host_facts(sides))
    testbed = Machines(provision_all(sides))
    for note in testbed.notes:
        emit(NoticeEvent(note))
    return testbed
