"""A short QMP client over QEMU's standard input and output, or over a socket if QEMU outlives us.

`qemu.qmp` is asyncio and requires a socket. With the pipes of the process itself there is no socket to protect, and a
QEMU behind one or two ssh connections is reached in the same way as a local one.
"""

from __future__ import annotations

import json
import queue
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import IO, Any, Protocol

from vmtax.core.errors import CannotDo
from vmtax.machine.answer import object_or_none

LONGEST_LINE = 16 * 2**20  # of an answer, in bytes


class QmpError(CannotDo):
    """QEMU refused a command, gave an invalid answer, or is gone."""


class Pipes(Protocol):
    """The transport of QMP: the pipes of a QEMU, or a socket."""

    @property
    def stdin(self) -> IO[bytes]: ...
    @property
    def stdout(self) -> IO[bytes]: ...


class Socket:
    """A connection to the QMP socket of a QEMU on this host."""

    def __init__(self, path: str, timeout: float) -> None:
        """Raises QmpError if no QEMU listens there within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        self._socket = socket.socket(socket.AF_UNIX)
        while True:
            try:
                self._socket.connect(path)
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    self._socket.close()
                    raise QmpError(f"{path}: {error.strerror}") from error
                time.sleep(0.02)
        self.stdin: IO[bytes] = self._socket.makefile("wb")
        self.stdout: IO[bytes] = self._socket.makefile("rb")

    def send_descriptor(self, descriptor: int) -> None:
        """Pass an open file of ours to the next command that takes one; the blank it is sent with means nothing."""
        socket.send_fds(self._socket, [b" "], [descriptor])

    def close(self) -> None:
        # This also ends the reader, which closing alone would not.
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class Qmp:
    """One connection. Not for use by several threads at once."""

    def __init__(self, process: Pipes, timeout: float) -> None:
        """Wait for the greeting; raises QmpError when QEMU ends or says nothing within `timeout` seconds."""
        self._process = process
        self._id = 0
        self.events: deque[dict[str, Any]] = deque(maxlen=100)  # received before the newest answer
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._read, name="qmp", daemon=True).start()
        self._next("QMP", timeout)
        self.execute("qmp_capabilities", timeout=timeout)

    def _read(self) -> None:
        try:
            while line := self._process.stdout.readline(LONGEST_LINE):
                if (message := object_or_none(line)) is None:
                    break  # not QMP
                self._messages.put(message)
        except (OSError, ValueError):
            pass  # closed by us
        self._messages.put(None)

    def _next(self, key: str, timeout: float) -> dict[str, Any]:
        while True:
            try:
                message = self._messages.get(timeout=timeout)
            except queue.Empty:
                raise QmpError(f"QEMU gave no answer within {timeout:.0f} s") from None
            if message is None:
                raise QmpError("QEMU ended")
            if key in message or "error" in message:
                return message
            self.events.append(message)  # no caller waits for an event

    def execute(
        self, command: str, timeout: float = 10.0, properties: Mapping[str, str] | None = None, **arguments: object
    ) -> Any:
        """Run one command and return its result. Raises QmpError.

        `properties`: properties of a device, whose names may contain underscores; argument names have hyphens instead
        """
        self._id += 1
        words = {k.replace("_", "-"): v for k, v in arguments.items()} | dict(properties or {})
        text = json.dumps({"execute": command, "arguments": words, "id": self._id})
        try:
            self._process.stdin.write(text.encode() + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise QmpError(f"QEMU is gone: {error}") from error
        message = self._next("return", timeout)
        while message.get("id", self._id) != self._id:  # answers to a command that was given up
            message = self._next("return", timeout)
        if "error" in message:
            raise QmpError(f"QEMU refused {command}: {message['error'].get('desc')}")
        return message["return"]

    def hand_over(self, descriptor: int) -> str:
        """Pass an open file of ours to QEMU; returns QEMU's name of it. Only over a socket."""
        assert isinstance(self._process, Socket)
        self._process.send_descriptor(descriptor)
        return f"/dev/fdset/{self.execute('add-fd')['fdset-id']}"

    def forwarded_ports(self) -> dict[int, int]:
        """Guest TCP port -> port on the parent's loopback, from `info usernet`: QMP itself has no such query."""
        return parse_usernet(self.execute("human-monitor-command", command_line="info usernet"))


def parse_usernet(text: str) -> dict[int, int]:
    """Lines such as "TCP[HOST_FORWARD]  12  127.0.0.1 40123  10.0.2.15 22  0  0"."""
    ports = re.findall(r"TCP\[HOST_FORWARD\]\s+\S+\s+\S+\s+(\d{1,5})\s+\S+\s+(\d{1,5})\b", text, re.ASCII)
    return {int(guest): int(host) for host, guest in ports}
