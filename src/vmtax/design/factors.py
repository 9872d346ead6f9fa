"""All factors that a plan may name, and which of their levels can be combined. Pure.

A factor is defined by a field of the settings that it belongs to: `disk.py`, `size.py`, `guest.py`, `net.py`,
`migration.py`, `frequency.py`, `host.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType

from vmtax.design.disk import DiskSettings
from vmtax.design.frequency import FrequencySettings
from vmtax.design.guest import GuestSettings
from vmtax.design.host import HostSettings
from vmtax.design.migration import MigrationSettings
from vmtax.design.net import PATH, USUAL_PATH, NetSettings
from vmtax.design.settings import BACKED, Conflict, Factor, needed
from vmtax.design.size import SizeSettings

FACTORS: Mapping[str, Factor] = MappingProxyType(
    {
        factor.name: factor
        for settings in (
            *(
                DiskSettings,
                SizeSettings,
                GuestSettings,
                NetSettings,
                MigrationSettings,
                FrequencySettings,
                HostSettings,
            ),
        )
        for factor in settings.factors().values()
    }
)
# They determine a disk's file or device
BACKING = tuple(name for name, factor in FACTORS.items() if factor.layers == BACKED)
DISK = tuple(name for name, factor in FACTORS.items() if factor.scope == "disk")  # they describe a disk
# They describe how the host is booted
REBOOT = tuple(name for name, factor in FACTORS.items() if factor.scope == "reboot")
# They are settings of the host while a treatment of any layer is measured
HELD = tuple(name for name, factor in FACTORS.items() if factor.scope == "host" and "host" in factor.layers)
_DEFAULTS = {name: factor.default for name, factor in FACTORS.items()}
# The levels that nobody has to ask for: the defaults, but for the path of packets, which is tap where it is not known
USUAL_LEVELS: Mapping[str, str] = MappingProxyType({**_DEFAULTS, PATH: USUAL_PATH.value})
_CONFLICTS = tuple(conflict for factor in FACTORS.values() for conflict in factor.conflicts)
# They determine whether a combination is legal
LEGALITY = tuple(dict.fromkeys(name for conflict in _CONFLICTS for name in conflict.levels))


# As loops over tuples, because a plan of many levels asks a million times
_CHECKS = tuple(
    (
        conflict,
        tuple(
            (name, _DEFAULTS[name] if name in conflict.assumed else None, illegal)
            for name, illegal in conflict.levels.items()
        ),
    )
    for conflict in _CONFLICTS
)
_NEEDS = tuple(
    (
        factor.name,
        tuple((name, _DEFAULTS[name], legal, needed(name, legal)) for name, legal in factor.only_with.items()),
    )
    for factor in FACTORS.values()
    if factor.only_with
)
# They determine whether a combination is legal, and whether each of its levels has a meaning
RULED = tuple(dict.fromkeys([*LEGALITY, *(n for f in FACTORS.values() if f.only_with for n in (f.name, *f.only_with))]))


@functools.cache
def kind_of(name: str, level: str) -> tuple[bool, ...]:
    """Levels of a factor that have the same kind are alike in every rule of what is legal and what has a meaning."""
    conflicts = (level in illegal for _, parts in _CHECKS for each, _, illegal in parts if each == name)
    return (*conflicts, *(level in legal for _, needs in _NEEDS for each, _, legal, _ in needs if each == name))


def conflict_of(levels: Mapping[str, str]) -> Conflict | None:
    """The first reason why these levels cannot be combined; None if they can, or if too few are given to decide."""
    for conflict, parts in _CHECKS:
        for name, assumed, illegal in parts:
            if levels.get(name, assumed) not in illegal:
                break
        else:
            return conflict
    return None


def why_illegal(levels: Mapping[str, str]) -> str | None:
    """Why these levels cannot be combined; None if they can, or if too few are given to decide."""
    conflict = conflict_of(levels)
    return None if conflict is None else conflict.said(levels)


def idle(levels: Mapping[str, str]) -> dict[str, str]:
    """Factors without meaning beside the other levels, each with what it needs."""
    without: dict[str, str] = {}
    for factor, needs in _NEEDS:
        if factor in levels:
            for name, default, legal, lacking in needs:
                if levels.get(name, default) not in legal:
                    without[factor] = lacking
                    break
    return without
