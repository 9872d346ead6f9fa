"""Read a process's output, with a limit on its size and on the time."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable
from typing import IO

MOST_BYTES = 64 * 2**20  # of a command's output
MOST_LINE = 4 * 2**20
BANNER_BYTES = 64 * 2**10  # that a login may print before the first answer
EXCERPT = 100  # characters of unexpected output that are shown

Pipe = IO[bytes]


class TooMuch(Exception):
    """More output came than the limit."""


def listen(
    pipes: dict[Pipe, bytearray],
    deadline: float,
    *,
    most: int = MOST_BYTES,
    extend: Callable[[], float] | None = None,
    feed: tuple[Pipe, bytes] | None = None,
    is_enough: Callable[[bytearray, int], bool] = lambda heard, before: False,
) -> None:
    """Read the pipes at the same time into their buffers, until each has ended or `is_enough` is true.

    `feed`: data for another pipe, which is then closed. `is_enough` gets everything that was read from one pipe, and
    its length before the last read. Raises TimeoutError at the deadline (monotonic clock), unless `extend` returns
    another one, and TooMuch after `most` bytes in all.
    """
    left = most
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe, selectors.EVENT_READ)
        if feed is not None:
            os.set_blocking(feed[0].fileno(), False)
            selector.register(feed[0], selectors.EVENT_WRITE, memoryview(feed[1]))
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready or time.monotonic() > deadline:
                if extend is None:
                    raise TimeoutError
                deadline = extend()
            for key, _ in ready:
                pipe = key.fileobj  # type: ignore[assignment]  # one of those that were registered above
                if key.data is not None:
                    _write(selector, pipe, key.data)
                    continue
                heard = pipes[pipe]
                before = len(heard)
                heard += os.read(key.fd, 65536)
                left -= len(heard) - before
                if left < 0:
                    raise TooMuch
                if len(heard) == before or is_enough(heard, before):
                    selector.unregister(pipe)


def _write(selector: selectors.BaseSelector, pipe: Pipe, data: memoryview) -> None:
    try:
        data = data[os.write(pipe.fileno(), data) :] if data else data
    except BrokenPipeError:
        data = data[:0]  # it does not want the rest
    if data:
        selector.modify(pipe, selectors.EVENT_WRITE, data)
    else:
        selector.unregister(pipe)
        pipe.close()


def read_line(pipe: Pipe, deadline: float, most: int = MOST_LINE) -> bytes:
    """A line with its newline, or what came before the pipe ended; nothing beyond it is consumed.

    Raises TimeoutError at the deadline (monotonic clock), TooMuch if there is no newline in `most` bytes.
    """
    line = bytearray()
    descriptor = pipe.fileno()
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            if not selector.select(max(0.0, deadline - time.monotonic())) or time.monotonic() > deadline:
                raise TimeoutError
            byte = os.read(descriptor, 1)  # one by one, because the next line may be for another reader
            if not byte:
                break
            line += byte
            if len(line) > most:
                raise TooMuch
    return bytes(line)


def excerpt(data: bytes) -> str:
    """The beginning of unexpected output, for a message."""
    text = data[: 4 * EXCERPT].decode(errors="replace").strip()
    if not text:
        return "nothing"
    return repr(text[:EXCERPT]) + (" and more" if len(text) > EXCERPT or len(data) > 4 * EXCERPT else "")
