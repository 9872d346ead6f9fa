"""The disk under test, and the host's page cache around it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace

from vmtax.core.layers import GUESTS
from vmtax.core.records import Treatment
from vmtax.design.disk import THREADED, DiskSettings
from vmtax.design.size import VCPUS
from vmtax.hypervisor import FRESH_ID, Drive, Guest
from vmtax.storage.page_cache import GROWTH_BYTES, SHARE, Bound
from vmtax.testbed.host import disks
from vmtax.testbed.host.disks import has_disk
from vmtax.testbed.parts.part import Order, Part, Request
from vmtax.testbed.subjects.provisioned import Provisioned

_numbers = itertools.count(1)


class DiskPart(Part):
    """The disks of which the speed is measured."""

    def lacking(self, request: Request) -> Mapping[str, str]:
        reasons = {each.name: _why_no_threads(request, each) for each in request.treatments if has_disk(each)}
        return {name: why for name, why in reasons.items() if why}

    def shape(self, on: Provisioned, treatment: Treatment, order: Order, stack: contextlib.ExitStack) -> Order:
        is_shared = DiskSettings.of(treatment.levels).is_shared
        if on.disks is None or not on.fills_disks or is_shared:
            return order
        return order.with_disks(*_drives(on.disks, treatment, order.number, stack))


def _why_no_threads(request: Request, treatment: Treatment) -> str:
    """Why its disk cannot have as many iothreads as it asks for; "" if it can. The image's QEMU, which nested guests
    have, can.
    """
    settings = DiskSettings.of(treatment.levels)
    count = settings.iothread
    if treatment.layer not in GUESTS or count < 2 or settings.bus not in THREADED:
        return ""
    queues = settings.queues or int(treatment.levels.get(VCPUS, request.plan.guest.vcpus))
    if queues < count:
        return f"disk.iothread={count} takes as many queues, and the disk has {queues}: add disk.queues={count}"
    asked = request.qemu if treatment.layer == "vm" else None
    why = asked.why_no_mapping(request.host, settings.bus) if asked is not None else None
    return f"disk.iothread={count}: {why}" if why else ""


def _drives(made: disks.Disks, treatment: Treatment, number: int, stack: contextlib.ExitStack) -> Iterator[Drive]:
    """The disk under test of the guest with that number and, if one is needed, a disk that was never written."""
    yield disks.drive(treatment, made.of(treatment, number))
    if (fresh := made.fresh(treatment, number)) is not None:
        stack.callback(fresh.remove)
        yield replace(disks.drive(treatment, fresh.disk), name=FRESH_ID)


class PageCache(Part):
    """A bound of the host's page cache for one guest's disk."""

    def shape(self, on: Provisioned, treatment: Treatment, order: Order, stack: contextlib.ExitStack) -> Order:
        if not DiskSettings.of(treatment.levels).bounded:
            return order
        bound = Bound.make(on.host, f"vmtax-{on.session.local.token[:8]}-{next(_numbers)}")
        stack.callback(bound.undoing.undo)

        def limit(guest: Guest) -> None:
            bound.set_limit(on.disk_size // SHARE + GROWTH_BYTES[on.guests.accelerator.name])

        within = (*order.spec.within, *bound.enter)
        return replace(order, spec=replace(order.spec, within=within, preallocated=True)).then(limit)
