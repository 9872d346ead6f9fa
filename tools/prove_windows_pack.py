"""Shows that the pack for Windows is the same in two builds, and that its programs do what the image's do for Linux.

    python -m tools.prove_windows_pack

Wine runs the programs: their work is proved, not their speed, and nothing of Windows itself. stockfish must search as
many positions as the image's, at each depth; fio's JSON must be what workload `disk` reads, of as many bytes as the
file that it left.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from vmtax.image import cache, windows
from vmtax.image.packs import Pack
from vmtax.machine.local import LocalMachine
from vmtax.workload.chess import ALONE, Chess, ChessParameters
from vmtax.workload.fio import Disk, DiskParameters
from vmtax.workload.output import BadOutput

DEPTHS = ("7", "8", "9")
SIZE = 16 << 20
# Pattern of `disk` -> what fio.exe gets for it.
PATTERNS = {
    "randread-4k-qd1": ("--rw=randread", "--bs=4k", "--iodepth=1"),
    "randwrite-4k-qd32": ("--rw=randwrite", "--bs=4k", "--iodepth=32"),
    "read-1m": ("--rw=read", "--bs=1m", "--iodepth=8"),
    "write-1m": ("--rw=write", "--bs=1m", "--iodepth=8"),
}
# The colon is escaped: unescaped, fio exits with 0 and measures another file.
OPTIONS = (
    *(r"--filename=C\:\vmtax\disk", f"--size={SIZE}", "--direct=1", "--ioengine=windowsaio", "--thread"),
    *("--lat_percentiles=1", "--output-format=json"),
)
MINUTES = 600.0
SANDBOX = ("bwrap", "--unshare-all", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp")


def output(argv: Sequence[str], environment: dict[str, str] | None = None) -> str:
    """What a program prints on both streams; wine writes some of its own to stderr."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=MINUTES, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{argv[0]} ended with {done.returncode}: {done.stderr[-500:]}")
    return done.stdout + done.stderr


def built(again: int) -> Pack:
    print(f"build {again}", flush=True)
    return windows.PACK.build(lambda event: None, again=True)


def nodes(words: str) -> str | None:
    return Chess(ChessParameters()).signature(ALONE, words)


def main() -> int:
    first, second = built(1), built(2)
    if first.digest != second.digest:
        print(f"two builds differ: {first.digest} and {second.digest}")
        return 1
    image = cache.current()
    if image is None:
        raise SystemExit("there is no image: vmtax image build")
    wrong = []
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        keeper = LocalMachine()
        try:
            digests = windows.unpack(second, keeper, work / "programs")
        finally:
            keeper.close()
        under_wine = {**os.environ, "WINEPREFIX": str(work / "prefix"), "WINEDEBUG": "-all", "DISPLAY": ""}
        for depth in DEPTHS:
            bench = ("bench", "16", "1", depth, "default", "depth")
            linux = nodes(output((*SANDBOX, "--ro-bind", str(image.tree), "/", "/usr/games/stockfish", *bench)))
            theirs = nodes(output(("wine", str(work / "programs/stockfish.exe"), *bench), under_wine))
            print(f"depth {depth}: Linux {linux}, Windows {theirs}", flush=True)
            if linux is None or linux != theirs:
                wrong.append(f"depth {depth}")
        (work / "prefix/drive_c/vmtax").mkdir()
        for pattern, words in PATTERNS.items():
            argv = ("wine", str(work / "programs/fio.exe"), f"--name={pattern}", *OPTIONS, *words)
            printed = output(argv, under_wine)
            workload = Disk(DiskParameters.model_validate({"patterns": [pattern]}))
            block = (1 << 20) if pattern.endswith("1m") else 4096
            try:
                figures = workload.parse(pattern, printed)
                done = workload.operations(pattern, printed)
            except BadOutput as error:
                wrong.append(f"{pattern}: {error}")
                continue
            size = (work / "prefix/drive_c/vmtax/disk").stat().st_size
            print(f"{pattern}: {len(figures)} figures, {done:.0f} operations, file of {size} bytes", flush=True)
            if (done, size) != (SIZE / block, SIZE):
                wrong.append(f"{pattern}: {done} operations")
        for name, digest in digests.items():
            print(f"{name} {digest}")
    print(
        f"{second.version}: 2 builds are equal; {len(DEPTHS)} numbers of positions and {len(PATTERNS)} patterns of fio"
        f" compared, wrong: {len(wrong)}{''.join(f'; {each}' for each in wrong)}"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
