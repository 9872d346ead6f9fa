"""The factor `guest.balloon`: a balloon takes memory back from a guest that runs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping

from vmtax.core.records import Treatment
from vmtax.core.units import format_room, parse_bytes
from vmtax.design.guest import GuestSettings
from vmtax.design.size import MEMORY
from vmtax.hypervisor import BootFailed, Guest
from vmtax.meter.memory import total_memory
from vmtax.testbed.host import needs
from vmtax.testbed.parts.part import Order, Part, Request
from vmtax.testbed.subjects.provisioned import Provisioned

BALLOON = GuestSettings.factors()["balloon"].name
LEAST_LEFT = 2**28  # bytes that a guest keeps, for its kernel and a workload
TOLERANCE = 2**24  # bytes that a balloon may lack
STANDS_STILL = 30.0  # seconds without a page, after which it takes no more
LOOK_SECONDS = 0.1


class Balloon(Part):
    """A balloon in the guest, which is inflated before anything is measured."""

    def lacking(self, request: Request) -> Mapping[str, str]:
        least = 2 * max(LEAST_LEFT, needs.work_memory(request.plan))
        sizes = {
            each.name: parse_bytes(each.levels[MEMORY]) if MEMORY in each.levels else request.plan.guest.memory
            for each in request.guests
            if GuestSettings.of(each.levels).balloon == "half"
        }
        least_named = f"{-(-least // 2**20)} MiB"
        why = f"{BALLOON}=half takes a guest with {least_named} or more, for what is measured in the half that is left"
        return {name: f"{why}: it has {size // 2**20} MiB" for name, size in sizes.items() if size < least}

    def shape(self, on: Provisioned, treatment: Treatment, order: Order, stack: contextlib.ExitStack) -> Order:
        if GuestSettings.of(treatment.levels).balloon != "half":
            return order
        return order.then(inflate)


def inflate(guest: Guest, sleep: Callable[[float], None] = time.sleep) -> None:
    """Take half of the guest's memory back. Raises BootFailed if the guest does not give it."""
    target, before = guest.spec.memory_bytes // 2, total_memory(guest.machine) or 0
    guest.machine.run("modprobe", "virtio_balloon")
    guest.balloon_to(target)
    left, still = guest.spec.memory_bytes, 0.0
    while left > target + TOLERANCE:
        sleep(LOOK_SECONDS)
        now = guest.ballooned()
        still = 0.0 if now < left else still + LOOK_SECONDS
        left = now
        if still > STANDS_STILL:
            raise BootFailed(f"{guest.path}: {BALLOON}=half was not obtained: the guest keeps {format_room(left)}")
    given = before - (total_memory(guest.machine) or before)
    if given < guest.spec.memory_bytes - target - 2 * TOLERANCE:
        raise BootFailed(f"{guest.path}: {BALLOON}=half was not obtained: its kernel gave {format_room(given)} up")
