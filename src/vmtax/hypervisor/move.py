"""The move of a running guest to another hypervisor process: how it is to be done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vmtax.core.errors import CannotDo
from vmtax.design.migration import Mode

# Of the directory in which two hypervisor processes meet, which belongs to the user that they become: they make and
# reach a socket there. bubblewrap, which starts an image's QEMU as root without root's capabilities, enters by group.
MEETING_MODE = "710"


class MoveFailed(CannotDo):
    """A guest did not move; the text says why, in one line."""


@dataclass(frozen=True, slots=True)
class Move:
    """How a guest is to move."""

    mode: Mode
    seconds: float  # after which it is given up
    bandwidth: int | None = None  # bytes in a second that may be sent; None: the hypervisor's own limit
    fell_back: Callable[[], None] = lambda: None  # called when it has given up what its card stands by for
