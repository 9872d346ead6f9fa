"""Options in groups: a record becomes a command's options, and a command its values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from vmtax.cli.option_groups import given, spread


@dataclass(frozen=True)
class Place:
    disk_dir: Annotated[str | None, typer.Option(metavar="DIRECTORY")] = None
    erase: Annotated[list[str] | None, typer.Option()] = None


@dataclass(frozen=True)
class Everything:
    place: Place = Place()
    quiet: Annotated[bool, typer.Option("--quiet")] = False


def test_a_command_gets_records_of_the_values_that_its_options_have() -> None:
    seen = []

    def measure(plan: Annotated[str, typer.Argument()] = "quick", *, options: Everything) -> None:
        """Measure."""
        seen.append((plan, options))

    app = typer.Typer()
    app.command()(spread(measure))
    for words in ([], ["disk", "--disk-dir", "/srv", "--erase", "/dev/a", "--erase", "/dev/b", "--quiet"]):
        assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    assert seen == [("quick", Everything()), ("disk", Everything(Place("/srv", ["/dev/a", "/dev/b"]), True))]


def test_options_that_were_given_are_named_as_they_are_typed() -> None:
    assert given(Everything(Place(disk_dir="/srv"), quiet=True), Place()) == ["--disk-dir", "--quiet"]
    assert given(Everything(), Place(erase=[])) == []
