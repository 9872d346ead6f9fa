"""A command is stuck when it does nothing, not when it takes long: in made-up time, and for real processes."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sources import modules
from vmtax.core.machines import Idle
from vmtax.machine.local import LocalMachine
from vmtax.machine.progress import LEAST_BYTES, LOOKS, Patience, Progress, of_group, parse

LIMIT = 60.0
SOME = frozenset({7})


def at(second: float, *, ticks: int = 0, moved: int = 0, disks: int = 0, pids: frozenset[int] = SOME) -> Progress:
    """`ticks` and so on for each second."""
    return Progress(pids, int(ticks * second), int(moved * second), int(disks * second))


def ended_at(limit: float, does: Callable[[float], Progress], most: float = 7200.0) -> float | None:
    """When a command that never ends is given up; None if not within two hours."""
    now = 0.0
    patience = Patience(limit, lambda: does(now), lambda: now)
    while now < most:
        now = patience.deadline
        try:
            patience.extend()
        except TimeoutError:
            return now
    return None


@pytest.mark.parametrize(
    "does, stuck_after",
    [
        (lambda s: at(s), 0.0),  # it only sleeps
        (lambda s: at(s, ticks=1), None),  # depmod on a busy machine
        (lambda s: at(s, ticks=100), None),
        (lambda s: at(s, moved=10**6), None),  # cp
        (lambda s: at(s, moved=LEAST_BYTES), None),
        (lambda s: at(s, moved=1), 0.0),  # a heartbeat is no work
        (lambda s: at(s, disks=100), None),  # sync waits for the disks
        (lambda s: at(min(s, 900), disks=100), 900.0),  # until those stand still
        (lambda s: at(min(s, 900), ticks=1), 900.0),
        (lambda s: at(min(s, 3000), moved=10**6), 3000.0),
        (lambda s: at(0, pids=frozenset({int(s // 30)})), None),  # a shell that starts one program after the other
        (lambda s: at(0, pids=frozenset({int(min(s, 600) // 30)})), 600.0),
        (lambda s: Progress(), 0.0),  # the machine does not answer, or the process has gone and its pipe has not
        (lambda s: at(s, ticks=1) if s < 300 else Progress(), 280.0),  # the last answer
        (lambda s: at(s, ticks=1) if s % 40 < 20 else Progress(), None),  # it answers every other time
        (lambda s: at(s // 30 * 30, ticks=1), None),  # by fits and starts
        (lambda s: at(s // 50 * 50, ticks=1), None),
        (lambda s: at(s // 200 * 200, ticks=1), 20.0),  # too seldom: nothing for more than the limit
    ],
)
def test_work_is_waited_for_as_long_as_it_goes_on(does: Callable[[float], Progress], stuck_after: float | None) -> None:
    ended = ended_at(Idle(LIMIT), does)
    if stuck_after is None:
        assert ended is None
    else:
        assert ended is not None and stuck_after + LIMIT <= ended <= stuck_after + LIMIT * (1 + 2 / LOOKS)


@pytest.mark.parametrize("ticks", [0, 100])
def test_an_answer_is_waited_for_by_the_clock(ticks: int) -> None:
    assert ended_at(LIMIT, lambda second: at(second, ticks=ticks)) == LIMIT


def test_what_proc_shows_is_summed() -> None:
    stat = "/proc/{}/stat:{} (a b) c) {} 1 7 7 0 -1 0 1 2 3 4 {} {} {} {} 20 0 1 0 5\n"
    text = (
        stat.format(7, 7, "S", 10, 1, 5, 4)
        + stat.format(8, 8, "D", 100, 0, 0, 0)
        + "/proc/7/io:rchar: 1000\n/proc/7/io:wchar: 24\n/proc/vmstat:pgpgin 3\n/proc/vmstat:pgpgout 4\n"
    )
    assert parse(text) == Progress(frozenset({7, 8}), 120, 1024, 7)
    assert parse(text.replace(" D ", " R ")).disks == 0, "nobody waits for a disk"


@given(
    st.text() | st.lists(st.sampled_from(["/proc/1/stat:1 (a) D ", "-1 " * 14, "\n", "/proc/1/io:rchar: 1", "9" * 30]))
)
def test_any_answer_is_read(text: str | list[str]) -> None:
    found = parse("".join(text))
    assert found.goes_on_since(found) is False


# Limits by the clock -> why. Everything else is limited by what it does.
KEPT = {
    ("existing/numa.py", "SECONDS"): "the kernel prints which NUMA nodes a host has",
    ("existing/source.py", "SECONDS"): "libvirt or Proxmox prints a guest's settings",
    ("attach/clone/boot.py", "SECONDS"): "libvirt starts a clone",
    ("attach/clone/backup.py", "SECONDS"): "a guest's file systems are frozen meanwhile",
    ("lab/standing.py", "LIMIT_SECONDS"): "a lab that is to answer, or it stands still",
    ("cli/notify.py", "MOST_SECONDS"): "a command of the user's, which nobody may wait for without end",
    ("core/machines.py", "timeout"): "passed on",
    ("hypervisor/qemu/detect.py", "20"): "a program prints its version",
    ("machine/rights.py", "SECONDS"): "tries, each of which ends itself",
    ("machine/tries.py", "COMMAND_SECONDS"): "a program that is tried prints its version",
    ("doctor/host_parts.py", "30"): "a peer answers pings",
    ("doctor/windows_try.py", "END_AFTER"): "a program that is to be ended",
    ("experiment/at_once.py", "job.limit"): "work of a known duration",
    ("experiment/real_cut.py", "ANSWER_SECONDS"): "a host answers whose power is cut",
    ("hypervisor/console.py", "10.0"): "a kill",
    ("hypervisor/console.py", "timeout"): "a guest prints a line",
    ("hypervisor/qemu/guest.py", "SHUTDOWN_SECONDS"): "a guest ends",
    ("hypervisor/qemu/qmp.py", "timeout"): "QEMU answers",
    ("hypervisor/qemu/samples.py", "ASK_SECONDS"): "a program of ours answers",
    ("hypervisor/qemu/samples.py", "START_SECONDS"): "the same",
    ("image/packs.py", "REACH_SECONDS"): "a mirror answers",
    ("image/packs.py", "root_image.STEP_SECONDS"): "Idle",
    ("image/windows.py", "STEP_SECONDS"): "Idle",
    ("image/place.py", "PUSH_SECONDS"): "a connection",
    ("attach/domain.py", "SECONDS"): "libvirt answers",
    ("attach/domain.py", "timeout"): "passed on",
    ("attach/proxmox/agent.py", "PATIENCE + LATE_SECONDS"): "a guest agent answers",
    ("attach/proxmox/find.py", "SECONDS"): "Proxmox VE answers",
    ("attach/proxmox/vm.py", "SECONDS"): "the same",
    ("lab/end.py", "SHUTDOWN_SECONDS"): "a lab ends",
    ("lab/start.py", "SETTLE_SECONDS"): "devices appear",
    ("machine/ssh.py", "10"): "the client that holds the connection answers",
    ("machine/ssh.py", "LOGIN_SECONDS"): "a login's shell prints a line",
    ("machine/ssh.py", "timeout"): "passed on",
    ("storage/empty.py", "SECONDS + 30"): "it ends by itself, to ask the user",
    ("store/listing.py", "WAIT_SECONDS"): "another process releases the store",
    ("workload/inside.py", "timeout"): "a server at the peer, or a program of the user's, which says how long",
    ("testbed/subjects/cards.py", "60"): "a peer answers pings",
    ("testbed/storage/cutting.py", "ZERO_SECONDS"): "/proc does not show what a device does by itself",
    ("testbed/machines/machines.py", "20"): "a host answers",
    ("testbed/network/networks.py", "2 * wire.WAIT_SECONDS"): "a peer answers pings",
    ("testbed/network/standby.py", "60"): "a peer answers pings",
}


def test_limits_by_the_clock_are_those_that_somebody_waits_for() -> None:
    found = {
        (file, ast.unparse(word.value))
        for file, module in modules("timeout=")
        for call in ast.walk(module)
        if isinstance(call, ast.Call)
        for word in call.keywords
        if word.arg == "timeout"
    }
    assert found == set(KEPT)


@pytest.fixture
def local() -> Iterator[LocalMachine]:
    machine = LocalMachine()
    yield machine
    machine.close()


def test_a_command_that_does_nothing_is_ended_with_the_reason(local: LocalMachine) -> None:
    done = local.try_run("sh", "-c", "echo begun; sleep 600", timeout=Idle(0.3))
    assert done.timed_out and done.stdout == "begun\n" and done.seconds < 30
    assert "neither it nor its children used CPU, read or wrote for 0 s" in done.stderr


@pytest.mark.parametrize(
    "script",
    [
        "timeout --foreground 1 dd if=/dev/zero of=/dev/null bs=1k status=none || true",
        "timeout --foreground 1 sh -c 'while :; do :; done' & wait",  # the work is a child's
        "setsid -w timeout 1 dd if=/dev/zero of=/dev/null bs=1k status=none || true",  # in a session of its own
        "cat > /dev/null",  # it reads what it is given
    ],
)
@pytest.mark.varied(1)
def test_work_that_takes_longer_than_its_limit_is_done(local: LocalMachine, script: str) -> None:
    """A second of work, and a limit of a third of that: thirty ticks."""
    given_text = "x" * 10**7 if script.startswith("cat") else None
    done = local.try_run("sh", "-c", script, input=given_text, timeout=Idle(0.3))
    assert done.ok, done.stderr


def test_a_group_and_its_descendants_are_seen_and_nobody_else() -> None:
    words = ("sh", "-c", "setsid sh -c 'echo $$; exec sleep 600' & exec cat")
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
    try:
        assert child.stdin and child.stdout
        other = int(child.stdout.readline())
        found = of_group(child.pid)
        assert found.pids >= {child.pid, other} and os.getpid() not in found.pids
        os.kill(other, signal.SIGKILL)
    finally:
        child.communicate(b"")
    assert of_group(child.pid).pids == frozenset()
