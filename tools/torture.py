"""Kills runs at random points, resumes them, and prints what was lost and what was left: both must be 0.

    python tools/torture.py [--fake 1000] [--real 100] [--rounds 2] [--seed N]

A fake run is the runner and the store on scripted machines, forked, killed by SIGKILL. A real one is `vmtax run` with
QEMU, disk and bridge, ended by SIGKILL (of the guard too), Ctrl-C (twice), SIGTERM or SIGHUP. Lost: a trial that was
acknowledged, or was seen in the store, and is missing or damaged afterwards; or one that was measured twice. Left: a
process, namespace, interface, mount, file or undo list of ours.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.fake_testbed import PLAN, Lab, bench
from vmtax.core.events import TrialFinished
from vmtax.core.records import Trial
from vmtax.image.cache import images_directory
from vmtax.machine.local import LocalMachine
from vmtax.store import Store, StoreError
from vmtax.system.paths import state_home

FAKE_ROUNDS = 15
REAL_PLAN = """\
name: torture
layers: [host, vm]
guest: {vcpus: 2, memory: 512MiB}
workloads:
  - disk: {patterns: [randread-4k-qd1], size: 32MiB, seconds: 1}
  - net: {cases: [tcp-in], seconds: 1}
  - boot
rounds: {min: ROUNDS, max: ROUNDS}
"""
ENDS = {"SIGKILL": 50, "SIGKILL, guard first": 20, "Ctrl-C twice": 10, "SIGTERM": 10, "SIGHUP": 10}  # per cent
TIDY_SECONDS = 60.0

Identity = tuple[int, str, str, str]


@dataclass
class Score:
    """What went wrong."""

    kills: int = 0
    resumed: int = 0
    finished: int = 0  # experiments that came to their end over their kills
    lost: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def tell(self, what: str) -> None:
        print(
            f"\r{what}: {self.kills} kills, {self.resumed} resumed, {self.finished} experiments finished;"
            f" lost {len(self.lost)}, left {len(self.left)}",
            end="" if sys.stdout.isatty() else "\n" if self.kills % 100 == 0 else "",
            flush=True,
        )


def identity(trial: Trial) -> Identity:
    return trial.round, trial.treatment, trial.workload, trial.case


def missing(store: Store, told: set[Identity]) -> Iterator[str]:
    """What was acknowledged and is not in the newest experiment, whole and once."""
    try:
        found = [identity(trial) for trial in store.load("last", with_raw=True).trials]
    except StoreError as error:
        if told or "no runs yet" not in str(error):
            yield str(error)
        return
    yield from (f"gone: {one}" for one in told - set(found))
    yield from (f"twice: {one}" for one in set(found) if found.count(one) > 1)


# Fake runs


def fake(kills: int, source: random.Random) -> Score:
    score = Score()
    plan = PLAN + f"rounds: {{min: {FAKE_ROUNDS}, max: {FAKE_ROUNDS}}}\n"
    with tempfile.TemporaryDirectory() as directory:
        longest = _fork(Path(directory) / "timed", plan, again=False, seconds=60.0)[1]
        while score.kills < kills:
            place = Path(tempfile.mkdtemp(dir=directory))
            _fake_experiment(place, plan, longest, kills, source, score)
            score.tell("fake runs")
    print()
    return score


def _fake_experiment(place: Path, plan: str, longest: float, kills: int, source: random.Random, score: Score) -> None:
    """One experiment, killed and resumed until it is finished."""
    told: set[Identity] = set()
    begun = False
    while True:
        span = longest / 2 if begun else longest  # what is left to do is shorter
        seconds = source.uniform(0, span) if score.kills < kills else 60.0
        acknowledged, _, ended = _fork(place, plan, again=begun, seconds=seconds)
        told |= acknowledged
        with Store(place / "store.sqlite") as store:
            score.lost += missing(store, told)
            states = [entry.state for entry in store.experiments()]
            trials = len(store.load("last").trials) if states else 0
        score.resumed += begun
        begun = bool(states)
        if ended:
            score.finished += 1
            # Two treatments of two cases and an A/A of one. One may be committed, not acknowledged: it was killed
            # in between.
            if states != ["complete"] or trials != FAKE_ROUNDS * 5:
                score.lost.append(f"{place.name} ended as {states} with {trials} trials")
            return
        score.kills += 1
        if states not in ([], ["interrupted"], ["complete"]):
            score.lost.append(f"{place.name} is {states} after its death")
        if states == ["complete"]:
            return  # killed in its last breath


def _fork(place: Path, plan: str, *, again: bool, seconds: float) -> tuple[set[Identity], float, bool]:
    """Run in a child, kill it after so long; (the trials it told of, how long it ran, whether it had ended by then)."""
    place.mkdir(exist_ok=True)
    read, write = os.pipe()
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(read)
        _child(place, plan, again, write)
    os.close(write)
    ended = _wait(child, seconds)
    if not ended:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    with os.fdopen(read) as pipe:
        lines = [line[:-1] for line in pipe if line.endswith("\n")]
    return {_parsed(line) for line in lines}, time.monotonic() - started, ended


def _parsed(line: str) -> Identity:
    number, treatment, workload, case = line.split("\t")
    return int(number), treatment, workload, case


def _child(place: Path, plan: str, again: bool, pipe: int) -> None:
    lab = Lab(plan, lambda number, name: bench(), place)

    def emit(event: object) -> None:
        if isinstance(event, TrialFinished):
            os.write(pipe, "\t".join(map(str, identity(event.trial))).encode() + b"\n")

    lab.emit = emit
    try:
        lab.resume() if again else lab.run()
    except BaseException as error:
        print(f"\n{place.name}: {error!r}", file=sys.stderr)
        os._exit(1)
    os._exit(0)


def _wait(child: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(0.001)
    return False


# Real runs


def real(kills: int, source: random.Random, rounds: int) -> Score:
    score = Score()
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        for kind in ("DATA", "STATE"):
            os.environ[f"XDG_{kind}_HOME"] = str(home / kind.lower())
        (home / "plan.yaml").write_text(REAL_PLAN.replace("ROUNDS", str(rounds)))
        before = traces()
        longest = _timed(home)
        print(f"a whole run takes {longest:.0f} s")
        while score.kills < kills:
            _real_kill(home, source.uniform(0, longest), source, score, before)
            score.tell("real runs")
        _finish(home, score, rounds)
    print()
    return score


def _command(home: Path) -> list[str]:
    """Begins a run, or goes on with the last one where that was stopped."""
    with Store() as store:
        newest = next(iter(store.experiments()), None)
    again = newest is not None and newest.state in ("interrupted", "failed")
    what = ["--resume"] if again else [str(home / "plan.yaml")]
    return [sys.executable, "-m", "vmtax", "run", *what, "--yes", "--emulate", "--output", str(home / "report.html")]


def _default_signals() -> None:
    """An ignored signal stays ignored, and this may run under nohup or in the background."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _start(home: Path) -> subprocess.Popen[bytes]:
    with (home / "log").open("ab") as log:
        return subprocess.Popen(
            _command(home), cwd=home, stdout=log, stderr=log, start_new_session=True, preexec_fn=_default_signals
        )


def _timed(home: Path) -> float:
    started = time.monotonic()
    if _start(home).wait(300) != 0:
        raise SystemExit(f"the run itself fails:\n{(home / 'log').read_text()}")
    return time.monotonic() - started


def _real_kill(home: Path, seconds: float, source: random.Random, score: Score, before: set[str]) -> None:
    process = _start(home)
    score.resumed += "--resume" in process.args
    with contextlib.suppress(subprocess.TimeoutExpired):
        if process.wait(seconds) != 0:
            score.lost.append(f"a run failed by itself: {(home / 'log').read_text()[-500:]}")
        score.finished += 1
        return
    with Store() as store:
        seen = _seen(store)
    end = source.choices(list(ENDS), list(ENDS.values()))[0]
    _end(process, end)
    score.kills += 1
    if "guard" in end:
        LocalMachine().guard.close()  # the next start of anything makes up for it
    with Store() as store:
        score.lost += missing(store, seen)
    score.left += [f"after {end} at {seconds:.1f} s: {trace}" for trace in _settled(before)]


def _seen(store: Store) -> set[Identity]:
    try:
        return {identity(trial) for trial in store.load("last").trials}
    except StoreError:
        return set()


def _end(process: subprocess.Popen[bytes], end: str) -> None:
    if "guard" in end:
        for guard in _guards_of(process.pid):
            os.kill(guard, signal.SIGKILL)
    numbers = {"Ctrl-C twice": signal.SIGINT, "SIGTERM": signal.SIGTERM, "SIGHUP": signal.SIGHUP}
    process.send_signal(numbers.get(end, signal.SIGKILL))
    if end == "Ctrl-C twice":
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
    try:
        process.wait(TIDY_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _guards_of(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent and b"vmtax-guard" in (path.parent / "cmdline").read_bytes():
                found.append(int(path.parent.name))
    return found


def _finish(home: Path, score: Score, rounds: int) -> None:
    """What was stopped last is brought to its end."""
    command = _command(home)
    if "--resume" in command:
        code = subprocess.run(command, cwd=home, capture_output=True).returncode
        score.finished += code == 0
    with Store() as store:
        for entry in store.experiments():
            if entry.state != "complete" or (entry.rounds, entry.failed) != (rounds, 0):
                score.lost.append(f"{entry}")


def traces() -> set[str]:
    """Everything on this host that could be ours."""
    globs: tuple[tuple[Path, str], ...] = (
        *((Path(base), "vmtax-*") for base in ("/tmp", "/var/tmp", "/run/netns")),
        *((Path("/sys/class/net"), name) for name in ("vt*", "vmtax*")),
        *((state_home() / part, "*") for part in ("undo", "live")),
        (images_directory(), ".building-*"),
    )
    found = {str(path) for base, pattern in globs for path in base.glob(pattern)}
    found |= {line for line in Path("/proc/self/mounts").read_text().splitlines() if "vmtax" in line.split()[1]}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if b"VMTAX_RUN=" in (process / "environ").read_bytes():
                found.add(
                    f"{process.name}: {(process / 'cmdline').read_bytes().replace(bytes(1), b' ').decode()[:120]}"
                )
    return found


def _settled(before: set[str]) -> list[str]:
    """What is left when it has had its time; what is seen is swept away, so that it counts once."""
    deadline = time.monotonic() + TIDY_SECONDS
    while (left := traces() - before) and time.monotonic() < deadline:
        time.sleep(0.05)
    before |= left
    return sorted(left)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fake", type=int, default=1000)
    parser.add_argument("--real", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=2, help="of a real run")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    asked = parser.parse_args()
    print(f"seed {asked.seed}")
    parts: tuple[tuple[int, Callable[[int, random.Random], Score]], ...] = (
        (asked.fake, fake),
        (asked.real, functools.partial(real, rounds=asked.rounds)),
    )
    scores = [part(kills, random.Random(asked.seed)) for kills, part in parts if kills]
    for line in (line for score in scores for line in (*score.lost, *score.left)):
        print(line)
    sys.exit(any(score.lost or score.left for score in scores))


if __name__ == "__main__":
    main()
