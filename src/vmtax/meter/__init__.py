"""Meters: what a machine is (facts), and what it did around a measurement (`Meter`).

A new meter is a module with a class that implements `Meter` or `GuestMeter`, and a line in METERS or GUEST_METERS. Its
rows are stored with each trial, and shown by --json and CSV.
"""

from collections.abc import Mapping
from types import MappingProxyType

from vmtax.meter.base import At, GuestMeter, Meter, MeteredCommand, MeteredGuest, Readings
from vmtax.meter.clock import Clock
from vmtax.meter.energy import Energy
from vmtax.meter.exits import ExitCounts
from vmtax.meter.ledger import HostLedger
from vmtax.meter.pressure import Pressure
from vmtax.meter.vmstat import Vmstat

# The order in which they read before a trial; after it the order is reversed, so the last one is closest to the trial.
METERS: tuple[type[Meter], ...] = (HostLedger, Clock, Vmstat, Energy, Pressure)
GUEST_METERS: tuple[type[GuestMeter], ...] = (ExitCounts,)

__all__ = [
    "GUEST_METERS",
    "METERS",
    "At",
    "GuestMeter",
    "Meter",
    "MeteredCommand",
    "MeteredGuest",
    "Readings",
    "new_guest_meters",
    "new_meters",
]


def new_meters(qemus: Mapping[str, int] = MappingProxyType({})) -> tuple[Meter, ...]:
    """One of each, for one boot. `qemus`: as HostLedger takes them."""
    return tuple(HostLedger(qemus) if kind is HostLedger else kind() for kind in METERS)


def new_guest_meters() -> tuple[GuestMeter, ...]:
    """The same for those that read guests."""
    return tuple(kind() for kind in GUEST_METERS)
