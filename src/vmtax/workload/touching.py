"""Executed by Python inside the userland: touches new memory twice, and prints how long that took.

Standard library only. Arguments: bytes that count, and bytes that are touched before them and kept: a kernel hands out
first what was used before. All pages are small: each one is a page fault of its own.
"""

import contextlib
import mmap
import sys
import time

PAGE = 4096


def mapped(size: int) -> mmap.mmap:
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without transparent huge pages
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return memory


def touch(memory: mmap.mmap) -> float:
    """Write a byte to each page; returns seconds."""
    ones = b"\1" * (len(memory) // PAGE)
    began = time.monotonic()
    memory[::PAGE] = ones
    return time.monotonic() - began


def main() -> None:
    size, before = map(int, sys.argv[1:3])
    kept = mapped(before)
    touch(kept)
    seconds = []
    for _ in range(2):
        with mapped(size) as memory:
            seconds.append(touch(memory))
    with open(1, "w", encoding="ascii") as answer:
        answer.write(f"vmtax touch: {size // PAGE} pages, first {seconds[0]:.9f} s, again {seconds[1]:.9f} s\n")


if __name__ == "__main__":
    main()
