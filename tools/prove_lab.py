"""Starts a lab many times and cuts its power many times: every start must be ready, every flushed file must be there.

    python tools/prove_lab.py [--starts 20] [--cuts 20] [--restores 5] [--watch SECONDS] [--argument WORD]

Its own lab, in a directory of its own; nothing of it is left. Exit code 1 where a lab did not come up, did not shut
down by itself, lost a file, or where no cut took anything at all: then none was one. `--watch` leaves each started lab
up for that long and then asks whether it stands still; `--argument` starts them with an argument of the kernel.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from vmtax.core.errors import CannotDo
from vmtax.core.events import Event
from vmtax.lab.end import cut, remove, save, stop
from vmtax.lab.home import Lab, Up, lab
from vmtax.lab.reach import reach
from vmtax.lab.standing import lab_standing
from vmtax.lab.start import Wish, start
from vmtax.machine.local import LocalMachine

SMALL = Wish(memory_bytes=2 * 2**30)
DURABLE = "/root/durable"
# One durable line for each cut, and one that was not flushed. Constant text.
WRITE = ("sh", "-c", 'echo "$1" > "$2" && sync "$2" && echo "$1" > "$2-not"', "sh")


def quiet(event: Event) -> None:
    pass


class Tally:
    """What was seen. `arguments`: of the kernel of each lab that is started from its disks."""

    def __init__(self, arguments: tuple[str, ...] = ()) -> None:
        self.wish = replace(SMALL, kernel_arguments=arguments)
        self.ready: list[float] = []
        self.restored: list[float] = []
        self.retries: list[str] = []
        self.failures: list[str] = []
        self.cuts = 0  # after which was looked
        self.taken = 0  # of these, which took what had not been flushed

    def started(self, one: Lab, source: Lab | None = None) -> Up | None:
        try:
            up = start(one, self.wish if source is None else Wish(), quiet, source)
        except CannotDo as error:
            self.failures.append(str(error))
            return None
        (self.restored if up.restored else self.ready).append(up.ready_seconds)
        self.retries += [line for line in up.warnings if "second attempt" in line]
        return up

    def watched(self, one: Lab, seconds: float) -> None:
        """Leave a lab alone for as long, which is when a timer has been seen to stop; then it must still work."""
        time.sleep(seconds)
        if why := lab_standing(one):
            self.failures.append(why)

    def stopped(self, one: Lab) -> None:
        try:
            stop(one)
        except CannotDo as error:
            self.failures.append(str(error))

    def cut(self, one: Lab, number: int) -> None:
        if one.up() is None:
            self.started(one)
        local = LocalMachine()
        try:
            machine = reach(local, one)
            machine.run(*WRITE, str(number), DURABLE)
            cut(one)
            machine.close()
            if self.started(one) is None:
                return
            machine = reach(local, one)
            found = machine.try_run("cat", DURABLE).stdout.strip()
            self.cuts += 1
            self.taken += machine.try_run("cat", f"{DURABLE}-not").stdout.strip() != str(number)
            machine.close()
            if found != str(number):
                self.failures.append(f"cut {number}: the flushed file holds {found!r}")
        except CannotDo as error:
            self.failures.append(f"cut {number}: {error}")
        finally:
            local.close()


def told(what: str, seconds: list[float]) -> str:
    if not seconds:
        return f"{what}: none"
    return (
        f"{what}: {len(seconds)}, ready in {statistics.median(seconds):.1f} s median,"
        f" {min(seconds):.1f} to {max(seconds):.1f} s"
    )


def prove(tally: Tally, one: Lab, other: Lab, asked: argparse.Namespace) -> None:
    for number in range(asked.starts):
        if tally.started(one) is not None:
            if asked.watch:
                tally.watched(one, asked.watch)
            tally.stopped(one)
        print(f"start {number + 1}: {tally.ready[-1:]} {tally.failures[-1:]}", flush=True)
    if asked.cuts or asked.restores:
        tally.started(one)
    for number in range(asked.cuts):
        tally.cut(one, number)
        print(f"cut {number + 1}: {tally.failures or 'no failure so far'}", flush=True)
    if tally.cuts and not tally.taken:
        tally.failures.append(f"{tally.cuts} cuts took nothing, not even what had not been flushed")
    if asked.restores:
        save(one, quiet)
    for number in range(asked.restores):
        if tally.started(other, one) is not None:
            tally.stopped(other)
        if other.up():
            cut(other)
        if other.exists:
            remove(other)
        print(f"restore {number + 1}: {tally.restored[-1:]}", flush=True)
    if one.up():
        tally.stopped(one)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--restores", type=int, default=5)
    parser.add_argument("--watch", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--argument", action="append", default=[], metavar="WORD")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # in order, so that nothing is left
    tally, began = Tally(tuple(asked.argument)), time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        os.environ["XDG_DATA_HOME"] = directory
        one, other = lab("prove"), lab("other")
        try:
            prove(tally, one, other, asked)
        finally:
            for each in (one, other):
                if each.up():
                    cut(each)
                if each.exists:
                    remove(each)
    print(told("boots", tally.ready))
    print(told("restores", tally.restored))
    print(f"power cuts: {tally.cuts}, of which {tally.taken} took what had not been flushed")
    print(f"second attempts: {len(tally.retries)}; failures: {len(tally.failures)}")
    for line in (*tally.retries, *tally.failures):
        print(f"  {line}")
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(bool(tally.failures))


if __name__ == "__main__":
    main()
