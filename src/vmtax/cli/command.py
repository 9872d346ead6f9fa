"""Classes of commands and groups: checks of the command line before a command's own code runs."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from vmtax.cli import help
from vmtax.cli.completion import take_as_typed
from vmtax.cli.contents import COMMANDS, GROUPS
from vmtax.cli.option_groups import spread
from vmtax.core.errors import BAD_INPUT, BadInput


class EmptyValue(BadInput):
    """An option or argument is empty, most often because of a shell variable that is not set."""


class StrictCommand(TyperCommand):
    """A command that refuses empty values, which no option or argument accepts."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(help.text(self, ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        take_as_typed(ctx, self.get_params(ctx))
        args = self._with_parts(ctx, args)
        given, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        left = super().parse_args(ctx, args)  # first, because it handles --help
        for parameter in self.get_params(ctx):
            value = given.get(parameter.name or "")
            values = value if isinstance(value, (list, tuple)) else [value]
            if not ctx.resilient_parsing and any(isinstance(one, str) and not one.strip() for one in values):
                raise EmptyValue(_empty(parameter, ctx.command_path))
        return left

    def _with_parts(self, ctx: Any, args: list[str]) -> list[str]:
        """Turn `--json=PART` into `--json` and `--part PART` for a command whose answer has parts, because a flag takes
        no value.
        """
        if not any("--part" in parameter.opts for parameter in self.get_params(ctx)):
            return args
        options = args[: args.index("--")] if "--" in args else args
        split = [
            word
            for one in options
            for word in (("--json", f"--part={one.partition('=')[2]}") if re.match("--json=.", one) else (one,))
        ]
        return [*split, *args[len(options) :]]


class StrictGroup(TyperGroup):
    """Commands under one name; prints its help if a command is missing."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        take_as_typed(ctx, self.get_params(ctx))
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            typer.echo(ctx.get_help(), err=True)
            raise typer.Exit(BAD_INPUT)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(help.text(self, ctx))

    def listed(self, ctx: Any) -> Mapping[str, Mapping[str, str]]:
        """Heading -> command -> its help."""
        return {"Commands": {name: self.commands[name].help or "" for name in self.list_commands(ctx)}}


class _Imported(Mapping[str, Any]):
    """The commands of `contents`, each of which is imported when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        group = _group(COMMANDS[name].module)
        return group.commands.get(name, group)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


@functools.cache
def _group(module: str) -> TyperGroup:
    return typer.main.get_group(importlib.import_module(f"vmtax.cli.commands.{module}").app)


class Main(StrictGroup):
    """The top-level group, its commands in the order of their use; `help COMMAND` is `COMMAND --help`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = _Imported()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        args = _with_store_first(args)
        return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)

    def listed(self, ctx: Any) -> Mapping[str, Mapping[str, str]]:
        return {heading: {name: each.help for name, each in group.items()} for heading, group in GROUPS.items()}

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Of a command that is being typed, its name and its help are enough."""
        self.commands = {name: StrictCommand(name, help=each.help) for name, each in COMMANDS.items()}
        return super().shell_complete(ctx, incomplete)


class App(typer.Typer):
    """A Typer whose commands and groups use the classes above."""

    def __init__(self, cls: type[StrictGroup] = StrictGroup, **settings: Any) -> None:
        super().__init__(cls=cls, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        register = super().command(name, cls=StrictCommand, **settings)

        def registered(command: Callable[..., Any]) -> Callable[..., Any]:
            register(spread(command))
            return command

        return registered


def _with_store_first(args: list[str]) -> list[str]:
    """`--store ADDRESS` is an option of vmtax itself, and may be typed after the command too."""
    for place, word in enumerate(args):
        if word == "--":
            break
        if word == "--store" or word.startswith("--store="):
            end = place + (2 if word == "--store" else 1)
            return [*args[place:end], *args[:place], *args[end:]]
    return args


def _empty(parameter: Any, command: str) -> str:
    argument = parameter.param_type_name == "argument"
    metavar = parameter.metavar or parameter.name.upper()
    name = metavar.strip("[].") if argument else max(parameter.opts, key=len)
    meaning = (parameter.help or "").rstrip(".")
    return f"{name} is empty, and needs {'a value' if argument else metavar} ({meaning}); see `{command} --help`"
