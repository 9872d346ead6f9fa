"""What `mounts.READ` prints on other machines."""

from __future__ import annotations


def row(
    number: int, point: str, system: str, source: str, options: str = "rw", shared: str = "", device: str = "8:1"
) -> str:
    """A line of mountinfo."""
    words = [f"{number} 1 {device} / {_written(point)} {options}", *([shared] if shared else []), "-"]
    return " ".join([*words, system, _written(source), options]) + "\n"


def printed(*rows: str, on: int | None = 1, free: int = 0) -> str:
    """`on`: the number of the mount that the path is on; None: it could not be opened. `free`: bytes."""
    return (f"mnt_id:\t{on}\n" if on is not None else "") + f"free: {free} 1\n" + "".join(rows)


def only(system: str, source: str, options: str = "rw", free: int = 99000000000) -> str:
    """Where there is one mount."""
    return printed(row(1, "/", system, source, options), free=free)


def _written(word: str) -> str:
    return word.replace("\\", "\\134").replace(" ", "\\040")
