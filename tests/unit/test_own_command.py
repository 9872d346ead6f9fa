"""A program of the user's own, run by the script that runs it inside machines."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from vmtax.core.machines import Machine
from vmtax.machine.local import LocalMachine
from vmtax.workload import BadOutput, Link, Site
from vmtax.workload.command import PORTS_APART, CommandParameters, OwnCommand
from vmtax.workload.site import Access


def own(**parameters: Any) -> OwnCommand:
    return OwnCommand(CommandParameters(**parameters))


def printed(command: OwnCommand, case: str = "", link: Link | None = None) -> str:
    machine: Machine = LocalMachine()
    try:
        argv = command.command(Site(machine, "host", 1, (), link=link), case or command.cases()[0])
        return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout
    finally:
        machine.close()


def figure(**parameters: Any) -> float:
    command = own(**parameters)
    (found,) = command.parse(command.cases()[0], printed(command))
    return found.value


def test_its_time_is_that_of_the_command_line_alone() -> None:
    command = own(run="/bin/true && : sleep", prepare="sleep 0.3", cleanup="sleep 0.3")
    (found,) = command.parse("true", printed(command))
    assert found.metric.name == "command.true.seconds" and found.metric.unit == "s" and found.metric.better == "lower"
    assert 0 < found.value < 0.3


@pytest.mark.parametrize(
    ("run", "metric", "unit", "value"),
    [
        ("echo 'ops/s=12.5 ops'", r"ops/s=([\d.]+) ops", "1/s", 12.5),
        ("echo took 250 ms", r"took (\d+)", "ms", 0.25),
        ("""echo '{"jobs": [{"read": {"iops": 77}}]}'""", ".jobs[0].read.iops", "1/s", 77),
        ("echo rate 3; echo rate 3", r"rate (\d+)", "MiB/s", 3 * 2**20),
        ("yes | head -c 10000000; echo rate 3", r"rate (\d+)", "1/s", 3),
    ],
)
@pytest.mark.varied(3)
def test_a_figure_is_read_from_its_output(run: str, metric: str, unit: str, value: float) -> None:
    assert figure(run=run, metric=metric, unit=unit) == value


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"run": "echo broken >&2; exit 3"}, "run: exit code 3: broken"),
        ({"run": "exit 1"}, "run: exit code 1"),
        ({"run": "true", "prepare": "exit 3", "exit_codes": (0, 3)}, "prepare: exit code 3"),
        ({"run": "no-such-program-here"}, "run: exit code 127: .*not found; it runs the programs of the image"),
        ({"run": "true", "prepare": "exit 4"}, "prepare: exit code 4"),
        ({"run": "true", "cleanup": "exit 5"}, "cleanup: exit code 5"),
        ({"run": "kill -9 $$"}, "run: ended by signal 9"),
        ({"run": "sleep 1000", "timeout": 1}, "run: no end within 1 s"),
        ({"run": "yes", "timeout": 1}, "run: no end within 1 s"),
        ({"run": "read line < /dev/tty"}, "run: exit code"),
        ({"run": "echo 1; echo 2", "metric": "([0-9])", "unit": "1/s"}, "matches 2 figures that differ"),
        ({"run": "echo 1", "metric": "x([0-9])", "unit": "1/s"}, "nothing matches"),
        ({"run": "echo abc", "metric": "(a)", "unit": "1/s"}, "which is no number"),
        ({"run": "echo 0", "metric": "([0-9])", "unit": "1/s"}, "impossible"),
    ],
)
@pytest.mark.varied(4)
def test_a_failure_says_which_part_and_why(parameters: dict[str, Any], why: str) -> None:
    with pytest.raises(BadOutput, match=why):
        figure(**parameters)


def test_exit_codes_of_success_can_be_named() -> None:
    assert figure(run="exit 3", exit_codes=(0, 3)) > 0


def test_standard_input_is_empty() -> None:
    assert figure(run="echo bytes=1$(cat | wc -c)", metric=r"bytes=(\d+)", unit="1/s", prepare="cat") == 10


def test_daemons_are_gone_afterwards_and_are_not_waited_for(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    before = time.monotonic()
    figure(run=f"for i in 1 2 3; do setsid sh -c 'echo $$ >> {pids}; exec sleep 500' & done; sleep 0.5")
    assert time.monotonic() - before < 60
    left = [pid for pid in pids.read_text().split() if Path(f"/proc/{pid}").exists()]
    assert len(pids.read_text().split()) == 3 and not left


def test_equal_outputs_have_equal_signatures_whatever_their_length() -> None:
    first, same, other = (own(run=f"yes {word} | head -c 1000000", same_output=True) for word in ("a", "a", "b"))
    signatures = [each.signature("yes", printed(each)) for each in (first, same, other)]
    assert signatures[0] == signatures[1] != signatures[2]


@pytest.mark.variations
def test_a_large_output_is_kept_in_part() -> None:
    assert len(printed(own(run="head -c 300000000 /dev/zero | tr '\\0' x"))) < 2**18


def test_what_prepare_started_serves_until_the_end_and_is_gone_then(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    server = f"exec sh -c 'while sleep 0.01; do echo noise; done' & echo $! > {pid}"
    alive = f"kill -0 $(cat {pid})"
    figure(prepare=server, run=f"sleep 500 & {alive}", cleanup=alive)
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()


def test_it_is_warmed_up_before_the_one_time_that_counts(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    count = figure(run=f"echo x >> {runs}; echo runs=$(wc -l < {runs})", metric=r"runs=(\d+)", unit="1/s", warmup=3)
    assert count == 4


def test_a_failure_ends_the_warm_up(tmp_path: Path) -> None:
    with pytest.raises(BadOutput, match="run: exit code 1"):
        figure(run=f"echo x >> {tmp_path}/runs; exit 1", warmup=3)
    assert (tmp_path / "runs").read_text() == "x\n"


def test_each_value_is_a_case_of_its_own_and_other_braces_are_the_shells() -> None:
    command = own(
        run="for i in $(seq {n}); do echo ${i}; done | tail -n 1 | sed s/^/{word}=/; echo '{else}'",
        values={"n": [1, 20], "word": ["a", "b.c"]},
        metric=r"^[a-z.]+=(\d+)",
        unit="1/s",
    )
    assert command.cases() == ("for-n-1-word-a", "for-n-1-word-b-c", "for-n-20-word-a", "for-n-20-word-b-c")
    found = [measurement for case in command.cases() for measurement in command.parse(case, printed(command, case))]
    assert [(one.metric, one.value) for one in found] == [
        (metric, value) for metric, value in zip(command.metrics(), (1, 1, 20, 20), strict=True)
    ]


def test_it_waits_for_its_server_at_the_peer(tmp_path: Path) -> None:
    # Takes connections only after a while, as a server that reads a database first
    serve = (
        "import socket, time; time.sleep(0.3); s = socket.create_server(('{address}', {port}));"
        " [s.accept()[0].sendall(b'rate=7') for _ in range(2)]"
    )
    client = "import socket; print(socket.create_connection(('{address}', {port})).recv(9).decode())"
    command = own(
        serve=f'python3 -c "{serve}"', run=f'python3 -c "{client}"', metric=r"rate=(\d)", unit="1/s", timeout=20
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (server,) = command.servers("127.0.0.1", port - PORTS_APART, Access.random())
    with subprocess.Popen(server.argv) as process:
        try:
            link = Link(LocalMachine(), (), "127.0.0.1", port - PORTS_APART)
            (found,) = command.parse(command.cases()[0], printed(command, link=link))
        finally:
            process.kill()
    assert found.value == 7 and command.networked and command.takes_bridge


def test_a_server_that_is_not_there_is_the_reason() -> None:
    command = own(serve="true {port}", run="true {port}", timeout=1)
    with socket.socket() as unused:  # bound, and takes no connections
        unused.bind(("127.0.0.1", 0))
        link = Link(LocalMachine(), (), "127.0.0.1", unused.getsockname()[1] - PORTS_APART)
        with pytest.raises(BadOutput, match="serve: the server takes no connection within 1 s"):
            command.parse(command.cases()[0], printed(command, link=link))


@pytest.mark.parametrize(
    "wrong",
    [
        {"metric": r"\d+"},
        {"metric": "("},
        {"unit": "parsec"},
        {"exit_codes": ()},
        {"packages": ("a b",)},
        {"packages": ("--option",)},
        {"values": {"n": []}},
        {"values": {"n": [0.5]}},
        {"values": {"n": ["$(x)"]}},
        {"values": {"N": ["1"]}},
        {"warmup": -1},
        {"files": ("",)},
        {"files": ("a\0b",)},
        {"packages": ("make-",)},
        {"values": {"n": ["1 2"]}},
    ],
)
def test_wrong_parameters_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        own(run="true", **wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"run": "x", "unit": "s"},
        {"run": "x", "better": "higher"},
        {"run": "x", "metric": "(x)"},
        {"run": "x", "serve": "y {port}"},
        {"run": "x {port}", "serve": "y"},
        {"run": "x", "values": {"n": [1]}},
        {"run": "x {n}", "values": {"n": [1, 1]}},
        {"run": "x {n}", "values": {"n": ["a.b", "a-b"]}},
        {"run": "x {port}", "values": {"port": [1]}},
        {"run": "x {n}", "values": {"n": list(range(101))}},
    ],
)
def test_parameters_that_make_no_sense_together_are_refused(wrong: dict[str, Any]) -> None:
    assert own(**wrong).why_not(1)


def test_runs_compare_whatever_the_place_of_the_files_and_the_time_allowed() -> None:
    """What is in the files is part of the image, whose identity is compared too."""
    same = own(run="make", files=("/home/a/src",), seconds=5, timeout=60).parameters
    there = own(run="make", files=("/srv/src",), seconds=9, timeout=90).parameters
    more = own(run="make", files=("/srv/src",), warmup=1).parameters
    work = [each.model_dump(exclude=set(each.reporting)) for each in (same, there, more)]
    assert work[0] == work[1] != work[2]
