"""Layer host: sets of processes on the host under test, as it is."""

from __future__ import annotations

import contextlib

from vmtax.core.records import Treatment
from vmtax.design.topology import topology
from vmtax.hypervisor import Guest
from vmtax.storage import Backing
from vmtax.testbed.host import disks
from vmtax.testbed.host.cpus import ONE, Sets
from vmtax.testbed.parts.overcommit import sets_of
from vmtax.testbed.session.base import RunningSubject
from vmtax.testbed.subjects import directories
from vmtax.testbed.subjects.provisioned import Provisioned
from vmtax.workload import Site


def open_layer(
    on: Provisioned, treatment: Treatment, stack: contextlib.ExitStack, guests: list[Guest]
) -> tuple[tuple[Guest, ...], list[RunningSubject]]:
    """No guests, and one subject for each set of processes that work at the same time."""
    subjects = topology(treatment).subjects
    sets = sets_of(treatment)
    found = []
    for subject in subjects:
        disk = on.disks.of(treatment, subject.number) if on.disks else None
        made = directories.on_host(on, site(on, disk, subject.number, sets), disk, stack)
        found.append(RunningSubject(made, path=_path(on, subject.number)))
    return (), found


def site(on: Provisioned, disk: Backing | None, number: int = 1, sets: Sets = ONE) -> Site:
    """Where one of the sets of processes works that work on the machine at the same time."""
    return Site(
        machine=on.host,
        layer="host",
        vcpus=on.plan.guest.vcpus,
        prefix=on.userland(disk=disk, sets=sets),
        disk=disks.inside_userland(disk) if disk else None,
        kernel_pack=on.kernel_userland(sets),
        link=on.host_link(number, sets),
        lead=on.lead,
    )


def _path(on: Provisioned, number: int) -> str:
    return on.host.path if number == 1 else f"{on.host.path}-{number}"
