"""Idleness: what an idle machine costs its host, because timers, devices and the hypervisor still work."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from vmtax.core.records import Measurement, Metric
from vmtax.workload.base import CPU_PER_OPERATION, Command, Counted, Measure, Parameters
from vmtax.workload.output import BadOutput
from vmtax.workload.site import Site

SLEEP = 'cat /proc/uptime; sleep "$1"; cat /proc/uptime'  # constant text; the seconds are an argument
STEP_SECONDS = 0.02  # resolution of /proc/uptime, for two readings
CPU = Metric(f"idle.{CPU_PER_OPERATION}", "s", "lower")


class IdleParameters(Parameters):
    seconds: float = Field(10.0, ge=1, le=3600, description="run length, in seconds")


class IdleWorkload(Command[IdleParameters]):
    """A command that sleeps; one second of one machine is one operation."""

    name = "idle"
    describe = "idleness: the host's CPU time per second and machine, while the machine sleeps (sleep)"
    tool = "sleep"
    title = "Idle"
    packages = ("coreutils",)
    headline = CPU.name
    measures: ClassVar = {
        CPU.name: Measure(
            "CPU time of the host in a second in which one machine does nothing; on the host layer, this is the host;"
            " of an existing VM, and of a clone that is only watched, that of its QEMU alone",
            "host's CPU time in a second",
            "the host's CPU time of an idle machine",
        )
    }
    parameters_type = IdleParameters

    def cases(self) -> Sequence[str]:
        return ("",)

    def metrics(self) -> Sequence[Metric]:
        return (CPU,)

    def command(self, site: Site, case: str) -> Sequence[str]:
        return ("sh", "-c", SLEEP, "sh", f"{self.parameters.seconds:g}")

    def seconds(self, case: str) -> float:
        return self.parameters.seconds

    def read(self, case: str, output: str) -> tuple[Measurement, ...]:
        """Only checks that it slept: the host's meter measures."""
        slept = _slept(output)
        if slept is None or slept < self.parameters.seconds - STEP_SECONDS:
            raise BadOutput(
                f"expected two lines of /proc/uptime {self.parameters.seconds:g} s apart, got {output[:80]!r}"
            )
        return ()

    def operations(self, case: str, output: str) -> float | None:
        return self.own_seconds(case, output)

    def own_seconds(self, case: str, output: str) -> float | None:
        return _slept(output)

    def counted(self, case: str, output: str) -> Counted:
        """None of it, because no machine has more of the host while another one does not sleep yet."""
        return Counted(0.0)


def _slept(output: str) -> float | None:
    """Seconds between two lines of /proc/uptime; None if they are missing."""
    times = [re.fullmatch(r"(\d{1,12}\.\d\d) \d{1,12}\.\d\d", line) for line in output.split("\n") if line.strip()]
    match times:
        case [before, after] if before and after:
            return float(after[1]) - float(before[1])
    return None
