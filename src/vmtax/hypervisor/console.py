"""A guest's serial console, which its hypervisor writes to a file on its parent."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import deque
from pathlib import PurePosixPath

from vmtax.core.units import shortened
from vmtax.machine import Machine, MachineError, Process

SHOWN_LINES, MOST_SHOWN = 15, 200  # limits for the console in an error: lines, and characters of the last one
MOST_LINES, LONGEST_LINE = 10_000, 4096  # stored of a console: lines, and bytes per line
MOST_CONSOLE = 64 * 2**20  # bytes that a guest may print
FLOODED = f"the guest was ended: it printed more than {MOST_CONSOLE >> 20} MiB on its console"
PANIC = "Kernel panic"
READY = "vmtax: ready"  # printed by the guest's init when sshd listens


class Console:
    """The guest's serial console, read line by line while the guest runs; the last lines are kept."""

    def __init__(self, parent: Machine, path: PurePosixPath, most: int = MOST_CONSOLE) -> None:
        """`most`: bytes; a guest that prints more is ended."""
        self._tail = parent.start("tail", "-c", "+1", "-f", str(path))
        # A guest may print without end: only the last lines are kept, and lines that do not fit into the queue are
        # dropped.
        self._lines: deque[str] = deque(maxlen=MOST_LINES)
        self._arrived: queue.Queue[str] = queue.Queue(MOST_LINES)
        self._most = most
        self.is_flooded = threading.Event()
        self._flooding: list[Process] = []
        self._parent = parent
        threading.Thread(target=self._follow, name="console", daemon=True).start()

    def _follow(self) -> None:
        size = 0
        with contextlib.suppress(OSError, ValueError, MachineError):
            while raw := self._tail.stdout.readline(LONGEST_LINE):
                size += len(raw)
                if size > self._most:
                    self.is_flooded.set()
                    self._end_flood()
                    return
                line = raw.decode(errors="replace").rstrip()
                self._lines.append(line)
                with contextlib.suppress(queue.Full):
                    self._arrived.put_nowait(line)

    def bound(self, process: Process) -> None:
        """Set the process that prints here, so that it can be ended if it prints too much."""
        self._flooding.append(process)
        if self.is_flooded.is_set():
            self._end_flood()

    def _end_flood(self) -> None:
        for process in list(self._flooding):
            self._parent.try_run("kill", "-KILL", str(process.pid), timeout=10.0)

    def next_line(self, timeout: float) -> str | None:
        """The next line that was not returned before, or None after `timeout` seconds."""
        try:
            return self._arrived.get(timeout=timeout)
        except queue.Empty:
            return None

    def text(self) -> str:
        return "\n".join(list(self._lines))

    def last_lines(self) -> str:
        """Its last lines; after a panic, those around the panic message, because a stack trace follows it."""
        lines = list(self._lines)
        end = next((number + 3 for number, line in enumerate(lines) if PANIC in line), len(lines))
        return "\n".join(f"  {line}" for line in lines[max(0, end - SHOWN_LINES) : end]) or "  (nothing)"

    def panic(self) -> str | None:
        """The message with which the guest's kernel ended; None if it did not panic."""
        found = next((line for line in list(self._lines) if PANIC in line), None)
        return shortened(found[found.index(PANIC) :].strip(), MOST_SHOWN) if found else None

    def end(self) -> str:
        """Its last line as part of a message."""
        last = next((line.strip() for line in reversed(list(self._lines)) if line.strip()), "")
        return f"the last line of its console is {shortened(last, MOST_SHOWN)!r}" if last else "its console is empty"

    def stop(self) -> None:
        self._tail.stop()
