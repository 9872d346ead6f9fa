"""A guest's console: how much of it is taken."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from vmtax.hypervisor.console import FLOODED, Console
from vmtax.hypervisor.qemu.boot import died
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
