"""The mount that is in force at a path: the kernel's own answer, because a path may be below several mounts.

An automounter's mount and what it mounted have the same place, and a mount may cover the parent of an older one: a list
that is searched by names then shows a mount that is unreachable. `parse` is pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from vmtax.machine import Reader
from vmtax.meter.text import whole

# The number of the mount that an open directory or file is on, what is free there, the device's name, and all mounts.
# Constant text, the path stays an argument. The kernel's name is asked for, because the source may be /dev/root.
READ = (
    *("sh", "-c"),
    'test -e "$1" || exit 1; { grep -a mnt_id: /proc/self/fdinfo/3; } 3< "$1"; stat -f -c "free: %a %S" "$1";'
    ' cd /sys/dev/block 2> /dev/null && for each in *; do test -e "$each" && echo "block: $each $(readlink "$each")";'
    " done; cat /proc/self/mountinfo",
    "sh",
)
ROOT = "/dev/root"  # what the kernel calls the device of its command line


@dataclass(frozen=True, slots=True)
class Mount:
    """A mount."""

    point: str  # where it is
    source: str  # device, dataset ("pool/dataset"), share ("host:/path"), or a word such as "tmpfs"
    system: str  # file system
    options: str  # of the mount, then those of the file system
    is_shared: bool = False  # what is mounted and unmounted below it is so in copies of it too
    free_bytes: int | None = None  # for us, without what is reserved for root; None: not known


def mount_of(machine: Reader, path: PurePosixPath | str) -> Mount | None:
    """The mount that a path is on; None if it does not exist, or nothing can be read. Raises MachineLost."""
    return parse(machine.try_run(*READ, str(path)).stdout, str(path))


def parse(text: str, path: str) -> Mount | None:
    """The mount in what READ prints for a path."""
    wanted = whole((re.search(r"^mnt_id:\s*(\d{1,12})$", text, re.MULTILINE) or [None, None])[1])
    names = dict(re.findall(r"^block: ([\d:]{3,20}) \S*/([^/\s]+)$", text, re.MULTILINE))
    free = re.search(r"^free: (\d{1,30}) (\d{1,12})$", text, re.MULTILINE)
    found = None
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        words, rest = before.split(" "), after.split(" ")
        if len(words) < 6 or len(rest) < 3 or (mount := whole(words[0])) is None:
            continue
        point, source = _plain(words[4]), _plain(rest[1])
        # By its number. Without one, the path could not be opened: then by name, and of equal places the newest.
        fits = wanted == mount if wanted is not None else _covers(point, path)
        if not fits or (found is not None and len(point) < len(found.point)):
            continue
        found = Mount(
            point=point,
            source=f"/dev/{names[words[2]]}" if source == ROOT and words[2] in names else source,
            system=rest[0],
            options=",".join(dict.fromkeys(f"{words[5]},{_plain(' '.join(rest[2:]))}".split(","))),
            is_shared=any(word.startswith("shared:") for word in words[6:]),
            free_bytes=int(free[1]) * int(free[2]) if free else None,
        )
    return found


def _covers(point: str, path: str) -> bool:
    return path == point or path.startswith(f"{point.rstrip('/')}/")


def _plain(word: str) -> str:
    """A word of mountinfo, where blanks and backslashes are written as octal numbers."""
    return re.sub(r"\\([0-3][0-7]{2})", lambda match: chr(int(match[1], 8)), word)
