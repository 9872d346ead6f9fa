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
        "how the guest's memory moves: all of it before its CPUs do (precopy), the same over several connections at"
        " once (multifd), or what is left after one pass only when the guest, which runs at the destination by then,"
        " asks for it (postcopy); a guest whose destination dies during postcopy is lost",
        layers=("vm",),
        scope="guest",
    )


MODE = MigrationSettings.factors()["mode"].name
