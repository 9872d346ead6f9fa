"""Writes docs/reference/ and the man page from the code: `python tools/reference.py`. A test holds them together."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel

from vmtax import __version__
from vmtax.cli import app
from vmtax.exits import MEANINGS
from vmtax.plan import Plan
from vmtax.report.answers import KINDS, json_schema
from vmtax.report.view import cost, label
from vmtax.treatment import FACTORS
from vmtax.workload import WORKLOADS

DIRECTORY = Path(__file__).parent.parent / "docs/reference"
NOTE = "<!-- made by tools/reference.py: `make reference` writes it anew -->\n"


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = [tuple(heads), *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join([lines[0], "|" + "---|" * len(cells[0]), *lines[1:]]) + "\n"


# Commands


def commands(command: Any = None, name: str = "vmtax") -> Iterator[tuple[str, Any]]:
    """(how it is typed, click's command), depth first, in the order of --help; groups too."""
    command = command or typer.main.get_command(app)
    yield name, command
    if hasattr(command, "commands"):
        context = command.context_class(command)
        for child in command.list_commands(context):
            yield from commands(command.get_command(context, child), f"{name} {child}")


def parameters(command: Any) -> list[tuple[str, str]]:
    """(how it is typed, what it does) of every argument and option."""
    found = []
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            found.append((usage_name(parameter), parameter.help or ""))
            continue
        names = ", ".join([*parameter.opts, *parameter.secondary_opts])
        value = "" if parameter.is_flag else f" {value_name(parameter)}"
        found.append((f"{names}{value}", parameter.help or ""))
    return found


def value_name(parameter: Any) -> str:
    return parameter.metavar or {"integer": "NUMBER", "path": "FILE"}.get(parameter.type.name, "TEXT")


def usage_name(argument: Any) -> str:
    name = (argument.metavar or argument.name.upper()).strip("[]")
    return name if argument.required else f"[{name}]"


def usage(name: str, command: Any) -> str:
    arguments = [usage_name(p) for p in command.params if p.param_type_name == "argument"]
    return " ".join([name, *(["[OPTIONS]"] if len(command.params) > len(arguments) else []), *arguments])


def commands_page() -> str:
    parts = ["# Commands\n", "Every command takes `--help`. Results go to stdout, progress and questions to stderr.\n"]
    for name, command in commands():
        if hasattr(command, "commands"):
            continue
        parts += [f"## {name}\n", f"{command.help}\n", f"```\n{usage(name, command)}\n```\n"]
        rows = [(f"`{typed}`", text) for typed, text in parameters(command)]
        parts += [table(("", "what"), rows)] if rows else []
    return "\n".join(parts)


def man_page() -> str:
    """roff, for man(7)."""

    def plain(text: str) -> str:
        return text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("\n.", "\n\\&.")

    root = typer.main.get_command(app)
    lines = [f'.TH VMTAX 1 "" "vmtax {__version__}"', ".SH NAME", "vmtax \\- what virtualization costs", ".SH SYNOPSIS"]
    lines += [".B vmtax", "COMMAND [OPTIONS] ...", ".SH DESCRIPTION", plain(root.help or ""), ".SH COMMANDS"]
    for name, command in commands():
        if hasattr(command, "commands"):
            continue
        lines += [f".SS {plain(usage(name, command))}", plain(command.help or "")]
        for typed, text in parameters(command):
            lines += [".TP", f"\\fB{plain(typed)}\\fR", plain(text)]
    lines.append(".SH EXIT STATUS")
    for code, meaning in MEANINGS.items():
        lines += [".TP", f"\\fB{code}\\fR", plain(meaning)]
    lines += [".SH FILES", ".TP", "\\fI~/.local/share/vmtax\\fR", "results (XDG_DATA_HOME)"]
    lines += [".TP", "\\fI~/.cache/vmtax\\fR", "root images (XDG_CACHE_HOME)"]
    lines += [".TP", "\\fI~/.local/state/vmtax\\fR", "undo lists of runs (XDG_STATE_HOME)"]
    return "\n".join(lines) + "\n"


# Plans and metrics


def field_rows(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """(dotted key, default, what it means)."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        yield f"`{prefix}{name}`", default_text(field), field.description or ""
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from field_rows(kind, f"{prefix}{name}.")


def default_text(field: Any) -> str:
    if field.is_required():
        return "must be given"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return ""
    if value is None or (isinstance(value, (tuple, dict)) and not value):
        return "none"
    if field.examples:  # as a person writes it
        return f"`{field.examples[0]}`"
    return f"`{', '.join(map(str, value)) if isinstance(value, tuple) else value}`"


def plan_page() -> str:
    factors = [
        (f"`{factor.name}`", ", ".join(f"`{level}`" for level in factor.levels), f"`{factor.default}`", factor.describe)
        for factor in FACTORS.values()
    ]
    parts = [
        "# Plan keys\n",
        "A plan is YAML. Quantities have a unit: `1GiB`, `20m`, `2%`. An unknown key, level or metric is refused with"
        " its line and the legal values; `vmtax plan show PLAN` prints a plan with every default filled in.\n",
        table(("key", "default", "what"), field_rows(Plan)),
        "## Factors\n",
        table(("factor", "levels", "default", "what"), factors),
        "## Workloads\n",
    ]
    for name, kind in WORKLOADS.items():
        layers = ", ".join(layer for layer in ("host", "vm", "nested") if layer in kind.layers)
        parts += [f"### {name}\n", f"{kind.describe}. On {layers}.\n"]
        rows = list(field_rows(kind.parameters_type))
        parts += [table(("parameter", "default", "what"), rows)] if rows else ["No parameters.\n"]
    return "\n".join(parts)


def metrics_page() -> str:
    parts = [
        "# Metrics\n",
        "Base units: seconds, bytes, bits, operations; unit `1` is a plain number, such as CPUs kept busy. An overhead"
        " is lost throughput where higher is better, and added time, CPU or bytes where lower is better.\n",
    ]
    for name, kind in WORKLOADS.items():
        rows = [
            (f"`{metric.name}`", metric.unit, metric.better, label(metric), cost(metric))
            for metric in kind(kind.parameters_type()).metrics()
        ]
        parts += [f"## {name}\n", f"{kind.describe}.\n"]
        parts.append(table(("metric", "unit", "better", "what", "an overhead is"), rows))
    return "\n".join(parts)


def exit_page() -> str:
    return "# Exit codes\n\n" + table(("code", "meaning"), ((str(code), text) for code, text in MEANINGS.items()))


def json_page() -> str:
    schema = json_schema()
    parts = [
        "# JSON answers\n",
        'Every `--json` answer is `{"schema": "vmtax/1", "kind": KIND, "data": ...}`. Numbers are in base units,'
        " times are seconds since the epoch; what is not a finite number is `null`."
        " [vmtax-1.schema.json](vmtax-1.schema.json) is the JSON Schema of all of it.\n",
        table(("kind", "data"), ((f"`{kind}`", f"`{type_text(schema, kind)}`") for kind in KINDS)),
    ]
    for name, shape in schema["$defs"].items():
        described = re.sub(r"\s+", " ", shape.get("description", ""))
        rows = [
            (f"`{key}`", f"`{type_of(value)}`", value.get("description", ""))
            for key, value in shape.get("properties", {}).items()
        ]
        parts += [f"## {name}\n", f"{described}\n" if described else "", table(("key", "type", "what"), rows)]
    return "\n".join(part for part in parts if part)


def type_text(schema: Any, kind: str) -> str:
    return type_of(next(e for e in schema["oneOf"] if e["title"] == kind)["properties"]["data"])


def type_of(value: Any) -> str:
    if "$ref" in value:
        return str(value["$ref"]).rpartition("/")[2]
    if "anyOf" in value:
        return " or ".join(type_of(one) for one in value["anyOf"])
    if "enum" in value:
        return " or ".join(json.dumps(one) for one in value["enum"])
    if value.get("type") == "array":
        return f"list of {type_of(value.get('items') or {})}"
    return str(value.get("type", "any"))


def index_page() -> str:
    lines = ["# Reference\n", "Made from the code, and tested against it.\n"]
    for file, text in pages().items():
        title = text.removeprefix(NOTE).partition("\n")[0].removeprefix("# ")
        lines.append(f"- [{title if file.endswith('.md') else file}]({file})")
    return "\n".join(lines) + "\n"


def pages() -> dict[str, str]:
    """File name -> text, without the index."""
    found = {
        "commands.md": commands_page(),
        "plan.md": plan_page(),
        "metrics.md": metrics_page(),
        "exit-codes.md": exit_page(),
        "json.md": json_page(),
    }
    found = {file: NOTE + text for file, text in found.items()}
    return {**found, "vmtax-1.schema.json": json.dumps(json_schema(), indent=1) + "\n", "vmtax.1": man_page()}


def every_page() -> dict[str, str]:
    return {"README.md": NOTE + index_page(), **pages()}


if __name__ == "__main__":
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    for file, text in every_page().items():
        (DIRECTORY / file).write_text(text, encoding="utf-8")
        print(DIRECTORY.joinpath(file), file=sys.stderr)
