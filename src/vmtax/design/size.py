"""The size of a guest. Each field is a factor of plans. Pure.

A plan has one size for all guests, so treatments carry these levels only if the plan names the factor.
"""

from __future__ import annotations

from dataclasses import dataclass

from vmtax.core.layers import LAYERS
from vmtax.core.units import parse_bytes
from vmtax.design.settings import OtherLevels, Settings, setting

MOST_VCPUS = 1024
LEAST_MEMORY, MOST_MEMORY = "256MiB", "1024TiB"


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeSettings(Settings):
    """The size of a treatment's guest, and of what its other layers get."""

    vcpus: int = setting(
        "guest.vcpus",
        ("2", "1", "3", "4", "6", "8", "12", "16", "24", "32", "48", "64"),
        int,
        "CPUs of a guest, in place of the plan's guest.vcpus. Host and containers get as many, and each level is"
        " compared with the host on its own number of CPUs",
        layers=tuple(LAYERS),
        scope="guest",
        others=OtherLevels(r"[1-9]\d{0,3}", ends=("1", str(MOST_VCPUS))),
    )
    memory: int = setting(
        "guest.memory",
        ("1GiB", "512MiB", "2GiB", "3GiB", "4GiB", "6GiB", "8GiB", "16GiB", "32GiB", "64GiB"),
        parse_bytes,
        "memory of a guest, in place of the plan's guest.memory; a container is limited to as much, the host is not",
        layers=tuple(name for name in LAYERS if name != "host"),
        scope="guest",
        others=OtherLevels(r"[1-9]\d{0,15}([KMGT]i)?B", ends=(LEAST_MEMORY, MOST_MEMORY)),
    )


VCPUS, MEMORY = (factor.name for factor in SizeSettings.factors().values())
SIZES = (VCPUS, MEMORY)
