"""Find out whether a host can be measured, and what would disturb a measurement.

Nothing is changed, unless `--try` is given: then `attempt.py` makes what a run would make, uses it and removes it. Each
check names a remedy.
"""

from __future__ import annotations

from collections.abc import Iterator

from vmtax.core.checks import Check, Diagnosis
from vmtax.core.units import count_of
from vmtax.doctor.disturbances import disturbances
from vmtax.doctor.needs import Wanted, gib, measurable, needs
from vmtax.doctor.readings import HostReadings, read
from vmtax.plan.schema import load
from vmtax.testbed.host.hosts import open_reader
from vmtax.testbed.host.needs import disk_bytes, memory_bytes

__all__ = ["Check", "Diagnosis", "HostReadings", "diagnose", "examine"]


def examine(host: str) -> HostReadings:
    """Read a host by its name; changes nothing there or here. Raises MachineLost."""
    with open_reader(host) as reader:
        return read(reader, host)


def diagnose(readings: HostReadings, tried: tuple[Check, ...] = ()) -> Diagnosis:
    """Draw conclusions from the readings, and from what was tried."""
    plan = load("quick")
    wanted = Wanted(plan.guest.vcpus, memory_bytes(plan, "vm"), memory_bytes(plan, "nested"), disk_bytes(plan))
    found = needs(readings, wanted)
    checks = (*measurable(found), *found, *disturbances(readings, wanted), *tried)
    return Diagnosis(readings.host, ", ".join(_about(readings)), checks)


def _about(readings: HostReadings) -> Iterator[str]:
    facts = readings.facts
    yield facts["cpu_model"] or "unknown CPU"
    if facts["cpus_online"]:
        yield count_of(facts["cpus_online"], "CPU")
    if facts["memory_bytes"]:
        yield gib(facts["memory_bytes"])
    yield facts["os"] or "unknown system"
    yield f"Linux {facts['kernel_release'] or 'of unknown version'}"
