"""`run --command`: what the command line says of a program becomes a plan, or is refused in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from vmtax.cli import app
from vmtax.cli.app import BadUse
from vmtax.cli.asked import GuestOptions, Measured, PlanChanges, ProgramOptions
from vmtax.cli.running import new_work
from vmtax.core.errors import BadInput
from vmtax.core.records import Metric
from vmtax.plan.schema import Plan, load
from vmtax.report.wording.own_program import LONGEST, own_program
from vmtax.testbed.host.additions import additions
from vmtax.workload.words import short, subject


def plan_of(plan: str = "", vary: list[str] | None = None, **program: Any) -> Plan:
    asked = Measured(PlanChanges(vary=vary), ProgramOptions(**program))
    return new_work(plan, asked).plan


def test_the_options_are_the_parameters_of_the_workload(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    plan = plan_of(
        command="redis-benchmark -h {address} -p {port}",
        prepare="true",
        cleanup="false",
        files=["src"],
        packages="redis-server, redis-tools",
        metric=r"rps=(\d+)",
        unit="1/s",
        better="higher",
        same_output=True,
        serve="redis-server --bind {address} --port {port}",
    )
    (choice,) = plan.workloads
    assert (plan.name, choice.name, plan.layers) == ("command", "command", ("host", "vm", "nested"))
    assert choice.parameters == {
        "run": "redis-benchmark -h {address} -p {port}",
        "prepare": "true",
        "cleanup": "false",
        "files": [str(tmp_path / "src")],
        "packages": ["redis-server", "redis-tools"],
        "metric": r"rps=(\d+)",
        "unit": "1/s",
        "better": "higher",
        "same_output": True,
        "serve": "redis-server --bind {address} --port {port}",
    }


def test_values_become_cases_beside_factors_of_the_machines() -> None:
    plan = plan_of(command="x {threads}", vary=["command.threads=1,2", "memory.backing=4k,2MiB"])
    assert plan.primary == ("command.x-threads-1.seconds", "command.x-threads-2.seconds")
    assert plan.factors == {"memory.backing": ("4k", "2MiB")}


def test_values_for_a_command_in_a_plan_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("name: p\nworkloads: [chess, {command: {run: 'x {n}', values: {n: [1]}}}]\n")
    plan = plan_of(str(file), vary=["command.n=3,4"])
    assert plan.workloads[1].parameters["values"] == {"n": ["3", "4"]}
    assert [name for name in plan.primary if name.startswith("command.")] == [
        "command.x-n-3.seconds",
        "command.x-n-4.seconds",
    ]
    assert any(name.startswith("chess.") for name in plan.primary)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"plan": "quick", "command": "x"}, "leave out quick"),
        ({"prepare": "x"}, "--prepare: .* add --command"),
        ({"files": ["x"], "same_output": True}, "--files --same-output: .* add --command"),
        ({"command": "x", "packages": "a b"}, "--packages a b: 'a b' is no name of a Debian package"),
        ({"command": "x", "packages": "gcc,,make"}, "--packages gcc,,make: '' is no name"),
        ({"command": "x", "metric": "("}, "--metric: .* nor a regular expression"),
        ({"command": "x", "metric": r"(\d)", "unit": "parsec"}, "--unit: must be one of"),
        (
            {"command": "x", "metric": r"(\d)", "better": "more"},
            "--better: unknown value 'more'; legal: lower, higher$",
        ),
        ({"command": "x", "files": ["bad\udcff"]}, "--files: .*bad.* is no path .* no run can hold"),
        ({"command": "x", "better": "higher"}, "better is that of metric"),
        ({"command": "x", "timeout": 0}, "--timeout: must be at least 1"),
        ({"command": "x", "metric": r"(\d)"}, "metric needs unit, or better"),
        ({"command": "x", "unit": "s"}, "unit is that of metric"),
        ({"command": "x", "serve": "y"}, "must both say {port}"),
        ({"command": "x" * 9000}, "--command: "),
        ({"command": "x", "vary": ["command.n=1"]}, "no command line says {n}"),
        ({"command": "x {n}", "vary": ["command.n"]}, "must be command.NAME=VALUE"),
        ({"command": "x {n}", "vary": ["command.n="]}, "must be command.NAME=VALUE"),
        ({"command": "x {n}", "vary": ["command.n=1", "command.n=2"]}, "given twice"),
        ({"command": "x {n}", "vary": ["command.n=a;b"]}, "--vary command.n: 'a;b' is no value: .* letters, digits"),
        ({"command": "x {n}", "vary": ["command.n=1,,2"]}, "--vary command.n: '' is no value"),
        ({"command": "x {n}", "vary": ["command.N=1"]}, "--vary command.N: 'N' is no name"),
        ({"command": "x {n}", "vary": ["command.=1"]}, "--vary command.: '' is no name"),
        ({"command": "x", "packages": "make-"}, "--packages make-: 'make-' is no name of a Debian package"),
        ({"plan": "quick", "vary": ["command.n=1"]}, "plan quick has no workload command: add --command"),
        ({"command": "x", "vary": ["disk.cache=none,writeback"]}, "disk.cache needs a workload that uses the disk"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words) as refused:
        plan_of(**asked)
    assert "\n" not in str(refused.value)


def test_a_server_is_out_of_reach_of_a_vm_of_the_users() -> None:
    asked = Measured(program=ProgramOptions(command="x {port}", serve="y {port}"))
    with pytest.raises(BadUse, match="no card on the network under test: leave out --serve"):
        new_work("", replace(asked, existing=GuestOptions("libvirt:web1")))


def test_the_command_line_is_shown_on_one_line_and_names_what_costs() -> None:
    program = {"name": "command", "parameters": {"run": "make \n -j2 " + "x" * 500}}
    workloads: list[Any] = ["chess", program]
    run: Any = SimpleNamespace(plan={"workloads": workloads})
    assert own_program(run).startswith("make -j2 xxx") and len(own_program(run)) <= LONGEST
    assert own_program(SimpleNamespace(plan={"workloads": workloads[:1]})) == ""  # type: ignore[arg-type]
    metric = Metric("command.make-threads-2.seconds", "s", "lower")
    assert (short(metric), subject(metric)) == ("make-threads-2", "make-threads-2 time")
    assert subject(Metric("chess.nodes_per_second", "1/s", "higher")) == "CPU"


def test_files_are_named_from_the_directory_of_their_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = tmp_path / "plans" / "own.yaml"
    plan.parent.mkdir()
    plan.write_text("{name: own, workloads: [command: {run: make, files: [src, ../data, /srv/x]}, chess]}")
    monkeypatch.chdir(tmp_path)
    for name in (str(plan), "plans/own.yaml"):
        loaded = load(name)
        assert [*additions(loaded).files] == [plan.parent / "src", plan.parent / "../data", Path("/srv/x")]
    assert load("quick") == load("quick") and additions(load("quick")).files == ()


def test_a_plan_is_shown_with_the_values_of_its_command_line(tmp_path: Path) -> None:
    plan = tmp_path / "own.yaml"
    plan.write_text("{name: own, workloads: [command: {run: 'make -j{jobs}'}]}")
    shown = CliRunner().invoke(app, ["plan", "show", str(plan), "--vary", "command.jobs=1,2"])
    assert "jobs:" in shown.stdout and shown.exit_code == 0
    refused = CliRunner().invoke(app, ["plan", "show", "cpu", "--vary", "command.jobs=1,2"])
    assert "plan cpu has no workload command" in str(refused.exception) and isinstance(refused.exception, BadUse)
