"""Writes docs/reference/ and the man page from the code: `python tools/reference.py`. A test holds them together."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel

from vmtax import __version__
from vmtax.analysis.weight_profiles import PROFILES
from vmtax.claims.known import links
from vmtax.claims.rules import RULES
from vmtax.claims.schema import (
    ClaimRow,
    ClaimTable,
    Derived,
    Headline,
    MeasuringTool,
    Mention,
    PublishedClaim,
    QueueLoad,
    Through,
)
from vmtax.cli import app
from vmtax.cli.help import examples, parameters, usage
from vmtax.core import notices
from vmtax.core.errors import MEANINGS
from vmtax.core.layers import LAYERS
from vmtax.core.quantities import Quantity
from vmtax.core.units import format_value
from vmtax.design.factors import FACTORS
from vmtax.plan.rules import MOST_CONFIGURATIONS
from vmtax.plan.schema import Plan
from vmtax.plan.yaml import MOST_BYTES, MOST_VALUES
from vmtax.report.answers.schema import CHANGES, KINDS, json_schema
from vmtax.report.wording.cost import cost
from vmtax.report.wording.glossary import GLOSSARY
from vmtax.workload import WORKLOADS
from vmtax.workload.words import label

DIRECTORY = Path(__file__).parent.parent / "docs/reference"
FILES = {
    "~/.local/share/vmtax": "results (XDG_DATA_HOME)",
    "~/.cache/vmtax": "root images (XDG_CACHE_HOME)",
    "~/.local/state/vmtax": "undo lists of runs (XDG_STATE_HOME)",
}  # see places.py
ROFF = str.maketrans({"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "~": "\\(ti", "^": "\\(ha"})
NOTE = "<!-- made by tools/reference.py: `make reference` writes it anew -->\n"


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = [tuple(heads), *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join([lines[0], "|" + "---|" * len(cells[0]), *lines[1:]]) + "\n"


def code(names: Iterable[Any]) -> str:
    return ", ".join(f"`{name}`" for name in names)


# Commands


def commands(command: Any = None, name: str = "vmtax") -> Iterator[tuple[str, Any]]:
    """(how it is typed, click's command), depth first, in the order of --help; groups too."""
    command = command or typer.main.get_command(app)
    yield name, command
    if hasattr(command, "commands"):
        context = command.context_class(command)
        for child in command.list_commands(context):
            yield from commands(command.get_command(context, child), f"{name} {child}")


def documented() -> list[tuple[str, Any]]:
    """Those with something to say: groups only where they have options."""
    return [(name, command) for name, command in commands() if command.params or not hasattr(command, "commands")]


def commands_page() -> str:
    every = "Every command takes `--help`, and `vmtax help COMMAND` prints the same."
    parts = [f"# Commands\n\n{every} Results go to stdout, progress and questions to stderr.\n"]
    for name, command in documented():
        parts += [f"## {name}\n", f"{command.help}\n", f"```\n{usage(name, command)}\n```\n"]
        rows = [(f"`{typed}`", text) for typed, text in parameters(command)]
        parts += [table(("", "what"), rows)] if rows else []
        parts += ["```sh\n" + "\n".join(examples(name)) + "\n```\n"] if examples(name) else []
    return "\n".join(parts)


def man_page() -> str:
    def plain(text: str) -> str:
        lines = textwrap.wrap(text, 72, break_long_words=False, break_on_hyphens=False)
        return "\n".join(f"\\&{line}" if line[0] == "." else line for line in (one.translate(ROFF) for one in lines))

    root = typer.main.get_command(app)
    lines = [f'.TH VMTAX 1 "" "vmtax {__version__}"', ".SH NAME", "vmtax \\- what virtualization costs", ".SH SYNOPSIS"]
    lines += [".B vmtax", "COMMAND [OPTIONS] ...", ".SH DESCRIPTION", plain(root.help or ""), ".SH COMMANDS"]
    for name, command in documented():
        lines += [f".SS {usage(name, command).translate(ROFF)}", plain(command.help or "")]
        for typed, text in parameters(command):
            lines += [".TP", f"\\fB{typed.translate(ROFF)}\\fR", plain(text)]
        if examples(name):
            lines += [".PP", "Examples:", ".nf", *(f"  {line.translate(ROFF)}" for line in examples(name)), ".fi"]
    lines += [".SH EXIT STATUS"]
    for number, meaning in MEANINGS.items():
        lines += [".TP", f"\\fB{number}\\fR", plain(meaning)]
    lines += [".SH FILES"]
    for place, what in FILES.items():
        lines += [".TP", f"\\fI{place.translate(ROFF)}\\fR", plain(what)]
    return "\n".join(lines) + "\n"


# Plans and metrics


def field_rows(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """(dotted key, default, what it means)."""
    shapes = model.model_json_schema()["properties"]
    for name, field in model.model_fields.items():
        kind = field.annotation
        bounds = [f" ({found.bounds})" for found in field.metadata if isinstance(found, Quantity)]
        legal = bounds[0] if bounds else legal_text(shapes[name])
        yield f"`{prefix}{name}`", default_text(field), f"{field.description or ''}{legal}"
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from field_rows(kind, f"{prefix}{name}.")


def legal_text(shape: Any) -> str:
    """What the type itself allows; a rule that it cannot say stands in the description."""
    (shape, *_) = shape.get("anyOf", [shape])
    names = shape.get("enum") or shape.get("items", {}).get("enum")
    if names:
        return f" ({'one' if 'enum' in shape else 'any'} of {code(names)})"
    if "minimum" in shape:
        return f" ({shape['minimum']:,} to {shape['maximum']:,})" if "maximum" in shape else " (0 to 2^63 - 1)"
    return ""


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
        (code([f.name]), code(f.levels), code([f.default]), ", ".join(f.layers), f.describe) for f in FACTORS.values()
    ]
    parts = [
        "# Plan keys\n",
        "A plan is YAML. Quantities have a unit: `1GiB`, `20m`, `2%`. An unknown key, level or metric is refused with"
        " its line and the legal values; `vmtax plan show PLAN` prints a plan with every default filled in.\n",
        f"A plan is a regular file of at most {MOST_BYTES // 1024} KiB and {MOST_VALUES:,} values, without aliases."
        f" It has at most {MOST_CONFIGURATIONS:,} configurations, which are the combinations of its levels, times"
        " its layers, before anything is excluded.\n",
        table(("key", "default", "what"), field_rows(Plan)),
        "## Factors\n",
        table(("factor", "levels", "default", "on", "what"), factors),
        "## Workloads\n",
    ]
    for name, kind in WORKLOADS.items():
        layers = ", ".join(layer for layer in LAYERS if layer in kind.layers)
        parts += [f"### {name}\n", f"{kind.describe}. On {layers}.\n"]
        rows = list(field_rows(kind.parameters_type))
        parts += [table(("parameter", "default", "what"), rows)] if rows else ["No parameters.\n"]
    return "\n".join(parts)


CLAIM_PARTS = {  # heading -> its model
    "The file": PublishedClaim,
    "A table: an entry of `tables`, or at the top of a file with one": ClaimTable,
    "A row": ClaimRow,
    "An entry of `derived`": Derived,
    "An entry of `headlines`": Headline,
    "An entry of `mentions`": Mention,
    "`load` of a row": QueueLoad,
    "`tool`": MeasuringTool,
    "`through`": Through,
}


def claim_page() -> str:
    parts = [
        "# Claim keys\n",
        "A published claim is YAML, for `vmtax claim`. A figure is written as it was printed, because its digits count:"
        " 5.0 says more than 5. An unknown key or row is refused with its line and the legal ones.\n",
    ]
    for heading, model in CLAIM_PARTS.items():
        parts += [f"## {heading}\n", table(("key", "default", "what"), field_rows(model))]
    known = ((code([name]), link.name, format_value(link.bytes_per_second, "B/s")) for name, link in links().items())
    parts += ["## Links and devices of `through`\n", table(("name", "what", "carries at most"), known)]
    parts += ["## Rules\n", table(("rule", "looks at"), ((rule.number, rule.name) for rule in RULES))]
    return "\n".join(parts)


# Workload -> parameters with metrics that those of its defaults do not have.
BESIDES: Mapping[str, Mapping[str, Any]] = {"net": {"cases": ("udp-in", "udp-out"), "rate": 100}}


def metrics_page() -> str:
    parts = [
        "# Metrics\n",
        "Base units: seconds, bytes, bits, operations; unit `1` is a plain number, such as CPUs kept busy. An overhead"
        " is lost throughput where higher is better, and added time, CPU or bytes where lower is better.\n",
    ]
    for name, kind in WORKLOADS.items():
        chosen: list[Mapping[str, Any]] = [{}, *filter(None, [BESIDES.get(name)])]
        metrics = [metric for given in chosen for metric in kind(kind.parameters_type(**given)).metrics()]
        rows = [
            (f"`{metric.name}`", metric.unit, metric.better, kind.measure(metric).meaning, label(metric), cost(metric))
            for metric in dict.fromkeys(metrics)
        ]
        parts += [f"## {name}\n", f"{kind.describe}. Measured by {kind.tool}.\n"]
        parts.append(table(("metric", "unit", "better", "what", "reports call it", "an overhead is"), rows))
    return "\n".join(parts)


def mixes_page() -> str:
    parts = [
        "# Mixes\n",
        "The weights of `--for` of `vmtax show` and `vmtax report`. A configuration's score is the weighted geometric"
        " mean of its ratios to the host, or to the first configuration if no host was measured; a latency's ratio is"
        " inverted."
        " The weights are judgements: a report says how often the winner stays when they move."
        " [Choose a disk](../how-to/choose-a-disk.md#by-which-figure-they-are-ranked) has the rest.\n",
    ]
    for name, profile in PROFILES.items():
        rows = [(f"`{weight.metric}`", f"{weight.weight:g}", weight.reason) for weight in profile.weights]
        parts += [f"## {name}\n", f"For {profile.describe}.\n", table(("metric", "weight", "because"), rows)]
    return "\n".join(parts)


def warnings_page() -> str:
    rows = [
        (f"`{code}`", *map(notices.sentence, (meaning.cause, meaning.effect, meaning.cure)))
        for code, meaning in notices.MEANINGS.items()
    ]
    return "\n".join(
        (
            "# Warnings\n",
            "Each warning has a code. A report names it with what caused it in that run and which figures it is about;"
            " JSON has it in `notices` of a run and in `notice_codes` of a comparison. The gravest come first.\n",
            table(("code", "cause", "effect", "what to do"), rows),
        )
    )


def glossary_page() -> str:
    rows = ((f'<a id="{term.id}"></a>{term.word}', term.meaning) for term in GLOSSARY)
    return f"# Glossary\n\n{table(('word', 'meaning'), rows)}"


def json_page() -> str:
    schema = json_schema()
    shapes = [envelope["properties"]["data"] for envelope in schema["oneOf"]]
    parts = [
        "# JSON answers\n",
        'Every `--json` answer is `{"schema": "vmtax/1", "kind": KIND, "data": ...}`. Numbers are in base units,'
        " times are seconds since the epoch; what is not a finite number is `null`. A command that fails answers with"
        " kind `error`: the exit code and the text that is also on stderr, whatever is wrong, the options included."
        " What was answered before it failed is the only answer: `run` shows a run of failed trials and ends with 1."
        " [vmtax-1.schema.json](vmtax-1.schema.json) is the JSON Schema of all of it.\n",
        "`vmtax show --json=summary` prints `data.summary` alone, as kind `summary`;"
        " [five lines of jq](../how-to/share-a-run.md#lines-of-jq) show how to use it.\n",
        f"**What may change within `vmtax/1`:** {CHANGES}\n",
        table(
            ("kind", "data"), ((f"`{kind}`", f"`{type_of(data)}`") for kind, data in zip(KINDS, shapes, strict=True))
        ),
    ]
    for name, shape in schema["$defs"].items():
        described = re.sub(r"\s+", " ", shape.get("description", ""))
        rows = [
            (f"`{key}`", f"`{type_of(value)}`", value.get("description", ""))
            for key, value in shape.get("properties", {}).items()
        ]
        parts += [f"## {name}\n", f"{described}\n" if described else "", table(("key", "type", "what"), rows)]
    return "\n".join(part for part in parts if part)


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


def pages() -> dict[str, str]:
    """File name -> text."""
    exits = table(("code", "meaning"), ((str(number), text) for number, text in MEANINGS.items()))
    found = {
        "commands.md": commands_page(),
        "plan.md": plan_page(),
        "claim.md": claim_page(),
        "metrics.md": metrics_page(),
        "mixes.md": mixes_page(),
        "exit-codes.md": f"# Exit codes\n\n{exits}",
        "json.md": json_page(),
        "warnings.md": warnings_page(),
        "glossary.md": glossary_page(),
    }
    others = {"vmtax-1.schema.json": json.dumps(json_schema(), indent=1) + "\n", "vmtax.1": man_page()}
    contents = "".join(f"- [{text.partition(chr(10))[0][2:]}]({file})\n" for file, text in found.items())
    contents += "".join(f"- [{file}]({file})\n" for file in others)
    found["README.md"] = f"# Reference\n\nMade from the code, and tested against it.\n\n{contents}"
    return {**{file: NOTE + text for file, text in found.items()}, **others}


if __name__ == "__main__":
    for file, text in pages().items():
        (DIRECTORY / file).write_text(text, encoding="utf-8")
        print(DIRECTORY.joinpath(file), file=sys.stderr)
