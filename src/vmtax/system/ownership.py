"""Check whether other users could change what a path leads to: the directories and links on the way to it.

This file also runs by itself, on a host under test (`python3 -I -S -c SOURCE PATH`), so it imports the standard library
only.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
import sys

MOST_LINKS = 40  # the kernel's limit


def why_unsafe(path: str, *, sticky: bool = True) -> str:
    """Why users other than root and the one that runs this could change what is found at `path`; empty: they cannot.

    Checks every directory and link in the order in which the kernel visits them, so that checked parts cannot change.
    In a sticky directory others may create files, but cannot rename ours; with `sticky` the last directory may be one.
    The check ends at a part that is missing or unreachable: nothing is found there.
    """
    here = "/"
    todo = path.split("/")[::-1]
    reason = _against(here, os.lstat(here))
    links = 0
    while todo and not reason:
        part = todo.pop()
        if part in ("", ".", ".."):
            here = os.path.dirname(here) if part == ".." else here
            continue
        found = os.path.join(here, part)
        try:
            status = os.lstat(found)
            target = os.readlink(found) if stat.S_ISLNK(status.st_mode) else None
        except OSError:
            break
        reason = _against(found, status)
        if target is None:
            here = found
            continue
        links += 1
        if links > MOST_LINKS:
            return f"{path} leads through more than {MOST_LINKS} links"
        here = "/" if target.startswith("/") else here
        todo += target.split("/")[::-1]
    if not reason and not sticky and is_open(os.lstat(here)):
        reason = _open(here)
    return reason


def is_trusted(user: int) -> bool:
    """Whether that is root or the user that runs this."""
    # In a user namespace, the owner of the root directory, who is root outside, has another number.
    return user in (0, os.geteuid(), os.lstat("/").st_uid)


def is_open(status: os.stat_result) -> bool:
    """Whether its mode lets others write; a group with only root or us as members does not count."""
    if status.st_mode & stat.S_IWOTH or not status.st_mode & stat.S_IWGRP or status.st_gid == 0:
        return bool(status.st_mode & stat.S_IWOTH)
    try:
        members = set(grp.getgrgid(status.st_gid).gr_mem)
    except KeyError:
        return True
    members |= {user.pw_name for user in pwd.getpwall() if user.pw_gid == status.st_gid}
    return bool(members - {user.pw_name for user in pwd.getpwall() if user.pw_uid in (0, os.geteuid())})


def _against(path: str, status: os.stat_result) -> str:
    if not is_trusted(status.st_uid):
        owner = "not to root" if os.geteuid() == 0 else f"neither to root nor to user {os.geteuid()}"
        return f"{path} belongs to user {status.st_uid}, {owner}"
    if stat.S_ISLNK(status.st_mode) or status.st_mode & stat.S_ISVTX or not is_open(status):
        return ""
    return _open(path)


def _open(path: str) -> str:
    return f"others than root can write to {path}" if os.geteuid() == 0 else f"others can write to {path}"


if __name__ == "__main__":
    sys.exit(why_unsafe(sys.argv[1]) or 0)
