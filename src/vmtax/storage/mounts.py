"""File systems of ours that are mounted on a machine."""

from __future__ import annotations

from pathlib import PurePosixPath

from vmtax.machine import Machine
from vmtax.meter.mounts import mount_of
from vmtax.storage.undo import UNMOUNT


def share_mounts(machine: Machine, directory: PurePosixPath) -> None:
    """Make what is unmounted below the directory disappear for every process there, also where mounts are private.

    `ip netns exec`, bubblewrap and services give a process a copy of all mounts. If those are shared, as systemd makes
    them, the copy follows the original; in a container or under another init, they may be private, and each file system
    of ours would keep its device busy for as long as some process has a copy (mount_namespaces(7)).
    """
    path = str(directory)
    mount = mount_of(machine, directory)
    if mount is not None and mount.is_shared:
        return
    machine.undo_later(*UNMOUNT, path)
    machine.run("mount", "--bind", path, path)
    machine.run("mount", "--make-shared", path)
