"""The answer about a lab."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from vmtax.report.answers.part import Part


@dataclass(frozen=True)
class LabState(Part):
    """An emulated host."""

    name: str  # its name
    host: str  # what `--host` takes
    state: Literal["up", "off"]  # whether it is running
    saved: bool  # whether `lab start --from` can begin from it
    directory: str  # of its disks and records
    vcpus: int  # CPUs
    memory_bytes: int  # that it is given
    spares: int  # disks for storage under test
    spare_bytes: int  # size of each
    nvme: bool  # whether there is one more, as NVMe
    qemu: str  # version, at its last start, as what follows
    image: str  # identity of the root image
    kernel: str  # release
    zfs: str | None  # version; null: none was built
    accelerator: str  # kvm or tcg (emulated)
    started: float | None  # when it was started; null, as what follows, where it is off
    ready_seconds: float | None  # from the start command to the first answered command
    settled_seconds: float | None  # until all its devices were there
    port: int | None  # of its ssh, on 127.0.0.1
    peer_namespace: str | None  # network namespace of its peer; null: user networking
    logs_writes: bool  # whether all writes to its spare disks are logged
    warnings: Sequence[str]  # of its start
