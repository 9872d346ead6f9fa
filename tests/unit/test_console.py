"""A guest's console: how much of it is taken."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path, PurePosixPath

import pytest

from vmtax.hypervisor.base import BootFailed, Patience
from vmtax.hypervisor.console import FLOODED, Console
from vmtax.hypervisor.qemu.boot import died, wait_until_ready
from vmtax.machine.local import LocalMachine


def test_a_guest_that_prints_without_end_is_ended_and_the_reason_is_that(tmp_path: Path) -> None:
    path = tmp_path / "console"
    path.touch()
    machine = LocalMachine()
    try:
        console = Console(machine, PurePosixPath(path), most=2**16)
        # As much as a test may write; it would go on for ten minutes. Constant text.
        text = 'n=0; while test $n -lt 6000; do printf "%4096s" "" >> "$1"; n=$((n+1)); sleep 0.1; done'
        process = machine.start("sh", "-c", text, "sh", str(path))
        console.bound(process)
        assert process.wait(30.0) == -9 and path.stat().st_size < 2**22
        failure = died("host/vm", process, console, "QEMU ended")
        assert FLOODED in str(failure) and not failure.qemu_died
        console.stop()
    finally:
        machine.close()


@pytest.mark.parametrize(
    ("printed", "end"), [("one\ntwo \n\n", "the last line of its console is 'two'"), ("", "its console is empty")]
)
@pytest.mark.parametrize("patience", [Patience(ready=0.5), Patience(ready=60.0, silence=0.5)])
def test_a_guest_that_is_given_up_is_explained_in_the_first_line(
    tmp_path: Path, patience: Patience, printed: str, end: str
) -> None:
    path = tmp_path / "console"
    path.write_text(printed)
    machine = LocalMachine()
    try:
        console = Console(machine, PurePosixPath(path))
        process = machine.start("sleep", "60")
        with pytest.raises(BootFailed) as caught:
            wait_until_ready("host/vm", process, console, patience, time.monotonic())
        first, *rest = str(caught.value).splitlines()
        assert first.startswith("host/vm: it") and first.endswith(f"; {end}")
        assert rest[0] == "console:" and len(rest) > 1
        process.stop()
        console.stop()
    finally:
        machine.close()


PANICKED = "vmtax: ready\n[  371.2] Kernel panic - not syncing: System is deadlocked on memory\n[  371.3] Call Trace:\n"


@pytest.mark.parametrize(
    ("printed", "panic"),
    [(PANICKED, "Kernel panic - not syncing: System is deadlocked on memory"), ("vmtax: ready\n", None)],
)
def test_a_panic_is_quoted_without_its_stack(tmp_path: Path, printed: str, panic: str | None) -> None:
    path = tmp_path / "console"
    path.write_text(printed)
    with contextlib.closing(LocalMachine()) as machine:
        console = Console(machine, PurePosixPath(path))
        while console.next_line(1.0) is not None:
            pass
        assert console.panic() == panic
        console.stop()
