"""The sender and receiver for Windows, as they are built for Linux: they count alike, and say it if an end fails."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from tests.command import HANGS
from vmtax.workload.transfer import VERBS, Transfer, TransferParameters

pytestmark = pytest.mark.machines  # it is part of a pack, and takes a compiler


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = tmp_path_factory.mktemp("net") / "vmtax-net"
    source = resources.files("vmtax.image").joinpath("vmtax-net.c")
    command = ["gcc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(made), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return str(made)


@pytest.fixture
def port(program: str) -> Iterator[str]:
    with subprocess.Popen([program, "serve", "127.0.0.1", "0"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield str(json.loads(server.stdout.readline())["port"])
        server.kill()


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, timeout=HANGS)


@pytest.mark.parametrize("case", VERBS)
def test_both_ways_are_read_as_figures(program: str, port: str, case: str) -> None:
    done = run(program, VERBS[case], "127.0.0.1", port, "1")
    found = Transfer(TransferParameters()).parse(case, done.stdout + done.stderr)
    assert [one.value > 0 for one in found] == [True] * 3


@pytest.mark.parametrize("verb", VERBS.values())
def test_a_rate_is_kept(program: str, port: str, verb: str) -> None:
    said = json.loads(run(program, verb, "127.0.0.1", port, "1", "2000000").stdout)
    assert said["bytes"] == pytest.approx(2_000_000 * said["seconds"], rel=0.2)


@pytest.mark.parametrize("garbage", [b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\xff" * 24, b"\x01"])
def test_a_stranger_gets_nothing_and_ends_nothing(program: str, port: str, garbage: bytes) -> None:
    with socket.create_connection(("127.0.0.1", int(port)), timeout=HANGS) as stranger:
        stranger.sendall(garbage)
        with contextlib.suppress(OSError):  # it had more to say than is read
            stranger.shutdown(socket.SHUT_WR)
            assert stranger.recv(1) == b""
    assert run(program, "send", "127.0.0.1", port, "0.1").returncode == 0


@pytest.mark.parametrize("verb", VERBS.values())
def test_an_end_that_vanishes_is_no_result(program: str, verb: str) -> None:
    with subprocess.Popen([program, "serve", "127.0.0.1", "0"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = str(json.loads(server.stdout.readline())["port"])
        with subprocess.Popen([program, verb, "127.0.0.1", port, "60"], stdout=subprocess.PIPE) as client:
            before = used(client.pid)
            while used(client.pid) < before + 5:  # it is at work
                assert client.poll() is None
            server.kill()
            assert client.wait(HANGS) == 1
            assert client.stdout is not None and client.stdout.read() == b""


def used(pid: int) -> int:
    """Ticks of CPU time in its kernel."""
    return int(Path(f"/proc/{pid}/stat").read_text().split()[14])


def test_nobody_there_is_said(program: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        done = run(program, "send", "127.0.0.1", str(free.getsockname()[1]), "1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("vmtax-net: cannot connect: a firewall there?: error ")


@pytest.mark.parametrize(
    "argv",
    [
        (),
        ("serve",),
        ("send", "127.0.0.1", "1"),
        ("send", "localhost", "1", "1"),
        ("send", "127.0.0.1", "70000", "1"),
        ("receive", "127.0.0.1", "1", "nan"),
        ("receive", "127.0.0.1", "1", "1", "0"),
        ("count", "127.0.0.1", "1", "1"),
    ],
)
def test_what_it_does_not_understand(program: str, argv: tuple[str, ...]) -> None:
    done = run(program, *argv)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: vmtax-net serve ADDRESS PORT\n")
