"""Read the text of a plan or of another such file: a built-in one by its name, or a file up to the largest size."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from vmtax.core.units import shortened
from vmtax.plan.errors import PlanError, unknown
from vmtax.plan.kinds import PLAN, FileKind
from vmtax.plan.yaml import MOST_BYTES

_LONGEST_SOURCE = 200  # characters of a path that messages repeat


def plan_text(name_or_path: str, kind: FileKind = PLAN) -> tuple[str, str]:
    """The text of a plan, or of another kind of file, and its name for messages. Raises PlanError if there is none, or
    if it cannot be one.
    """
    known = kind.files
    if (file := known.get(name_or_path)) is not None:
        return file.read_text(encoding="utf-8"), file.name
    source = shortened(name_or_path, _LONGEST_SOURCE)
    try:
        raw = _read(name_or_path)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        if "/" not in name_or_path and Path(name_or_path).suffix not in (".yaml", ".yml"):
            hint = "or give the path of a YAML file"
            also = "; a VM of yours is named by --guest libvirt:NAME" if kind is PLAN else ""
            raise PlanError([f"{unknown(kind.name, name_or_path, known)}; {hint}{also}"]) from None
        why = error.strerror if isinstance(error, OSError) else error
        raise PlanError([f"{source}: cannot be read: {why}"]) from None
    if raw is None:
        raise PlanError([f"{source}: is no regular file, {kind.refused}"])
    if len(raw) > MOST_BYTES:
        raise PlanError([f"{source}: larger than {MOST_BYTES // 1024} KiB, {kind.refused}"])
    try:
        return raw.decode("utf-8-sig"), source
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise PlanError([f"{source}:{line}: not UTF-8 text"]) from None


def describe(name_or_path: str) -> str:
    """The question a plan answers: its first comment line."""
    text, _ = plan_text(name_or_path)
    return next((line.lstrip("# ").rstrip() for line in text.splitlines() if line.startswith("#")), "")


def _read(path: str) -> bytes | None:
    """At most one byte more than a plan may have; None if it is no regular file. Raises OSError, ValueError."""
    # Looked at first: to open a device may already do something.
    if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 (Path("") is a directory)
        return None
    # Opening must not block either, if the file has become a pipe meanwhile.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb") as stream:
        return stream.read(MOST_BYTES + 1) or b""
