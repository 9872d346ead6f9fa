"""`--help`: what a command does, its arguments and options, and examples. Plain text, as wide as the terminal."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

# Command -> examples, without the leading `vmtax`.
EXAMPLES = {
    "doctor": (
        "doctor",
        "doctor --host ssh://root@host --try",
        "doctor libvirt:web1",
        "doctor ssh://Administrator@win --try",
    ),
    "run": (
        "run",
        "run disk-cache --disk-dir /srv/vm --budget 1h",
        "run --host ssh://root@host --yes --label before",
        "run quick --vary host.kernel_arguments=mitigations=auto,mitigations=off",
        "run --command 'make -j2 -C src' --files src --packages gcc,make",
        "run --resume",
        "run --after-reboot",
    ),
    "plan from": ("plan from libvirt:web1", "plan from 101.conf -o plan.yaml"),
    "watch": ("watch",),
    "calibrate": ("calibrate --budget 20m",),
    "show": (
        "show",
        "show --full",
        "show last --for database --needs thin --apply",
        "show --needs migratable,isolation",
        "show --why durable",
    ),
    "report": ("report -o report.html", "report last --format csv -o measurements.csv"),
    "compare": ("compare before after", "compare before-1,before-2 after-1,after-2 --fail-if-worse 3%"),
    "claim list": ("claim list",),
    "claim show": ("claim show nesting-2016", "claim show nesting-2016 last"),
    "claim check": ("claim check nesting-2016", "claim check mine.yaml --format markdown"),
    "claim run": ("claim run build-2020 --budget 1h",),
    "history": ("history quick", "history --label nightly --format html -o history.html"),
    "fleet show": ("fleet show quick", "fleet show --label autumn --format html -o fleet.html"),
    "fleet compare": ("fleet compare before after", "fleet compare before after --plan quick --format html -o c.html"),
    "runs": ("runs", "runs --json"),
    "runs rm": ("runs rm 20261120-0201",),
    "export": ("export last -o last.run.gz",),
    "import": ("import last.run.gz",),
    "fleet run": (
        "fleet run quick -i hosts.yml --fleet autumn",
        "fleet run quick --hosts hosts.txt --fleet autumn -- --rounds 9",
    ),
    "fleet hosts": ("fleet hosts -i hosts.yml",),
    "fleet playbook": ("fleet playbook quick --fleet autumn > playbook.yml",),
    "fleet status": ("fleet status autumn",),
    "fleet stop": ("fleet stop autumn", "fleet stop autumn --undo"),
    "fleet dashboard": ("fleet dashboard > vmtax.json",),
    "store copy": ("store copy ~/.local/share/vmtax/vmtax.sqlite postgresql://vmtax@db/vmtax",),
    "clean": ("clean", "clean --images --yes"),
    "lab start": (
        "lab start",
        "lab start big --memory 8GiB --vcpus 4",
        "lab start --kernel-arguments mitigations=off",
        "lab start cut --spares 1 --log-writes",
        "lab start copy --from lab",
        "lab start second --link lab",
    ),
    "lab ssh": ("lab ssh", "lab ssh lab uname -r"),
    "lab status": ("lab status",),
    "lab list": ("lab list",),
    "lab stop": ("lab stop",),
    "lab cut": ("lab cut",),
    "lab save": ("lab save",),
    "lab remove": ("lab remove big --yes",),
    "plan list": ("plan list",),
    "plan show": ("plan show quick > mine.yaml",),
    "plan check": ("plan check mine.yaml",),
    "image build": ("image build",),
    "image zfs": ("image zfs",),
    "image kernel": ("image kernel", "image kernel --again"),
    "image postgresql": ("image postgresql", "image postgresql --again"),
    "image windows": ("image windows", "image windows --again"),
    "image list": ("image list",),
    "image remove": ("image remove 602bf8e18962",),
    "image export": ("image export image.tar.zst",),
    "image import": ("image import image.tar.zst --sha256 DIGEST",),
}
INDENT = "  "
WIDEST = 100  # columns; longer lines are hard to read
NARROWEST = 40
NAMES = 27  # widest column of options' names; longer names get their text on the next line


def examples(name: str) -> tuple[str, ...]:
    """Examples of a command; the first word of `name` is the program's."""
    return tuple(f"vmtax {line}" for line in EXAMPLES.get(name.partition(" ")[2], ()))


def usage(name: str, command: Any) -> str:
    """The synopsis of a command, on one line."""
    arguments = [argument_name(one) for one in command.params if one.param_type_name == "argument"]
    options = ["[OPTIONS]"] if len(command.params) > len(arguments) else []
    optional = getattr(command, "invoke_without_command", False)
    needed = [] if not hasattr(command, "commands") else ["[COMMAND]" if optional else "COMMAND"]
    return " ".join([name, *options, *arguments, *needed])


def argument_name(argument: Any) -> str:
    """In brackets if it is optional."""
    name = (argument.metavar or argument.name.upper()).strip("[]").replace("]...", "...")
    return name if argument.required else f"[{name}]"


def option_name(option: Any) -> str:
    """All names of an option, followed by its value's name."""
    names = ", ".join([*option.opts, *option.secondary_opts])
    return names if option.is_flag else f"{names} {option.metavar}"


def parameters(command: Any) -> list[tuple[str, str]]:
    """(Synopsis, description) of every argument and option."""
    return [
        (argument_name(one) if one.param_type_name == "argument" else option_name(one), _description(one))
        for one in command.params
        if not getattr(one, "hidden", False)
    ]


def text(command: Any, context: Any) -> str:
    """The complete help of a command."""
    width = max(NARROWEST, min(WIDEST, shutil.get_terminal_size().columns))
    name = context.command_path
    blocks = [f"Usage: {usage(name, command)}", textwrap.fill(" ".join((command.help or "").split()), width)]
    split: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for typed, what in parameters(command):
        split["Options" if typed.startswith("-") else "Arguments"].append((typed, what))
    split["Options"].append(("--help, -h", "Show this help."))
    commands = dict(_commands(command, context))
    for tables in (split, commands):  # each is aligned separately
        column = _column(row for rows in tables.values() for row in rows)
        blocks += ["\n".join([heading, *_rows(rows, column, width)]) for heading, rows in tables.items() if rows]
    if context.parent is None:
        blocks.append(f"`{name} help COMMAND` prints the help of a command.")
    if lines := examples(name):
        blocks.append("\n".join(["Examples", *(f"{INDENT}{line}" for line in lines)]))
    return "\n\n".join(blocks) + "\n"


def _description(parameter: Any) -> str:
    default = parameter.default if isinstance(parameter.default, str) else ""
    return f"{parameter.help or ''}{default and f' Default: {default}.'}"


def _commands(command: Any, context: Any) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """(Heading, rows) of each group of a group's commands."""
    if hasattr(command, "commands"):
        for heading, texts in command.listed(context).items():
            yield heading, [(name, " ".join(text.split())) for name, text in texts.items()]


def _column(rows: Iterable[tuple[str, str]]) -> int:
    """The column in which descriptions begin."""
    return min(NAMES, max((len(name) for name, _ in rows), default=0)) + 2 * len(INDENT)


def _rows(rows: list[tuple[str, str]], column: int, width: int) -> Iterator[str]:
    """Names on the left, descriptions on the right."""
    for name, what in rows:
        lines = textwrap.wrap(what, width - column) or [""]
        if len(name) + 2 * len(INDENT) > column:
            yield f"{INDENT}{name}"
        else:
            yield f"{INDENT}{name}".ljust(column) + lines.pop(0)
        yield from (" " * column + line for line in lines)
