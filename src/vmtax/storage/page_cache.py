"""Limit how much of a guest's disk the host's page cache can hold, by a memory cgroup around the guest's QEMU."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from vmtax.machine import Machine, Undoing
from vmtax.machine.answer import table_of, whole_of, words_of
from vmtax.storage.file import StorageError

SHARE = 4  # 1/SHARE of the disk fits into a bounded page cache
# Bytes by which QEMU, and the kernel on its behalf, may still grow; without this reserve the guest would be killed for
# lack of memory. When it emulates, QEMU keeps translated code.
GROWTH_BYTES = {"kvm": 32 * 2**20, "tcg": 192 * 2**20}
# Prints the directory in which memory cgroups are made: of version 2 if it offers the controller to children, else of
# 1.
HIERARCHY = (
    *("sh", "-c"),
    "if grep -qsw memory /sys/fs/cgroup/cgroup.subtree_control; then echo /sys/fs/cgroup memory.max; "
    "elif test -e /sys/fs/cgroup/memory/memory.limit_in_bytes; then "
    "echo /sys/fs/cgroup/memory memory.limit_in_bytes; else exit 1; fi",
)
ENTER = ("sh", "-c", 'echo $$ > "$1/cgroup.procs" && shift && exec "$@"', "sh")
# A cgroup can be removed once its last process is gone.
REMOVE = (
    *("sh", "-c"),
    'n=0; until ! test -d "$1" || rmdir "$1"; do n=$((n+1)); test $n -lt 50 || exit 1; sleep 0.1; done 2>/dev/null',
    "sh",
)


def has_cgroups(machine: Machine) -> bool:
    """Whether there are memory cgroups, and one may be made in the root."""
    return machine.succeeds(*HIERARCHY)


def why_not(machine: Machine) -> str | None:
    """Why no page cache can be bounded there, and how to change that; None if it can."""
    if has_cgroups(machine):
        return None
    return (
        "disk.page_cache=bounded needs memory cgroups, which are not there, or not on for children of the root: "
        "`echo +memory > /sys/fs/cgroup/cgroup.subtree_control`"
    )


@dataclass(frozen=True, slots=True)
class Bound:
    """One cgroup on one machine."""

    machine: Machine
    directory: PurePosixPath
    limit: str  # name of the file with the limit
    undoing: Undoing

    @staticmethod
    def make(machine: Machine, name: str) -> Bound:
        """Make an empty cgroup, without a limit yet. Raises StorageError if we may not use memory cgroups."""
        if (reason := why_not(machine)) is not None:
            raise StorageError(f"{machine.path}: {reason}")
        root, limit = words_of(machine, "where memory cgroups are", machine.run(*HIERARCHY), 2)
        directory = PurePosixPath(root) / name
        undoing = machine.undo_later(*REMOVE, str(directory))
        machine.run("mkdir", str(directory), remedy="memory cgroups take root")
        return Bound(machine, directory, limit, undoing)

    @property
    def enter(self) -> tuple[str, ...]:
        """Command prefix that starts a command in it."""
        return (*ENTER, str(self.directory))

    def set_most(self, most: int) -> None:
        """Limit it to that many bytes, whatever its processes use now."""
        self.machine.run("tee", str(self.directory / self.limit), input=str(most))

    def set_limit(self, cache_bytes: int) -> None:
        """Limit it to what its processes use now plus `cache_bytes` of page cache."""
        file = self.directory / "memory.stat"
        rows = table_of(self.machine, str(file), self.machine.read_text(file), 2)
        held = {name: whole_of(self.machine, f"{name} of {file}", text) for name, text in rows}
        own = held.get("anon", held.get("rss", 0)) + held.get("shmem", 0)
        self.set_most(own + cache_bytes)
