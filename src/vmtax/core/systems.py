"""The operating system of a machine, as far as a measured program depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Os(Protocol):
    """What differs between operating systems for a workload. Quoting, files and ends of processes are the business of
    the `Machine`, whose methods are the same on each.
    """

    @property
    def name(self) -> str: ...

    def program(self, name: str) -> str:
        """How a program of the image is started, or what stands for it there."""
        ...

    def io_engine(self, *, waits: bool) -> str:
        """The ioengine= of fio; `waits`: each operation is waited for before the next one begins."""
        ...


@dataclass(frozen=True, slots=True)
class Linux:
    """Programs are those of the root image."""

    name: str = "Linux"

    def program(self, name: str) -> str:
        return name

    def io_engine(self, *, waits: bool) -> str:
        return "psync" if waits else "libaio"
