"""The factor `disk.snapshot_during`: a snapshot or a backup of the disk while the guest works."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from dataclasses import replace

from vmtax.core.records import Treatment
from vmtax.design.disk import DiskSettings, During
from vmtax.hypervisor import DATA_ID, FRESH_ID, Guest
from vmtax.testbed.host import needs
from vmtax.testbed.parts.part import Order, Part, Request
from vmtax.testbed.session.copying import Copying, Spare
from vmtax.testbed.subjects.provisioned import Provisioned

DURING = DiskSettings.factors()["during"].name
MERGED = (
    f"{DURING}=snapshot: merging the image again, which is not measured, also costs a guest time where a snapshot is"
    " deleted while it works."
)
_numbers = itertools.count(1)


class CopyingPart(Part):
    """A spare file for each disk of a guest, which QEMU holds open for what is copied of the disk."""

    def lacking(self, request: Request) -> Mapping[str, str]:
        unfit = needs.with_own_disk(request.plan)
        why = f"the workload {unfit} takes a guest whose disk nothing else copies: measure it in another plan"
        copied = {each.name: what for each in request.guests if (what := during(each)) is not During.NONE}
        return {name: f"{DURING}={what}: {why}" for name, what in copied.items() if unfit}

    def notes(self, request: Request) -> tuple[str, ...]:
        return (MERGED,) if any(during(each) is During.SNAPSHOT for each in request.guests) else ()

    def shape(self, on: Provisioned, treatment: Treatment, order: Order, stack: contextlib.ExitStack) -> Order:
        what = during(treatment)
        if what is During.NONE or on.disks is None or not on.fills_disks:
            return order
        beside = on.disks.of(treatment, order.number)
        sizes = {DATA_ID: beside.size, FRESH_ID: on.disks.fresh_size}
        drives, spares = [], {}
        for drive in order.spec.disks:
            if drive.name in sizes:
                path = beside.path.with_name(f"{beside.path.stem}-{next(_numbers)}-spare")
                stack.callback(on.host.remove_later(path).undo)
                on.host.run("truncate", "--size=0", str(path))
                spares[drive.name] = Spare(path, sizes[drive.name])
                # The disk lies below the snapshot's image then, and QEMU cannot open it again.
                drive = replace(drive, spare=str(path), auto_read_only=False)
            drives.append(drive)

        def offer(guest: Guest) -> Copying:
            return Copying(on.host, guest, what, spares)

        return replace(order, spec=replace(order.spec, disks=tuple(drives))).then(offer)


def during(treatment: Treatment) -> During:
    """What is done to a treatment's disk."""
    return DiskSettings.of(treatment.levels).copied
