"""The factor `cpu.halt_polling`: a setting of the host's KVM, changed while a boot's guests run, then restored."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from vmtax.core.records import Treatment
from vmtax.design.guest import GuestSettings
from vmtax.machine import Machine, Undoing
from vmtax.meter.text import whole
from vmtax.testbed.parts.part import EMULATED, Order, Part, Request
from vmtax.testbed.subjects.provisioned import Provisioned

POLLING = GuestSettings.factors()["halt_polling"].name
PARAMETER = "/sys/module/kvm/parameters/halt_poll_ns"
# $1: a setting of the kernel; $2: its original value; $3: the value we set. A value that somebody else set since is
# left alone.
PUT_BACK = (
    *("sh", "-c"),
    'now=$(cat "$1") || exit 0; if test "$now" = "$3"; then echo "$2" > "$1"; fi',
    "sh",
)


class Polling(Part):
    """How long KVM polls before it lets a CPU sleep."""

    def lacking(self, request: Request) -> Mapping[str, str]:
        guests = {each.name: GuestSettings.of(each.levels) for each in request.guests}
        levels = {name: guest.levels[POLLING] for name, guest in guests.items() if guest.halt_polling is not None}
        why = _why_not(request) if levels else None
        return {name: f"{POLLING}={level} {why}" for name, level in levels.items()} if why else {}

    def shape(self, on: Provisioned, treatment: Treatment, order: Order, stack: contextlib.ExitStack) -> Order:
        nanoseconds = GuestSettings.of(treatment.levels).halt_polling
        if nanoseconds is not None and (undoing := set_polling(on.host, nanoseconds)) is not None:
            stack.callback(undoing.undo)
        return order


def _why_not(request: Request) -> str | None:
    """Why it cannot be set; None if it can, or if the accelerator is not known yet."""
    if request.accelerator is None:
        return None
    if request.accelerator == "tcg":
        return EMULATED
    if _now(request.host, PARAMETER) is None:
        return f"needs the host's {PARAMETER}, which is not there"
    if not request.host.succeeds("test", "-w", PARAMETER):
        return f"needs root, to write {PARAMETER}"
    return None


def set_polling(machine: Machine, nanoseconds: int, parameter: str = PARAMETER) -> Undoing | None:
    """Let KVM poll for at most that time until the change is undone; None if it already does. Raises MachineError."""
    before = _now(machine, parameter)
    if before == nanoseconds:
        return None
    undoing = machine.undo_later(*PUT_BACK, parameter, str(before), str(nanoseconds))
    machine.run("tee", parameter, input=str(nanoseconds))
    return undoing


def readings(machine: Machine, parameter: str = PARAMETER) -> dict[str, float]:
    """halt_poll_ns: KVM's present value, in nanoseconds; {} if it has no such setting."""
    now = _now(machine, parameter)
    return {} if now is None else {"halt_poll_ns": now}


def _now(machine: Machine, parameter: str) -> int | None:
    return whole(machine.try_run("cat", parameter).stdout.strip())
