"""Workloads, one module each. `WORKLOADS` lists those that a plan may name.

A workload is pure: it turns parameters into a command, and the command's output into measurements. Its module defines
everything about its metrics: meaning, unit, label and phrase.
"""

from typing import Any

from vmtax.workload.base import Command, Parameters, Workload
from vmtax.workload.boot import BootTime
from vmtax.workload.build import Build
from vmtax.workload.chess import Chess
from vmtax.workload.command import OwnCommand
from vmtax.workload.cpuid import Cpuid
from vmtax.workload.durability import Durability
from vmtax.workload.fio import Disk
from vmtax.workload.idle import IdleWorkload
from vmtax.workload.latency import Latency
from vmtax.workload.memory import Memory
from vmtax.workload.migration import Migration
from vmtax.workload.net import Net
from vmtax.workload.output import BadOutput
from vmtax.workload.site import Link, Site
from vmtax.workload.smb import Smb
from vmtax.workload.tile import TileWorkload
from vmtax.workload.tlb import Tlb
from vmtax.workload.touch import Touch
from vmtax.workload.transfer import Transfer
from vmtax.workload.wakeup import Wakeup

WORKLOADS: dict[str, type[Workload[Any]]] = {
    kind.name: kind
    for kind in (
        Chess,
        Cpuid,
        Memory,
        Touch,
        Tlb,
        Wakeup,
        Disk,
        Net,
        Latency,
        Transfer,
        Smb,
        Build,
        OwnCommand,
        IdleWorkload,
        TileWorkload,
        BootTime,
        Migration,
        Durability,
    )
}

__all__ = ["WORKLOADS", "BadOutput", "Command", "Link", "Parameters", "Site", "Workload"]
