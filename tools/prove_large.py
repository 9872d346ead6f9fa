"""Shows that runs of 100,000 trials are read in little memory; prints the peak of each command.

    python -m tools.prove_large [--trials 100000]

The store has two large runs without stored results, so that everything is computed, and one as large as a run file can
be. Each command is a process of its own; what Linux says of its largest resident set is compared with the bound.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.sample import sample_experiment
from vmtax.cli.keeping import keep_results
from vmtax.core.records import Boot, Trial
from vmtax.experiment.archive import MOST_RECORDS
from vmtax.store import Store

BOUND_BYTES = 400 * 2**20
ROUNDS = 7  # of the sample that is repeated
FIRST, SECOND, SMALLER = ("20261121-0412-quick-000" + end for end in "012")
COMMANDS = (
    "runs",
    *(f"show {options}{FIRST}" for options in ("", "--full ", "--json ")),
    *(f"report {FIRST} --format {format} -o x" for format in ("html", "markdown", "json", "csv", "parquet")),
    f"compare {FIRST} {SECOND}",
    f"export {SMALLER} -o x.run.gz",
)
# What `run --resume` reads before its first trial.
RESUME = f"""
from vmtax.design import iterations
from vmtax.experiment.resume import Before
from vmtax.experiment.runner import _with_raw
from vmtax.experiment.signatures import Signatures
from vmtax.store import Store
from vmtax.workload import WORKLOADS
with Store(reads=True) as store:
    run = store.load({FIRST!r})
    kept = Before.of(run.trials), Signatures.of(tuple(WORKLOADS.values()), _with_raw(store, run)), list(run.trials)
    iterations.together(run.trials)
"""
WITH_RESULTS = (f"show {FIRST}", f"report {FIRST} -o x")


def records(rounds: int) -> Iterator[Boot | Trial]:
    """The boots and trials of that number of rounds, without raw outputs."""
    sample = sample_experiment(rounds=ROUNDS)
    for number in range(rounds):
        for record in (*sample.boots, *sample.trials):
            if record.round == number % ROUNDS + 1:
                again = dataclasses.replace(record, round=number + 1)
                yield dataclasses.replace(again, raw="") if isinstance(again, Trial) else again


def fill(path: Path, trials: int) -> None:
    sample = sample_experiment(rounds=ROUNDS)
    rounds = -(-trials * ROUNDS // len(sample.trials))
    fitting = MOST_RECORDS * ROUNDS // (len(sample.trials) + len(sample.boots))
    with Store(path) as store:
        for id, count in ((FIRST, rounds), (SECOND, rounds), (SMALLER, min(rounds, fitting))):
            plan = {**sample.plan, "rounds": {"min": ROUNDS, "max": count}}
            store.put(dataclasses.replace(sample, id=id, boots=(), trials=(), plan=plan), records(count))
        print(f"{len(sample.trials) * rounds // ROUNDS} trials in {rounds} rounds, twice", flush=True)


def peak_bytes(argv: Sequence[str], home: Path) -> int:
    """The largest resident set of the command. Ends the proof if it fails."""
    child = os.fork()
    if not child:
        places = {name: str(home) for name in ("HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")}
        os.chdir(home)
        os.dup2(os.open(home / "out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 1)
        os.execve(sys.executable, [sys.executable, *argv], {**os.environ, **places})
    _, status, usage = os.wait4(child, 0)
    if code := os.waitstatus_to_exitcode(status):
        sys.exit(f"{' '.join(argv)[:100]}: exit code {code}")
    return usage.ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100_000)
    given = parser.parse_args()
    peaks: list[int] = []
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        path = home / "vmtax/vmtax.sqlite"

        def measure(name: str, *argv: str) -> None:
            clock = time.monotonic()
            peaks.append(peak_bytes(argv, home))
            print(f"{peaks[-1] // 2**20:5} MiB {time.monotonic() - clock:4.0f} s  {name}", flush=True)

        fill(path, given.trials)
        for command in COMMANDS:
            measure(command, "-m", "vmtax", *command.split())
        measure("what run --resume reads", "-c", RESUME)
        with Store(path) as store:
            keep_results(store, FIRST)
        for command in WITH_RESULTS:
            measure(f"{command}, with stored results", "-m", "vmtax", *command.split())
    worst, over = max(peaks) // 2**20, sum(peak > BOUND_BYTES for peak in peaks)
    print(f"{len(peaks)} commands, {worst} MiB at most; over {BOUND_BYTES // 2**20} MiB: {over}")
    sys.exit(1 if over else 0)


if __name__ == "__main__":
    main()
