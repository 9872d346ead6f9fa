"""Packs that are userlands of their own, by the names that the commands `vmtax image` print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from vmtax.image import kernel, postgresql, windows
from vmtax.image.packs import Userland

PackName = Literal["kernel pack", "PostgreSQL pack", "pack for Windows"]
USERLANDS: Mapping[PackName, Userland] = {
    "kernel pack": kernel.PACK,
    "PostgreSQL pack": postgresql.PACK,
    "pack for Windows": windows.PACK,
}
