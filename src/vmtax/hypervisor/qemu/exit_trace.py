"""Count why a guest exits to KVM: the kernel's histogram of the tracepoint kvm_exit, for the threads of one QEMU.

It uses a tracefs instance of its own, which no other tracing shares, and which is removed with everything in it. If
tracefs is not mounted yet, it is mounted in a mount namespace, so the machine's mounts do not change.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from vmtax.core.errors import CannotDo
from vmtax.core.machines import first_line
from vmtax.machine import Machine, MachineLost

INSTANCES = PurePosixPath("/sys/kernel/tracing/instances")
EVENT = "events/kvm/kvm_exit"
_MOUNTED = "test -d /sys/kernel/tracing/instances || mount -t tracefs tracefs /sys/kernel/tracing || exit"
# Commands whose $1 is the instance. Constant text.
SHELL = ("unshare", "--mount", "sh", "-c")
# $2: a filter for the threads whose exits count.
START = (
    *SHELL,
    f'{_MOUNTED}; mkdir "$1" && echo "hist:keys=isa,exit_reason if $2" > "$1/{EVENT}/trigger"',
    "sh",
)
REASONS = (*SHELL, f'{_MOUNTED}; cat "$1/{EVENT}/format"', "sh")
COUNTS = (*SHELL, f'{_MOUNTED}; cat "$1/{EVENT}/hist"', "sh")
END = (*SHELL, f'{_MOUNTED}; test ! -d "$1" || rmdir "$1"', "sh")

Reasons = Mapping[tuple[int, int], str]  # (isa, number) -> name; isa: 1 is Intel, 2 is AMD


class ExitTrace:
    """One guest's histogram."""

    def __init__(self, parent: Machine, name: str, vcpus: Sequence[int]) -> None:
        """Start counting on the machine that the guest runs on. Raises CannotDo, with what is missing there.

        name: of the instance; vcpus: thread ids, on that machine, of the threads that run the guest's CPUs
        """
        self._parent = parent
        self._instance = str(INSTANCES / name)
        self._undoing = parent.undo_later(*END, self._instance)
        only = "||".join(f"common_pid=={thread}" for thread in vcpus)
        begun = parent.try_run(*START, self._instance, only)
        if not begun.ok:
            self._undoing.undo()
            words = first_line(begun.stderr)
            raise CannotDo(f"{parent.path} has no histogram of KVM's exits (tracefs with HIST_TRIGGERS, root): {words}")
        self._reasons = parse_reasons(parent.try_run(*REASONS, self._instance).stdout)

    def read(self) -> dict[str, float]:
        """Reason -> exits since the start; {} if the histogram cannot be read."""
        return parse_counts(self._parent.try_run(*COUNTS, self._instance).stdout, self._reasons)

    def end(self) -> None:
        with contextlib.suppress(MachineLost):  # then the instance is gone as well
            self._undoing.undo()


def parse_reasons(text: str) -> Reasons:
    """The kernel's names of exit reasons, from the tracepoint's format: one table per isa, in the order Intel, AMD."""
    tables = [part.partition("__print_flags(")[0] for part in text.split("__print_symbolic(REC->exit_reason")[1:]]
    return {
        (isa, int(number, 0) + int(more or 0)): name.lower().replace(" ", "_")
        for isa, table in enumerate(tables, start=1)
        for number, more, name in re.findall(
            r"\{ (0x[0-9a-f]{1,16}|0|[1-9]\d{0,18})(?: \+ (\d{1,19}))?, \"([\w ]+)\" \}", table, re.ASCII
        )
    }


def parse_counts(text: str, reasons: Reasons) -> dict[str, float]:
    """Reason -> count, from lines "{ isa: 2, exit_reason: 114 } hitcount: 1234"; an unknown reason keeps its number."""
    lines = re.findall(r"\{ isa: +(\d{1,19}), exit_reason: +(\d{1,19}) \} hitcount: +(\d{1,19})", text, re.ASCII)
    found: dict[str, float] = {}
    for isa, number, count in lines:
        name = reasons.get((int(isa), int(number)), number)
        found[name] = found.get(name, 0.0) + float(count)
    return found
