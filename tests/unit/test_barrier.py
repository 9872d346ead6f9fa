"""Commands of several guests are held until all have started; what counts begins then."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

import pytest

from tests.fake_machine import FakeMachine
from vmtax.design.iterations import VOID
from vmtax.experiment import trial
from vmtax.experiment.at_once import Done, Job, run_at_once
from vmtax.experiment.signatures import Signatures
from vmtax.experiment.trial import TrialKey
from vmtax.machine import MachineLost
from vmtax.machine.local import LocalMachine
from vmtax.testbed.session.base import RunningSubject, RunningTreatment
from vmtax.workload import Site
from vmtax.workload.base import HELD
from vmtax.workload.fio import Disk, DiskParameters
from vmtax.workload.net import Net, NetParameters
from vmtax.workload.site import Link

# Its arguments: a file of its own, and that of another program, without which it does not end.
MEET = 'date +%s.%N; touch "$1"; until test -e "$2"; do sleep 0.05; done; date +%s.%N'
LIMIT = 200.0  # seconds; no machine is so slow that it needs them


@pytest.fixture
def local() -> Iterator[LocalMachine]:
    machine = LocalMachine()
    yield machine
    machine.close()


def job(machine: LocalMachine, directory: Path, start: float, *command: str) -> Job:
    """Its program takes `start` seconds until it is ready, which it writes to a file beside the directory; then it runs
    the command.
    """
    slowly = 'sleep "$1"; date +%s.%N > "$2"; shift 2; exec "$@"'
    begin = ("sh", "-c", slowly, "sh", str(start), f"{directory}.ready", *HELD, str(directory))
    return Job(machine, (*begin, *command), LIMIT, held=PurePosixPath(directory))


def test_a_fast_start_waits_for_a_slow_one_and_what_is_read_before_is_read_then(
    local: LocalMachine, tmp_path: Path
) -> None:
    """Only the order is compared, whatever the speed of this machine is."""
    read: list[float] = []
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    jobs = [
        job(local, tmp_path / "a", 0.0, "sh", "-c", MEET, "sh", first, second),
        job(local, tmp_path / "b", 1.5, "sh", "-c", MEET, "sh", second, first),
    ]
    done = run_at_once(jobs, lambda: read.append(time.time()))
    assert all(one.outcomes[0].ok for one in done), "they worked at the same time, or would not have met"
    ready = [float((tmp_path / f"{name}.ready").read_text()) for name in "ab"]
    begin = [float(one.outputs[0].split()[0]) for one in done]
    assert ready[0] < ready[1] < read[0] < min(begin), "the first was ready before, and none began before the meters"
    for one, began in zip(done, begin, strict=True):
        assert read[0] - 0.001 <= one.started <= began + 0.001, "the wait does not count"
    assert not [path for path in tmp_path.iterdir() if path.is_dir()], "the pipes are removed"


def test_a_command_that_ends_before_it_is_ready_does_not_hold_the_others(local: LocalMachine, tmp_path: Path) -> None:
    fails = Job(local, ("sh", "-c", "exit 7"), LIMIT, held=PurePosixPath(tmp_path / "a"))
    began = time.monotonic()
    first, second = run_at_once([fails, job(local, tmp_path / "b", 0.2, "true")])
    assert (first.outcomes[0].code, second.outcomes[0].code) == (7, 0)
    assert time.monotonic() - began < LIMIT / 4, "half of the limit is for a machine that is not ready"
    assert [path.name for path in tmp_path.iterdir()] == ["b.ready"], "the pipes are removed"


class Gone(LocalMachine):
    def start(self, *argv: str) -> NoReturn:
        raise MachineLost("host/vm-2: the connection is gone")


def test_nothing_is_started_if_a_machine_is_lost_before(local: LocalMachine, tmp_path: Path) -> None:
    done = run_at_once([job(local, tmp_path / "a", 0.0, "true"), job(Gone(), tmp_path / "b", 0.0, "true")])
    gone = "host/vm-2: the connection is gone"
    assert (done[0].not_started, str(done[1].lost)) == (f"{VOID} its command was not started: {gone}", gone)
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_nothing_is_started_if_a_barrier_cannot_be_made(local: LocalMachine, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    done = run_at_once([job(local, tmp_path / "a", 0.0, "true"), job(local, tmp_path / "b", 0.0, "true")])
    assert all(
        re.fullmatch(".* started: host: .*/b was not made: mkdir: .*File exists", one.not_started or "") for one in done
    )
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_a_command_does_not_run_without_its_barrier(tmp_path: Path) -> None:
    done = subprocess.run([*HELD, str(tmp_path / "none"), "touch", str(tmp_path / "x")], capture_output=True)
    assert done.returncode == 125 and not list(tmp_path.iterdir())


class Silent:
    """A guest without counters."""

    path = "host/vm"

    def sample(self, on: bool) -> str:
        return ""


@pytest.mark.parametrize("lead", [1, 0])
def test_each_guest_s_trial_is_held(lead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All guests of a trial if they have a lead, which they have where several work at once."""
    seen: list[Job] = []

    def no_run(jobs: Sequence[Job], before: Callable[[], None]) -> list[Done]:
        seen.extend(jobs)
        return [Done((1.0, 2.0), (), not_started="host/vm-2: no") for _ in jobs]

    monkeypatch.setattr(trial, "run_at_once", no_run)
    monkeypatch.setattr(trial, "_warm_up", lambda *_: None)
    machines = [FakeMachine(path, {}) for path in ("host/vm", "host/vm-2")]
    subjects: Any = [
        RunningSubject(Site(one, "vm", 1, (), link=Link(one, (), "10.0.0.1", 1), lead=lead), Silent())
        for one in machines
    ]
    running = RunningTreatment(tuple(subjects), FakeMachine("host", {}), meters=(), guest_meters=())
    found = trial.run_trials(TrialKey(1, 1, "vm"), running, Net(NetParameters()), "tcp-out", Signatures(), iteration=1)
    assert [job.held is not None for job in seen] == [lead > 0] * 2
    assert all(job.argv[: len(HELD)] == HELD and job.argv[len(HELD)] == str(job.held) for job in seen if lead)
    assert len({job.held for job in seen}) == (2 if lead else 1), "each has a directory of its own"
    assert all(one.error == "host/vm-2: no" for one in found)


def test_fio_is_held_after_its_start() -> None:
    disk = Disk(DiskParameters(patterns=("randread-4k-qd1", "first-write-64k")))
    words = disk.held("randread-4k-qd1", ("fio", "--name=x"), PurePosixPath("/tmp/d"))
    assert words == ("fio", "--name=x", "--exec_prerun=echo > /tmp/d/ready && read -r go < /tmp/d/go")
    assert disk.held(disk.cases()[-1], ("fio",), PurePosixPath("/tmp/d")) == (*HELD, "/tmp/d", "fio")
