"""The clocks of a real guest: it is measured, set in both directions, stopped and suspended."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.integration.conftest import booted
from vmtax.hypervisor import Credentials, Guest, GuestSpec
from vmtax.hypervisor.qemu.guest import QemuGuest
from vmtax.machine.local import LocalMachine
from vmtax.meter import Meter, Work
from vmtax.meter.clock import Clock
from vmtax.meter.ledger import Ledger

STOPPED_SECONDS = 3.0
WORK = Work("fio", ok=True, seconds=1.0)


def _step(by: float) -> Callable[[Guest], None]:
    def step(guest: Guest) -> None:
        guest.machine.run("date", "-s", f"{by} seconds")

    return step


def _stop(guest: Guest) -> None:
    assert isinstance(guest, QemuGuest)
    guest.qmp.execute("stop")
    time.sleep(STOPPED_SECONDS)
    guest.qmp.execute("cont")


def _sleep(guest: Guest) -> None:
    """Suspend it as the kernel tests this: all but the last step, in which its clocks stand still for five seconds."""
    guest.machine.run("sh", "-c", "echo core > /sys/power/pm_test && echo mem > /sys/power/state")


@pytest.mark.machines
def test_what_happens_to_a_guests_clocks_is_found(
    shared_local: LocalMachine, credentials: Credentials, spec: GuestSpec
) -> None:
    found: dict[tuple[str, str], str] = {}
    changes = {"nothing": lambda guest: time.sleep(2), "ahead": _step(30), "back": _step(-30), "stopped": _stop}
    with booted(shared_local, spec, credentials, shared_local) as guest:
        for name, change in {**changes, "suspended": _sleep}.items():
            meters: tuple[Meter, ...] = (Clock(), Ledger())
            for meter in meters:
                meter.before(guest.machine)
                change(guest)
                found[name, meter.name] = meter.after(guest.machine, [WORK]).void
    assert found["nothing", "clock"] == found["nothing", "ledger"] == ""
    assert "was set ahead by 29." in found["ahead", "clock"] and found["ahead", "ledger"] == ""
    assert "was set back by 30." in found["back", "clock"] and found["back", "ledger"] == ""
    assert "counted" in found["stopped", "clock"] and "counted" in found["stopped", "ledger"]
    assert "was suspended for" in found["suspended", "ledger"], found
