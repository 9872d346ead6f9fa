"""Ask the QEMU of a lab, over its socket, whether the lab is paused, and why."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from vmtax.hypervisor.qemu.qmp import Qmp, QmpError, Socket
from vmtax.lab.home import Lab, LabError, Up

QMP_SECONDS = 10.0
ASK_SECONDS = 3.0  # QEMU serves one connection at a time; saving the lab holds it for seconds
AGAIN_SECONDS = 1.0  # after resuming; a write that failed fails again within this time


@contextlib.contextmanager
def monitor(up: Up, patience: float = QMP_SECONDS) -> Iterator[Qmp]:
    """A connection to its QEMU. Raises QmpError if it does not answer."""
    socket = Socket(up.qmp, 0.0)
    try:
        yield Qmp(socket, patience)
    finally:
        socket.close()


def why_still(one: Lab, up: Up) -> str:
    """Why it is paused, and what to do, as the rest of a sentence. Empty if it runs, or if QEMU gives no reason."""
    with contextlib.suppress(QmpError), monitor(up, ASK_SECONDS) as qmp:
        return _why_still(one, qmp)
    return ""


def _why_still(one: Lab, qmp: Qmp) -> str:
    status = qmp.execute("query-status")
    if status["running"]:
        return ""
    going_on = f"vmtax lab start {one.name}"
    if status["status"] != "io-error":
        return f"is paused, QEMU says {status['status']}: unless it is being saved, {going_on} lets it go on"
    full = any(entry.get("io-status") == "nospace" for entry in qmp.execute("query-block"))
    what = "is full; make room" if full else "failed; repair it"
    return f"is paused: the file system of {one.directory} {what}, then {going_on}; or vmtax lab cut {one.name}"


def go_on(one: Lab, up: Up) -> bool:
    """Resume a lab that QEMU paused, as it does on a full disk of this machine; returns whether it was paused.

    Raises LabError if it pauses again at once.
    """
    with contextlib.suppress(QmpError), monitor(up) as qmp:
        if qmp.execute("query-status")["running"]:
            return False
        qmp.execute("cont")
        deadline = time.monotonic() + AGAIN_SECONDS
        while time.monotonic() < deadline:
            if why := _why_still(one, qmp):
                raise LabError(f"lab {one.name} {why}")
            time.sleep(0.05)
        return True
    return False
