"""The answer about a lab."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from vmtax.report.answers.part import AnswerRecord


@dataclass(frozen=True)
class LabState(AnswerRecord):
    """A lab: a guest that is a hypervisor host of its own."""

    name: str  # name of the lab
    host: str  # value of `--host` for this lab
    state: Literal["up", "off"]  # whether it is running
    saved: bool  # whether `lab start --from` can start a lab from its saved state
    directory: str  # directory of its disks and records
    vcpus: int  # number of its CPUs
    smt: bool  # whether two of its CPUs are the threads of a core
    memory_bytes: int  # size of its memory
    spares: int  # number of its disks for storage under test
    spare_bytes: int  # size of each of these disks
    nvme: bool  # whether it has one more such disk, an NVMe disk
    qemu: str  # version of QEMU at the last start
    image: str  # identity of the root image at the last start
    kernel: str  # release of the kernel at the last start
    zfs: str | None  # version of ZFS at the last start; null: no ZFS had been built
    accelerator: str  # kvm or tcg (emulated), at the last start
    started: float | None  # time of its start, in seconds since the epoch; null: it is off
    ready_seconds: float | None  # time from the start command to the first answered command; null: it is off
    settled_seconds: float | None  # time from the start command until all its devices and disks were ready; null: it is
    # off
    port: int | None  # port of its ssh server on 127.0.0.1; null: it is off
    peer_namespace: str | None  # network namespace of its peer; null: user networking provides the peer, or it is off
    logs_writes: bool  # whether all writes to its spare disks are logged; false if it is off
    warnings: Sequence[str]  # warnings from its start, and the reason if it is paused; empty if it is off
