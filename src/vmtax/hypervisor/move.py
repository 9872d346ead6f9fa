"""The move of a running guest to another hypervisor process: how it is to be done."""

from __future__ import annotations

from dataclasses import dataclass

from vmtax.core.errors import CannotDo
from vmtax.design.migration import Mode


class MoveFailed(CannotDo):
    """A guest did not move; the text says why, in one line."""


@dataclass(frozen=True, slots=True)
class Move:
    """How a guest is to move."""

    mode: Mode
    seconds: float  # after which it is given up
    bandwidth: int | None = None  # bytes in a second that may be sent; None: the hypervisor's own limit
