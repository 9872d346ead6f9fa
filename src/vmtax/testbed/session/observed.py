"""QEMUs that others started, and that are measured: the subjects of a run offer them to its meters and its trials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Observed:
    """One of them."""

    qemu: int | None  # its process, on the host under test; None: not known
    why_void: Callable[[], str]  # why what was measured does not count; "" if it does. Raises MachineLost


class Watched(Observed):
    """One whose own threads are the figure, because it also runs when its host alone is measured."""
