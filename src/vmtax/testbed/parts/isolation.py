"""The factor `cpu.isolation`: no other program of the host runs on the CPUs to which a guest's CPUs are pinned.

They form an isolated partition (cpuset of cgroup v2) while the guest runs. Its members are the threads of the guest's
CPUs alone: it is a threaded group below the root, so QEMU is started in the root, and its other threads stay there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import PurePosixPath

from vmtax.core.records import Treatment
from vmtax.core.units import cpu_list, cpu_numbers
from vmtax.design.guest import GuestSettings
from vmtax.hypervisor import BootFailed, Guest
from vmtax.machine.answer import object_or_none
from vmtax.machine.local import ISOLATED, PYTHON
from vmtax.meter.text import fields, whole
from vmtax.plan.guests import sized
from vmtax.testbed.host.cpus import read
from vmtax.testbed.parts.part import Order, Part, Request
from vmtax.testbed.parts.pinning import cpus_of, pin
from vmtax.testbed.session.examine import is_root
from vmtax.testbed.subjects.provisioned import Provisioned

ISOLATION = GuestSettings.factors()["isolated"].name
LEVEL = f"{ISOLATION}=partition"
ROOT = PurePosixPath("/sys/fs/cgroup")
LEAST_KERNEL = (6, 2)
# Prints the kernel's release, the controllers of cgroup v2, and whether this is a part of the machine's groups.
QUESTION = (
    *("sh", "-c"),
    f"echo release: $(uname -r); test ! -e {ROOT}/cgroup.controllers || echo has: $(cat {ROOT}/cgroup.controllers);"
    f" test ! -e {ROOT}/cgroup.type || echo part: of them",
)
INTO_ROOT = ("sh", "-c", f'echo $$ > {ROOT}/cgroup.procs && exec "$@"', "sh")


class Isolation(Part):
    """CPUs of the host for guests alone."""

    def lacking(self, request: Request) -> Mapping[str, str]:
        wanted = [each.name for each in _isolated(request)]
        if not wanted:
            return {}
        why = why_not(request.host.try_run(*QUESTION).stdout, root=is_root(request.host))
        return dict.fromkeys(wanted, f"{LEVEL} {why}") if why else {}

    def announced(self, request: Request) -> Sequence[str]:
        taken = [
            GuestSettings.of(each.levels).count * sized(request.plan, each.levels).guest.vcpus
            for each in _isolated(request)
        ]
        if not taken:
            return ()
        topology = read(request.host)
        at_boot = cpu_list(topology.isolated)
        return (
            f"{max(taken)} of the {len(topology.cpus)} CPUs of {request.host.path} for guests with {LEVEL} alone: while"
            " one runs, the kernel moves every other program off them; given back"
            + (f". Meanwhile it lets programs run on the CPUs of isolcpus= ({at_boot})" if at_boot else ""),
        )

    def shape(self, on: Provisioned, treatment: Treatment, order: Order, stack: contextlib.ExitStack) -> Order:
        settings = order.spec.settings
        if not (settings.isolated and settings.pinned):
            return order
        undoing = on.host.undo_later(*_step("end", on, order.number), str(_record(on, order.number)))
        stack.callback(undoing.undo)
        spec = replace(order.spec, within=(*order.spec.within, *INTO_ROOT))
        return replace(order, spec=spec).then(lambda guest: isolate(on, guest, order.number, order.count))


def why_not(said: str, *, root: bool) -> str:
    """Why CPUs cannot be isolated there, judging by what QUESTION prints; empty if they can."""
    found = fields(said)
    if "cpuset" not in found.get("has", "").split():
        why = "it has no cpuset" if "has" in found else "its control groups are of version 1"
        return f"needs cgroup v2 with cpuset on the host, and {why}: boot it with systemd.unified_cgroup_hierarchy=1"
    if "part" in found:
        return "needs the host's own control groups, and a container sees only a part of them: run it on the host"
    release = found.get("release", "")
    if [whole(part) or 0 for part in release.split(".")[:2]] < [*LEAST_KERNEL]:
        older = "older ones forget to which CPUs other programs are held"
        return f"needs Linux {'.'.join(map(str, LEAST_KERNEL))}, and the host has {release or 'another'}: {older}"
    return "" if root else "needs root, to move other programs off those CPUs"


def isolate(on: Provisioned, guest: Guest, number: int, guests: int) -> None:
    """Give a guest's CPUs those of the host alone to which they are pinned. Raises BootFailed if the kernel refuses."""
    cpus, _ = cpus_of(on.topology, guest, number, guests)
    ids = [str(thread.id) for thread in guest.threads(on.host) if thread.vcpu is not None]
    done = on.host.try_run(*_step("begin", on, number), cpu_list(cpus), str(_record(on, number)), *ids)
    if said := done.stdout.strip() or (done.stderr.strip().splitlines() or ["?"])[-1] * (not done.ok):
        raise BootFailed(f"{guest.path}: {LEVEL} was not obtained: {said}")
    pin(on.host, on.topology, guest, number, guests)  # who moves into a group may run on all of its CPUs


def readings(on: Provisioned, number: int) -> dict[str, float]:
    """isolated_cpus: how many CPUs the guest's CPUs have alone; strangers: how many threads of other programs may run
    there; {} if there is no such partition.
    """
    found = object_or_none(on.host.try_run(*_step("look", on, number)).stdout) or {}
    cpus, strangers = cpu_numbers(found.get("cpus")), whole(found.get("strangers"))
    if found.get("partition") != "isolated" or strangers is None:
        return {}
    return {"isolated_cpus": len(cpus) if found.get("threads") == len(cpus) else 0, "strangers": strangers}


def _isolated(request: Request) -> Iterator[Treatment]:
    for each in request.guests:
        settings = GuestSettings.of(each.levels)
        if settings.isolated and settings.pinned:
            yield each


def _step(step: str, on: Provisioned, number: int) -> tuple[str, ...]:
    """The command of `partition.py` for the partition of the guest of that number."""
    directory = ROOT / f"vmtax-{on.session.local.token[:8]}-cpus-{number}"
    return (PYTHON, *ISOLATED, _program(), step, str(directory))


def _record(on: Provisioned, number: int) -> PurePosixPath:
    """Where threads ran before."""
    return on.host.scratch / f"cpus-{number}.json"


@cache
def _program() -> str:
    return resources.files("vmtax.testbed.host").joinpath("partition.py").read_text(encoding="utf-8")
