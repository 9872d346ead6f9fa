"""A disc that every Windows reads by itself: a few files in the root of an ISO 9660 file system (ECMA-119).

Written here, because hosts lack programs for it. Names have up to 30 characters, as level 2 allows; what the standard
forbids in them, the systems that read it do not mind.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

SECTOR = 2048
_PATHS_LITTLE, _PATHS_BIG, _ROOT, _FIRST = 18, 19, 20, 21  # sectors; the first 16 are nobody's
_LARGEST_NAME = 30
_MOST_BYTES = 2**32 - SECTOR  # of a file
_NO_DATE = b"0" * 16 + b"\0"


@dataclass(frozen=True, slots=True)
class _Extent:
    sector: int
    size: int  # bytes


def write_disc(target: Path, label: str, files: Mapping[str, Path]) -> None:
    """Make the disc. `label`: up to 32 capital letters, digits and underscores; `files`: name -> its content here."""
    extents, sector = {}, _FIRST
    for name in sorted(files, key=str.upper):
        size = files[name].stat().st_size
        assert len(name) <= _LARGEST_NAME and size <= _MOST_BYTES, "ours have short names, and are small"
        extents[name] = _Extent(sector, size)
        sector += -(-size // SECTOR)
    root = _Extent(_ROOT, SECTOR)
    records = [_record(b"\0", root, is_directory=True), _record(b"\1", root, is_directory=True)]
    records += [_record(f"{name.upper()};1".encode("ascii"), extent) for name, extent in extents.items()]
    directory = b"".join(records)
    assert len(directory) <= SECTOR, "a few files"
    path = struct.pack("BB", 1, 0)
    with target.open("wb") as stream:
        stream.write(bytes(16 * SECTOR))
        _write(stream, _volume(label, root, sector))
        _write(stream, b"\xffCD001\1")
        _write(stream, path + struct.pack("<IH", _ROOT, 1) + b"\0\0")
        _write(stream, path + struct.pack(">IH", _ROOT, 1) + b"\0\0")
        _write(stream, directory)
        for name, extent in extents.items():
            with files[name].open("rb") as source:
                shutil.copyfileobj(source, stream)
            stream.write(bytes(-extent.size % SECTOR))


def _write(stream: BinaryIO, data: bytes) -> None:
    """A sector."""
    stream.write(data.ljust(SECTOR, b"\0"))


def _volume(label: str, root: _Extent, sectors: int) -> bytes:
    """The primary volume descriptor."""
    return b"".join(
        (
            *(b"\1CD001\1\0", b" " * 32, label.encode("ascii").ljust(32), bytes(8), _both(sectors, 4), bytes(32)),
            *(_both(1, 2), _both(1, 2), _both(SECTOR, 2), _both(10, 4)),  # volumes, its number, block, path table
            *(struct.pack("<II", _PATHS_LITTLE, 0), struct.pack(">II", _PATHS_BIG, 0)),
            *(_record(b"\0", root, is_directory=True), b" " * (4 * 128 + 3 * 37), _NO_DATE * 4, b"\1"),
        )
    )


def _record(name: bytes, extent: _Extent, *, is_directory: bool = False) -> bytes:
    """An entry of a directory."""
    rest = _both(extent.sector, 4) + _both(extent.size, 4) + bytes(7)  # no date
    rest += bytes((2 if is_directory else 0, 0, 0)) + _both(1, 2) + bytes((len(name),)) + name
    rest += b"" if len(name) % 2 else b"\0"
    return bytes((len(rest) + 2, 0)) + rest


def _both(number: int, size: int) -> bytes:
    """In both orders of bytes."""
    return number.to_bytes(size, "little") + number.to_bytes(size, "big")
