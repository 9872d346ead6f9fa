"""A guest that is gone: what is said of its end."""

from __future__ import annotations

import contextlib
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from vmtax.hypervisor.qemu.guest import QemuGuest

PANIC = "Kernel panic - not syncing: System is deadlocked on memory"


@pytest.mark.parametrize(
    ("code", "stderr", "panic", "said"),
    [
        (1, "warning: slow\nno such disk\n", None, "QEMU of host/vm ended with 1: no such disk"),
        (0, "", None, "QEMU of host/vm ended with 0: it said nothing"),
        (0, "", PANIC, f"the kernel of host/vm ended: {PANIC}"),
        (-9, "", None, "QEMU of host/vm ended with -9: killed from outside, or by a host out of memory: see `dmesg`"),
        (137, "", None, "QEMU of host/vm ended with 137: killed from outside, or by a host out of memory: see `dmesg`"),
        (
            *(255, "", None),
            "QEMU of host/vm ended with 255: the connection to the machine that it ran on was lost, or it was killed"
            " there",
        ),
    ],
)
def test_the_cause_of_a_guests_end_is_said(code: int, stderr: str, panic: str | None, said: str) -> None:
    process: Any = SimpleNamespace(poll=lambda: code, stderr_tail=lambda: stderr)
    console: Any = SimpleNamespace(is_flooded=threading.Event(), panic=lambda: panic)
    nothing = cast("Any", None)
    guest = QemuGuest("host/vm", nothing, (), process, nothing, console, {}, nothing, contextlib.ExitStack())
    assert guest.cause_of_death() == said
