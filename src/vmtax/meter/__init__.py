"""Meters: what a machine is (facts), and what it did around a measurement (`Meter`).

A new meter is a module with a class that has what `Meter` names, and its line in METERS. Its rows are kept with each
trial, and shown by --json and CSV.
"""

from vmtax.meter.base import Meter, Readings, Work
from vmtax.meter.clock import Clock
from vmtax.meter.pressure import Pressure
from vmtax.meter.vmstat import Vmstat

# In the order in which they look before a trial; after it they look the other way round, so the last is the closest.
METERS: tuple[type[Meter], ...] = (Clock, Vmstat, Pressure)

__all__ = ["METERS", "Meter", "Readings", "Work", "new_meters"]


def new_meters() -> tuple[Meter, ...]:
    """One of each, for one boot."""
    return tuple(kind() for kind in METERS)
