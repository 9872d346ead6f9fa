"""Boot: time from launch to the first answered command, and time to shut down. Measured with every boot of a guest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from vmtax.core.layers import GUESTS
from vmtax.core.records import Measurement, Metric
from vmtax.workload.base import Measure, Parameters, Workload

READY = Metric("boot.ready_seconds", "s", "lower")
KERNEL = Metric("boot.kernel_seconds", "s", "lower")
SHUTDOWN = Metric("boot.shutdown_seconds", "s", "lower")


class BootParameters(Parameters):
    """None."""


class BootTime(Workload[BootParameters]):
    """Has no command: each start and end of a guest is its trial."""

    name = "boot"
    describe = "boot: time from launch to first answered command, the kernel's share of it, and time to shut down"
    tool = "vmtax"
    title = "Boot"
    headline = READY.name
    measures: ClassVar = {
        "ready_seconds": Measure(
            "time from the launch of QEMU to the first answered command", "launch to first answer", "its first answer"
        ),
        "kernel_seconds": Measure("the part of ready_seconds that the guest kernel takes", "the kernel's share of it"),
        "shutdown_seconds": Measure("time from the request to power off until the guest's QEMU ends", "shutdown"),
    }
    parameters_type = BootParameters
    layers = frozenset(GUESTS)  # a host is not booted

    def cases(self) -> Sequence[str]:
        return ()

    def metrics(self) -> Sequence[Metric]:
        return (READY, KERNEL, SHUTDOWN)

    def seconds(self, case: str) -> float:
        return 0.0


def measured(ready: float, kernel: float, shutdown: float | None) -> tuple[Measurement, ...]:
    """The durations of one guest, in seconds; None: it did not shut down properly."""
    known = (Measurement(READY, ready), Measurement(KERNEL, kernel))
    return known if shutdown is None else (*known, Measurement(SHUTDOWN, shutdown))
