"""Samples of where a thread is: the program that takes them, here of threads of the tests; no guest is among them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

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
def test_a_second_of_a_thread_is_sampled_where_it_was_spent(local: LocalMachine, work: str, most: str) -> None:
    argv, pipe = [sys.executable, "-c", PROGRAM.format(work)], subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        samples = Samples(local, [process.pid])
        before = samples.read()
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        after = samples.read()
        found = {name: after[name] - before[name] for name in after}
        expected = 1e9 / PERIOD
        assert 0.8 * expected < sum(found.values()) < 1.2 * expected, found
        assert found[most] > 0.7 * sum(found.values()) and found["guest"] == 0, found
        process.stdin.close()
    samples.end()
    assert samples.read() == {}


def test_a_thread_that_has_ended_is_no_error_and_none_is(local: LocalMachine) -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    samples = Samples(local, [ended.pid])
    assert samples.read() == {"guest": 0, "kernel": 0, "user": 0}
    samples.end()
    with pytest.raises(CannotDo, match="the threads of the guest's QEMU cannot be read"):
        Samples(local, [])
