"""A program of the user's own on the command line: `run --command`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vmtax.cli.app import BadUse
from vmtax.cli.asked import Measured, ProgramOptions
from vmtax.cli.option_groups import given
from vmtax.design.asked import OPTION
from vmtax.plan.schema import Plan, from_data
from vmtax.workload.command import PACKAGE, OwnCommand

NAME = OwnCommand.name
PREFIX = f"{NAME}."  # of what --vary names, if it is no factor but a value in the command line
# Parameter of the workload -> the option that sets it
OPTIONS = {
    "run": "--command",
    "same_output": "--same-output",
    **{name: f"--{name}" for name in ("prepare", "cleanup", "metric", "unit", "better", "files", "packages")},
    **{name: f"--{name}" for name in ("serve", "timeout")},
}


def own_plan(asked: ProgramOptions, plan: str) -> Plan | None:
    """A plan with that program alone; None if --command names none. Raises BadUse and PlanError."""
    if asked.command is None:
        if others := given(asked):
            raise BadUse(f"{' '.join(others)}: about a program of your own: add --command")
        return None
    if plan:
        raise BadUse(f"--command is measured in a plan of its own: leave out {plan}")
    parameters: dict[str, Any] = {
        "run": asked.command,
        "prepare": asked.prepare,
        "cleanup": asked.cleanup,
        "metric": asked.metric,
        "unit": asked.unit,
        "better": asked.better,
        "serve": asked.serve,
        "timeout": asked.timeout,
        "packages": [*names_of(asked.packages)] or None,
        "files": [str(Path(name).absolute()) for name in asked.files or ()] or None,
        "same_output": asked.same_output,
    }
    parameters = {name: value for name, value in parameters.items() if value is not None and value is not False}
    data = {"name": NAME, "workloads": [{"name": NAME, "parameters": parameters}]}
    return from_data(data, source="command line", options=_options())


def with_values(plan: Plan, asked: Measured) -> tuple[Plan, Measured]:
    """`with_program_values` of all that is asked."""
    changed, rest = with_program_values(plan, asked.changes.vary or ())
    return changed, replace(asked, changes=replace(asked.changes, vary=rest or None))


def with_program_values(plan: Plan, vary: Sequence[str]) -> tuple[Plan, list[str]]:
    """The plan with the values of `--vary command.NAME=...`, and what else is to be varied. Raises BadUse and
    PlanError.
    """
    named = {text: text.startswith(PREFIX) for text in vary}
    values = _values([text for text, is_value in named.items() if is_value])
    rest = [text for text, is_value in named.items() if not is_value]
    if not values:
        return plan, rest
    data = plan.model_dump(mode="json")
    entry = next((each for each in data["workloads"] if each["name"] == NAME), None)
    if entry is None:
        raise BadUse(f"{OPTION} {next(iter(named))}: plan {plan.name} has no workload {NAME}: add --command")
    entry["parameters"]["values"] = {**entry["parameters"].get("values", {}), **values}
    others = [name for name in data["primary"] if not name.startswith(PREFIX)]
    place = f"workloads.{data['workloads'].index(entry)}.{NAME}.values"
    options = {f"{place}.{name}": f"{OPTION} {PREFIX}{name}" for name in values}
    changed = from_data({**data, "primary": others}, source="command line", options=options)
    (own,) = (workload for workload in changed.build_workloads() if workload.name == NAME)
    changed = changed.model_copy(update={"primary": (*others, *(metric.name for metric in own.metrics()))})
    return changed, rest


def names_of(packages: str | None) -> tuple[str, ...]:
    """The names in a list with commas. Raises BadUse for what is no name of a Debian package."""
    names = [name.strip() for name in (packages or "").split(",")] if packages is not None else []
    if (wrong := next((name for name in names if not PACKAGE.fullmatch(name)), None)) is not None:
        raise BadUse(f"--packages {packages}: {wrong!r} is no name of a Debian package, such as sysbench")
    return tuple(names)


def _values(texts: Sequence[str]) -> Mapping[str, list[str]]:
    values: dict[str, list[str]] = {}
    for text in texts:
        name, equals, listed = text.removeprefix(PREFIX).partition("=")
        if not equals or not listed.strip():
            raise BadUse(f"{OPTION} {text}: must be {PREFIX}NAME=VALUE,..., such as {PREFIX}threads=1,2,4")
        if name in values:
            raise BadUse(f"{OPTION}: {PREFIX}{name} is given twice: name all of its values at once")
        values[name] = [value.strip() for value in listed.split(",")]
    return values


def _options() -> Mapping[str, str]:
    return {f"workloads.0.{NAME}.{name}": option for name, option in OPTIONS.items()}
