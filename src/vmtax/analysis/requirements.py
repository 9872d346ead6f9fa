"""What a reader asks of a disk."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wish:
    """What the disk is to be."""

    needs: tuple[str, ...] = ()  # of design.features.FEATURES; () is what everybody needs: that it is durable
    accept_loss: bool = False  # what loses flushed data with the host's power is considered, too
