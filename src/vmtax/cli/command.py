"""Classes of commands and groups: checks of the command line before a command's own code runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from vmtax.cli import help
from vmtax.cli.completion import take_as_typed
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


class Main(StrictGroup):
    """The top-level group, its commands in the order of their use; `help COMMAND` is `COMMAND --help`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        args = _with_store_first(args)
        return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=help.ORDER.index)


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

    def add_typer(self, typer_instance: typer.Typer, **settings: Any) -> None:
        if not isinstance(typer_instance, App):
            raise TypeError("commands must be made by App, or empty values would be taken")
        super().add_typer(typer_instance, **settings)


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
