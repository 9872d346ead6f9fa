"""Answers that consist of one short record, or of a list of such records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vmtax.core import checks
from vmtax.report.answers.part import AnswerRecord
from vmtax.report.answers.shape import AnswerKey, Shape


@dataclass(frozen=True)
class PlanLine(AnswerRecord):
    """A built-in plan."""

    name: str  # name of the plan, for `vmtax run`
    describe: str  # the question that the plan answers


DIAGNOSIS = Shape(
    checks.Diagnosis,
    "host about measurable checks",
    {
        "measurable": AnswerKey(
            bool,
            "whether host and VM can be measured; false also if something that --try tried has failed",
            lambda diagnosis, _: not diagnosis.bad,
        ),
    },
)
Kept = Literal["image", "ZFS pack", "kernel pack", "PostgreSQL pack", "pack for Windows", "not whole"]


@dataclass(frozen=True)
class StoredImage(AnswerRecord):
    """A root image or a pack in the cache, or what is left of an incomplete one."""

    what: Kept  # what it is; not whole: half made, damaged, or made by another version of vmtax
    name: str  # identity of an image, or name of what is not whole, as `image remove` takes it; for a pack, the version
    # of the software in it
    path: str  # its path
    usable: bool  # whether it was made by the present recipe; for a ZFS pack, whether an image on this host can use it
    kernel: str | None  # kernel release of an image or a ZFS pack; null: another pack, or not whole
    bytes: int | None  # size of all its files; null: not whole
    packages: int | None  # number of Debian packages in an image; null: it is a pack, or not whole


@dataclass(frozen=True)
class Removed(AnswerRecord):
    """Something that was removed."""

    what: str  # what kind of thing it was, for people
    text: str  # which one it was: the id of a run, a path, or a command that undid something


@dataclass(frozen=True)
class Error(AnswerRecord):
    """Why a command failed and gives no other answer."""

    code: int  # exit code of the program; exit-codes.md lists all
    message: str  # what is wrong and what would be right; stderr has the same text
