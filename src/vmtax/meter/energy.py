"""The energy that the host's processors used during a trial, as they count it themselves (RAPL)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from vmtax.core.machines import Reader
from vmtax.meter.base import At, MeteredCommand, Readings
from vmtax.meter.text import number, whole

ZONES = "/sys/class/powercap"
# Constant text, without another process. Prints of each zone its name, what it is, its count and the greatest count.
# Only root may read counts.
SCRIPT = f"""
for zone in {ZONES}/intel-rapl:[0-9]*; do
    {{ read -r what < "$zone/name" && read -r count < "$zone/energy_uj" && read -r most < "$zone/max_energy_range_uj" &&
        echo "${{zone##*/}} $what $count $most"; }} 2> /dev/null
done
read -r up rest < /proc/uptime && echo "up $up"
"""
# Zones of their own; those within them, such as intel-rapl:0:0 (cores), are theirs already, and psys is more than them
PACKAGE = re.compile(r"^(intel-rapl:\d{1,4}) package\S* (\d{1,18}) (\d{1,18})$", re.MULTILINE | re.ASCII)
UP = re.compile(r"^up (\d{1,12}\.\d\d)$", re.MULTILINE | re.ASCII)
MOST_WATTS = 600.0  # of one package: a counter may have come round twice where that much would exceed its range
JOULES_SECONDS = ("joules", "seconds")


@dataclass(frozen=True, slots=True)
class PackageCounter:
    """What a package has used, in microjoules, since some moment; it begins again at 0 beyond `most`."""

    used: int
    most: int


@dataclass(frozen=True, slots=True)
class EnergyCounters:
    """The counters of all packages at a moment."""

    packages: Mapping[str, PackageCounter]
    seconds: float | None  # since the boot; None: not known


class Energy:
    """Joules of all packages of the host together, whoever used them, and the seconds in which they did."""

    name: ClassVar[str] = "energy"
    at: ClassVar[At] = "host"
    command: ClassVar[tuple[str, ...]] = ("sh", "-c", SCRIPT)

    def __init__(self) -> None:
        self._before: dict[str, EnergyCounters] = {}  # by machine path

    def before(self, machine: Reader) -> None:
        self._before[machine.path] = parse(machine.try_run(*self.command).stdout)

    def after(self, machine: Reader, works: Sequence[MeteredCommand]) -> Readings:
        found = used(self._before[machine.path], parse(machine.try_run(*self.command).stdout))
        return Readings(dict(zip(JOULES_SECONDS, found, strict=True)) if found else {})


def parse(text: str) -> EnergyCounters:
    """What `command` printed; a package that cannot be read is left out."""
    packages = {
        zone: PackageCounter(used, most)
        for zone, *counts in PACKAGE.findall(text)
        if (used := whole(counts[0])) is not None and (most := whole(counts[1])) is not None and used <= most
    }
    up = UP.search(text)
    return EnergyCounters(packages, number(up[1]) if up else None)


def used(before: EnergyCounters, after: EnergyCounters) -> tuple[float, float] | None:
    """Joules and seconds between two looks; None if some package's are not known."""
    if before.seconds is None or after.seconds is None or before.packages.keys() != after.packages.keys():
        return None
    seconds, joules = after.seconds - before.seconds, 0.0
    if seconds <= 0 or not after.packages:
        return None
    for zone, counter in after.packages.items():
        if seconds * MOST_WATTS * 1e6 > counter.most:
            return None
        grown = counter.used - before.packages[zone].used
        joules += (grown if grown >= 0 else grown + counter.most) / 1e6
    return joules, seconds
