"""Bad values for every option and argument of every command; what commands there are, the program itself says.

Nothing is measured: the question is not answered, and but for the guard's Python no program is in PATH.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from tests.sample import sample_experiment
from tools.hostile.case import Case, Result, complaints, forked
from vmtax.cli.app import app
from vmtax.store import Store

TITLE = "options and arguments"
EMPTY = ("", " ", "\t\n")
BAD = (
    *EMPTY,
    *("a" * 300, "a/" * 3000, "x" * 100_000, "/" + "b" * 300, "c" * 254 + "/d"),
    *("\udcff", "\x1b]0;x\a\x1b[2J", "\u202egnp.exe", "\x9b31m", "a\u2028b", "a\nb"),
    *("[bold]", "[/]", "lab:m", ":smile:", "%s%n{0}", "$(id)", ";id"),
    *("../x", "/nonexistent/x", "/dev/null", "/proc/self/environ", ".", "~", "'"),
    *("-", "--", "-1", "0", "1e999", "nan", "9" * 5000, "0x10", "١", "²", "2**63", ","),
    *("ssh://", "ssh://-oProxyCommand=x", "ssh://[::1", "ssh://h:99999999", "lab:", "lab:../x", "a=b"),
    *("101%", "99999999999d", "1PiB", "null", "last,last"),
)
LETTERS = "aZ0 _-./:=,%~é\u200b\u202e\x1b\x07\x7f\udc9f\U0001f600[]{}$`'\"\\\n"


def leaves(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(words, command) of every command that does something."""
    command = command or typer.main.get_command(app)
    if not hasattr(command, "commands") or command.invoke_without_command:
        yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from leaves(child, (*path, name))


def cases(source: random.Random, home: Path, share: float) -> Iterator[Case]:
    """For each parameter of each command: the values above, some made up, all of it once more with --json."""
    surroundings = _prepare(home)
    whole = list(_everything(source))
    chosen = whole if share >= 1 else source.sample(whole, max(1, round(share * len(whole))))
    for argv, name, value in chosen:
        yield Case(
            f"vmtax {' '.join(map(repr, argv))}"[:400], functools.partial(_tried, argv, name, value, home, surroundings)
        )


def _everything(source: random.Random) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """(arguments, the parameter's name, its value)."""
    for path, command in leaves():
        json_too = any("--json" in parameter.opts for parameter in command.params)
        for extra in ((), ("--nosuch",), ("\udcff", "b", "c", "d")):
            yield (*path, *extra), "", "-"
        for parameter in command.params:
            if getattr(parameter, "is_flag", False):
                continue
            made_up = ["".join(source.choices(LETTERS, k=source.randint(1, 40))) for _ in range(2)]
            for value in (*BAD, *made_up):
                argv = (*path, *_given(command, parameter, value))
                yield argv, _name(parameter), value
                if json_too and (value in EMPTY or source.random() < 0.15):
                    yield (*path, "--json", *_given(command, parameter, value)), _name(parameter), value


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper()).strip("[].")
    return str(max(parameter.opts, key=len))


def _given(command: Any, parameter: Any, value: str) -> list[str]:
    """The arguments with that value, what else is required being `last`."""
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    if parameter not in arguments:
        return [max(parameter.opts, key=len), value, *("last" for one in arguments if one.required)]
    before = arguments[: arguments.index(parameter)]
    after = arguments[arguments.index(parameter) + 1 :]
    return ["--", *("last" for _ in before), value, *("last" for one in after if one.required)]


def _prepare(home: Path) -> dict[str, str]:
    """A store with a run, and what to change about the environment."""
    programs = home / "bin"
    programs.mkdir()
    (programs / "python3").symlink_to(sys.executable)
    (home / "here").mkdir()
    file = home / ".local/share/vmtax/vmtax.sqlite"
    file.parent.mkdir(parents=True)
    with Store(file) as store:
        store.put(sample_experiment(rounds=2))
    return {"PATH": str(programs), "COLUMNS": "80"}


def _tried(argv: Sequence[str], name: str, value: str, home: Path, surroundings: dict[str, str]) -> Iterable[str]:
    result = forked(*argv, home=home, cwd=home / "here", changes=surroundings)
    if argv[0] == "doctor" and result.code == 1 and result.stdout:  # its answer is the reason
        result = dataclasses.replace(result, stderr=result.stderr or b"vmtax: see stdout")
    yield from complaints(result, (0, 1, 2, 4))
    yield from _error_complaints(result)
    if not value.strip():
        if result.code != 2:
            yield f"an empty value is taken: exit code {result.code}"
        elif name not in result.error:
            yield f"{name} is not named: {result.error!r}"
    in_a_file = name == "--output" and value != "-" and result.code == 0  # whose name is printed
    if "--json" in argv and not in_a_file:
        yield from json_complaints(result)


def _error_complaints(result: Result) -> Iterable[str]:
    lines = result.error.splitlines()
    if result.code == 2 and not lines[0].startswith("vmtax: "):
        yield f"no line of ours: {lines[0]!r}"
    if lines and max(map(len, lines)) > 2500:
        yield f"a line of {max(map(len, lines))} characters"


def json_complaints(result: Result) -> Iterable[str]:
    """What is wrong with the answer of a command that was given --json."""
    try:
        answer = json.loads(os.fsdecode(result.stdout))
    except ValueError as error:
        yield f"no JSON: {error}: {result.stdout[:200]!r}"
        return
    if answer.get("schema") != "vmtax/1":
        yield f"no answer of vmtax: {result.stdout[:200]!r}"
    if result.code == 2 and answer.get("kind") != "error":
        yield f"exit code 2 with {answer.get('kind')}"
    if answer.get("kind") == "error" and answer["data"]["code"] != result.code:
        yield f"exit code {result.code}, and {answer['data']}"
