"""A guest's console: how much of it is taken."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from tests.fake_machine import FakeClock, FakeProcess, Reply
from vmtax.hypervisor.base import BootFailed, BootPatience
from vmtax.hypervisor.console import FLOODED, READY, Console
from vmtax.hypervisor.qemu import boot
from vmtax.hypervisor.qemu.boot import died, wait_until_ready, waited_for_a_cpu, was_killed
from vmtax.machine.local import LocalMachine


def test_a_guest_that_prints_without_end_is_ended_and_the_reason_is_that(tmp_path: Path) -> None:
    path = tmp_path / "console"
    path.touch()
    machine = LocalMachine()
    try:
        console = Console(machine, PurePosixPath(path), most=2**16)
        # As much as a test may write; it would go on for ten minutes. Constant text.
        text = 'n=0; while test $n -lt 6000; do printf "%4096s" "" >> "$1"; n=$((n+1)); sleep 0.1; done'
        process = machine.start("sh", "-c", text, "sh", str(path))
        console.bound(process)
        assert process.wait(30.0) == -9 and path.stat().st_size < 2**22
        failure = died("host/vm", process, console, "QEMU ended")
        assert FLOODED in str(failure) and not failure.qemu_died
        console.stop()
    finally:
        machine.close()


@pytest.mark.parametrize(
    ("printed", "end"), [("one\ntwo \n\n", "the last line of its console is 'two'"), ("", "its console is empty")]
)
@pytest.mark.parametrize("patience", [BootPatience(ready=0.5), BootPatience(ready=60.0, silence=0.5)])
@pytest.mark.varied(1)
def test_a_guest_that_is_given_up_is_explained_in_the_first_line(
    tmp_path: Path, patience: BootPatience, printed: str, end: str
) -> None:
    path = tmp_path / "console"
    path.write_text(printed)
    machine = LocalMachine()
    try:
        console = Console(machine, PurePosixPath(path))
        process = machine.start("sleep", "60")
        with pytest.raises(BootFailed) as caught:
            wait_until_ready("host/vm", process, console, patience, time.monotonic())
        first, *rest = str(caught.value).splitlines()
        assert first.startswith("host/vm: it") and first.endswith(f"; {end}")
        assert rest[0] == "console:" and len(rest) > 1
        process.stop()
        console.stop()
    finally:
        machine.close()


class _Told:
    """A console that is asked again and again, on whose clock the asking takes the time."""

    def __init__(self, clock: FakeClock, lines: Mapping[int, str]) -> None:
        self.clock, self.lines = clock, dict(lines)  # second -> what is printed then

    def next_line(self, seconds: float) -> str | None:
        self.clock.sleep(1.0)
        return self.lines.pop(round(self.clock.now - START), None)

    def end(self) -> str:
        return "the end"

    last_lines = end


START = FakeClock().now


@pytest.mark.parametrize(
    ("lines", "waits", "ends"),
    [
        ({}, 0.0, "silent for 10 s after 11"),
        ({4: "booting"}, 0.0, "silent for 10 s after 15"),
        ({4: "booting", 12: "still", 20: READY}, 0.0, ""),
        (dict.fromkeys(range(5, 1000, 5), "booting"), 0.0, "not ready within 60 s after 61"),
        ({}, 0.5, "silent for 10 s, besides 10 s in which QEMU got no CPU after 21"),
        ({18: "booting", 20: READY}, 0.5, ""),
        (
            dict.fromkeys(range(5, 1000, 5), "booting"),
            0.75,
            "not ready within 60 s, besides 181 s in which QEMU got no CPU after 241",
        ),
        (dict.fromkeys(range(5, 1000, 5), "booting"), 1.0, "not ready within 60 s after 610"),
    ],
    ids=[
        "silent from the start",
        "silent after a line",
        "never silent for so long",
        "never ready",
        "silent on a busy machine",
        "late on a busy machine",
        "never ready on a busy machine",
        "never ready where nothing gets a CPU",
    ],
)
def test_a_guest_has_time_to_be_ready_from_its_launch_and_to_be_silent_from_its_last_line(
    lines: Mapping[int, str], waits: float, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`waits`: the part of the time in which QEMU gets no CPU"""
    clock = FakeClock()
    monkeypatch.setattr(boot.time, "monotonic", clock.time)
    console: Any = _Told(clock, lines)
    process: Any = FakeProcess(("qemu",), 1, Reply(seconds=1000), clock)
    try:
        wait_until_ready(
            "host/vm", process, console, BootPatience(60.0, 10.0), START, lambda: waits * (clock.now - START)
        )
        assert not ends and round(clock.now - START) == 20
    except BootFailed as error:
        why = str(error).partition(";")[0].replace("host/vm: its console has been ", "").replace("host/vm: it was ", "")
        assert f"{why} after {clock.now - START:.0f}" == ends
        assert error.silent == ("silent" in ends)


@pytest.mark.parametrize(
    ("code", "killed"),
    [
        (None, False),
        (0, False),
        (1, False),
        (127, False),
        (128, False),
        (-9, True),
        (-6, True),
        (134, True),
        (137, True),
    ],
)
def test_qemu_was_killed_where_a_signal_ended_it_here_or_on_a_host_behind_ssh(code: int | None, killed: bool) -> None:
    assert was_killed(code) is killed


PANICKED = "vmtax: ready\n[  371.2] Kernel panic - not syncing: System is deadlocked on memory\n[  371.3] Call Trace:\n"


@pytest.mark.parametrize(
    ("printed", "panic"),
    [(PANICKED, "Kernel panic - not syncing: System is deadlocked on memory"), ("vmtax: ready\n", None)],
)
@pytest.mark.varied(1)
def test_a_panic_is_quoted_without_its_stack(tmp_path: Path, printed: str, panic: str | None) -> None:
    path = tmp_path / "console"
    path.write_text(printed)
    with contextlib.closing(LocalMachine()) as machine:
        console = Console(machine, PurePosixPath(path))
        while console.next_line(1.0) is not None:
            pass
        assert console.panic() == panic
        console.stop()


def test_a_process_that_shares_its_cpu_has_waited_for_it() -> None:
    """Two loops on one CPU, each the child of another: it waits about as long as it runs."""
    cpu = str(min(os.sched_getaffinity(0)))
    with contextlib.closing(LocalMachine()) as machine:
        first, second = (
            machine.start("taskset", "-c", cpu, "sh", "-c", "sh -c 'while :; do :; done'; :") for _ in range(2)
        )
        sleeper = machine.start("sleep", "60")
        while waited_for_a_cpu(machine, first) < 0.2:
            time.sleep(0.05)
        assert waited_for_a_cpu(machine, sleeper) < 0.2
        for process in (first, second, sleeper):
            process.stop()
        assert waited_for_a_cpu(machine, first) == 0.0  # gone
