"""Compare the clocks of machines: no guest's clock is trusted (METHOD.md, guards). Also read how CPU time was spent.

A tool calculates rates with the clock of its machine: if that is 3 % slow, they are 3 % too high.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from vmtax.core.notices import recorded
from vmtax.core.stopwatch import UPTIME_STEP
from vmtax.machine import MachineLost, Reader
from vmtax.meter.base import At, Readings, Work
from vmtax.meter.moment import LOOK, WORST, Moment, disagreement, elapsed, look, wall_clock_set

# A shell that starts a single program besides `date`: each costs an emulated guest a tenth of a second. Constant text.
COMMAND = ("sh", "-c", f"{LOOK}; exec cat /proc/uptime /proc/stat")
TICKS_PER_SECOND = 100  # of /proc/stat
# A row: seconds, over all CPUs of the machine, in which it wanted to run and its hypervisor ran something else.
STEAL = "steal_seconds"
SPENT = ("user", "nice", "kernel", "idle", "iowait", "hard_irq", "soft_irq", "steal")  # in the order of /proc/stat
# Allowance for a command's start: the way there and back, its libraries, its memory. With emulation this takes seconds,
# but seldom that many.
START_UP_SECONDS, EMULATED_START_UP_SECONDS = 5.0, 30.0


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of a machine."""

    at: Moment
    cpus: int = 0  # of that machine
    spent: Mapping[str, float] | None = None  # SPENT -> seconds over all CPUs; None: its kernel does not report it


def read(machine: Reader) -> Reading | None:
    """Read its clocks now, with one command; None if it does not report them."""
    try:
        outcome, moment = look(machine, COMMAND)
    except MachineLost:
        return None  # whoever uses the machine next gets the error
    if not outcome.ok or moment is None:
        return None
    text = outcome.stdout
    ticks = re.search(r"^cpu  ((?:\d{1,18} ){7}\d{1,18})\b", text, re.ASCII | re.MULTILINE)
    spent = [int(word) / TICKS_PER_SECOND for word in ticks[1].split()] if ticks else ()
    cpus = len(re.findall(r"^cpu\d", text, re.ASCII | re.MULTILINE))
    return Reading(moment, cpus, dict(zip(SPENT, spent, strict=True)) if spent else None)


class Clock:
    """The clocks of one boot's machines; the reading after one trial is also the one before the next."""

    name: ClassVar[str] = "clock"
    at: ClassVar[At] = "seat"
    command: ClassVar[tuple[str, ...]] = COMMAND

    def __init__(self) -> None:
        self._last: dict[str, Reading | None] = {}  # by machine path

    def before(self, machine: Reader) -> None:
        if machine.path not in self._last:
            self._last[machine.path] = read(machine)

    def after(self, machine: Reader, works: Sequence[Work]) -> Readings:
        """Void if the clocks disagree, or if the one that tools may take their times from was set."""
        if not all(work.ok for work in works):
            self._last.pop(machine.path)  # no figure depends on it; what happens meanwhile is not the next trial's
            return Readings()
        doubts = [doubt for w in works for doubt in own_time(w)]
        before = self._last[machine.path]
        after = self._last[machine.path] = read(machine) if before else None
        if before is None or after is None:
            return Readings(warnings=tuple(doubts))
        places = machine.path, before.at, after.at
        void = disagreement(*places) or wall_clock_set(*places)
        return Readings(used(machine.path, before, after), tuple(doubts), void=void)


def used(path: str, before: Reading, after: Reading) -> dict[str, float]:
    """How the CPUs of a machine spent their time, in core-seconds: for a guest all rows of a ledger, for a host STEAL.

    Time that is neither idle nor an interrupt belongs to programs or to the kernel on their behalf: it is divided
    between `user` and `kernel` in proportion to their ticks, as the kernel itself divides a process's time. An emulated
    guest loses ticks.
    """
    if before.spent is None or after.spent is None:
        return {}
    spent = {name: max(0.0, after.spent[name] - before.spent[name]) for name in SPENT}
    steal = {STEAL: spent["steal"]}
    seconds = elapsed(before.at, after.at)
    if "/" not in path or seconds <= 0:
        return steal  # the host has a ledger of its own
    busy = max(0.0, after.cpus * seconds - spent.pop("idle") - spent.pop("iowait"))
    spent["user"] += spent.pop("nice")
    ticks = spent["user"] + spent["kernel"]
    tasks = max(0.0, busy - spent["hard_irq"] - spent["soft_irq"] - spent["steal"])
    for name in ("user", "kernel"):
        spent[name] *= tasks / ticks if ticks else 1.0
    sums = {"busy": busy, "seconds": seconds, "error": 2 * UPTIME_STEP * (after.cpus + len(SPENT))}
    return {**steal, **spent, "remainder": busy - sum(spent.values()), **sums}


def own_time(work: Work) -> tuple[str, ...]:
    """A warning if the tool's own time does not fit its command's duration as seen from outside.

    No warning if the tool does not report its own.

    Their plain difference is not used: start-up and the way to the machine are only in the second (0.4 s for fio on a
    host, several seconds for stockfish under emulation), without any clock being wrong. But a tool cannot have worked
    longer than its command took, and the rest of that time must not be longer than a start-up.
    """
    tool, own, seconds = work.tool, work.own_seconds, work.seconds
    if own is None:
        return ()
    if own > seconds * (1 + WORST) + UPTIME_STEP:
        return (
            recorded(
                "clock",
                f"{tool} counted {own:.2f} s for itself where its whole command took {seconds:.2f} s, so rates are"
                f" {100 * (1 - seconds / own):.0f} % too low or more",
            ),
        )
    accounted = own + work.around_seconds
    rest = seconds - accounted
    start_up = EMULATED_START_UP_SECONDS if work.emulated else START_UP_SECONDS
    if rest > work.starts * start_up + WORST * seconds:
        return (
            recorded(
                "late-command",
                f"{tool} accounts for {accounted:.1f} s of the {seconds:.1f} s that its command took, and the rest is"
                " more than its start takes",
            ),
        )
    return ()
