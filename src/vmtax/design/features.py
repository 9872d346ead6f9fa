"""Features of disks and network cards besides speed, and the documented durability of disks.

QEMU's cache modes are described in `disk.CacheMode`. zfsprops(7): sync=disabled "disables synchronous requests".
ext4(5): barrier=0 "disables the use of write barriers".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from vmtax.core.records import Json
from vmtax.design.disk import DiskSettings

State = Literal["yes", "no", "not tried", "not shown"]  # not shown: the measurements do not decide it
# Name -> what a disk with this feature does, in the order of the table.
FEATURES: Mapping[str, str] = {
    "durable": "keeps what the guest flushed when the host loses power",
    "savevm": "lets the guest's state be saved into the image (savevm)",
    "snapshots": "takes snapshots inside the image",
    "file": "is a file, which rsync and cp can copy",
    "thin": "takes space only as it is written",
    "pause-on-full": "pauses the guest when the host's disk is full",
    "migration": "can be migrated while the guest runs",
}
# Share of the host's CPU time for the cheapest card that the host carries; below it, a card has the feature "no host
# CPU"
SMALL = 0.5
# The same for network cards; `card_features.py` says which card has which.
CARD_FEATURES: Mapping[str, str] = {
    "migratable": "can be migrated while the guest runs",
    "no-host-cpu": "costs the host, beside guest code, less than half of the cheapest card whose packets it carries",
    "isolation": "has queues of its own in hardware, which no other guest's packets go through",
}
DOCUMENTED, BY_TRIAL = "documented", "by trial"  # sources of the answer whether a disk is durable


@dataclass(frozen=True, slots=True)
class Feature:
    """Whether one choice has a feature."""

    name: str  # name of the feature, such as durable or migratable
    state: State  # whether the choice has it
    how: str  # what was done to find out, or that it is documented
    words: str = ""  # the reason, in the words of the program that refused, if one did

    def to_json(self) -> Json:
        return asdict(self)

    @staticmethod
    def from_json(data: Json) -> Feature:
        return Feature(data["name"], data["state"], data["how"], data.get("words", ""))


def documented_durability(settings: DiskSettings) -> Feature:
    """Whether a disk with these settings is documented as durable. The module's docstring has the sources. Pure."""
    if settings.is_shared:
        return Feature("durable", "not tried", DOCUMENTED, f"disk.share={settings.share} is a directory and no disk")
    cache = settings.cache
    if cache.ignores_flushes:
        return Feature("durable", "no", DOCUMENTED, f"cache={cache} ignores the guest's flushes")
    if settings.volume.is_zfs and settings.sync == "disabled":
        return Feature("durable", "no", DOCUMENTED, "zfs.sync=disabled answers a flush before the data are on disk")
    if settings.filesystem == "ext4" and not settings.barriers:
        return Feature(
            "durable", "no", DOCUMENTED, "disk.barriers=off: the host's ext4 lets its disk keep flushed data"
        )
    each = " with every write" if cache.is_writethrough else ""
    return Feature("durable", "yes", DOCUMENTED, f"cache={cache} flushes the host's disk{each}")
