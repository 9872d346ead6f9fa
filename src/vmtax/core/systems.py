"""The operating system of a machine, as far as a workload depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Os(Protocol):
    """What differs between operating systems for a workload. Quoting, files and ends of processes are the business of
    a `Machine`, whose methods are the same on each.
    """

    @property
    def name(self) -> str: ...

    def program(self, name: str) -> str:
        """How a program of the image is started, or what stands for it there."""
        ...

    def fio_engine(self, *, waits: bool) -> tuple[str, ...]:
        """Options of fio; `waits`: each operation is waited for before the next one begins."""
        ...


@dataclass(frozen=True, slots=True)
class Linux:
    """Programs are those of the root image."""

    name: str = "Linux"

    def program(self, name: str) -> str:
        return name

    def fio_engine(self, *, waits: bool) -> tuple[str, ...]:
        return (f"--ioengine={'psync' if waits else 'libaio'}",)


LINUX = Linux()
