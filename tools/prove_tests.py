"""Plants a fault in each of many modules, one at a time, and runs the tests that reach its line: one of them must fail.

    python -m tools.prove_tests [--integration] [--only TEXT] [--tests PATH...]

The faults stand in tools/faults.py. Everything happens in a copy of the tree. First the tests run once with a probe
before each line: that is the map. Then each fault is asked of the unit tests that reach it, the quickest first. What
survives is asked of `make prove-variations`, and, with --integration, of the integration tests of `make test` and of
`make prove-machines`.
What a process computes once for several tests is mapped to the first that asked for it. Exit code 1 if one survived.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tools.faults import FAULTS, Fault
from tools.proofs import ROOT, git
from tools.run_tests import Test, recorded

SOURCE = "src/vmtax"
HANGS = 900.0  # seconds beyond what tests may take; only what hangs takes so long, on however busy a machine
SLOWDOWN = 5.0  # of tests against their first run, on a machine that has become busy
UNWINDS = 60.0  # seconds for tests that are interrupted to end what they started
PASSED, FAILED = 0, 1  # pytest's exit codes
# Appends the name of the test that runs to a file that is there only where this program made it. Never raises.
PROBE = """
try:
    import os, sys
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    seen = sys.__dict__.setdefault("vmtax_probes", set())
    if ({path!r}, test) not in seen:
        file = os.open({path!r}, os.O_WRONLY | os.O_APPEND)
        os.write(file, (test + chr(10)).encode())
        os.close(file)
        seen.add(({path!r}, test))
except Exception:
    pass
"""


@dataclass(frozen=True, slots=True)
class Tier:
    """Tests that are run by the same command."""

    name: str
    directory: str
    markers: str  # which of them, as pytest's -m takes it; empty: all


UNIT = Tier("unit tests", "tests/unit", "not variations")
VARIATIONS = Tier("make prove-variations", "tests/unit", "variations or hypothesis")
INTEGRATION = (
    Tier("integration tests", "tests/integration", "not (machines or pack or alone)"),
    Tier("make prove-machines", "tests/integration", "machines or alone"),
)


@dataclass(frozen=True, slots=True)
class Map:
    """Which of a tier's tests reach which fault."""

    tier: Tier
    reached: tuple[tuple[str, ...], ...]  # for each fault: file::function, the quickest first
    seconds: tuple[float, ...]  # for each fault: what all of these took


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a fault."""

    fault: Fault
    tests: int  # how many were to be asked
    tier: str  # the one that caught it; empty: none did
    by: str  # the test that failed; or why it is not known whether one would
    seconds: float


_parsed = functools.lru_cache(maxsize=1)(ast.parse)  # several faults of a module follow one another


def innermost(text: str, number: int) -> tuple[ast.stmt, bool]:
    """The statement before which a line can be inserted that runs whenever the line of that number may run next, and
    whether it is in a function.
    """
    lines = text.splitlines()
    found: list[tuple[ast.stmt, bool]] = []

    def walk(node: ast.AST, inside: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt) and child.lineno <= number <= (child.end_lineno or 0):
                if not lines[child.lineno - 1].lstrip().startswith("elif "):
                    found.append((child, inside))
                walk(child, inside or isinstance(child, ast.FunctionDef))
            elif not isinstance(child, ast.stmt):
                walk(child, inside)

    walk(_parsed(text), False)
    return found[-1]


def line_of(text: str, line: str) -> int:
    """The number of the only line that reads so. Raises ValueError if there is none, or several."""
    numbers = [number for number, other in enumerate(text.splitlines(), 1) if other.strip() == line]
    if len(numbers) != 1:
        raise ValueError(f"{len(numbers)} lines read {line!r}, not one")
    return numbers[0]


def probed(text: str, faults: Sequence[tuple[Fault, Path]]) -> str:
    """The module with a probe for each fault, which writes to its file."""
    lines, inserted = text.splitlines(), list[tuple[int, str]]()
    for fault, file in faults:
        statement, _ = innermost(text, line_of(text, fault.acts or fault.line))
        probe = f"{' ' * statement.col_offset}exec({PROBE.format(path=str(file))!r}, {{}})"
        inserted.append((statement.lineno - 1, probe))
    for index, probe in sorted(inserted, reverse=True):
        lines.insert(index, probe)
    return "\n".join(lines) + "\n"


def planted(text: str, fault: Fault) -> str:
    """The module with the fault."""
    lines = text.splitlines()
    index = line_of(text, fault.line) - 1
    lines[index] = lines[index].replace(fault.line, fault.fault)
    return "\n".join(lines) + "\n"


class Copy:
    """A copy of the tree, in which modules are changed and tests run."""

    def __init__(self, directory: Path) -> None:
        directory.chmod(0o755)  # some tests give their rights up
        self.directory, self.root = directory, directory / "tree"
        for name in git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
            if name and (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name, follow_symlinks=False)

    @contextlib.contextmanager
    def changed(self, texts: dict[str, str]) -> Iterator[None]:
        """These modules, named as in `Fault.path`, with other texts."""
        before = {name: self.text(name) for name in texts}
        try:
            for name, text in texts.items():
                self._write(name, text)
            yield
        finally:
            for name, text in before.items():
                self._write(name, text)

    def text(self, name: str) -> str:
        return (self.root / SOURCE / name).read_text(encoding="utf-8")

    def _write(self, name: str, text: str) -> None:
        path = self.root / SOURCE / name
        path.write_text(text, encoding="utf-8")
        # Compiled code of the same size and second would be taken for the new text's.
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()

    def tests(
        self,
        tier: Tier,
        names: Collection[str],
        *words: str,
        limit: float | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> tuple[int | None, list[Test], str]:
        """(pytest's exit code, what it recorded, what it printed); the code is None if it did not end in time."""
        record, chosen = self.directory / "record.xml", self.directory / "names"
        record.unlink(missing_ok=True)
        chosen.write_text("\n".join(names) + "\n", encoding="utf-8")
        argv = [sys.executable, "-u", "-m", "pytest", "--quiet", "-p", "no:cacheprovider", "--hypothesis-seed", "0"]
        argv += ["--basetemp", str(self.directory / "run"), "--junitxml", str(record), *words]
        argv += [*(("-m", tier.markers) if tier.markers else ()), f"@{chosen}"]
        environment = {**os.environ, "PYTHONPATH": str(self.root / "src")}
        with started(argv, self.root, environment, limit) as (process, is_late):
            assert process.stdout is not None
            lines = []
            for line in process.stdout:
                lines.append(line)
                say(line)
            code = process.wait()
        found = recorded(record) if record.exists() else []
        return None if is_late.is_set() else code, found, "".join(lines)


@contextlib.contextmanager
def started(
    argv: Sequence[str], where: Path, environment: dict[str, str], limit: float | None
) -> Iterator[tuple[subprocess.Popen[str], threading.Event]]:
    """A process and whether its time ran out; at exit, it and all that it started are gone."""
    is_late = threading.Event()
    process = subprocess.Popen(
        argv,
        cwd=where,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )

    def end_late() -> None:
        is_late.set()
        send(process, signal.SIGKILL)

    timer = threading.Timer(limit, end_late) if limit else None
    if timer:
        timer.daemon = True
        timer.start()
    try:
        yield process, is_late
    finally:
        if timer:
            timer.cancel()
        if process.poll() is None:
            print("ending the tests that run", flush=True)
            send(process, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=UNWINDS)
        send(process, signal.SIGKILL)
        process.communicate()


def send(process: subprocess.Popen[str], number: int) -> None:
    """A signal to the process and all of its session that did not leave its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def made_map(copy: Copy, tier: Tier, faults: Sequence[Fault], tests: Sequence[str]) -> Map:
    """Run the tier's tests once under probes."""
    files = [copy.directory / f"reached-{number}" for number in range(len(faults))]
    by_module = defaultdict[str, list[tuple[Fault, Path]]](list)
    for fault, file in zip(faults, files, strict=True):
        file.write_text("")
        file.chmod(0o666)
        by_module[fault.path].append((fault, file))
    began = time.monotonic()

    def say(line: str) -> None:
        if line.rstrip().endswith("%]"):
            print(f"map of the {tier.name}: {line.rstrip()[-5:-1].strip()}, {since(began)}", flush=True)

    with copy.changed({name: probed(copy.text(name), planned) for name, planned in by_module.items()}):
        code, ran, output = copy.tests(tier, tests, say=say)
    if code not in (PASSED, FAILED, 5):  # 5: there are no such tests
        sys.exit(f"{output}\ntools.prove_tests: the {tier.name} could not be run: pytest ended with {code}")
    failing = still_failing(copy, tier, [test.name for test in ran if test.failed])
    seconds = defaultdict[str, float](float)
    for test in ran:
        seconds[function(test.name)] += test.seconds
    reached = tuple(in_order(file.read_text(encoding="utf-8"), seconds, failing) for file in files)
    print(f"map of the {tier.name}: {len(ran)} tests, {since(began)}", flush=True)
    return Map(tier, reached, tuple(sum(seconds[name] for name in names) for names in reached))


def still_failing(copy: Copy, tier: Tier, names: Sequence[str]) -> frozenset[str]:
    """Those that fail without any probe as well, and so can show nothing."""
    if not names:
        return frozenset()
    _, ran, _ = copy.tests(tier, dict.fromkeys(map(function, names)))
    failing = frozenset(function(test.name) for test in ran if test.failed)
    for name in sorted(failing):
        print(f"not asked, for it fails without a fault: {name}", flush=True)
    return failing


def function(name: str) -> str:
    """file::function, of a test's name or of what pytest says of the one that runs."""
    return name.partition("[")[0].partition(" (")[0]


def in_order(lines: str, seconds: dict[str, float], without: Collection[str]) -> tuple[str, ...]:
    """The functions that a probe wrote down, the quickest first."""
    found = {function(line) for line in lines.splitlines()} - {"", *without}
    return tuple(sorted(found, key=lambda name: (seconds.get(name, 0.0), name)))


def asked(copy: Copy, fault: Fault, number: int, of: Map) -> Verdict:
    """Run the tests that reach this fault, with it, until one fails."""
    began, names = time.monotonic(), of.reached[number]
    code, ran, output = PASSED, list[Test](), ""
    limit = HANGS + SLOWDOWN * of.seconds[number]
    if names:
        with copy.changed({fault.path: planted(copy.text(fault.path), fault)}):
            code, ran, output = copy.tests(of.tier, names, "--exitfirst", limit=limit)
    failed = [test.name for test in ran if test.failed]
    seconds = time.monotonic() - began
    if code == FAILED and failed:
        return Verdict(fault, len(names), of.tier.name, failed[0], seconds)
    if code is None:
        return Verdict(fault, len(names), "", f"ran out of time after {limit:.0f} s", seconds)
    if code not in (PASSED, 5):
        sys.exit(f"{output}\ntools.prove_tests: {fault.path}: pytest ended with {code}: is this a fault?")
    return Verdict(fault, len(names), "", "", seconds)


def since(began: float) -> str:
    return f"{time.monotonic() - began:.0f} s"


def table(verdicts: Sequence[Verdict], tiers: Sequence[Tier]) -> Iterator[str]:
    """Lines: each fault and the test that caught it, what survived, the counts."""
    width = max(len(one.fault.path) for one in verdicts)
    for one in verdicts:
        left = one.by or f"SURVIVED {one.tests} tests: {one.fault.fault}"
        by = f"{one.tier}: {one.by}" if one.tier else left
        yield f"{one.fault.path:<{width}}  {one.fault.meaning}\n{'':<{width}}  {by}"
    modules = len({one.fault.path for one in verdicts})
    counts = [sum(one.tier == tier.name for one in verdicts) for tier in tiers]
    caught = [
        f"{count} {'caught' if tier is UNIT else 'only'} by {tier.name}"
        for tier, count in zip(tiers, counts, strict=True)
    ]
    only = "" if INTEGRATION[0] in tiers else "; integration tests were not asked"
    survived = len(verdicts) - sum(counts)
    yield f"{len(verdicts)} faults in {modules} modules: {', '.join(caught)}, {survived} survived{only}"


def prove(asked_for: argparse.Namespace, copy: Copy, tiers: Sequence[Tier]) -> list[Verdict]:
    """What each tier leaves is asked of the next."""
    faults = [fault for fault in FAULTS if asked_for.only in fault.path]
    if not faults:
        sys.exit(f"tools.prove_tests: no fault's path contains {asked_for.only}")
    verdicts = dict[Fault, Verdict]()
    for tier in tiers:
        left = [fault for fault in faults if fault not in verdicts or not (verdicts[fault].tier or verdicts[fault].by)]
        if not left:
            break
        reached = made_map(copy, tier, left, asked_for.tests or [tier.directory])
        for number, fault in enumerate(left):
            one = asked(copy, fault, number, reached)
            before = verdicts[fault].tests if fault in verdicts else 0
            verdicts[fault] = replace(one, tests=before + one.tests)
            end = f"caught by {one.by}" if one.tier else one.by or "SURVIVED"
            print(
                f"{number + 1} of {len(left)}: {fault.path}: {one.tests} tests, {end}, {one.seconds:.0f} s", flush=True
            )
    return list(verdicts.values())


def main() -> int:
    """The exit code: 0 if no fault survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--integration", action="store_true", help="ask integration tests too")
    parser.add_argument("--only", default="", metavar="TEXT", help="faults in modules whose path contains this")
    parser.add_argument("--tests", nargs="+", metavar="PATH", help="of the unit tests, only these")
    asked_for = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # in order, so that nothing is left
    tiers = (UNIT,) if asked_for.tests else (UNIT, VARIATIONS)
    if asked_for.integration:
        tiers += INTEGRATION
    else:
        print("only unit tests are asked; --integration asks the others too, which takes long", flush=True)
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="prove-", dir=os.environ.get("TMPDIR", "/var/tmp")) as directory:
            verdicts = prove(asked_for, Copy(Path(directory)), tiers)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    print(f"in {since(began)}")
    print("\n".join(table(verdicts, tiers)))
    return int(any(not one.tier for one in verdicts))


if __name__ == "__main__":
    sys.exit(main())
