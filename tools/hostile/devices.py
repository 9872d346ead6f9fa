"""Devices that hold something, wherever it lies: none is taken for empty. Sparse files stand for them."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from tools.hostile.case import Case
from vmtax.storage.empty import ENDS_BYTES, LOOK, MIB, NUMBERS, SECONDS, SHARE, WHOLE_BYTES

TITLE = "devices that hold something"
EACH = 20  # of each kind
WORDS = b"IMPORTANT DATABASE ROWS"
QUICK = 300 * MIB  # a small device is read from end to end


def cases(source: random.Random, home: Path, share: float) -> Iterator[Case]:
    path = home / "device"
    yield _case(path, 512 * MIB, [3 * MIB], "behind the first MiB")
    yield _case(path, 64 * MIB, [], "empty")
    for _ in range(max(1, round(EACH * share))):
        size = source.randrange(4096, QUICK, 4096)
        yield _case(path, size, [source.randrange(size - len(WORDS))], "anywhere")
        yield _case(path, size, [], "empty")
        large = source.randrange(WHOLE_BYTES + MIB, 2**42, 4096)
        inside = source.randrange(ENDS_BYTES - len(WORDS))
        yield _case(path, large, [source.choice((inside, large - len(WORDS) - inside))], "at one end")
        # A file system whose first MiB was zeroed keeps copies: ext4, btrfs, and XFS in each quarter.
        copy = source.choice((128 * MIB, 64 * MIB, large // 4, large // 2, 3 * large // 4))
        yield _case(path, large, [copy], "a copy")
        # In 2 of 100 blocks of a device that is sampled.
        count = WHOLE_BYTES // MIB + source.randrange(1, 4096)
        blocks = source.sample(range(count), int(count * 2 * SHARE))
        yield _case(path, count * MIB, [block * MIB + source.randrange(MIB - 64) for block in blocks], "scattered")


def _case(path: Path, size: int, places: list[int], kind: str) -> Case:
    def complaints() -> Iterable[str]:
        with path.open("wb") as file:
            file.truncate(size)
            for place in places:
                os.pwrite(file.fileno(), WORDS, place)
        started = time.monotonic()
        done = subprocess.run([*LOOK, str(path), *NUMBERS], capture_output=True, text=True)
        answer, _, number = done.stdout.strip().partition(" ")
        if done.returncode or done.stderr:
            yield f"exit code {done.returncode}: {done.stderr[-300:]}"
        elif answer != ("data" if places else "empty"):
            yield f"the answer is {done.stdout!r}"
        elif places and int(number) not in places:
            yield f"the data begin at {number}?"
        if time.monotonic() - started > SECONDS:
            yield "slower than its own limit"
        path.unlink()

    where = f"first at {min(places)}" if places else "nothing"
    return Case(f"{size} bytes, {kind}: {where}", complaints)
