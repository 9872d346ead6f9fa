"""Writes what this version stores, exports and answers, so that later versions can prove that they still read it.

    python -m tools.golden DIRECTORY [--real STORE]

DIRECTORY holds plans/*.yaml and nothing else. It gets store.tar.xz, exported/, answers/ and plans.json.xz, which
tests/unit/test_still_readable.py reads. A directory is named after the day on which it was made and is never changed:
whatever of it a later version cannot read, that version has broken. --real names the store of a real run of `quick` on
the host and of a real plan with guests; what they say about the machine itself is replaced.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gzip
import itertools
import json
import lzma
import os
import sqlite3
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from pydantic import TypeAdapter
from typer.testing import CliRunner

from tests import sample_storage
from tests.fake_testbed import SEVEN, Lab, bench
from tests.sample import sample_experiment, with_repeat
from tests.unit.test_sessions import calibrations, session
from vmtax.cli import app
from vmtax.core.records import Boot, Experiment, Trial
from vmtax.hypervisor import BootFailed
from vmtax.plan.schema import from_data, parse
from vmtax.store import Store

DIGITS = 5  # of a number in the answers
STORED_DIGITS = 4  # of a made-up measurement; random digits do not compress
LONGEST_RAW = 10_000  # characters of a real tool's output
ELSEWHERE = {  # facts of a real host
    "hostname": "host",
    "kernel_command_line": "root=/dev/vda1 ro quiet",
    "kernel_release": "6.1.0-44-amd64",
    "kernel_version": "#1 SMP PREEMPT_DYNAMIC Debian 6.1.164-1",
    "boot_id": "00000000-0000-4000-8000-000000000001",
}
REWRITE = "rewrite-64k"  # made up: no plan has it
STORAGE: dict[str, Any] = {
    "PATTERNS": {name: shape for name, shape in sample_storage.PATTERNS.items() if name != REWRITE},
    "PRIMARY": tuple(name for name in sample_storage.PRIMARY if REWRITE not in name),
    "FACTORS": {
        "disk.filesystem": ("ext4", "xfs"),
        "disk.format": ("raw", "qcow2"),
        "disk.cache": ("none", "writeback", "writethrough"),
    },
    "FIXED": {**sample_storage.FIXED, "disk.bus": "virtio"},
}
EXPORTED = ("0101-quick", "storage", "two-hosts", "killed", "failing", "calibrate-0003", "cache")
FIRST_FORMAT = "20261122-0201-quick-0001"
OPTIONS = {
    "qemu": "/opt/qemu/bin/qemu-system-x86_64",
    "disk_directory": "/srv/disks",
    "disk_devices": ["/dev/sdb", "/dev/sdc"],
    "disk_group": "vg",
    "disk_pool": "tank/vm",
    "interleave_with": "ssh://b",
}
ANSWERS = {  # file -> what is asked, beside each run's own `show`
    "database": ("show", "20261122-0102-storage-0002", "--for", "database", "--needs", "thin", "--accept-loss"),
    "compare": ("compare", "20261122-0201-quick-0001", "20261122-0202-quick-0002", "--fail-if-worse", "3%"),
}


def main() -> None:
    """Fill the directory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--real", type=Path, help="a store with real runs")
    asked = parser.parse_args()
    target: Path = asked.directory
    if {path.name for path in target.iterdir()} != {"plans"}:
        sys.exit(f"{target}: is to hold the plans and nothing else; what was once written is never written again")
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        os.environ["XDG_DATA_HOME"] = str(home)
        with Store() as store:
            for run in (*_made_up(home), *(_real(asked.real) if asked.real else ())):
                store.put(run)
            with contextlib.closing(sqlite3.connect(home / "vmtax/vmtax.sqlite")) as database, database:
                database.execute("UPDATE experiment SET owner_boot = 'an earlier one', owner_pid = 1")
        with Store() as store:
            ids = [entry.id for entry in store.experiments()]
        _write(target / "store.tar.xz", _packed(home / "vmtax"))
        (target / "exported").mkdir()
        for id in (id for id in ids if any(name in id for name in EXPORTED)):
            _asked("export", id, "--output", str(target / f"exported/{id}.run.gz"))
        with Store() as store:
            (target / "exported/first-format.run.gz").write_bytes(
                _first_format(store.load(FIRST_FORMAT, with_raw=True))
            )
        whole: dict[str, Any] = {}
        for file, words in {**{id: ("show", id) for id in ids}, **ANSWERS}.items():
            answer = json.loads(_asked(*words, "--json"))
            plain = whole.setdefault(words[1], {}) if words[0] == "show" else {}
            answer["data"] = {key: part for key, part in answer["data"].items() if plain.get(key, ...) != part}
            whole[file] = answer["data"]
            _write(target / f"answers/{file}.json.xz", json.dumps(_rounded(answer)).encode())
    plans = {path.stem: _expanded(path) for path in sorted((target / "plans").iterdir())}
    _write(target / "plans.json.xz", json.dumps(plans).encode())


def _asked(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    if done.exit_code not in (0, 3, 4):
        sys.exit(f"vmtax {' '.join(words)}: {done.output}")
    return done.stdout


def _expanded(path: Path) -> dict[str, Any]:
    """A plan with every default, and what it compares."""
    plan = parse(path.read_text(), str(path))
    treatments, left_out = plan.treatments()
    return {
        "plan": plan.model_dump(mode="json"),
        "treatments": [dataclasses.asdict(treatment) for treatment in treatments],
        "left_out": len(left_out),
        "metrics": {
            workload.name: [metric.name for metric in workload.metrics()] for workload in plan.build_workloads()
        },
    }


def _packed(directory: Path) -> bytes:
    """The database and the raw outputs beside it as a tar archive."""
    with tempfile.TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            for path in sorted(path for path in directory.rglob("*") if path.is_file()):
                entry = archive.gettarinfo(path, str(path.relative_to(directory)))
                entry.uid = entry.gid = entry.mtime = 0
                entry.uname = entry.gname = "root"
                with path.open("rb") as stream:
                    archive.addfile(entry, stream)
        file.seek(0)
        return file.read()


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))


def _rounded(value: Any, digits: int = DIGITS) -> Any:
    match value:
        case float() if abs(value) < 1e9:  # times since the epoch stay as they are
            return float(f"{value:.{digits}g}")
        case dict():
            return {key: _rounded(entry, digits) for key, entry in value.items()}
        case list():
            return [_rounded(entry, digits) for entry in value]
    return value


def _first_format(experiment: Experiment) -> bytes:
    """As `export` wrote at first: one object."""
    answer = {"schema": "vmtax/1", "kind": "run", "data": dataclasses.asdict(experiment)}
    return gzip.compress(json.dumps(answer).encode(), mtime=0)


# The runs


def _made_up(home: Path) -> Iterator[Experiment]:
    numbers = itertools.count(1)

    def named(experiment: Experiment, **changes: Any) -> Experiment:
        number = next(numbers)
        name = changes.get("name", experiment.name)
        id = f"20261122-01{number:02}-{name}-{number:04x}"
        return _thinner(dataclasses.replace(experiment, id=id, created=1795309260.0 + 60 * number, **changes))

    yield named(with_repeat(sample_experiment(rounds=6, failures=3)))
    with mock.patch.multiple(sample_storage, **STORAGE):
        yield named(sample_storage.storage_experiment(6, failed=1, sequential=True))
    yield named(_two_sides(home / "hosts", "ssh://b"), name="two-hosts")
    yield named(_two_sides(home / "qemus", "/opt/qemu/bin/qemu-system-x86_64"), name="two-qemus")
    yield named(_decided(home / "decided"), name="decided")
    stopped = dataclasses.replace(_stopped(home / "stopped"), options=OPTIONS)
    yield named(stopped, name="stopped")
    yield named(stopped, name="killed", state="running", finished=None)  # by a process that is gone when it is read
    yield named(_failing(home / "failing"), name="failing")
    for number, run in enumerate([session(1), session(2, -0.2), *calibrations(3)], start=1):
        id = f"20261122-02{number:02}-{run.name}-{number:04x}"
        yield _few(dataclasses.replace(run, id=id, created=1795312860.0 + 60 * number))


def _lab(path: Path, plan: str, answer: Any, **settings: Any) -> Experiment:
    """A run on fake machines, as the runner stored it."""
    path.mkdir()
    lab = Lab(plan, answer, path)
    for name, value in settings.items():
        setattr(lab, name, value)
    with contextlib.suppress(KeyboardInterrupt):
        lab.run()
    with lab.store as store:
        return store.load("last", with_raw=True)


def _two_sides(path: Path, other: str) -> Experiment:
    def answer(number: int, treatment: str) -> Any:
        rate = 10_000 + 37 * number
        return bench(rate=rate * 9 // 10 if other in treatment else rate)

    facts = {"cpu_model": "Another CPU", "boot_id": "other"} if other.startswith("ssh:") else {}
    plan = f"{SEVEN}factors: {{disk.cache: [none, writeback]}}\n"
    return _lab(path, plan, answer, interleave_with=other, other_facts=facts)


def _decided(path: Path) -> Experiment:
    plan = SEVEN.replace("max: 7", "max: 40") + "decide: {worse_than: 3%}\n"
    return _lab(path, plan, lambda number, name: bench(rate=10_000 + 37 * number + (name == "vm")))


def _stopped(path: Path) -> Experiment:
    def answer(number: int, treatment: str) -> Any:
        if number == 3 and treatment == "vm":
            raise KeyboardInterrupt
        return bench(rate=9_000 + 41 * number)

    return _lab(path, SEVEN, answer)


def _failing(path: Path) -> Experiment:
    """Guests that do not boot, and one that did other work than the rest."""

    def answer(number: int, treatment: str) -> Any:
        if number in (2, 5) and treatment == "vm":
            return BootFailed("QEMU ended with SIGABRT (iotlb_to_section)")
        return bench(nodes=999 if (number, treatment) == (4, "vm again") else 1000, rate=9_000 + 41 * number)

    return _lab(path, SEVEN, answer)


MEASURES = (
    "-qd1.iops",
    "-qd1.bytes_per_second",
    "-fsync.iops",
    "-qd8.iops",
    "-qd32.iops",
    "-1m.bytes_per_second",
    "qd1.p99_seconds",
    "cpu_seconds",
)


def _thinner(experiment: Experiment) -> Experiment:
    """With every key of its plan, with fewer digits, and without what a storage run has a thousand times."""
    large = len(experiment.trials) > 500

    def thinner(trial: Trial) -> Trial:
        kept = [m for m in trial.measurements if not large or m.metric.name.endswith(MEASURES)]
        first = trial.round == 1
        return dataclasses.replace(
            trial,
            started=round(trial.started, 1),
            wall_seconds=round(trial.wall_seconds, 2),
            measurements=tuple(dataclasses.replace(m, value=_rounded(m.value, STORED_DIGITS)) for m in kept),
            latencies=tuple((share, _rounded(value, STORED_DIGITS)) for share, value in trial.latencies)
            if first
            else (),
            disturbance=trial.disturbance if first else None,
            raw=trial.raw if first or trial.status != "ok" else "",
        )

    def shorter(boot: Boot) -> Boot:
        return dataclasses.replace(
            boot,
            ready_seconds=_rounded(boot.ready_seconds, STORED_DIGITS),
            kernel_seconds=_rounded(boot.kernel_seconds, STORED_DIGITS),
        )

    return dataclasses.replace(
        experiment,
        plan=from_data(experiment.plan).model_dump(mode="json"),
        trials=tuple(map(thinner, experiment.trials)),
        boots=tuple(map(shorter, experiment.boots)),
    )


def _few(experiment: Experiment) -> Experiment:
    """One guest and its primary metrics: as much as `compare` needs."""
    workloads = {name.split(".")[0] for name in experiment.plan["primary"]}
    return _thinner(
        dataclasses.replace(
            experiment,
            treatments=tuple(t for t in experiment.treatments if t.name == "vm"),
            boots=tuple(b for b in experiment.boots if b.treatment == "vm"),
            trials=tuple(
                t
                for t in experiment.trials
                if t.treatment == "vm" and t.workload in workloads and t.case in ("", "randread-4k-qd1")
            ),
        )
    )


def _real(store: Path) -> Iterator[Experiment]:
    with Store(store) as source:
        for entry in source.experiments():
            run = source.load(entry.id, with_raw=True)
            trials = (
                t if t.round == 1 and len(t.raw) < LONGEST_RAW else dataclasses.replace(t, raw="") for t in run.trials
            )
            text = json.dumps(dataclasses.asdict(dataclasses.replace(run, trials=tuple(trials))))
            for part, other in _personal(run).items():
                text = text.replace(json.dumps(part)[1:-1], other)
            yield TypeAdapter(Experiment).validate_json(text)


def _personal(run: Experiment) -> dict[str, str]:
    """What a run tells about the machine that made it -> what stands there instead."""
    facts = run.facts["host"]
    return {facts[name]: text for name, text in ELSEWHERE.items()} | {str(Path.home()): "/home/user"}


if __name__ == "__main__":
    main()
