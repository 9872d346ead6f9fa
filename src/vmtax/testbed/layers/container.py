"""Layer container: the same programs in containers on the host under test, as Docker and Kubernetes start them."""

from __future__ import annotations

import contextlib
import functools

from vmtax.container import Container, Runtime, end_commands, find_runtime, opened
from vmtax.core.records import Treatment
from vmtax.design.topology import Subject, topology
from vmtax.hypervisor import Guest
from vmtax.machine.guarded import GuardedMachine
from vmtax.network import PEER_ADDRESS
from vmtax.testbed.host import disks
from vmtax.testbed.parts import overcommit
from vmtax.testbed.session.base import Overdue, RunningSubject
from vmtax.testbed.session.examine import REAL_TIME
from vmtax.testbed.subjects.provisioned import Provisioned, port
from vmtax.workload import Link, Site
from vmtax.workload.wakeup import Wakeup


def open_layer(
    on: Provisioned, treatment: Treatment, stack: contextlib.ExitStack, guests: list[Guest]
) -> tuple[tuple[Guest, ...], list[RunningSubject]]:
    """No guests, and one subject for each container. Raises ContainerError and MachineError."""
    subjects, runtime = topology(treatment).subjects, find_runtime(on.host)
    return (), [_started(on, treatment, subject, len(subjects), runtime, stack) for subject in subjects]


def _started(
    on: Provisioned,
    treatment: Treatment,
    subject: Subject,
    count: int,
    runtime: Runtime,
    stack: contextlib.ExitStack,
) -> RunningSubject:
    """One of `count` containers that work at the same time, with a guest's CPUs and memory."""
    assert isinstance(on.host, GuardedMachine)  # whose guard ends what a container leaves
    disk = on.disks.of(treatment, subject.number) if on.disks else None
    data = disks.inside_userland(disk) if disk else None
    container = Container(
        subject.name,
        on.tree,
        overcommit.shared(on, treatment) or on.cpus_of_one(subject.number, count),
        on.plan.guest.memory,
        on.host.token,
        network=on.network.end if on.network else None,
        data=str(disk.path) if disk else None,
        inside=data,
        more_capabilities=(REAL_TIME,) if on.wants(Wakeup.name) else (),
        node=on.node(on.topology.equal(count * on.plan.guest.vcpus)),
    )
    prefix = stack.enter_context(opened(on.host, container, runtime))
    link = Link(on.host, prefix, PEER_ADDRESS, port(subject.number)) if on.network else None
    site = Site(on.host, "container", on.plan.guest.vcpus, prefix, data, link=link, lead=on.lead)
    overdue = Overdue(functools.partial(end_commands, on.host, prefix))
    return RunningSubject(site, offers=(overdue,), path=f"{on.host.path}/{subject.name}")
