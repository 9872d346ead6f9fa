"""Shows that programs of the user's own are measured on every layer; prints counts, all bad ones 0.

    python -m tools.prove_commands [--rounds 1]

The examples of docs/how-to/your-own-program.md run as they stand there, on the host and in a VM; the first one also in
a container and in a nested VM, and its results must be equal on all layers. Then programs that fail, hang, want a
terminal, print a gigabyte, leave daemons, or are missing: each says why, and nothing of it is left.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tools.score import Score
from vmtax.core.records import Trial
from vmtax.store import Store

PAGE = Path(__file__).parent.parent / "docs/how-to/your-own-program.md"
BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)
EVERYWHERE = "host,container,vm,nested"
MARK = "vmtax-prove-daemon"
# Command line -> words of the reason for which it has no result
BAD = {
    "echo it broke >&2; exit 3": "exit code 3: it broke",
    "sleep 1000": "no end within 3 s",
    "read answer < /dev/tty": "exit code",
    f"for i in 1 2 3; do setsid sh -c 'exec -a {MARK} sleep 1000' & done; sleep 1000": "no end within 3 s",
    "no-such-program --version": "not found; it runs the programs of the image",
    "kill -9 $$": "ended by signal 9",
}
# Those that are fine
GOOD = {
    "head -c 1073741824 /dev/zero | tr '\\0' x": 60,
    f"bash -c 'for i in 1 2 3; do setsid bash -c \"exec -a {MARK} sleep 1000\" & done; true'": 30,
}


@dataclass(kw_only=True)
class Bench(Score):
    """Where programs are measured, and what came of it."""

    home: Path
    runs: int = 0

    def shell(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run it with `vmtax` and a store of its own."""
        self.runs += 1
        places = {f"XDG_{kind}_HOME": str(self.home / kind.lower()) for kind in ("DATA", "STATE")}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, **places, "PATH": path}
        return subprocess.run(["sh", "-ec", script], env=environment, capture_output=True, text=True, cwd=self.home)

    def trials(self) -> tuple[Trial, ...]:
        """Those of the newest run."""
        with Store(self.home / "data" / "vmtax" / "vmtax.sqlite", reads=True) as store:
            return store.load(max(store.experiments(), key=lambda one: one.created).id).trials


def examples() -> list[str]:
    """The scripts of the page, the first one first."""
    return BLOCK.findall(PAGE.read_text(encoding="utf-8"))


def shown(score: Bench, script: str, layers: str, more: str) -> None:
    """One example: every layer has a figure."""
    began = time.monotonic()
    name = re.search(r"--packages (\S+)", script)
    words = f" --layers {layers} --emulate --yes --wait -o report.html {more}\n"
    done = score.shell(script.rstrip() + words)
    what = f"{name[1] if name else script} on {layers}"
    print(done.stdout.partition("VM: QEMU")[0], f"({time.monotonic() - began:.0f} s)", flush=True)
    score.check(done.returncode == 0, f"{what}: {done.stderr[-400:]}")
    worked = {each.treatment.split()[0] for each in score.trials() if each.status == "ok"}
    score.check(worked == set(layers.split(",")), f"{what}: only {', '.join(sorted(worked))} have figures")


def equal(score: Bench, rounds: int) -> None:
    """A program whose output is the same everywhere, and a file of the user's: equal digests and an interval."""
    (score.home / "data").mkdir(exist_ok=True)
    (score.home / "numbers").write_text("".join(f"{number}\n" for number in range(200_000)))
    command = "vmtax run --command 'sort -r numbers | sha256sum' --files numbers --same-output"
    done = score.shell(f"{command} --layers {EVERYWHERE} --rounds {rounds} --emulate --yes --wait -o report.html")
    print(done.stdout.partition("VM: QEMU")[0], flush=True)
    trials = score.trials()
    score.check(done.returncode == 0 and "refused" not in done.stderr, f"equal digests: {done.stderr[-400:]}")
    score.check({each.status for each in trials} == {"ok"}, "equal digests: a trial has no result")


def bad(score: Bench) -> None:
    """Programs that have no result, and say why; and those that are unusual, and have one."""
    for command, why in BAD.items():
        plan = {"name": "command", "layers": ["host", "vm"], "rounds": {"min": 1, "max": 1}}
        parameters = {"run": command, "timeout": 3}
        (score.home / "plan.yaml").write_text(json.dumps({**plan, "workloads": [{"command": parameters}]}))
        done = score.shell("vmtax run plan.yaml --emulate --yes --wait -o report.html || true")
        score.check(done.stderr.count(why) >= 2, f"{command}: not {why!r} on both layers: {done.stderr[-400:]}")
        left_alone(score, command)
    for command, seconds in GOOD.items():
        plan = {"name": "command", "layers": ["host", "vm"], "rounds": {"min": 1, "max": 1}}
        parameters = {"run": command, "timeout": seconds * 10}
        (score.home / "plan.yaml").write_text(json.dumps({**plan, "workloads": [{"command": parameters}]}))
        done = score.shell("vmtax run plan.yaml --emulate --yes --wait -o report.html")
        score.check(done.returncode == 0, f"{command}: {done.stderr[-400:]}")
        score.check({each.status for each in score.trials()} == {"ok"}, f"{command}: no result")
        left_alone(score, command)


def left_alone(score: Bench, command: str) -> None:
    """Nothing of it runs on."""
    left = subprocess.run(["pgrep", "-f", f"^{MARK}|^sleep 1000"], capture_output=True, text=True).stdout.split()
    score.check(not left, f"{command}: still runs: {' '.join(left)}")


def main() -> int:
    """0 if nothing went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="vmtax-commands-") as name:
        score = Bench(home=Path(name))
        bad(score)
        equal(score, given.rounds)
        for script in examples():
            shown(score, script, "host,vm", "--rounds 1")
    minutes = (time.monotonic() - began) / 60
    print(f"{score.runs} runs, {score.checks} checks in {minutes:.0f} min; wrong: {len(score.wrong)}")
    return 1 if score.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
