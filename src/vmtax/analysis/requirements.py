"""What a disk must have to be recommended."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Requirements:
    """What the reader asked for."""

    needs: tuple[str, ...] = ()  # of design.features.FEATURES; (): durable, which everybody needs
    accept_loss: bool = False  # also consider disks that lose flushed data in a power cut
