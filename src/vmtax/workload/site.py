"""Where a workload runs: a machine, the way into the common userland on it, its disk and its network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vmtax.machine import Machine


@dataclass(frozen=True, slots=True)
class Site:
    """One booted layer, ready to run workloads."""

    machine: Machine
    layer: str  # "host", "vm" or "nested"
    vcpus: int
    prefix: tuple[str, ...]  # enters the image: bubblewrap on a host, nothing in a guest
    disk: str | None = None  # file or block device under test, as named inside the userland
    peer: str | None = None  # IPv4 address of the network peer as reached from here; None: not measured
    reverse_only: bool = False  # True with user networking: the peer connects to us

    def enter(self, argv: Sequence[str]) -> tuple[str, ...]:
        """The argv that runs `argv` inside the common userland on this machine."""
        return (*self.prefix, *argv)
