"""The factor `cpu.halt_polling`: a setting of the host's KVM, changed while a boot's guests run, then restored."""

from __future__ import annotations

from collections.abc import Sequence

from vmtax.core.records import Treatment
from vmtax.design.guest import GuestSettings
from vmtax.machine import Machine, Undoing
from vmtax.meter.text import whole
from vmtax.testbed.cpus import POLLING

PARAMETER = "/sys/module/kvm/parameters/halt_poll_ns"
# $1: a setting of the kernel; $2: its original value; $3: the value we set. A value that somebody else set since is
# left alone.
PUT_BACK = (
    *("sh", "-c"),
    'now=$(cat "$1") || exit 0; if test "$now" = "$3"; then echo "$2" > "$1"; fi',
    "sh",
)


def not_here(machine: Machine, treatments: Sequence[Treatment], parameter: str = PARAMETER) -> dict[str, str]:
    """Treatments whose level cannot be set there, with KVM -> why."""
    guests = {each.name: GuestSettings.of(each.levels) for each in treatments if each.layer == "vm"}
    levels = {name: guest.levels[POLLING] for name, guest in guests.items() if guest.halt_polling is not None}
    if not levels:
        return {}
    if _now(machine, parameter) is None:
        why = f"takes the host's {parameter}, which is not there"
    elif not machine.succeeds("test", "-w", parameter):
        why = f"takes root, to write {parameter}"
    else:
        return {}
    return {name: f"{POLLING}={level} {why}" for name, level in levels.items()}


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
