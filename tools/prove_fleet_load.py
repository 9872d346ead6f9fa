"""What a thousand hosts ask of one PostgreSQL: lag, memory and connections of a store that all of them write to.

    python -m tools.prove_fleet_load [--hosts 1000] [--every 60] [--trials 6] [--drivers 4]

Each host is a thread with a store of its own, as each `vmtax run` has: it holds the locks of its run and looks every
few seconds whether its fleet was stopped. It records a trial with its raw output every minute, and the lag is from
the moment at which a trial is due to its commit. Figures are of real vmtax and a real server; the trials are made up.
Then a reader who has none of their costs writes the page of all hosts. Last, hosts begin on a server as Debian sets it
up, until one is refused: what breaks first.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.postgresql import PostgresqlServer
from tests.sample import sample_experiment, unstarted
from tools.score import Score
from vmtax.cli.fleet_task import FleetWatch
from vmtax.cli.many import keep_costs
from vmtax.core.records import Experiment, Trial
from vmtax.store import Store, StoreError
from vmtax.store.address import ServerAddress

FLEET = "load"
CONNECTED = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
ROUNDS = 6
CASES = {("chess", ""), ("disk", "randread-4k-qd1")}
RAW_CHARACTERS = 12_000  # of the output of one trial: fio's JSON
ODD = (17, 400)
PER_HOST = 4  # connections, in the server's limit
SHOW_SECONDS, PAGE_BYTES = 10.0, 3_000_000  # CPU time of the reader, and the page
SWITCH_SECONDS = 1.0  # a thread gives the interpreter up at each answer of the server anyway
SMALL = "max_connections=100"  # as Debian sets it up


def hosts_run(number: int, base: Experiment) -> Experiment:
    """The run of one host, with a cost of its own."""
    rng = random.Random(number)
    slower = rng.gauss(0, 0.004) + (0.4 if number in ODD else 0.0)
    name = f"web{number:04d}"

    def moved(trial: Trial) -> Trial:
        if trial.treatment == "host":
            return trial
        measured = (
            dataclasses.replace(one, value=one.value * math.exp(slower if one.metric.better == "lower" else -slower))
            for one in trial.measurements
        )
        return dataclasses.replace(trial, measurements=tuple(measured))

    facts = {**base.facts, "host": {**base.facts["host"], "hostname": name, "machine_id": f"{number:032x}"}}
    return dataclasses.replace(
        base,
        id=f"20261127-0900-quick-{number:04x}",
        host=f"ssh://root@{name}",
        label=FLEET,
        facts=facts,
        trials=tuple(map(moved, base.trials)),
    )


def base_run() -> Experiment:
    run = sample_experiment(rounds=ROUNDS, emulated=False)
    rng = random.Random(1)
    raw = json.dumps([rng.random() for _ in range(RAW_CHARACTERS // 20)])
    trials = tuple(dataclasses.replace(one, raw=raw) for one in run.trials if (one.workload, one.case) in CASES)
    first = {(one.treatment, one.path): one for one in reversed(run.boots)}  # one boot of each machine is enough
    return dataclasses.replace(run, trials=trials, boots=tuple(first.values()))


class SimulatedHost:
    """One host under test, and the process that would measure it."""

    def __init__(self, run: Experiment, address: ServerAddress) -> None:
        self.run, self.store = run, Store(address)
        self.lags: list[float] = []

    def begin(self) -> None:
        self.store.__enter__()
        self.store.take_task(f"{FLEET} {self.run.name} {self.run.host}")
        self.store.begin(unstarted(self.run, options=self.run.options))
        self.store.take_host(str(self.run.facts["host"]["machine_id"]))
        for path, facts in self.run.facts.items():
            self.store.add_facts(self.run.id, path, facts)
        for boot in self.run.boots:
            self.store.add_boot(self.run.id, boot)

    def measure(self, start: float, every: float, trials: int) -> None:
        time.sleep(max(0.0, start - time.monotonic()))  # so that not all hosts look at the same moment
        with FleetWatch(self.store, FLEET):
            for number, trial in enumerate(self.run.trials[:trials]):
                due = start + number * every
                time.sleep(max(0.0, due - time.monotonic()))
                self.store.add_trials(self.run.id, trial)
                self.lags.append(time.monotonic() - due)

    def end(self, trials: int) -> None:
        """The rest of the run at once, as nobody measures how long that takes."""
        self.store.add_trials(self.run.id, *self.run.trials[trials:])
        self.store.finish(self.run.id, "complete", self.run.finished or self.run.created)
        keep_costs(self.store, self.store.load(self.run.id))
        self.store.__exit__()


def drive(address: ServerAddress, numbers: range, every: float, trials: int, total: int) -> None:
    """What a driver does: one thread for each of its hosts; prints a line when all have begun, and at the end."""
    base, wrong = base_run(), []
    threading.stack_size(2**20)
    # Each thread that waits for the interpreter wakes this often to ask for it, which hundreds of them would do all day
    sys.setswitchinterval(SWITCH_SECONDS)
    before = resident()
    hosts = [SimulatedHost(hosts_run(number, base), address) for number in numbers]

    def each(act: Any) -> None:
        def guarded(place: int, host: SimulatedHost) -> None:
            try:
                act(place, host)
            except (StoreError, AssertionError) as error:
                wrong.append(str(error))

        threads = [threading.Thread(target=guarded, args=pair) for pair in enumerate(hosts)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    for host in hosts:
        host.begin()
    print("begun", flush=True)
    start, spent = float(sys.stdin.readline()), time.process_time()
    each(lambda place, host: host.measure(start + every * numbers[place] / total, every, trials))
    memory, spent = (resident() - before) / len(hosts), time.process_time() - spent
    print("measured", flush=True)
    sys.stdin.readline()
    for host in hosts:
        host.end(trials)
    lags = [lag for host in hosts for lag in host.lags]
    print(
        json.dumps({"lags": lags, "memory": memory, "seconds": spent, "wrong": wrong[:3], "failed": len(wrong)}),
        flush=True,
    )


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def server_memory(server: PostgresqlServer) -> tuple[int, int]:
    """(Bytes of all its processes, those that they share counted once; how many processes)."""
    pid = (server.data / "postmaster.pid").read_text().split()[0]
    children = subprocess.run(["pgrep", "-P", pid], capture_output=True, text=True).stdout.split()
    total = 0
    for each in (pid, *children):
        try:
            text = Path(f"/proc/{each}/smaps_rollup").read_text()
        except OSError:  # it has just ended
            continue
        total += 1024 * int(next(line.split()[1] for line in text.splitlines() if line.startswith("Pss:")))
    return total, len(children)


def processor_seconds(server: PostgresqlServer) -> float:
    """Of all its present processes."""
    pid = (server.data / "postmaster.pid").read_text().split()[0]
    children = subprocess.run(["pgrep", "-P", pid], capture_output=True, text=True).stdout.split()
    ticks = 0
    for each in (pid, *children):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def started(address: ServerAddress, given: argparse.Namespace, home: Path) -> Iterator[subprocess.Popen[str]]:
    for number in range(given.drivers):
        own = [str(n) for n in (number * given.hosts // given.drivers, (number + 1) * given.hosts // given.drivers)]
        words = ["--drive", *own, address.url, "--hosts", str(given.hosts)]
        options = ["--every", str(given.every), "--trials", str(given.trials)]
        argv = [sys.executable, "-m", "tools.prove_fleet_load", *words, *options]
        env = {**os.environ, "XDG_CACHE_HOME": str(home / f"cache-{number}")}
        yield subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)


def tell(driver: subprocess.Popen[str], words: str) -> None:
    assert driver.stdin
    driver.stdin.write(f"{words}\n")
    driver.stdin.flush()


def told(driver: subprocess.Popen[str]) -> str:
    """What a driver prints next."""
    assert driver.stdout
    return driver.stdout.readline().strip()


def measure(server: PostgresqlServer, given: argparse.Namespace, home: Path, score: Score) -> ServerAddress:
    """Lag, memory, connections."""
    address = server.database()
    with Store(address):
        pass
    idle, _ = server_memory(server)
    clock = time.monotonic()
    with ExitStack() as stack:
        drivers = list(started(address, given, home))
        for driver in drivers:
            stack.callback(driver.wait)
            stack.callback(driver.kill)
        score.check([told(driver) for driver in drivers] == ["begun"] * given.drivers, "a driver did not begin")
        print(f"{given.hosts} runs begun in {time.monotonic() - clock:.0f} s", flush=True)
        start, spent = time.monotonic() + 1, processor_seconds(server)
        for driver in drivers:
            tell(driver, str(start))
        time.sleep(max(0.0, start + given.every * given.trials / 2 - time.monotonic()))
        memory, processes = server_memory(server)
        connections = int(server.sql(address, CONNECTED)) - 1  # without the one that asks
        score.check([told(driver) for driver in drivers] == ["measured"] * given.drivers, "a driver ended early")
        took = time.monotonic() - start
        spent = processor_seconds(server) - spent
        for driver in drivers:
            tell(driver, "end")
        results = [json.loads(told(driver)) for driver in drivers]
    lags = sorted(lag for one in results for lag in one["lags"])
    failed = sum(one["failed"] for one in results)
    score.check(not failed, f"{failed} hosts failed: {[one['wrong'] for one in results]}")
    per_host = sum(one["memory"] for one in results) / len(results)
    at = {share: lags[min(len(lags) - 1, int(share * len(lags)))] for share in (0.5, 0.95, 0.99, 1.0)}
    print(
        f"{len(lags)} trials in {took:.0f} s: {len(lags) / took:.0f} commits/s; lag "
        + ", ".join(f"{share:.0%} {lag:.3f} s" for share, lag in at.items())
    )
    print(f"connections: {connections}, {connections / given.hosts:.1f} for each host")
    used, first = (count / 2**20 for count in (memory, idle))
    print(f"server: {used:.0f} MiB with {processes} processes ({first:.0f} MiB before)")
    theirs = sum(one["seconds"] for one in results)
    each = (f"{1000 * seconds / len(lags):.1f} ms" for seconds in (spent, theirs))
    print("CPU time for each trial, with the looks whether to stop: server {}, hosts {}".format(*each))
    print(f"a host's store and thread: {per_host / 2**20:.1f} MiB", flush=True)
    rows, distinct = server.sql(
        address,
        'SELECT count(*), count(DISTINCT (experiment, round, treatment, workload, "case", iteration)) FROM trial',
    ).split("|")
    wanted = given.hosts * len(base_run().trials)
    score.check(int(rows) == int(distinct) == wanted, f"{rows} trials, {distinct} distinct of {wanted}")
    print(f"{rows} trials stored, {distinct} distinct, {wanted} wanted", flush=True)
    return address


def read(address: ServerAddress, given: argparse.Namespace, home: Path, score: Score) -> None:
    """The page of all hosts, for a reader who has none of their costs yet."""
    page = home / "fleet.html"
    env = {**os.environ, "VMTAX_STORE": address.url, "XDG_CACHE_HOME": str(home / "reader")}
    argv = [sys.executable, "-m", "vmtax", "fleet", "show", "--label", FLEET]
    for what in ("of a shared store", "again"):
        spent, clock = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run([*argv, "--format", "html", "-o", str(page)], env=env, check=True, stdout=subprocess.DEVNULL)
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = now.ru_utime + now.ru_stime - spent.ru_utime - spent.ru_stime
        size = page.stat().st_size
        took = time.monotonic() - clock
        print(
            f"page of {given.hosts} hosts, {what}: {seconds:.1f} s of CPU time, {took:.1f} s, {size} bytes", flush=True
        )
        score.check(seconds <= SHOW_SECONDS and size <= PAGE_BYTES, f"the page takes {seconds:.1f} s, {size} bytes")
    done = subprocess.run([*argv, "--json"], env=env, check=True, capture_output=True, text=True)
    data = json.loads(done.stdout)["data"]
    odd = {host["host"] for line in data["lines"] if line["primary"] for host in line["hosts"] if host["odd"]}
    wanted = {f"web{number:04d}" for number in ODD if number < given.hosts}
    score.check(len(data["hosts"]) == given.hosts and odd == wanted, f"{len(data['hosts'])} hosts, odd: {odd}")


def refused_at(score: Score) -> None:
    """How many hosts begin on a server as it is installed, and how the next one is refused."""
    base, held = base_run(), []
    with PostgresqlServer(settings=(SMALL,)) as server:
        address = server.database()
        try:
            for number in range(200):
                host = SimulatedHost(hosts_run(number, base), address)
                host.begin()
                held.append(host)
                host.store.stops.stopped(FLEET)
        except StoreError as error:
            print(f"what breaks first: with {SMALL}, host {len(held) + 1}: {error}", flush=True)
            score.check("\n" not in str(error) and "too many" in str(error), "the refusal does not say why")
        score.check(0 < len(held) < 200, f"{len(held)} hosts began")
        for host in held:
            host.store.__exit__()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--every", type=float, default=60.0, help="seconds from one trial of a host to the next")
    parser.add_argument("--trials", type=int, default=6, help="of each host, that are measured")
    parser.add_argument("--drivers", type=int, default=4)
    parser.add_argument("--drive", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drive:
        first, end, url = given.drive
        drive(ServerAddress(url), range(int(first), int(end)), given.every, given.trials, given.hosts)
        return
    score = Score()
    settings = (f"max_connections={PER_HOST * given.hosts + 100}", "shared_buffers=128MB")
    with tempfile.TemporaryDirectory() as directory, PostgresqlServer(settings=settings) as server:
        address = measure(server, given, Path(directory), score)
        read(address, given, Path(directory), score)
    refused_at(score)
    print(f"{score.checks} checks, wrong: {len(score.wrong)}")
    sys.exit(1 if score.wrong else 0)


if __name__ == "__main__":
    main()
