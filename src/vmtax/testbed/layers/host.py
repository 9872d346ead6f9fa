"""Layer host: sets of processes on the host under test, as it is."""

from __future__ import annotations

import contextlib

from vmtax.core.records import Treatment
from vmtax.design.topology import topology
from vmtax.hypervisor import Guest
from vmtax.testbed import disks
from vmtax.testbed.base import RunningSubject
from vmtax.testbed.provisioned import Provisioned
from vmtax.workload import Site


def open_layer(
    on: Provisioned, treatment: Treatment, stack: contextlib.ExitStack, guests: list[Guest]
) -> tuple[tuple[Guest, ...], list[RunningSubject]]:
    """No guests, and one subject for each set of processes that work at the same time."""
    subjects = topology(treatment).subjects
    return (), [_set_of(on, treatment, subject.number, len(subjects)) for subject in subjects]


def _set_of(on: Provisioned, treatment: Treatment, number: int, sets: int) -> RunningSubject:
    """One of the sets of processes that work on the host at the same time."""
    disk = on.disks.of(treatment, number) if on.disks else None
    site = Site(
        machine=on.host,
        layer="host",
        vcpus=on.plan.guest.vcpus,
        prefix=on.userland(disk=disk, sets=sets),
        disk=disks.inside_userland(disk) if disk else None,
        kernel_pack=on.kernel_userland(sets),
        link=on.host_link(number, sets),
        lead=on.lead,
    )
    return RunningSubject(site, path=on.host.path if number == 1 else f"{on.host.path}-{number}")
