"""How a guest is migrated. Each field is a factor of plans. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from vmtax.core.units import parse_bytes, parse_duration
from vmtax.design.settings import SWITCH, OtherLevels, Settings, is_on, setting


class Mode(StrEnum):
    """The order in which a guest's memory and its CPUs are moved."""

    PRECOPY = "precopy"
    MULTIFD = "multifd"
    POSTCOPY = "postcopy"


MIB = 2**20
MOST_LOAD = 10**5  # MiB in a second
BEFORE_IT_RUNS_THERE = (Mode.PRECOPY, Mode.MULTIFD)  # all memory is sent before the guest runs at its destination


def _load(level: str) -> int | None:
    """MiB in a second; None: what the workload's parameter says."""
    return {"as-set": None, "idle": 0}[level] if level in ("as-set", "idle") else parse_bytes(level) // MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationSettings(Settings):
    """A treatment's settings for the migration of its guest."""

    mode: Mode = setting(
        "migration.mode",
        tuple(Mode),
        Mode,
        "how the guest's memory moves. precopy: all of it moves before the guest runs at the destination; multifd: the"
        " same, over several connections at once; postcopy: after one pass the guest runs at the destination, and the"
        " rest of its memory follows, first the pages that it asks for. If the destination dies during postcopy, the"
        " guest is lost",
        layers=("vm",),
        scope="guest",
    )
    downtime_limit: float = setting(
        "migration.downtime_limit",
        ("300ms", "10ms", "30ms", "100ms", "1s", "2s"),
        parse_duration,
        "QEMU stops the guest for the last pass when it expects to send the rest of its memory in this time. A lower"
        " limit makes more passes, and may never be reached by a guest that writes quickly",
        layers=("vm",),
        scope="guest",
        others=OtherLevels(r"[1-9]\d{0,6}(ms|s)", ends=("1ms", "2000s")),  # QEMU's own maximum
        only_with={"migration.mode": BEFORE_IT_RUNS_THERE},
    )
    compression: str = setting(
        "migration.compression",
        ("none", "zlib", "zstd"),
        str,
        "how QEMU compresses memory before it sends it (multifd-compression): fewer bytes, more CPU time",
        layers=("vm",),
        scope="guest",
        only_with={"migration.mode": (Mode.MULTIFD,)},
    )
    auto_converge: bool = setting(
        "migration.auto_converge",
        SWITCH,
        is_on,
        "whether QEMU slows the guest's CPUs down, more with each pass, while the guest writes to its memory faster"
        " than it can be sent",
        layers=("vm",),
        scope="guest",
        only_with={"migration.mode": BEFORE_IT_RUNS_THERE},
    )
    load: int | None = setting(
        "migration.load",
        ("as-set", "idle", "20MiB", "50MiB", "100MiB", "200MiB", "500MiB", "1GiB"),
        _load,
        "memory whose pages a program in the guest writes to in a second, in place of the workload's parameter `load`"
        " (as-set); idle: nothing writes",
        layers=("vm",),
        scope="guest",
        others=OtherLevels(r"[1-9]\d{0,5}(MiB|GiB)", ends=("1MiB", f"{MOST_LOAD}MiB")),
    )


MODE = MigrationSettings.factors()["mode"].name
