"""Meters: what a machine is (facts), and what it did around a measurement (`Meter`).

A new meter is a module with a class that has what `Meter` or `GuestMeter` names, and its line in METERS or
GUEST_METERS. Its rows are kept with each trial, and shown by --json and CSV.
"""

from vmtax.meter.base import At, Counted, GuestMeter, Meter, Readings, Work
from vmtax.meter.clock import Clock
from vmtax.meter.exits import Exits
from vmtax.meter.ledger import Ledger
from vmtax.meter.pressure import Pressure
from vmtax.meter.vmstat import Vmstat

# In the order in which they look before a trial; after it they look the other way round, so the last is the closest.
METERS: tuple[type[Meter], ...] = (Ledger, Clock, Vmstat, Pressure)
GUEST_METERS: tuple[type[GuestMeter], ...] = (Exits,)

__all__ = [
    "GUEST_METERS",
    "METERS",
    "At",
    "Counted",
    "GuestMeter",
    "Meter",
    "Readings",
    "Work",
    "new_guest_meters",
    "new_meters",
]


def new_meters() -> tuple[Meter, ...]:
    """One of each, for one boot."""
    return tuple(kind() for kind in METERS)


def new_guest_meters() -> tuple[GuestMeter, ...]:
    """The same of those that look at guests."""
    return tuple(kind() for kind in GUEST_METERS)
