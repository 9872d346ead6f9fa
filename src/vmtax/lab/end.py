"""What becomes of a lab that is up: an orderly end, a power cut, a saved state."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from vmtax.event import Event, Step
from vmtax.hypervisor import Credentials
from vmtax.hypervisor.qmp import Qmp, QmpError, Socket
from vmtax.lab.home import Lab, LabError, Up, copy_disk, held, write
from vmtax.lab.reach import reach
from vmtax.machine import MachineError
from vmtax.machine.guard import is_marked
from vmtax.machine.local import PYTHON, LocalMachine

SHUTDOWN_SECONDS = 60.0
TIDY_SECONDS = 30.0  # for the guard to undo networks and files
QMP_SECONDS = 10.0
SAVE_SECONDS = 300.0
# Lets a lab go on whose saving was killed: QMP takes one command a line, each answered. Constant text.
GO_ON = (
    *(PYTHON, "-c"),
    "import socket, sys\n"
    "s = socket.socket(socket.AF_UNIX)\n"
    "try:\n"
    "    s.connect(sys.argv[1])\n"
    "except OSError:\n"
    "    sys.exit(0)\n"
    "f = s.makefile('rwb')\n"
    "f.readline()\n"
    "for command in (b'qmp_capabilities', b'migrate_cancel', b'cont'):\n"
    "    f.write(b'{\"execute\": \"' + command + b'\"}\\n')\n"
    "    f.flush()\n"
    "    while b'\"event\"' in f.readline():\n"
    "        pass\n",
)


def stop(one: Lab) -> str:
    """Shut it down in order, its disks kept; how it went, in words. Raises LabError where it is off."""
    with held(one):
        up = one.running()
        local = LocalMachine()
        try:
            with contextlib.suppress(MachineError):
                machine = reach(local, one)
                machine.try_run("/usr/lib/vmtax/poweroff", timeout=SHUTDOWN_SECONDS)
                machine.close()
            how = "is off"
            if not _gone(up, SHUTDOWN_SECONDS):
                _kill(up)
                how = f"did not shut down within {SHUTDOWN_SECONDS:.0f} s: its power was cut"
        finally:
            local.close()
        _wait_for_guard(one, up)
    return how


def cut(one: Lab) -> None:
    """A power cut: what was not durable is lost. Raises LabError where it is off."""
    with held(one):
        up = one.running()
        _kill(up)
        _wait_for_guard(one, up)


def remove(one: Lab) -> None:
    """Its disks, its saved state and every record; it must be off."""
    with held(one):
        one.record()
        if one.up() is not None:
            raise LabError(f"lab {one.name} is up: vmtax lab stop {one.name}")
        # The record first, so that an interrupted removal leaves nothing that looks like a lab.
        (one.directory / "lab.json").unlink()
        shutil.rmtree(one.directory)


def save(one: Lab, emit: Callable[[Event], None]) -> int:
    """Keep memory, devices and disks as they are now, then go on; the bytes it takes. Replaces what was saved."""
    with held(one):
        up, record = one.running(), one.record()
        if record.size.nvme:
            raise LabError(f"lab {one.name} has an NVMe disk, with which QEMU cannot save a guest")
        local = LocalMachine()
        try:
            going_on = local.undo_later(*GO_ON, up.qmp)
            new = one.directory / f"saving-{local.token}"
            local.remove_later(PurePosixPath(new))
            new.mkdir(mode=0o700)
            emit(Step("saving the lab", "its memory"))
            socket = Socket(up.qmp, QMP_SECONDS)
            try:
                qmp = Qmp(socket, QMP_SECONDS)
                qmp.execute("stop")
                _migrate(qmp, new / "state")
            finally:
                socket.close()
            emit(Step("saving the lab", "its disks"))
            for disk in one.disks:
                copy_disk(local, disk, new / disk.name)
            Credentials(Path(up.key), Path(up.known_hosts)).store(new)
            write(new / "lab.json", record)
            going_on.undo()
            shutil.rmtree(one.saved, ignore_errors=True)
            new.rename(one.saved)
        except QmpError as error:
            raise LabError(f"lab {one.name} cannot be saved: {error}") from error
        except OSError as error:
            raise LabError(f"{error.filename or one.directory}: {error.strerror}") from error
        finally:
            local.close()
    return sum(path.stat().st_blocks * 512 for path in one.saved.iterdir())


def _migrate(qmp: Qmp, target: Path) -> None:
    qmp.execute("migrate-set-parameters", max_bandwidth=2**40)  # bytes a second: as fast as the disk
    qmp.execute("migrate", uri=f"file:{target}")
    deadline = time.monotonic() + SAVE_SECONDS
    while (state := qmp.execute("query-migrate"))["status"] != "completed":
        if state["status"] == "failed" or time.monotonic() > deadline:
            raise QmpError(state.get("error-desc", f"no end within {SAVE_SECONDS:.0f} s"))
        time.sleep(0.02)


def _kill(up: Up) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(up.pid, signal.SIGKILL)
    _gone(up, TIDY_SECONDS)


def _gone(up: Up, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while is_marked(up.pid, up.token):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _wait_for_guard(one: Lab, up: Up) -> None:
    """Until it has undone everything; the record that it is up goes last."""
    deadline = time.monotonic() + TIDY_SECONDS
    while one.up_file.exists():
        if time.monotonic() > deadline:
            raise LabError(f"lab {one.name} is off, but its guard has not tidied up: vmtax clean")
        time.sleep(0.02)
