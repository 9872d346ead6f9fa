"""Snapshots and backups of a disk while its guest works, as libvirt and Proxmox make them: by QMP.

QEMU opens no file for them: once its guest runs, it is another user, who may open none. Everything that is written goes
to the disk's spare file, which QEMU has held open since its start.
"""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from vmtax.design.disk import During
from vmtax.hypervisor.qemu.drives import caching, spare_node
from vmtax.hypervisor.qemu.qmp import Qmp, QmpError
from vmtax.hypervisor.spec import Drive

LOOK_SECONDS = 0.02
STANDS_STILL = 60.0  # seconds without progress of a job, after which it is not waited for
# States of a job in which QEMU awaits an order or does nothing more (qapi/job.json)
ENDED, READY = "concluded", "ready"


class BlockCopy(ABC):
    """Implements `DiskCopy`."""

    def __init__(self, qmp: Qmp, disk: Drive, sleep: Callable[[float], None] = time.sleep) -> None:
        self._qmp, self._disk, self._sleep = qmp, disk, sleep
        self._spare = spare_node(disk)["node-name"]

    def operations(self) -> int:
        rows = self._qmp.execute("query-blockstats")
        (stats,) = (row["stats"] for row in rows if row.get("device") == self._disk.name)
        return int(stats["rd_operations"]) + int(stats["wr_operations"])

    @abstractmethod
    def prepare(self) -> None: ...

    @abstractmethod
    def begin(self, rate: int) -> None: ...

    @abstractmethod
    def end(self) -> int: ...

    @abstractmethod
    def undo(self) -> None: ...

    def _cancel(self) -> None:
        """End the job, whatever it does, and let QEMU forget it; nothing if there is none."""
        if any(job.get("id") == self._job for job in self._qmp.execute("query-jobs")):
            with contextlib.suppress(QmpError):  # it may end by itself before it is cancelled
                self._qmp.execute("job-cancel", id=self._job)
            self._until()
            self._qmp.execute("job-dismiss", id=self._job)

    @property
    def _job(self) -> str:
        return f"{self._disk.name}-job"

    def _inserted(self) -> Mapping[str, Any]:
        """What QEMU says of the node that the guest's disk is now."""
        rows = self._qmp.execute("query-block")
        (found,) = (row["inserted"] for row in rows if row.get("device") == self._disk.name)
        return dict(found)

    def _state(self) -> Mapping[str, Any]:
        """The job as query-jobs has it. Raises QmpError if there is none."""
        found = [job for job in self._qmp.execute("query-jobs") if job.get("id") == self._job]
        if not found:
            raise QmpError(f"QEMU has no job {self._job}")
        return dict(found[0])

    def _until(self, *states: str) -> Mapping[str, Any]:
        """Wait until the job is in one of these states. Raises QmpError if it stands still before."""
        progress, still = -1, 0.0
        while (state := self._state())["status"] not in (*states, ENDED):
            now = int(state["current-progress"])
            still = 0.0 if now != progress else still + LOOK_SECONDS
            progress = now
            if still > STANDS_STILL:
                raise QmpError(f"QEMU's {state['type']} job makes no progress after {now} bytes")
            self._sleep(LOOK_SECONDS)
        return state

    def _finish(self) -> Mapping[str, Any]:
        """Wait for the job's end, and let QEMU forget it. Raises QmpError if it failed."""
        state = self._until()
        self._qmp.execute("job-dismiss", id=self._job)
        if "error" in state:
            raise QmpError(f"QEMU's {state['type']} job failed: {state['error']}")
        return state


class Snapshot(BlockCopy):
    """An external snapshot: what the guest writes from then on goes to an image over its disk."""

    _is_added = False  # whether QEMU has its image

    @property
    def _image(self) -> str:
        return f"{self._disk.name}-snapshot"

    def prepare(self) -> None:
        size = self._inserted()["image"]["virtual-size"]
        options = {"driver": "qcow2", "file": self._spare, "size": size}
        self._qmp.execute("blockdev-create", job_id=self._job, options=options)
        self._finish()
        node = {"node_name": self._image, "driver": "qcow2", "file": self._spare}
        self._below = self._inserted()["node-name"]
        self._qmp.execute("blockdev-add", **node, backing=None, cache=caching(self._disk))
        self._is_added = True

    def begin(self, rate: int) -> None:
        self._qmp.execute("blockdev-snapshot", node=self._disk.name, overlay=self._image)

    def end(self) -> int:
        found = self._inserted()
        if found["node-name"] != self._image:
            raise QmpError("the disk has no snapshot, though QEMU took one")
        return int(found["image"]["actual-size"])

    def undo(self) -> None:
        self._cancel()
        if not self._is_added:
            return
        if self._inserted()["node-name"] == self._image:
            where = {"device": self._disk.name, "base_node": self._below}
            self._qmp.execute("block-commit", job_id=self._job, **where, auto_dismiss=False)
            if self._until(READY)["status"] == READY:
                self._qmp.execute("job-complete", id=self._job)
            self._finish()
        self._qmp.execute("blockdev-del", node_name=self._image)


class Backup(BlockCopy):
    """A backup: QEMU copies the disk as it is at the beginning, and before the guest writes a block, the old one."""

    def prepare(self) -> None:
        size = self._inserted()["image"]["virtual-size"]
        self._qmp.execute("block_resize", node_name=self._spare, size=size)

    def begin(self, rate: int) -> None:
        where = {"device": self._disk.name, "target": self._spare}
        self._qmp.execute("blockdev-backup", job_id=self._job, **where, sync="full", speed=rate, auto_dismiss=False)

    def end(self) -> int:
        state = self._state()
        copied = int(state["current-progress"])
        if state["status"] == ENDED:
            self._finish()
        else:
            self._cancel()
        return copied

    def undo(self) -> None:
        """Nothing is left of it but the spare file."""
        self._cancel()


COPIES = {During.SNAPSHOT: Snapshot, During.BACKUP: Backup}
