"""Shows that a run has one owner and a host one measurement, while runs are killed; prints counts, all bad ones 0.

    python -m tools.prove_ownership [--kills 50] [--seed N]

While a run measures this host, four others try: a second controller with a store of its own, a process of another PID
namespace that resumes the run, one that removes it, and another user. Then the run is killed by SIGKILL at a random
moment, the host must be free within a second, and the run is resumed: no trial may be lost, and none measured twice.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from tools.torture import identity, missing
from vmtax.core.errors import BAD_INPUT, BUSY, FAILED
from vmtax.machine.hold import words_of_holder
from vmtax.store import Store
from vmtax.testbed.session.exclusive import LOCK

PLAN = "name: owned\nlayers: [host]\nworkloads: [{chess: {depth: 6, emulated_depth: 6}}]\nrounds: {min: 6, max: 6}\n"
FREE_SECONDS = 1.0  # in which a host is free after a SIGKILL
NOBODY = "65534"
LATEST_KILL = 2.0  # seconds after the others have tried
OTHER_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


@dataclass
class Score:
    """What was tried, and what went wrong."""

    kills: int = 0
    early: int = 0  # runs that ended before the others had tried
    tried: int = 0
    slowest: float = 0.0  # seconds until the host was free
    wrong: list[str] = field(default_factory=list)

    def check(self, holds: bool, what: str) -> None:
        self.tried += 1
        if not holds:
            self.wrong.append(what)
            print(f"\nwrong: {what}", flush=True)

    def print(self, end: str = "") -> None:
        text = f"{self.kills} kills, {self.early} too early, {self.tried} checks"
        text += f", host free after {self.slowest:.2f} s at most"
        print(f"\r{text}; wrong: {len(self.wrong)}", end=end, flush=True)


@dataclass(frozen=True)
class Controller:
    """A machine that runs vmtax: a store and undo lists of its own."""

    home: Path

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "vmtax", *words]

    @property
    def environment(self) -> dict[str, str]:
        places = {f"XDG_{kind}_HOME": str(self.home / kind.lower()) for kind in ("DATA", "STATE")}
        return {**os.environ, **places}

    @property
    def store(self) -> Path:
        return self.home / "data/vmtax/vmtax.sqlite"

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.home / "log").open("wb") as log:
            return subprocess.Popen(self.argv(*words), env=self.environment, cwd=self.home, stdout=log, stderr=log)

    def run(self, *words: str, before: tuple[str, ...] = ()) -> tuple[int, str]:
        """(exit code, what it printed)."""
        argv = [*before, *self.argv(*words)]
        done = subprocess.run(argv, env=self.environment, cwd=self.home, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr


def one_kill(ours: Controller, theirs: Controller, plan: Path, source: random.Random, score: Score) -> None:
    process = ours.start("run", str(plan), "--yes", "--emulate")
    _wait_for_a_trial(ours, process)
    # At once, so that the run still measures when they end.
    with ThreadPoolExecutor() as pool:
        user = pool.submit(_tried_by_another_user)
        remove = pool.submit(ours.run, "runs", "rm", "last", "--yes", before=OTHER_NAMESPACE)
        resume = pool.submit(ours.run, "run", "--resume", "--yes", before=OTHER_NAMESPACE)
        other = pool.submit(theirs.run, "run", str(plan), "--yes", "--emulate")
    if process.poll() is not None:
        score.early += 1  # on a busy machine: what the others saw was no longer a run
        return
    (code, words), what = other.result(), "another controller"
    score.check(code == BUSY and "measures there since" in words, f"{what}: {code}: {words}")
    (code, words), what = resume.result(), "resumed in another PID namespace"
    score.check(code in (FAILED, BAD_INPUT), f"{what}: {code}: {words}")
    (code, words), what = remove.result(), "removed in another PID namespace"
    score.check(code != 0 and "is running: end it first" in words, f"{what}: {code}: {words}")
    score.check("measures there since" in user.result(), f"another user: {user.result()}")
    time.sleep(source.uniform(0, LATEST_KILL))
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
        process.wait()
        score.kills += 1
        free = _seconds_until_free()
        score.slowest = max(score.slowest, free)
        score.check(free <= FREE_SECONDS, f"the host was free after {free:.1f} s")
    with Store(ours.store) as store:
        seen = {identity(trial) for trial in store.load("last").trials}
        is_over = store.experiments()[0].state == "complete"
    if not is_over:
        code, words = ours.run("run", "--resume", "--yes")
        score.check(code == 0, f"resumed: {code}: {words}")
    with Store(ours.store) as store:
        for problem in missing(store, seen):
            score.check(False, problem)
        entry = store.experiments()[0]
        score.check((entry.state, entry.rounds, entry.failed) == ("complete", 6, 0), f"the run at its end: {entry}")


def _wait_for_a_trial(ours: Controller, process: subprocess.Popen[bytes]) -> None:
    earlier = None
    while process.poll() is None:
        if ours.store.exists():
            with Store(ours.store) as store:
                newest = next(iter(store.experiments()), None)
            if newest is not None and newest.state == "running" and newest.ok:
                return
            earlier = newest
        time.sleep(0.05)
    sys.exit(f"the run itself ended, before it had a trial ({earlier}):\n{(ours.home / 'log').read_text()}")


def _tried_by_another_user() -> str:
    """What a user without any rights reads who wants to measure."""
    text = resources.files("vmtax.machine").joinpath("hold.py").read_text(encoding="utf-8")
    program = f"{text}\nprint(Hold().take({os.environ[LOCK]!r}, 'ours'))"
    argv = (
        "setpriv",
        f"--reuid={NOBODY}",
        f"--regid={NOBODY}",
        "--clear-groups",
        "/usr/bin/python3",
        "-I",
        "-S",
        "-c",
        program,
    )
    return subprocess.run(argv, check=True, capture_output=True, text=True, cwd="/").stdout


def _seconds_until_free() -> float:
    begun = time.monotonic()
    while words_of_holder(f"\0vmtax-{os.environ[LOCK]}"):
        time.sleep(0.01)
    return time.monotonic() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = parser.parse_args()
    print(f"seed {given.seed}")
    os.environ[LOCK] = f"prove-ownership-{os.getpid()}"
    score, source = Score(), random.Random(given.seed)
    with tempfile.TemporaryDirectory() as directory:
        controllers = [Controller(Path(directory) / name) for name in ("ours", "theirs")]
        for controller in controllers:
            controller.home.mkdir()
        plan = Path(directory) / "plan.yaml"
        plan.write_text(PLAN)
        while score.kills < given.kills and not score.wrong:
            one_kill(*controllers, plan, source, score)
            score.print()
    score.print("\n")
    sys.exit(1 if score.wrong else 0)


if __name__ == "__main__":
    main()
