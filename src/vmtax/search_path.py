"""The search path of what vmtax starts: no program comes from a place where somebody else may put one."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterator, MutableMapping
from pathlib import Path

USUAL = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def make_safe(environment: MutableMapping[str, str]) -> list[str]:
    """Leave out of PATH what is unsafe there; a line for each part, with the reason.

    A part that is empty or relative is the directory that we happen to be in. For root also one in which, or above
    which, another user can write.
    """
    kept, left_out = [], []
    for part in environment.get("PATH", USUAL).split(os.pathsep):
        if why := _unsafe(part):
            left_out.append(f"PATH: {part or 'an empty part'} is left out: {why}")
        else:
            kept.append(part)
    environment["PATH"] = os.pathsep.join(kept) or USUAL
    return left_out


def _unsafe(part: str) -> str:
    if not part.startswith("/"):
        return "it means the current directory" if part in ("", ".") else "it is relative to the current directory"
    if os.geteuid() != 0:
        return ""
    return next(_others(part), "")


def _others(part: str) -> Iterator[str]:
    """Why others could change what is found there: in that directory, where a link leads, or above either."""
    last = Path(os.path.realpath(part))
    trusted = (0, Path("/").stat().st_uid)  # in a user namespace the owner of the root directory has another number
    for directory in dict.fromkeys((last, Path(part), *last.parents, *Path(part).parents)):
        try:
            status = directory.lstat()
        except OSError:
            continue  # nothing is found there, and only who can write above it can change that
        if status.st_uid not in trusted:
            yield f"{directory} belongs to user {status.st_uid}, not to root"
        elif stat.S_ISLNK(status.st_mode):
            continue
        elif _open_to_others(status) and not (status.st_mode & stat.S_ISVTX and directory != last):
            yield f"others than root can write to {directory}"


def _open_to_others(status: os.stat_result) -> bool:
    """Whether its mode lets others write; a group that only root is in, as staff is on many a Debian, is no other."""
    if status.st_mode & stat.S_IWOTH or not status.st_mode & stat.S_IWGRP or status.st_gid == 0:
        return bool(status.st_mode & stat.S_IWOTH)
    try:
        members = set(grp.getgrgid(status.st_gid).gr_mem)
    except KeyError:
        return True
    members |= {user.pw_name for user in pwd.getpwall() if user.pw_gid == status.st_gid}
    return bool(members - {"root"})
