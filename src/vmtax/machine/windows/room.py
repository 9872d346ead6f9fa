"""How much room a directory on Windows has. Pure."""

from __future__ import annotations

import re
from pathlib import PureWindowsPath

_NUMBER = re.compile(r"\d{1,18}", re.ASCII)


def listing(directory: PureWindowsPath) -> str:
    """The line for cmd.exe that lists its folders; its last line says how many there are, and how much is free."""
    return f'dir /ad /-c "{directory}"'


def free_bytes(answer: str) -> int | None:
    """The bytes that are free for this user, from the last line of a listing in any language; None: it is none.

    The other number in that line, that of the folders, is smaller, unless the disk is full.
    """
    lines = answer.split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    numbers = [int(each) for each in _NUMBER.findall(last)]
    return max(numbers) if len(numbers) > 1 else None
