"""Samples of where a thread is: the program that takes them, here of threads of the tests; no guest is among them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest

from vmtax.core.errors import CannotDo
from vmtax.hypervisor.qemu.samples import PERIOD, Samples
from vmtax.machine.local import LocalMachine

SPIN = "sum(range(100_000))"
READ = "os.read(zero, 1 << 24)"
# Waits for a line, works for a second of CPU time, and waits for the end of its input.
PROGRAM = """\
import os, sys, time
zero = os.open("/dev/zero", os.O_RDONLY)
sys.stdin.readline()
end = time.process_time() + 1
while time.process_time() < end: {}
print("done", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def local() -> Iterator[LocalMachine]:
    with contextlib.closing(LocalMachine()) as machine:
        yield machine


@pytest.mark.parametrize(("work", "most"), [(SPIN, "user"), (READ, "kernel")])
@pytest.mark.varied(1)
def test_a_second_of_a_thread_is_sampled_where_it_was_spent(
    local: LocalMachine, tmp_path: Path, work: str, most: str
) -> None:
    argv, pipe = [sys.executable, "-c", PROGRAM.format(work)], subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        samples = Samples(local, PurePosixPath(tmp_path), [process.pid])
        samples.switch(True)
        before = samples.read()
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        after = samples.read()
        found = {name: after[name] - before[name] for name in after}
        expected = 1e9 / PERIOD
        assert 0.8 * expected < sum(found.values()) < 1.2 * expected, found
        assert found[most] > 0.7 * sum(found.values()) and found["guest"] == 0, found
        assert len(sampling(tmp_path)) == 1
        process.stdin.close()
    wait_until(lambda: not sampling(tmp_path), "it ends with the thread")
    assert samples.read() == {}


def test_a_program_that_cannot_start_is_not_waited_for(
    local: LocalMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmtax.hypervisor.qemu.samples.PROGRAM", "import no_such_module")
    started = time.monotonic()
    with pytest.raises(CannotDo, match="Traceback"):
        Samples(local, PurePosixPath(tmp_path), [os.getpid()])
    assert time.monotonic() - started < 10
    wait_until(lambda: not sampling(tmp_path), "it has ended")


def test_what_no_longer_answers_is_ended_and_the_reason_kept(
    local: LocalMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would sample everything that is measured afterwards."""
    with subprocess.Popen(["sleep", "60"]) as process:
        samples = Samples(local, PurePosixPath(tmp_path), [process.pid])
        assert samples.switch(True) == "" and samples.read()
        monkeypatch.setattr("vmtax.hypervisor.qemu.samples.ASK", ("sh", "-c", "echo late", "sh"))
        assert samples.read() == {} and samples.switch(False) == "late"
        wait_until(lambda: not sampling(tmp_path), "it has ended, and the guest has not")
        assert process.poll() is None and samples.switch(True) == "late"
        process.kill()


@pytest.mark.variations
def test_nothing_is_sampled_before_it_is_switched_on_or_after_it_is_switched_off(
    local: LocalMachine, tmp_path: Path
) -> None:
    samples = Samples(local, PurePosixPath(tmp_path), [os.getpid()])
    try:
        found = []
        for on in (False, True, False, True):
            samples.switch(on)
            before = sum(samples.read().values())
            end = time.process_time() + 0.3
            while time.process_time() < end:
                pass
            found.append(sum(samples.read().values()) - before)
        assert found[0] == found[2] == 0 and min(found[1], found[3]) > 0.5 * 0.3e9 / PERIOD, found
    finally:
        for pid in map(int, sampling(tmp_path)):
            os.kill(pid, signal.SIGKILL)


def sampling(directory: Path) -> list[str]:
    """Processes whose standard input is the FIFO there."""
    found = []
    for link in Path("/proc").glob("[0-9]*/fd/0"):
        with contextlib.suppress(OSError):
            found += [link.parts[2]] if link.readlink() == directory / "ask" else []
    return found


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 5
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def test_what_cannot_be_sampled_is_said_and_leaves_no_process(local: LocalMachine, tmp_path: Path) -> None:
    with pytest.raises(CannotDo, match="the threads of the guest's QEMU cannot be read"):
        Samples(local, PurePosixPath(tmp_path), [])
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    samples = Samples(local, PurePosixPath(tmp_path), [ended.pid])
    wait_until(lambda: not sampling(tmp_path), "no thread is left to sample")
    assert samples.read() == {} and list(tmp_path.iterdir()) == []
    (tmp_path / "ask").touch()
    with pytest.raises(CannotDo, match="File exists"):
        Samples(local, PurePosixPath(tmp_path), [ended.pid])
