"""External snapshots of the disk under test."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace

from vmtax.core.records import Treatment
from vmtax.design.disk import DiskSettings
from vmtax.hypervisor import DATA_ID, FRESH_ID, Drive
from vmtax.storage import chain
from vmtax.testbed.host import disks
from vmtax.testbed.parts.part import Order, Part, Request
from vmtax.testbed.subjects.provisioned import Provisioned
from vmtax.workload.durability import Durability

WITHOUT = f"the workload {Durability.name} checks one image, without snapshots: measure it in another plan"


class SnapshotPart(Part):
    """Chains of images over the disk of a guest, laid anew for each boot, because its writes end in the last of them.

    The disk that was never written gets a chain of its own, over the disk that was filled: its first writes are those
    after a snapshot.
    """

    def lacking(self, request: Request) -> Mapping[str, str]:
        if all(choice.name != Durability.name for choice in request.plan.workloads):
            return {}
        return {
            each.name: f"disk.snapshots={count}: {WITHOUT}"
            for each in request.guests
            if (count := chain.snapshots_of(DiskSettings.of(each.levels)))
        }

    def shape(self, on: Provisioned, treatment: Treatment, order: Order, stack: contextlib.ExitStack) -> Order:
        count = chain.snapshots_of(DiskSettings.of(treatment.levels))
        if not count or on.disks is None or not on.fills_disks:
            return order
        disk, qemu_img = on.disks.of(treatment, order.number), on.disks.provisioner.qemu_img
        sizes = {DATA_ID: disk.size, FRESH_ID: on.disks.fresh_size}

        def over(drive: Drive) -> Drive:
            if drive.name not in sizes:
                return drive
            laid = chain.lay(on.host, disk, count, sizes[drive.name], qemu_img)
            stack.callback(laid.remove)
            return replace(disks.drive(treatment, laid.top), name=drive.name, beneath=laid.beneath)

        return replace(order, spec=replace(order.spec, disks=tuple(map(over, order.spec.disks))))
