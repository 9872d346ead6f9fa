"""Find out beforehand which kinds of disk a host cannot provide, so that the others can be measured."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from vmtax.design.disk import FILE_SYSTEMS, DiskSettings
from vmtax.machine import Machine, tools
from vmtax.machine.packages import install
from vmtax.machine.tools import FoundTool
from vmtax.storage.backing import MKFS, programs
from vmtax.storage.ground import RAIDZ_DISKS, Target

# Compiled in, or available as a module; checking loads nothing.
HAS_FILE_SYSTEM = (
    *("sh", "-c", 'grep -qw "$1" /proc/filesystems || modprobe --dry-run --quiet "$1" 2> /dev/null', "sh"),
)
HAS_MAPPER = ("sh", "-c", "grep -qw device-mapper /proc/misc || modprobe --dry-run --quiet dm_mod 2> /dev/null")


class Absent:
    """What one machine lacks; each check is made once."""

    def __init__(self, machine: Machine, target: Target) -> None:
        self._machine = machine
        self._target = target
        self._known: dict[tuple[str, ...], bool] = {}

    def why(self, settings: DiskSettings) -> str | None:
        """Why there can be no disk with these settings, and how to get one; None if there can."""
        volume, system = settings.volume, settings.filesystem
        named = len(self._target.devices)
        if volume.is_raidz and 0 < named < RAIDZ_DISKS:
            return f"disk.volume={volume} takes {RAIDZ_DISKS} devices, and {named} named with --disk-device"
        for tool in programs([settings], cuts=False):
            if wrong := tools.refusal(self._machine, tool, self._tools):
                makes_system = tool.name == MKFS.get(system, ("",))[0]
                return f"{f'disk.filesystem={system}' if makes_system else f'disk.volume={volume}'}: {wrong}"
        if volume.is_lvm and not self._has(*HAS_MAPPER):
            return f"disk.volume={volume} needs the kernel's device mapper, which is missing there"
        if volume.is_zfs and not self._has(*HAS_FILE_SYSTEM, "zfs"):
            module = install(self._machine, "zfs.ko")
            return f"disk.volume={volume} needs the kernel module zfs, which is missing there: {module}"
        if system in FILE_SYSTEMS and not self._has(*HAS_FILE_SYSTEM, system):
            return f"disk.filesystem={system}: the kernel there knows no {system}"
        return None

    @functools.cached_property
    def _tools(self) -> Mapping[str, FoundTool]:
        return tools.read(self._machine, tools.of(tools.STORAGE))

    def _has(self, *argv: str) -> bool:
        if argv not in self._known:
            self._known[argv] = self._machine.succeeds(*argv)
        return self._known[argv]
