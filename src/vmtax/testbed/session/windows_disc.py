"""The disc with the programs for clones of a Windows: made once for a run, and read by all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from vmtax.core.events import Event
from vmtax.core.machines import Machine
from vmtax.image.disc import write_disc
from vmtax.machine.local import LocalMachine
from vmtax.testbed.session.windows_way import programs_here, unpacked

PROGRAMS = ("fio.exe", "stockfish.exe")
LABEL = "VMTAX"


@dataclass(frozen=True, slots=True)
class ProgramsDisc:
    """One disc."""

    file: PurePosixPath  # here, and later on the host of the clones
    mark: str  # name of an empty file on it, which no other disc has
    digests: Mapping[str, str]  # name of a program -> sha256 of its file

    @classmethod
    def made(cls, local: LocalMachine, emit: Callable[[Event], None]) -> ProgramsDisc:
        """Made here, of programs that are built if they are not there. Raises MachineError."""
        digests, here = unpacked(local, emit), programs_here(local)
        file, mark = Path(local.scratch) / "programs.iso", f"vmtax.{local.token[:8]}"
        empty = Path(local.scratch) / mark
        empty.touch()
        write_disc(file, LABEL, {**{name: here / name for name in PROGRAMS}, mark: empty})
        return cls(PurePosixPath(file), mark, {name: digests[name] for name in PROGRAMS})


def put_disc(disc: ProgramsDisc, host: Machine, directory: PurePosixPath) -> ProgramsDisc:
    """The same disc in a directory of the host, where every QEMU can read it. Raises MachineError."""
    file = directory / disc.file.name
    host.push(Path(disc.file), file)
    host.run("chmod", "444", str(file))
    return replace(disc, file=file)
