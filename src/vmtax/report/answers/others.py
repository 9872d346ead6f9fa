"""The answers that are one short record, or a list of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

from vmtax.core import checks as doctor
from vmtax.core.checks import Check
from vmtax.report.answers.part import Part


@dataclass(frozen=True)
class PlanLine(Part):
    """A built-in plan."""

    name: str  # what `vmtax run` takes
    describe: str  # the question that it answers


@dataclass(frozen=True)
class Diagnosis(Part):
    """What `vmtax doctor` found."""

    host: str  # as given: local, ssh://[user@]host or lab[:NAME]
    about: str  # processor, memory, system; one line
    measurable: bool  # host and VM can be measured
    checks: Sequence[Check]  # one for each thing looked at

    @classmethod
    def made(cls, diagnosis: doctor.Diagnosis) -> Self:
        return cls.of(diagnosis, measurable=not diagnosis.bad)


Kept = Literal["image", "ZFS pack", "kernel pack", "PostgreSQL pack", "not whole"]


@dataclass(frozen=True)
class StoredImage(Part):
    """A root image in the cache, a pack, or what is left of either."""

    what: Kept  # the last: half made, damaged, or of another version of vmtax
    name: str  # what `image remove` takes; of a pack the version of what is in it
    path: str  # where it is
    usable: bool  # of the present recipe; of ZFS: an image here can use it
    kernel: str | None  # release; null, as what follows, where it is not whole
    bytes: int | None  # of all its files
    packages: int | None  # how many Debian packages are in it; null: it is a pack


@dataclass(frozen=True)
class Removed(Part):
    """What was removed."""

    what: str  # its kind, for people
    text: str  # which: the id of a run, a path, a command that undid something


@dataclass(frozen=True)
class Error(Part):
    """Why there is no other answer."""

    code: int  # exit code of the program, of those in exit-codes.md
    message: str  # what is wrong, and what would be right; the same text is on stderr
