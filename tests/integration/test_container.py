"""Containers of the root image, started for real: what they see, what they may do, and what they leave behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.integration.conftest import leftovers
from vmtax.container import Container, Runtime, end_commands, find_runtime, opened
from vmtax.hypervisor.confine import enter_tree
from vmtax.image.place import Placed
from vmtax.machine.local import LocalMachine
from vmtax.network import END_ADDRESS, Segment

MIB = 2**20
MEMORY = 128 * MIB
UNDONE_SECONDS = 60.0  # for the guard of a killed program, on a busy machine
# Starts a container of the given image, prints the run's token, and waits to be killed.
PROGRAM = """\
import sys, time
from vmtax.container import Container, find_runtime, opened
from vmtax.machine.local import LocalMachine

machine = LocalMachine()
print(machine.token, flush=True)
container = Container("killed", sys.argv[1], "0", 128 * 2**20, machine.token)
with opened(machine, container, find_runtime(machine)) as prefix:
    machine.start(*prefix, "sleep", "600")
    print("started", flush=True)
    time.sleep(600)
"""
IO_URING = ("fio", "--name=ring", "--ioengine=io_uring", "--filename=/tmp/ring", "--size=4k")


@pytest.fixture(scope="session")
def runtime(shared_local: LocalMachine) -> Runtime:
    return find_runtime(shared_local)


@pytest.fixture
def tree(placed: Placed) -> Iterator[str]:
    """The image's files, in which no container may create anything."""
    assert placed.tree is not None
    directories = [Path(placed.tree, name) for name in (".", "mnt", "dev", "run", "tmp", "proc", "sys")]
    before = [sorted(directory.iterdir()) for directory in directories]
    yield placed.tree
    assert [sorted(directory.iterdir()) for directory in directories] == before


def cgroups(token: str) -> list[Path]:
    return [path for depth in ("*", "*/*") for path in Path("/sys/fs/cgroup").glob(f"{depth}{token}*")]


def alive(machine: LocalMachine, prefix: Sequence[str]) -> list[str]:
    """The names of the processes in a container that have not ended."""
    lines = machine.run(*prefix, "ps", "-e", "-o", "comm=", "-o", "state=").splitlines()
    return [name for name, state in map(str.split, lines) if state != "Z"]


def test_a_container_has_what_it_was_given_and_nothing_else(local: LocalMachine, tree: str, runtime: Runtime) -> None:
    data = local.scratch / "data"
    local.write_text(data, "ours")
    container = Container("one", tree, "0", MEMORY, local.token, data=str(data), inside="/mnt/data")
    with opened(local, container, runtime) as prefix:
        assert len(cgroups(local.token)) > 0
        assert local.run(*prefix, "nproc") == "1\n"
        limits = "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2> /dev/null || true"
        assert local.run(*prefix, "sh", "-c", limits) == f"{MEMORY}\n"
        taken = local.try_run(*prefix, "python3", "-c", f"bytearray({2 * MEMORY})")
        assert taken.code not in (0, 1), "the kernel ended what took more than the limit"
        assert local.run(*prefix, "cat", "/mnt/data") == "ours"
        local.run(*prefix, "sh", "-c", "echo written > /mnt/data")
        assert local.read_text(data) == "written\n"
        assert alive(local, prefix) == ["sleep", "ps"]
        links = local.run(*prefix, "ip", "-brief", "link").splitlines()
        assert [line.split()[0] for line in links] == ["lo"]
        assert not local.succeeds(*prefix, "touch", "/usr/new") and not local.succeeds(*prefix, "touch", "/mnt/../new")
        assert not local.succeeds(*prefix, "mount", "-t", "tmpfs", "tmpfs", "/mnt")
        assert local.run(*prefix, "pwd") == "/tmp\n"
        assert local.run(*prefix, "cat", input="through") == "through"
        assert local.try_run(*prefix, "sh", "-c", "exit 7").code == 7
    assert cgroups(local.token) == [] and list(Path(local.scratch).iterdir()) == [Path(data)]
    local.close()
    assert local.left == [] and leftovers(local.token) == []


def test_a_command_whose_time_is_up_can_be_ended(local: LocalMachine, tree: str, runtime: Runtime) -> None:
    with opened(local, Container("late", tree, "0", MEMORY, local.token), runtime) as prefix:
        assert local.try_run(*prefix, "sh", "-c", "sleep 600 & wait", timeout=1.0).timed_out
        assert sorted(alive(local, prefix)) == ["ps", "sh", "sleep", "sleep"]
        end_commands(local, prefix)
        assert alive(local, prefix) == ["sleep", "ps"]


def test_io_uring_works_on_the_host_and_not_in_a_container(local: LocalMachine, tree: str, runtime: Runtime) -> None:
    local.run(*enter_tree(tree, root=True), "--", *IO_URING)
    with opened(local, Container("filtered", tree, "0", MEMORY, local.token), runtime) as prefix:
        outcome = local.try_run(*prefix, *IO_URING)
        assert not outcome.ok and "io_uring" in outcome.stdout + outcome.stderr
        local.run(*prefix, *(word.replace("io_uring", "psync") for word in IO_URING))


def test_a_device_is_reached_and_no_other(local: LocalMachine, tree: str, runtime: Runtime) -> None:
    file = local.scratch / "disk"
    local.run("truncate", "-s", "1M", str(file))
    device = local.run("losetup", "--find", "--show", str(file)).strip()
    undoing = local.undo_later("losetup", "-d", device)
    container = Container(
        *("device", tree, "0", MEMORY, local.token),
        data=device,
        inside="/dev/vmtax-disk",
        more_capabilities=("CAP_MKNOD",),
    )
    with opened(local, container, runtime) as prefix:
        local.run(*prefix, "sh", "-c", "echo written | dd of=/dev/vmtax-disk conv=fsync status=none")
        other = local.run("losetup", "--find", "--show", str(file)).strip()
        local.undo_later("losetup", "-d", other)
        local.run(*prefix, "mknod", "/dev/shm/other", "b", "7", other.removeprefix("/dev/loop"))
        outcome = local.try_run(*prefix, "dd", "if=/dev/shm/other", "count=1")
        assert "not permitted" in outcome.stderr or "ermission denied" in outcome.stderr
    undoing.undo()
    assert Path(file).read_bytes().startswith(b"written\n")


def test_it_joins_a_network_of_the_run(local: LocalMachine, tree: str, runtime: Runtime) -> None:
    segment = Segment(local, local.token[:6])
    end = segment.add_end("end", END_ADDRESS)
    with opened(local, Container("networked", tree, "0", MEMORY, local.token, network=end), runtime) as prefix:
        assert END_ADDRESS in local.run(*prefix, "ip", "-brief", "address", "show", "dev", "eth0")
    assert END_ADDRESS in local.run("ip", "-n", end, "-brief", "address", "show", "dev", "eth0"), (
        "it is not ours to end"
    )


@pytest.mark.parametrize("wait", [None, 0.35, 0.7], ids=["runs", "tries", "starts"])
def test_nothing_is_left_of_a_program_that_was_killed(tree: str, wait: float | None) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM, tree], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        token = program.stdout.readline().strip()
        if wait is None:
            assert program.stdout.readline() == "started\n" and cgroups(token) != [] and leftovers(token) != []
        else:
            time.sleep(wait)
        program.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + UNDONE_SECONDS
    while (left := [*leftovers(token), *cgroups(token)]) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left == []
