"""The documentation is held to the program: commands exist, plans are legal, links lead somewhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from vmtax.cli import app
from vmtax.plan import parse

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


def blocks(text: str, language: str) -> list[str]:
    return [re.sub(r"(?m)^ +", "", block) if language == "sh" else _dedented(block) for block in _found(text, language)]


def _found(text: str, language: str) -> Iterator[str]:
    for found in re.finditer(rf"^( *)```{language}\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE):
        yield found[2]


def _dedented(block: str) -> str:
    indent = len(block) - len(block.lstrip(" "))
    return "\n".join(line[indent:] for line in block.splitlines())


def commands() -> Iterator[tuple[str, str]]:
    for page, name in zip(PAGES, NAMES, strict=True):
        for block in blocks(page.read_text(), "sh"):
            yield from ((name, line) for line in block.splitlines() if line.startswith("vmtax "))


def parsed(words: list[str]) -> Any:
    """The context of the command that `words` name, parsed and not run; raises what the command line would say."""
    command: Any = typer.main.get_command(app)
    name = "vmtax"
    while hasattr(command, "commands"):
        name, *words = words
        command = command.commands[name]
    return command.make_context(name, words)


@pytest.mark.parametrize(("page", "line"), list(commands()))
def test_commands_exist(page: str, line: str) -> None:
    parsed(shlex.split(line, comments=True)[1:])


def test_what_does_not_exist_is_noticed() -> None:
    for line in ("run --no-such-option", "nosuch", "report one two"):
        with pytest.raises(Exception, match=r"(?i)no such option|nosuch|unexpected"):
            parsed(line.split())


@pytest.mark.parametrize(
    "text", [block for page in PAGES for block in blocks(page.read_text(), "yaml")], ids=lambda text: text.split()[1]
)
def test_plans_are_legal(text: str) -> None:
    assert parse(text).treatments()[0]


def anchors(page: Path) -> set[str]:
    """What GitHub makes of headings."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if link.startswith(("http://", "https://")):
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_is_reached_from_the_index() -> None:
    seen: set[Path] = set()
    todo = [ROOT / "docs/README.md"]
    while todo:
        page = todo.pop().resolve()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        links = re.findall(r"\]\(([^)#:]+)", page.read_text())
        todo += [page.parent / link for link in links]
    assert set((ROOT / "docs").rglob("*.md")) <= seen
