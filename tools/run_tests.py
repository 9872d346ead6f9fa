"""Run a tier of the tests: all of it even if some fail, then where the time went, and last what failed.

    python -m tools.run_tests [test|unit|variations|machines]

pytest writes how long each test took, and how it ended, to build/tests/*.xml.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

RECORDS = Path("build/tests")
# Three because some only wait; neighbours share what they prepare.
UNIT_AT_ONCE = ("--numprocesses", "3", "--dist=worksteal")
INTEGRATION_AT_ONCE = ("--numprocesses", "2", "--dist=loadfile")  # a third saved a tenth, and guests missed their rates
# Tier -> its parts, each a run of pytest.
UNIT = {"unit": (*UNIT_AT_ONCE, "-m", "not variations", "tests/unit")}
TIERS = {
    "test": {
        **UNIT,
        "integration": (*INTEGRATION_AT_ONCE, "-m", "not (machines or pack or alone)", "tests/integration"),
    },
    "unit": UNIT,
    # Properties hold for ten random examples in the first tier.
    "variations": {
        "variations": (*UNIT_AT_ONCE, "-m", "variations or hypothesis", "--hypothesis-profile", "many", "tests/unit")
    },
    "machines": {
        "machines": (*INTEGRATION_AT_ONCE, "-m", "machines and not alone", "tests/integration"),
        "alone": ("-m", "alone", "tests/integration"),
    },
}
MEMORY = Path("/dev/shm")
MEMORY_BYTES = 2**30  # that must be free there; the unit tests take a tenth of it
SLOWEST = 10  # tests that are listed


@dataclass(frozen=True, slots=True)
class Test:
    """What a record says of one test."""

    name: str  # as pytest takes it
    seconds: float  # with its fixtures
    failed: bool


def recorded(path: Path) -> list[Test]:
    """The tests of one record, in the order in which they ended."""
    tests = []
    for case in ElementTree.parse(path).iter("testcase"):
        module = case.get("classname", "").replace(".", "/")
        name = f"{module}.py::{case.get('name')}" if module else str(case.get("name"))  # a module that has an error
        failed = any(case.find(kind) is not None for kind in ("failure", "error"))
        tests.append(Test(name, float(case.get("time", 0)), failed))
    return tests


def summary(tests: list[Test], seconds: float) -> list[str]:
    """Lines: the slowest tests, the sums by directory, the failed tests last."""
    sums: Counter[str] = Counter()
    for test in tests:
        sums[str(Path(test.name.partition("::")[0]).parent)] += test.seconds
    slowest = sorted(tests, key=lambda test: -test.seconds)[:SLOWEST]
    failed = [test.name for test in tests if test.failed]
    return [
        f"The {len(slowest)} slowest tests:",
        *(f"{test.seconds:8.1f} s  {test.name}" for test in slowest),
        "Sums of their times:",
        *(f"{total:8.1f} s  {directory}" for directory, total in sums.items()),
        f"In {seconds:.0f} s; how long each test took stands in {RECORDS}/",
        *(f"FAILED {name}" for name in failed),
        f"{len(tests) - len(failed)} passed, {len(failed)} failed",
    ]


@contextlib.contextmanager
def directory(part: str) -> Iterator[str]:
    """For the files of the tests. Those of unit tests are in memory, where to sync thousands of them costs nothing."""
    in_memory = part in ("unit", "variations") and is_fit(MEMORY)
    with tempfile.TemporaryDirectory(prefix="vmtax-tests-", dir=MEMORY if in_memory else None) as path:
        yield f"{path}/files"


def is_fit(directory: Path) -> bool:
    """Whether it has room for the unit tests' files, and programs among them can be run."""
    if not os.access(directory, os.W_OK):
        return False
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize >= MEMORY_BYTES and not found.f_flag & os.ST_NOEXEC


def run(argv: list[str]) -> tuple[int, bool]:
    """(its exit code, whether Ctrl-C came). It gets that too, and is waited for until it has ended what it started."""
    interrupted = False
    # Tests start hundreds of programs: each would compile all that it imports.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with subprocess.Popen(argv, env=environment) as process:
        while True:
            try:
                return process.wait(), interrupted
            except KeyboardInterrupt:
                interrupted = True
                print("tests: ending what was started; Ctrl-C again does not end this sooner", file=sys.stderr)


def main(tier: str = "test") -> int:
    """The exit code: 0 if everything ran and nothing failed."""
    begun, tests = time.monotonic(), list[Test]()
    RECORDS.mkdir(parents=True, exist_ok=True)
    for name, words in TIERS[tier].items():
        print(f"tests: {name}", flush=True)
        record = RECORDS / f"{name}.xml"
        record.unlink(missing_ok=True)
        with directory(name) as files:
            options = ("--quiet", "--basetemp", files, "--junitxml", str(record))
            code, interrupted = run([sys.executable, "-m", "pytest", *options, *words])
        tests += recorded(record) if record.exists() else []
        if code not in (0, 1):  # 1: tests failed, and the record has them
            tests.append(Test(f"the part {name}: pytest ended with {code}", 0.0, True))
        if interrupted:
            break
    print("\n".join(("", *summary(tests, time.monotonic() - begun))))
    return int(any(test.failed for test in tests))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
