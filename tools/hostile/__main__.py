"""Runs the hostile cases and prints, per category, how many were tried and failed; exit code 1 where one failed.

python -m tools.hostile [--seed N] [--seeds 10] [--share 0.1] [CATEGORY ...]
"""

from __future__ import annotations

import argparse
import importlib
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tools.hostile.case import Case

SHARED = ("__init__", "__main__", "case", "plan_maker")
CATEGORIES = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in SHARED)
MOST_SHOWN = 20  # failures of a category


def tried(category: str, seed: int, share: float) -> Iterator[tuple[Case, list[str]]]:
    """Each case of a category with its complaints. The same seed and share give the same cases."""
    module = importlib.import_module(f"tools.hostile.{category}")
    with tempfile.TemporaryDirectory(prefix=f"hostile-{category}-") as home:
        for case in module.cases(random.Random(f"{seed} {category}"), Path(home), share):
            yield case, list(case.complaints())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("categories", nargs="*", metavar="CATEGORY", help=", ".join(CATEGORIES))
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--seeds", type=int, default=1, help="how many, one after the other (default: 1)")
    parser.add_argument("--share", type=float, default=1.0, help="of the generated cases (default: all)")
    asked = parser.parse_args()
    failed_in_all = 0
    for seed in range(asked.seed, asked.seed + asked.seeds):
        print(f"seed {seed}", flush=True)
        failed_in_all += sum(failures(category, seed, asked.share) for category in asked.categories or CATEGORIES)
    return 1 if failed_in_all else 0


def failures(category: str, seed: int, share: float) -> int:
    """How many cases of a category failed; it is printed, with the first ones."""
    title = importlib.import_module(f"tools.hostile.{category}").TITLE
    count = failed = 0
    clock = time.monotonic()
    for case, wrong in tried(category, seed, share):
        count += 1
        failed += bool(wrong)
        if wrong and failed <= MOST_SHOWN:
            print(f"  FAILED {case.name[:300]}", *(f"    {line}" for line in wrong), sep="\n", flush=True)
    print(f"{title}: {count} tried, {failed} failed ({time.monotonic() - clock:.0f} s)", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
