"""The answer about a lab."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vmtax.report.schema.part import Part


class LabState(Part):
    """An emulated host."""

    name: str = Field(description="its name")
    host: str = Field(description="what `--host` takes")
    state: Literal["up", "off"] = Field(description="whether it is running")
    saved: bool = Field(description="whether `lab start --from` can begin from it")
    directory: str = Field(description="of its disks and records")
    vcpus: int = Field(description="CPUs")
    memory_bytes: int = Field(description="that it is given")
    spares: int = Field(description="disks for storage under test")
    spare_bytes: int = Field(description="size of each")
    nvme: bool = Field(description="whether there is one more, as NVMe")
    accelerator: str = Field(description="kvm or tcg (emulated), at its last start, as what follows")
    qemu: str = Field(description="version")
    image: str = Field(description="identity of the root image")
    kernel: str = Field(description="release")
    zfs: str | None = Field(description="version; null: none was built")
    started: float | None = Field(description="when it was started; null, as what follows, where it is off")
    ready_seconds: float | None = Field(description="from the start command to the first answered command")
    settled_seconds: float | None = Field(description="until all its devices were there")
    port: int | None = Field(description="of its ssh, on 127.0.0.1")
    peer_namespace: str | None = Field(description="network namespace of its peer; null: user networking")
    warnings: list[str] = Field(description="of its start")
