"""Prints the figures that are watched: start-up, guest boot, store, report, meters. Asserts nothing: compare runs."""

from __future__ import annotations

import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.fake_testbed import Lab, bench
from tests.sample import large_experiment, sample_experiment, without_raw
from tests.sample_storage import storage_experiment
from tools.bench_meters import meters
from vmtax.analysis.analysis import Analysis
from vmtax.cli.keeping import keep_results
from vmtax.design.factors import FACTORS
from vmtax.hypervisor import Credentials, GuestSpec, Qemu, boot
from vmtax.image import build
from vmtax.image.place import place
from vmtax.machine.local import LocalMachine
from vmtax.plan.estimate import check
from vmtax.plan.schema import parse
from vmtax.report.render.html import render_html
from vmtax.store import Store

BOOTS = 7
STARTS = 7


def timed(action: Callable[[], object]) -> float:
    started = time.monotonic()
    action()
    return time.monotonic() - started


def command(*words: str, home: str, **environment: str) -> float:
    """CPU time of `vmtax WORDS`, the least of several: other programs can only add to it, and to its wall time more."""
    argv = [sys.executable, "-m", "vmtax", *words]
    variables = {**os.environ, "XDG_DATA_HOME": home, **environment}
    silent = (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)
    times = []
    for _ in range(STARTS):
        _, status, used = os.wait4(os.posix_spawn(argv[0], argv, variables, file_actions=[silent]), 0)
        if status:
            sys.exit(f"{shlex.join(argv)} failed: {status}")
        times.append(used.ru_utime + used.ru_stime)
    return min(times)


def commands() -> None:
    """What a user waits for, with the results that a run's end keeps and without."""
    quick = without_raw(sample_experiment(rounds=7, emulated=True))
    sweep = without_raw(storage_experiment(rounds=10, sequential=True))
    with tempfile.TemporaryDirectory() as home, Store(Path(home) / "vmtax/vmtax.sqlite") as store:
        for run in (quick, sweep):
            store.put(run)
        bare = [command("show", run.id, home=home) for run in (quick, sweep)]
        for run in (quick, sweep):
            keep_results(store, run.id)
        kept = [command("show", run.id, home=home) for run in (quick, sweep)]
        asked = {"_VMTAX_COMPLETE": "complete_bash", "COMP_WORDS": "vmtax show 2", "COMP_CWORD": "2"}
        print(f"CPU time of vmtax --help              {command('--help', home=home):6.2f} s    (wanted: 0.15)")
        print(f"  of completing a run's id            {command(home=home, **asked):6.2f} s    (wanted: 0.15)")
        print(f"  of vmtax show, {'of quick:':<20} {kept[0]:6.2f} s    (wanted: 0.60; with nothing kept {bare[0]:.2f})")
        print(f"    of {len(sweep.treatments)} configurations, {len(sweep.trials)} trials {kept[1]:6.2f} s", end="")
        print(f"    (with nothing kept {bare[1]:.2f})")


def boots() -> None:
    image = build.ensure(lambda event: None)
    machine = LocalMachine()
    try:
        credentials = Credentials.make(machine)
        placed = place(machine, machine, image, lambda event: None)
        qemu = Qemu.of_image(machine, str(placed.tree))
        paths = (placed.kernel, placed.initrd, placed.root)
        spec = GuestSpec("vm", 2, 2**30, "tcg", qemu, *paths)
        ready, kernel, shutdown = [], [], []
        for _ in range(BOOTS):
            with boot(machine, spec, credentials, machine) as guest:
                ready.append(guest.ready_seconds)
                kernel.append(guest.kernel_seconds)
                shutdown.append(guest.shut_down())
    finally:
        machine.close()
    ratio = statistics.median(whole / own for whole, own in zip(ready, kernel, strict=True))
    print(f"emulated guest, launch to answer      {statistics.median(ready):6.2f} s    (wanted: 4.5)")
    print(f"  as a ratio to its own kernel's time {ratio:6.2f}")
    print(f"  shutdown                            {statistics.median(shutdown):6.2f} s")


def results(count: int) -> None:
    """What a user waits for: the whole command, in a process of its own; then the growth of its parts."""
    experiment = large_experiment(count)
    with tempfile.TemporaryDirectory() as directory:
        places = {**os.environ, "XDG_DATA_HOME": directory}
        with Store(Path(directory) / "vmtax/vmtax.sqlite") as store:
            store.put(experiment)
            load = timed(lambda: store.load(experiment.id))
        compared = timed(lambda: Analysis(experiment).comparisons)
        page = timed(lambda: render_html(Analysis(experiment)))
        show, report = (_command_seconds(places, directory, command) for command in ("show", "report"))
    parts = f"load {load:5.2f}, compare {compared:5.2f}, page {page:5.2f} s"
    print(f"{count:>7} measurements: show {show:5.2f} s, report {report:5.2f} s   (of which {parts})")


def _command_seconds(environment: dict[str, str], directory: str, command: str) -> float:
    argv = [sys.executable, "-m", "vmtax", command]
    return statistics.median(
        timed(lambda: subprocess.run(argv, check=True, cwd=directory, env=environment, stdout=subprocess.DEVNULL))
        for _ in range(3)
    )


SWEEP = "name: sweep\nlayers: [vm]\nworkloads: [chess]\nbudget: none\nrounds: {min: 2, max: 2}\n"
SWEEPS = (  # factor -> how many of its levels: about 10, 100 and 1000 treatments
    {"disk.cache": 5, "disk.discard": 2},
    {"disk.cache": 5, "disk.discard": 2, "disk.queues": 5, "cpu.mitigations": 2},
    {
        "disk.cache": 5,
        "disk.discard": 2,
        "disk.queues": 5,
        "cpu.mitigations": 2,
        "disk.bus": 2,
        "disk.aio": 3,
        "disk.iothread": 2,
    },
)


def sweeps() -> None:
    """What a run costs besides its guests and workloads, which here take no time: for each treatment of a round."""
    for used in SWEEPS:
        factors = {name: list(FACTORS[name].levels)[:levels] for name, levels in used.items()}
        text = f"{SWEEP}factors: {json.dumps(factors)}\n"
        planned = timed(lambda text=text: check(parse(text)))
        with tempfile.TemporaryDirectory() as directory:
            lab = Lab(text, lambda number, name: bench(), Path(directory))
            spent = timed(lab.run)
        found = len(parse(text).entries())
        each = spent / (2 * found) * 1000
        print(
            f"{found - 1:>7} treatments: planned in {planned:5.2f} s; besides guest and workloads {each:5.1f} ms a boot"
        )


if __name__ == "__main__":
    commands()
    print("wanted: 1,000 treatments planned in 2 s, and the cost of one growing little with their number")
    sweeps()
    print("wanted: at 10,000 measurements, show 1 s and report 3 s")
    for number in (1_000, 10_000, 100_000):
        results(number)
    boots()
    meters()
