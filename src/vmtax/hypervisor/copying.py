"""The interface of a snapshot or backup that a hypervisor makes of a disk while its guest works."""

from __future__ import annotations

from typing import Protocol


class DiskCopy(Protocol):
    """It is prepared, begun and ended once, and then undone. Each step raises CannotDo if the hypervisor refuses."""

    def prepare(self) -> None:
        """Set up what it needs. The disk's spare file is empty."""
        ...

    def operations(self) -> int:
        """The reads and writes of the disk so far, by which it is seen to be at work."""
        ...

    def begin(self, rate: int) -> None:
        """Take the snapshot, or start a backup that reads that many bytes in a second at most."""
        ...

    def end(self) -> int:
        """Stop it; returns the bytes in the spare file. Raises CannotDo if it failed by itself."""
        ...

    def undo(self) -> None:
        """Make the disk as it was, with what was written to it. This may take as long as writing that took."""
        ...
