"""Live migration between two QEMUs that connect in one directory, controlled over QMP."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from vmtax.core.records import Moved
from vmtax.core.units import format_value
from vmtax.design.migration import MigrationSettings, Mode
from vmtax.hypervisor.base import GuestSpec
from vmtax.hypervisor.move import Move
from vmtax.hypervisor.qemu.qmp import Qmp, QmpError

SOCKET = "unix:migration"  # in the working directory of both QEMUs
CAPABILITIES = {Mode.MULTIFD: "multifd", Mode.POSTCOPY: "postcopy-ram"}
# Bytes per second, QEMU's own limits: of a migration, and of a post-copy once the guest runs at its destination.
BANDWIDTH, UNLIMITED = 128 * 2**20, 0
LOOK_SECONDS = 0.02
CANCEL_SECONDS = 10.0  # for QEMU to cancel a migration
START_SECONDS = 30.0  # for the guest to run at its destination, once all of it has arrived
FAILED = {  # status -> reason, if QEMU gives none
    "failed": "QEMU gives no reason",
    "cancelled": "it was cancelled",
    "postcopy-paused": "the connection to its destination broke",
}
# QEMU sends nothing before the guest has given up the device for which its card stands by.
WAITS = "wait-unplug"
BEFORE = (None, "none", "setup", WAITS)
PAGE_BYTES = 4096


def differs(source: GuestSpec, destination: GuestSpec) -> str:
    """In what a destination differs that QEMU does not check and that the guest would not survive; "" if in nothing.
    Pure.
    """
    pairs = {
        "accelerator": (source.accelerator, destination.accelerator),
        "number of CPUs": (source.vcpus, destination.vcpus),
        "CPU model": (source.settings.model, destination.settings.model),
    }
    found = [f"another {what}: {there}, not {here}" for what, (here, there) in pairs.items() if here != there]
    return f"its destination has {', '.join(found)}" if found else ""


class Late(QmpError):
    """A migration took too long, and was cancelled."""


class Split(QmpError):
    """It failed after the guest's newest memory was already at its destination."""


def migrate(source: Qmp, destination: Qmp, how: Move) -> Moved:
    """Migrate; returns once the guest runs at the destination. Raises QmpError with QEMU's own reason."""
    for qmp in (destination, source):
        qmp.execute("migrate-set-capabilities", capabilities=_capabilities(how.settings))
        qmp.execute("migrate-set-parameters", multifd_compression=how.settings.compression)
    destination.execute("migrate-incoming", uri=SOCKET)
    bandwidth, later = how.bandwidth or BANDWIDTH, how.bandwidth or UNLIMITED
    source.execute(
        "migrate-set-parameters",
        max_bandwidth=bandwidth,
        max_postcopy_bandwidth=later,
        downtime_limit=round(how.settings.downtime_limit * 1000),
    )
    source.execute("migrate", uri=SOCKET)
    state = _ended(source, how)
    _wait_until_it_runs(destination)
    return parse(state)


def _capabilities(settings: MigrationSettings) -> list[dict[str, Any]]:
    """All that a factor sets, on or off: QEMU keeps capabilities that an earlier, failed migration has set."""
    states = {name: mode is settings.mode for mode, name in CAPABILITIES.items()}
    states["auto-converge"] = settings.auto_converge
    return [{"capability": name, "state": state} for name, state in states.items()]


def _ended(source: Qmp, how: Move) -> Mapping[str, Any]:
    """The final state of a migration."""
    deadline = time.monotonic() + how.seconds
    waits_for_pass, split = how.settings.mode is Mode.POSTCOPY, False
    has_fallen_back = False
    given_up: Late | None = None
    while True:
        state: Mapping[str, Any] = source.execute("query-migrate")
        status = state.get("status")
        if not has_fallen_back and status not in (*BEFORE, *FAILED, "cancelling"):
            how.fell_back()
            has_fallen_back = True
        if status == "completed":
            return state
        if status in FAILED:
            reason = state.get("error-desc") or FAILED[status]
            raise Split(reason) if split else given_up or QmpError(reason)
        if waits_for_pass and status == "active" and state.get("ram", {}).get("dirty-sync-count", 0) > 1:
            source.execute("migrate-start-postcopy")
            waits_for_pass, split = False, True
        if time.monotonic() > deadline:
            if split:  # cancelling it would leave half a guest on either side
                raise Split(late(state, how.seconds))
            if given_up:
                raise Late(f"{given_up}, and QEMU did not give it up")
            given_up = Late(late(state, how.seconds))
            deadline = time.monotonic() + CANCEL_SECONDS
            source.execute("migrate_cancel")
        time.sleep(LOOK_SECONDS)


def late(state: Mapping[str, Any], seconds: float) -> str:
    """Why a migration does not finish, as far as its state shows. Pure."""
    if state.get("status") == WAITS:
        return f"the guest did not give up its virtual function within {seconds:.0f} s"
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
    """Parse the final answer of query-migrate. Raises QmpError if a figure is missing. Pure."""
    try:
        total, downtime, sent = state["total-time"], state["downtime"], state["ram"]["transferred"]
        return Moved(float(total) / 1000, float(downtime) / 1000, float(sent))
    except (KeyError, TypeError, ValueError) as error:
        raise QmpError(f"query-migrate has no {error} after the end") from None
