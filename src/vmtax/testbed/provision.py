"""The networks and disks of a run, set up on the host under test before its first round; the guard undoes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from vmtax.core.events import Event
from vmtax.core.records import Treatment
from vmtax.core.units import format_room
from vmtax.design.factors import DIRECT
from vmtax.hypervisor import probe_spec
from vmtax.hypervisor.confine import Reach, alone, image_program
from vmtax.meter.memory import available_memory
from vmtax.network import END_ADDRESS, PEER_ADDRESS, Segment
from vmtax.storage import RawFile, Target, refuse_unsafe
from vmtax.storage.page_cache import GROWTH_BYTES, SHARE
from vmtax.testbed import disks
from vmtax.testbed.environment import CannotMeasure, Environment, carrier_disk_bytes, memory_bytes
from vmtax.workload.fio import Disk


def provision(environment: Environment, emit: Callable[[Event], None]) -> None:
    """Set up the networks and disks that the plan needs; the host's guard undoes it."""
    if not environment.is_root:
        environment.notes.append("The host's caches stay warm, because dropping them needs root there.")
    if environment.wants("net"):
        _open_network(environment)
    if environment.wants("disk"):
        _open_disks(environment, emit)


def _open_network(environment: Environment) -> None:
    host = environment.host
    if not environment.is_root:
        environment.notes.append(
            "Network: QEMU's user networking, because a bridge and a tap need root on the host under test. "
            "It is slower than a bridge, and a nested VM cannot be reached through it: run as root."
        )
        return
    token = environment.local.token[:6]
    segment = Segment(host, token)
    environment.peer = segment.add_end("peer", PEER_ADDRESS)
    environment.end = segment.add_end("end", END_ADDRESS)
    environment.segment = segment


def _open_disks(environment: Environment, emit: Callable[[Event], None]) -> None:
    host, plan, target = environment.host, environment.plan, environment.target
    size = environment.disk_size
    ours = target.directory / environment.local.fresh_name("disk")
    refuse_unsafe(host, target.directory)
    host.remove_later(ours)
    host.run("mkdir", "-m", "700", str(ours), remedy="name another directory with --disk-dir")
    treatments = _that_can_be(environment, target, plan.treatments()[0])
    _check_bounds(environment, treatments)
    environment.notes += _working_set(environment, treatments)
    if disks.wanted(treatments):
        mark = f"vmtax-{environment.local.token[:8]}"
        found = disks.provision(
            host,
            target,
            ours,
            mark,
            _qemu_img(environment, ours),
            treatments,
            size,
            _fresh_size(environment),
            emit,
            beside=carrier_disk_bytes(size) if "nested" in plan.layers else 0,
        )
        environment.disks = found
        if environment.qemu is not None:
            _refuse_none_left(environment, treatments, disks.why_not(found, treatments, environment.qemu))
            if plan.give_ups:
                possible = [treatment for treatment in treatments if treatment.name not in environment.impossible]
                environment.features = disks.features_of(found, possible, _trying(environment, ours), emit)
        environment.first_writes |= disks.fill_all(
            found, lambda disk: environment.userland(disk=disk), treatments, emit
        )
    if "nested" in plan.layers:
        environment.carrier_disk = RawFile.allocate(host, ours / "carrier.raw", carrier_disk_bytes(size))


def _that_can_be(environment: Environment, target: Target, treatments: Sequence[Treatment]) -> list[Treatment]:
    """Without those that the host lacks something for; raises CannotMeasure where none of a layer is left."""
    lacking = disks.not_here(environment.host, target, treatments)
    _refuse_none_left(environment, treatments, lacking)
    return [treatment for treatment in treatments if treatment.name not in lacking]


def _refuse_none_left(environment: Environment, treatments: Sequence[Treatment], impossible: Mapping[str, str]) -> None:
    """Note what cannot be; raises CannotMeasure where of a layer nothing else is left."""
    environment.impossible |= impossible
    left = {treatment.layer for treatment in treatments if treatment.name not in impossible}
    for treatment in treatments:
        if treatment.layer not in left:
            raise CannotMeasure(
                f"{environment.host.path}: {impossible[treatment.name]}; nothing of layer {treatment.layer} is left to "
                "measure: lay the disks elsewhere with --disk-dir, or name another level in the plan"
            )


def _trying(environment: Environment, scratch: PurePosixPath) -> disks.Trying:
    assert environment.qemu is not None and environment.accelerator is not None
    guest = None
    if environment.is_root:
        base = probe_spec(environment.qemu, environment.placed)
        guest = replace(base, accelerator=environment.accelerator.name)
    return disks.Trying(environment.qemu, guest, environment.credentials, environment.local, scratch)


def _check_bounds(environment: Environment, treatments: Sequence[Treatment]) -> None:
    """Raises CannotMeasure where a bounded page cache would hold half of the disk all the same."""
    if not any(treatment.levels.get("disk.page_cache") == "bounded" for treatment in treatments):
        return
    assert environment.accelerator is not None
    needed = SHARE * GROWTH_BYTES[environment.accelerator.name]
    if environment.disk_size < needed:
        raise CannotMeasure(
            f"disk.page_cache=bounded means nothing for a disk of {environment.disk_size / 2**20:.0f} MiB: what QEMU "
            f"itself may grow by would hold it; workloads.disk.size must be {needed / 2**20:.0f} MiB or more"
        )


def _working_set(environment: Environment, treatments: Sequence[Treatment]) -> list[str]:
    """A note that tells whether the host's page cache can hold all of a disk, where some treatment uses it."""
    # A nested guest's disk is cached by its carrier.
    guests = [treatment for treatment in treatments if treatment.layer == "vm"]
    cached = [treatment for treatment in guests if treatment.levels.get("disk.cache", "none") not in DIRECT]
    available = available_memory(environment.host)
    if not cached or available is None:
        return []
    room = max(available - memory_bytes(environment.plan, "vm"), 0)
    modes = ", ".join(dict.fromkeys(treatment.levels["disk.cache"] for treatment in cached))
    below = environment.disk_size <= room
    text = f"Working set {'below' if below else 'above'} the host's page cache, where that is used (cache {modes}): "
    text += f"{format_room(environment.disk_size)} of disk, {format_room(room)} of memory for it; "
    text += "what was read or written once is read from memory." if below else "not all of it can be kept there."
    if any(treatment.levels.get("disk.page_cache") == "bounded" for treatment in cached):
        text += f" With disk.page_cache=bounded the working set lies above it: there is room for 1/{SHARE}."
    return [text]


def _fresh_size(environment: Environment) -> int:
    return max((w.parameters.fresh_bytes for w in environment.workloads if isinstance(w, Disk)), default=0)


def _qemu_img(environment: Environment, directory: PurePosixPath) -> tuple[str, ...]:
    """The image's own, for images in `directory`: the host need not have one."""
    assert environment.placed.tree is not None
    ours = (str(directory), str(environment.host.scratch))
    return image_program(environment.placed.tree, "qemu-img", Reach(write=ours), *alone(root=environment.is_root))
