"""How a guest is migrated. Each field is a factor of plans. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from vmtax.design.settings import Settings, setting


class Mode(StrEnum):
    """The order in which a guest's memory and its CPUs are moved."""

    PRECOPY = "precopy"
    MULTIFD = "multifd"
    POSTCOPY = "postcopy"


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
        work="migration",
    )


MODE = MigrationSettings.factors()["mode"].name
