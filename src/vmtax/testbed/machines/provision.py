"""Set up the networks and disks of a run on a host before the first round; the guard undoes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from vmtax.core.records import Treatment
from vmtax.core.units import format_room
from vmtax.design.disk import DiskSettings
from vmtax.hypervisor import probe_spec
from vmtax.hypervisor.confine import Reach, alone, image_program
from vmtax.image import kernel
from vmtax.image.place import place_pack
from vmtax.machine import Machine
from vmtax.meter.memory import available_memory
from vmtax.meter.network_storage import NOTE, network_storage
from vmtax.plan.guests import guests_at_once
from vmtax.storage import DISK_DIRECTORY, Ground, Provisioner, RawFile, Target, page_cache, refuse_unsafe
from vmtax.storage.page_cache import GROWTH_BYTES, SHARE
from vmtax.storage.undo import UNMOUNT
from vmtax.testbed import parts
from vmtax.testbed.host import disks, needs
from vmtax.testbed.host.carrier import CarrierDisk
from vmtax.testbed.host.disks import Disks
from vmtax.testbed.network.networks import open_network
from vmtax.testbed.parts import Request, destination
from vmtax.testbed.session.examine import Examined
from vmtax.testbed.session.session import CannotMeasure
from vmtax.testbed.storage import host_disk
from vmtax.testbed.storage.cutting import Checking
from vmtax.testbed.storage.databases import open_pack
from vmtax.testbed.subjects import servers
from vmtax.testbed.subjects.provisioned import KernelPack, Provisioned
from vmtax.testbed.subjects.windows import is_windows, provision_windows, with_links
from vmtax.workload.durability import Durability

TRIED_BYTES = 2**20  # size of a disk that is only opened and closed


def provision(on: Examined) -> Provisioned:
    """Set up the networks and disks that the plan needs; the host's guard undoes it."""
    here = Provisioned(**vars(on))
    notes: list[str] = []
    if on.why_warm:
        notes.append(f"The host's caches stay warm, because {on.why_warm}.")
    if on.networked and not on.is_root:
        notes.append(
            "Network: QEMU's user networking, because a bridge and a tap need root on the host under test. "
            "It is slower than a bridge, and a nested VM cannot be reached through it: run as root."
        )
    if on.wants("build"):
        here = replace(here, kernel_pack=_open_kernel_pack(on))
    here = replace(here, database_pack=open_pack(on.session, on.host, on.plan))
    here = _with_parts(here)
    notes += parts.notes(request_of(on).without(here.impossible))
    if on.networked and on.is_root:
        possible = [treatment for treatment in on.plan.treatments()[0] if treatment.name not in here.impossible]
        here = replace(here, network=open_network(here, possible))
        notes += servers.notes(here)
    if wired := on.session.wired:
        ends = wired.wire
        notes.append(f"The network goes over the card {ends.card} to the card {ends.peer_card} of {ends.peer}.")
    if there := on.destination:
        notes += filter(None, (destination.NOTE.format(there.wanted), there.note))
    if on.has_disks and not on.is_plugged:
        here = _open_disks(here, notes)
    if on.wants(Durability.name):
        is_here = on.host is on.session.local
        spec = replace(probe_spec(on.guests.qemu, on.placed), accelerator=on.guests.accelerator.name)
        directory = on.target.directory if is_here else DISK_DIRECTORY
        logged = host_disk.find_logged(on.lab, on.host, on.target)
        checking = Checking.make(on.session, spec if is_here else None, directory, on.plan, logged, here.impossible)
        here = replace(here, checking=checking)
        tried = [treatment for treatment in on.plan.treatments()[0] if treatment.name not in here.impossible]
        notes += host_disk.notes(on.lab, logged, tried)
    if on.cloning is not None and here.disks_directory is not None:
        on.host.run("chmod", "711", str(here.disks_directory))  # QEMU of libvirt runs as a user of its own
    if on.existing is not None:
        vm = provision_windows(on.existing) if is_windows(on.existing) else provision(on.existing)
        here, vm = with_links(here, vm)
        here = replace(here, existing=vm)
        notes += [f"Existing VM: {note}" for note in vm.notes]
        if vm.is_plugged and here.disks_directory is not None:
            on.host.run("chmod", "711", str(here.disks_directory))  # QEMU of libvirt runs as a user of its own
    return replace(here, notes=(*on.notes, *notes))


def request_of(on: Examined) -> Request:
    """What is to be measured on that host."""
    there, platform = on.destination, on.platform
    return Request(
        on.host,
        on.plan,
        on.plan.treatments()[0],
        qemu=platform.qemu if platform else None,
        accelerator=platform.accelerator.name if platform else None,
        card=on.card,
        wire=on.session.wired.wire if on.session.wired else None,
        cuts_power=on.session.power is not None,
        destination=there.machine if there else None,
        far_card=there.wanted.far_card if there else "",
    )


def _with_parts(on: Provisioned) -> Provisioned:
    """Set up what lasts for the run, and record the treatments that cannot be measured there."""
    request = request_of(on)
    impossible = parts.lacking(request)
    impossible |= on.cloning.impossible(request.treatments) if on.cloning else {}
    impossible |= parts.take(request.without(impossible))
    refuse_none_left(on.host, request.treatments, impossible)
    return replace(on, impossible=impossible)


def not_opened(on: Examined) -> dict[str, str]:
    """Guest treatments whose disk QEMU does not open as they ask in the disks' directory -> QEMU's own reason.

    An image of TRIED_BYTES of each kind is made there, opened by a paused QEMU and removed, so that the answer is known
    before the user is asked. Disks on a file system, volume or device that the run makes are tried once that exists.
    Raises StorageError, CommandFailed and QemuError.
    """
    if on.platform is None or not on.has_disks:
        return {}
    guests = [
        one
        for one in on.plan.treatments()[0]
        if one.layer == "vm" and disks.has_disk(one) and disks.backing_of(one).lies_in_directory
    ]
    if not guests:
        return {}
    ours = on.target.directory / on.session.local.fresh_name("trial")
    removing = on.host.remove_later(ours)
    try:
        on.host.run("mkdir", "-m", "700", str(ours), remedy="name another directory with --disk-dir")
        provisioner = Provisioner(Ground(on.host, Target(on.target.directory), ours, ""), _qemu_img(on, ours))
        tried = {key: provisioner.make(key[0], TRIED_BYTES) for key in disks.wanted(guests)}
        logged = on.wants(Durability.name)
        return disks.why_not(Disks(on.host, provisioner, made=tried), guests, on.guests.qemu, logged=logged)
    finally:
        removing.undo()


def _open_kernel_pack(on: Examined) -> KernelPack:
    """Place the kernel pack on the host, and mount it if the host itself builds: from the same file system as in a
    guest.
    """
    host, session = on.host, on.session
    pack = session.kernel_pack or kernel.PACK.build(session.emit)
    file = place_pack(host, session.local, pack, session.emit)
    if "host" not in on.plan.layers:
        return KernelPack(pack, file, None)
    mount = host.scratch / "kernel"
    host.run("mkdir", str(mount))
    host.undo_later(*UNMOUNT, str(mount))
    remedy = "the host's kernel must have erofs and loop devices; or measure without the host: --layers vm"
    host.run("mount", "-t", "erofs", "-o", "ro,loop", file, str(mount), remedy=remedy)
    return KernelPack(pack, file, str(mount))


def _open_disks(on: Provisioned, notes: list[str]) -> Provisioned:
    """`notes` gets what a reader must know about the disks."""
    host, plan, size, emit = on.host, on.plan, on.disk_size, on.session.emit
    ours = on.target.directory / on.session.local.fresh_name("disk")
    refuse_unsafe(host, on.target.directory)
    host.remove_later(ours)
    host.run("mkdir", "-m", "700", str(ours), remedy="name another directory with --disk-dir")
    treatments = plan.treatments()[0]
    impossible = {**on.impossible, **disks.not_here(host, on.target, treatments)}
    refuse_none_left(host, treatments, impossible)
    treatments = [treatment for treatment in treatments if treatment.name not in impossible]
    notes += _working_set(on, treatments)
    if kind := network_storage(on.target.facts(host)):
        notes.append(NOTE.format(kind=kind))
    guests = guests_at_once(plan)
    # An outer VM that will lose its power gets a new disk for each boot instead.
    outer = needs.outer_disks(plan, size) if "nested" in plan.layers and on.fills_disks else []
    if disks.wanted(treatments):
        fresh, (_, spare, _) = needs.fresh_size(on.workloads), needs.disk_sizes(plan)
        order = disks.DiskOrder(treatments, size, fresh, spare, sum(outer))
        mark = f"vmtax-{on.session.local.token[:8]}"
        made = disks.provision(host, on.target, ours, mark, _qemu_img(on, ours), order, emit)
        on = replace(on, disks=made)
        if on.platform is not None:
            logged = on.wants(Durability.name)
            impossible |= disks.why_not(made, treatments, on.platform.qemu, logged=logged)
            refuse_none_left(host, treatments, impossible)
            if plan.give_ups:
                possible = [treatment for treatment in treatments if treatment.name not in impossible]
                on = replace(on, features=disks.features_of(made, possible, _trying(on, ours), emit))
        if on.fills_disks:
            on = replace(on, written=disks.fill_all(made, lambda disk: on.userland(disk=disk), treatments, emit))
    carriers = tuple(
        CarrierDisk(RawFile.allocate(host, ours / f"carrier{number}.raw", room), size, guests if number == 1 else 1)
        for number, room in enumerate(outer, 1)
    )
    return replace(on, carrier_disks=carriers, impossible=impossible, disks_directory=ours)


def refuse_none_left(host: Machine, treatments: Sequence[Treatment], impossible: Mapping[str, str]) -> None:
    """Raises CannotMeasure if no treatment of a layer is left."""
    left = {treatment.layer for treatment in treatments if treatment.name not in impossible}
    for treatment in treatments:
        if treatment.layer not in left:
            why = impossible[treatment.name]
            elsewhere = ", or put the disk elsewhere with --disk-dir" if "disk." in why else ""
            raise CannotMeasure(
                f"{host.path}: {why}; nothing of layer {treatment.layer} is left to measure: name another level"
                f"{elsewhere}"
            )


def _trying(on: Examined, scratch: PurePosixPath) -> disks.Trying:
    guest = None
    if on.is_root:
        guest = replace(probe_spec(on.guests.qemu, on.placed), accelerator=on.guests.accelerator.name)
    return disks.Trying(on.guests.qemu, guest, on.session.credentials, on.session.local, scratch)


def check_bounds(on: Examined) -> None:
    """Raises CannotMeasure if a bounded page cache could still hold half of the disk."""
    bounded = any(DiskSettings.of(treatment.levels).bounded for treatment in on.plan.treatments()[0])
    if not (bounded and on.has_disks) or page_cache.why_not(on.host) is not None:
        return
    needed = SHARE * GROWTH_BYTES[on.guests.accelerator.name]
    if on.disk_size < needed:
        raise CannotMeasure(
            f"disk.page_cache=bounded needs a disk of {needed / 2**20:.0f} MiB or more (workloads.disk.size), and this"
            f" one has {on.disk_size / 2**20:.0f} MiB: what QEMU itself may grow by would hold it"
        )


def _working_set(on: Examined, treatments: Sequence[Treatment]) -> list[str]:
    """A note that says whether the host's page cache can hold all of a disk, if some treatment uses that cache."""
    # The disk of a nested guest is cached by its outer VM.
    guests = [DiskSettings.of(treatment.levels) for treatment in treatments if treatment.layer == "vm"]
    cached = [settings for settings in guests if not settings.cache.is_direct]
    available = available_memory(on.host)
    if not cached or available is None:
        return []
    room = max(available - needs.memory_bytes(on.plan, "vm"), 0)
    modes = ", ".join(dict.fromkeys(settings.cache for settings in cached))
    size = on.disk_size * guests_at_once(on.plan)
    below = size <= room
    text = f"Working set {'below' if below else 'above'} the host's page cache, where that is used (cache {modes}): "
    text += f"{format_room(size)} of disk, {format_room(room)} of memory for it; "
    text += "what was read or written once is read from memory." if below else "not all of it can be kept there."
    if any(settings.bounded for settings in cached):
        text += f" With disk.page_cache=bounded the working set lies above it: there is room for 1/{SHARE}."
    return [text]


def _qemu_img(on: Examined, directory: PurePosixPath) -> tuple[str, ...]:
    """The image's own qemu-img, for images in `directory`: the host may have none."""
    reach = Reach(write=(str(directory), str(on.host.scratch)))
    return image_program(on.tree, "qemu-img", reach, *alone(root=on.is_root), bubblewrap=on.placed.bubblewrap)
