"""End a lab in order, cut its power, remove it, or save its state."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from vmtax.core.events import Event, Step
from vmtax.hypervisor import Credentials
from vmtax.hypervisor.qemu.qmp import Qmp, QmpError
from vmtax.lab.home import Lab, LabError, Up, check_unused, copy_disk, held, trouble, write
from vmtax.lab.monitor import go_on, monitor, why_still
from vmtax.lab.names import RECORD, labs_directory
from vmtax.lab.reach import reach
from vmtax.machine import MachineError, MachineLost
from vmtax.machine.local import ISOLATED, PYTHON, LocalMachine
from vmtax.machine.processes import is_marked
from vmtax.system.paths import private

SHUTDOWN_SECONDS = 60.0
TIDY_SECONDS = 30.0  # for the guard to undo networks and files
SAVE_SECONDS = 300.0
# $1: what is replaced, $2: its replacement. Delete the first if the second exists, otherwise move it there. Constant
# text.
KEEP_ONE = ("sh", "-c", 'test -e "$1" || exit 0; if test -e "$2"; then rm -rf "$1"; else mv "$1" "$2"; fi', "sh")
SET_CLOCK = ("date", "-u", "-s")  # followed by "@" and seconds since the epoch
# Resumes a lab if saving it was killed: QMP takes one command per line, and answers each. "cont" is refused until a
# migration has really been cancelled. Constant text.
GO_ON = (
    *(PYTHON, *ISOLATED),
    "import socket, sys, time\n"
    "def obeyed(command):\n"
    "    pipe.write(b'{\"execute\": \"' + command + b'\"}\\n')\n"
    "    pipe.flush()\n"
    "    for line in pipe:\n"
    "        if b'\"event\"' not in line:\n"
    "            return b'\"return\"' in line\n"
    "    sys.exit(0)\n"
    "try:\n"
    "    end = socket.socket(socket.AF_UNIX)\n"
    "    end.connect(sys.argv[1])\n"
    "    pipe = end.makefile('rwb')\n"
    "    pipe.readline()\n"
    "    obeyed(b'qmp_capabilities')\n"
    "    obeyed(b'migrate_cancel')\n"
    "    for _ in range(300):\n"
    "        if obeyed(b'cont'):\n"
    "            sys.exit(0)\n"
    "        time.sleep(0.1)\n"
    "except OSError:\n"
    "    sys.exit(0)\n"
    "sys.exit('QEMU does not let it go on')\n",
)


def stop(one: Lab) -> None:
    """Shut it down in order; its disks are kept.

    Raises LabError if it is off, if it cannot be asked to shut down, in which case it is left as it is, and if its
    power had to be cut.
    """
    with held(one):
        up = one.running()
        go_on(one, up)  # a paused lab would not receive the order
        local = LocalMachine()
        try:
            _ask_to_end(local, one, up)
            late = not gone(up, SHUTDOWN_SECONDS)
            if late:
                if why := why_still(one, up):
                    raise LabError(f"lab {one.name} {why}")
                _kill(up)
        finally:
            local.close()
        _wait_for_guard(one, up)
    if late:
        raise LabError(f"lab {one.name} did not shut down within {SHUTDOWN_SECONDS:.0f} s: its power was cut")


def _ask_to_end(local: LocalMachine, one: Lab, up: Up) -> None:
    """Order it to shut down; the connection may break while it does."""
    try:
        machine = reach(local, one, guarded=False)
    except MachineError as error:
        if gone(up, 1.0):  # it has just shut down
            return
        said = f"lab {one.name} cannot be asked to shut down, and is left as it is"
        raise LabError(f"{said}: {error}; vmtax lab cut {one.name} cuts its power") from error
    with contextlib.suppress(MachineLost):
        machine.try_run("/usr/lib/vmtax/poweroff", timeout=SHUTDOWN_SECONDS)
    machine.close()


def cut(one: Lab) -> None:
    """Cut its power: data that was not durable is lost. Raises LabError if it is off."""
    with held(one):
        up = one.running()
        _kill(up)
        _wait_for_guard(one, up)


def remove(one: Lab) -> None:
    """Remove its disks, its saved state and all records; it must be off."""
    with held(one):
        one.must_exist()
        if one.up() is not None:
            raise LabError(f"lab {one.name} is up: vmtax lab stop {one.name}")
        check_unused(one)
        # The guard removes them, so that an interrupted removal is completed.
        local = LocalMachine()
        try:
            gone = labs_directory() / f".removing-{local.token}"
            local.remove_later(PurePosixPath(gone))
            one.directory.rename(gone)
        finally:
            local.close()
        if local.left:
            raise LabError("; ".join(local.left))


def save(one: Lab, emit: Callable[[Event], None]) -> int:
    """Save memory, devices and disks as they are now, then resume; returns the bytes used. Replaces an earlier saved
    state.
    """
    with held(one):
        up, record = one.running(), one.record()
        if record.size.nvme:
            raise LabError(f"lab {one.name} has an NVMe disk, with which QEMU cannot save a guest")
        local = LocalMachine()
        try:
            going_on = local.undo_later(*GO_ON, up.qmp)
            new, old = one.directory / f"saving-{local.token}", one.directory / f"replaced-{local.token}"
            local.undo_later(*KEEP_ONE, str(old), str(one.saved))
            local.remove_later(PurePosixPath(new))
            new.mkdir(mode=0o700)
            emit(Step("saving the lab", "its memory"))
            with monitor(up) as qmp:
                qmp.execute("stop")
                with open(new / "state", "wb", opener=private) as file:
                    _migrate(qmp, file.fileno())
            emit(Step("saving the lab", "its disks"))
            for disk in one.disks:
                copy_disk(local, disk, new / disk.name)
            Credentials(Path(up.key), Path(up.known_hosts)).store(new)
            write(new / RECORD, record)
            going_on.undo()
            with contextlib.suppress(MachineError):
                machine = reach(local, one, guarded=False)
                machine.run(*SET_CLOCK, f"@{time.time():.3f}")  # its clock stood still meanwhile
                machine.close()
            if one.saved.exists():
                one.saved.rename(old)
            new.rename(one.saved)
        except QmpError as error:
            raise LabError(f"lab {one.name} cannot be saved: {error}") from error
        except OSError as error:
            raise trouble(error, one.directory) from error
        finally:
            local.close()
    return sum(path.stat().st_blocks * 512 for path in one.saved.iterdir())


def _migrate(qmp: Qmp, descriptor: int) -> None:
    """Write the state to an open file of ours: QEMU runs as another user, who may not open files there."""
    qmp.execute("migrate-set-parameters", max_bandwidth=2**40)  # bytes per second: as fast as the disk
    qmp.execute("migrate", uri=f"file:{qmp.hand_over(descriptor)}")
    deadline = time.monotonic() + SAVE_SECONDS
    while (state := qmp.execute("query-migrate"))["status"] != "completed":
        if state["status"] == "failed" or time.monotonic() > deadline:
            raise QmpError(state.get("error-desc", f"no end within {SAVE_SECONDS:.0f} s"))
        time.sleep(0.02)


def _kill(up: Up) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(up.pid, signal.SIGKILL)
    gone(up, TIDY_SECONDS)


def gone(up: Up, seconds: float) -> bool:
    """Whether its QEMU ends within this time."""
    deadline = time.monotonic() + seconds
    while is_marked(up.pid, up.token):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _wait_for_guard(one: Lab, up: Up) -> None:
    """Wait until the guard has undone everything; the record that it is up goes last. If the guard was killed, another
    one undoes it.
    """
    local = LocalMachine()
    local.check_guard()
    local.close()
    deadline = time.monotonic() + TIDY_SECONDS
    while one.up_file.exists():
        if time.monotonic() > deadline:
            raise LabError(f"lab {one.name} is off, but its guard has not tidied up: vmtax clean")
        time.sleep(0.02)
