"""What a disk must have to be recommended."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Requirements:
    """What the reader asked for."""

    needs: tuple[str, ...] = ()  # of design.features.FEATURES; () is what everybody needs: that it is durable
    accept_loss: bool = False  # what loses flushed data with the host's power is considered, too
