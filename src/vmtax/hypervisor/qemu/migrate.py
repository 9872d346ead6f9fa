"""A live migration between two QEMUs that meet in one directory, by QMP."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from vmtax.core.records import Moved
from vmtax.core.units import format_value
from vmtax.design.migration import Mode
from vmtax.hypervisor.move import Move
from vmtax.hypervisor.qemu.qmp import Qmp, QmpError

# Of the directory, as its owner and its mode: QEMU that became another user makes and reaches the socket there, and
# bubblewrap, which starts an image's QEMU as root without root's capabilities, enters it by its group.
MEETING_MODE = "710"
SOCKET = "unix:migration"  # in the directory that both QEMUs work in
CAPABILITIES = {Mode.PRECOPY: (), Mode.MULTIFD: ("multifd",), Mode.POSTCOPY: ("postcopy-ram",)}
LOOK_SECONDS = 0.02
CANCEL_SECONDS = 10.0  # until QEMU has given up
START_SECONDS = 30.0  # until the guest runs at its destination, once all of it is there
FAILED = ("failed", "cancelled", "postcopy-paused")
PAGE_BYTES = 4096


def migrate(source: Qmp, destination: Qmp, how: Move) -> Moved:
    """Returns once the guest runs at the destination. Raises QmpError with QEMU's own reason."""
    for qmp in (destination, source):
        wanted = [{"capability": each, "state": True} for each in CAPABILITIES[how.mode]]
        if wanted:
            qmp.execute("migrate-set-capabilities", capabilities=wanted)
    destination.execute("migrate-incoming", uri=SOCKET)
    if how.bandwidth is not None:
        source.execute("migrate-set-parameters", max_bandwidth=how.bandwidth, max_postcopy_bandwidth=how.bandwidth)
    source.execute("migrate", uri=SOCKET)
    state = _ended(source, how)
    _wait_until_it_runs(destination)
    return parse(state)


def _ended(source: Qmp, how: Move) -> Mapping[str, Any]:
    """The state of a migration that has come to its end."""
    deadline = time.monotonic() + how.seconds
    waits_for_pass, why = how.mode is Mode.POSTCOPY, ""
    while True:
        state: Mapping[str, Any] = source.execute("query-migrate")
        status = state.get("status")
        if status == "completed":
            return state
        if status in FAILED:
            raise QmpError(why or state.get("error-desc") or "QEMU gives no reason")
        if waits_for_pass and status == "active" and state.get("ram", {}).get("dirty-sync-count", 0) > 1:
            source.execute("migrate-start-postcopy")
            waits_for_pass = False
        if time.monotonic() > deadline:
            if why:
                raise QmpError(f"{why}, and QEMU did not give it up")
            why = late(state, how.seconds)
            deadline = time.monotonic() + CANCEL_SECONDS
            source.execute("migrate_cancel")
        time.sleep(LOOK_SECONDS)


def late(state: Mapping[str, Any], seconds: float) -> str:
    """Why a migration has no end, as far as its state says. Pure."""
    ram = state.get("ram", {})
    left, dirtied = ram.get("remaining", 0), ram.get("dirty-pages-rate", 0) * ram.get("page-size", PAGE_BYTES)
    return (
        f"no end within {seconds:.0f} s; {format_value(left, 'B')} were left to send, and the guest wrote to"
        f" {format_value(dirtied, 'B/s')} of memory"
    )


def _wait_until_it_runs(destination: Qmp) -> None:
    deadline = time.monotonic() + START_SECONDS
    while (status := destination.execute("query-status")["status"]) != "running":
        if time.monotonic() > deadline:
            raise QmpError(f"all of the guest has moved, and its destination does not run it: {status}")
        time.sleep(LOOK_SECONDS)


def parse(state: Mapping[str, Any]) -> Moved:
    """Of query-migrate's answer after the end; raises QmpError where a figure is missing. Pure."""
    try:
        total, downtime, sent = state["total-time"], state["downtime"], state["ram"]["transferred"]
        return Moved(float(total) / 1000, float(downtime) / 1000, float(sent))
    except (KeyError, TypeError, ValueError) as error:
        raise QmpError(f"query-migrate has no {error} after the end") from None
