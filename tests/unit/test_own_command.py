"""A program of the user's own, run by the script that runs it inside machines."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from vmtax.core.machines import Machine
from vmtax.machine.local import LocalMachine
from vmtax.workload import BadOutput, Site
from vmtax.workload.command import CommandParameters, OwnCommand


def own(**parameters: Any) -> OwnCommand:
    return OwnCommand(CommandParameters(**parameters))


def printed(command: OwnCommand) -> str:
    machine: Machine = LocalMachine()
    try:
        argv = command.command(Site(machine, "host", 1, ()), command.program)
        return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout
    finally:
        machine.close()


def figure(**parameters: Any) -> float:
    command = own(**parameters)
    (found,) = command.parse(command.program, printed(command))
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


def test_a_large_output_is_kept_in_part() -> None:
    assert len(printed(own(run="head -c 300000000 /dev/zero | tr '\\0' x"))) < 2**18


@pytest.mark.parametrize("wrong", [{"metric": r"\d+"}, {"metric": "("}, {"unit": "parsec"}, {"exit_codes": ()}])
def test_wrong_parameters_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        own(run="true", **wrong)


@pytest.mark.parametrize("wrong", [{}, {"run": "x", "unit": "s"}, {"run": "x", "metric": "(x)"}])
def test_parameters_that_make_no_sense_together_are_refused(wrong: dict[str, Any]) -> None:
    assert own(**wrong).why_not(1)
