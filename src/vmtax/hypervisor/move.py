"""Options and errors of the migration of a running guest to another hypervisor process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vmtax.core.errors import CannotDo
from vmtax.design.migration import MigrationSettings

# Mode of the directory for migration sockets, which belongs to the user that the hypervisors switch to. bubblewrap,
# which starts an image's QEMU as root without root's capabilities, enters it by its group.
MEETING_MODE = "710"


class MoveFailed(CannotDo):
    """A guest was not migrated; the text says why, in one line."""


@dataclass(frozen=True, slots=True)
class Move:
    """How a guest is migrated."""

    settings: MigrationSettings
    seconds: float  # after which it is cancelled
    bandwidth: int | None = None  # bytes per second that may be sent; None: the hypervisor's own limit
    # Called when the guest has given up the device for which its card stands by
    fell_back: Callable[[], None] = lambda: None
