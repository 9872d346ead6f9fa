"""Find out whether a lab that answers stands still: a CPU whose timer has stopped, or a disk that no longer answers.

An emulated CPU has a timer that is set anew for each tick; one that is lost stops the CPU's clock for good. What waits
for that CPU, such as a commit of the file system, never ends.
"""

from __future__ import annotations

from vmtax.core.machines import MachineLost, Reader
from vmtax.lab.home import Lab
from vmtax.lab.reach import route
from vmtax.machine.local import ISOLATED, PYTHON
from vmtax.machine.reader import SshReader

DISK = "/var/tmp"  # on the lab's own disk
INTERRUPTS = "/proc/interrupts"
LIMIT_SECONDS = 60.0  # for both; a lab that is busy with guests of its own takes 3 s
TICK_SECONDS = 10.0  # in which a CPU that works must have a tick; there are 100 or more in a second
# Keeps each CPU busy until its local timer has ticked, then flushes a file without a name. It prints what it begins and
# what has stopped. Arguments: a file such as INTERRUPTS, a directory, TICK_SECONDS.
PROBE = """
import os, sys, time

def ticks(place):
    for line in open(sys.argv[1]):
        if line.split()[0] == "LOC:":
            return line.split()[1 + place]

online = sorted(os.sched_getaffinity(0))
for place, cpu in enumerate(online):
    print("begins CPU", cpu, flush=True)
    os.sched_setaffinity(0, {cpu})
    before, until = ticks(place), time.monotonic() + float(sys.argv[3])
    while ticks(place) == before and before is not None:
        if time.monotonic() > until:
            print("stopped CPU", cpu, flush=True)
            break
os.sched_setaffinity(0, set(online))
print("begins flush", flush=True)
file = os.open(sys.argv[2], os.O_TMPFILE | os.O_WRONLY, 0o600)
os.write(file, b"x")
os.fsync(file)
print("done", flush=True)
"""


def why_standing(reader: Reader) -> str:
    """What stands still on a machine, as the rest of a sentence; empty if nothing does, or if it cannot be tried."""
    argv = (PYTHON, *ISOLATED, PROBE, INTERRUPTS, DISK, str(TICK_SECONDS))
    outcome = reader.try_run(*argv, timeout=LIMIT_SECONDS)
    lines = outcome.stdout.splitlines()
    stopped = [line.removeprefix("stopped ") for line in lines if line.startswith("stopped CPU ")]
    if stopped:
        return f"the local timer of {' and '.join(stopped)} has stopped"
    last = lines[-1] if lines else ""
    if not outcome.timed_out or last == "done":
        return ""
    waits = last.removeprefix("begins ") if last.startswith("begins ") else ""
    if waits == "flush":
        return f"a flush of {DISK} has not returned in {LIMIT_SECONDS:.0f} s"
    return f"{waits or 'a program'} has not answered in {LIMIT_SECONDS:.0f} s"


def lab_standing(one: Lab) -> str:
    """Why a lab stands still that is up, and what to do, as the rest of a sentence; empty if it does not."""
    reader = SshReader(route(one))
    try:
        reader.log_in()
        why = why_standing(reader)
    except MachineLost:
        return ""  # why it is gone is said elsewhere
    finally:
        reader.close()
    return f"hangs: {why}; vmtax lab cut {one.name}, then vmtax lab start {one.name}" if why else ""
