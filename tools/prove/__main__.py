"""Runs every proof, prints the table; exit code 1 where a bar is missed."""

from __future__ import annotations

import importlib
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tools.prove.bar import Bar

SHARED = ("__init__", "__main__", "bar", "noise")
PARTS = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in SHARED)


def prove(part: str) -> tuple[list[Bar], float]:
    """One module's bars, and the seconds they took."""
    clock = time.monotonic()
    found = list(importlib.import_module(f"tools.prove.{part}").bars())
    return found, time.monotonic() - clock


def main() -> int:
    wanted = sys.argv[1:] or PARTS
    console = Console()
    table = Table("what", "wanted", "found", "met", title="2000 simulated experiments each, fixed seeds", box=None)
    clock = time.monotonic()
    missed = 0
    with ProcessPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
        for part, (bars, seconds) in zip(wanted, pool.map(prove, wanted), strict=True):
            for bar in bars:
                table.add_row(bar.what, bar.wanted, bar.figure, "yes" if bar.met else "[bold red]NO[/]")
                missed += not bar.met
            console.print(f"{part}: {seconds:.0f} s", style="dim")
    console.print(table)
    console.print(f"{time.monotonic() - clock:.0f} s; {'every bar is met' if not missed else f'{missed} missed'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
