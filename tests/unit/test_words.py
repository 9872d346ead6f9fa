"""What people read is plain English: help, messages and documentation have none of the words below."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.unit.test_statements import CODE
from tools import reference
from vmtax.cli import app
from vmtax.report.wording.glossary import GLOSSARY

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/vmtax"
# A word that readers stumble over -> a better one.
BANNED = {
    r"mend(s|ed|ing)?": "fix, repair, or name the command",
    r"dear(er)?": "costs more",
    r"told": "shown, given, reported",
    r"told apart": "distinguishable",
    r"for who": "for those who, or if you",
    r"none is named": "by default",
    r"found out": "tried, measured",
    r"carriers?": "outer VM",
    r"so many": "the number of, up to N",
    r"changes? by itself": "drifts",
    r"stands? still": "is paused, stops",
    r"found to be": "is, according to",
    r"plays the": "is, emulates",
    r"host/vm": "host, VM, nested VM",
    r"nesting adds?": "nesting costs: a ratio of 9.5 adds 8.5",
    r"means nothing (for|where|without)": "needs",
    r"takes (KVM(?!')|VFIO|root)": "needs",
    r"stands there|stands? under": "is given, is listed",
    r"Pareto": "unbeaten",
}
# In help and documentation, but not in JSON, CSV and plans, where it is an identifier.
READERS = {r"treatments?": "configuration"}
# Who says it in a sense of its own.
EXCEPTIONS = {
    "docs/development/decisions.md": {"treatments?", "Pareto"},  # names of the code are explained there
    "docs/development/choosing.md": {"Pareto"},
    "docs/development/security.md": {"host/vm"},  # a path
    "docs/development/method.md": {"host/vm"},
}


def words(banned: dict[str, str]) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.-])({'|'.join(banned)})(?![\w-])", re.IGNORECASE)


def pages() -> list[Path]:
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "Makefile", *(ROOT / "docs").rglob("*.md")]
    return [
        page for page in sorted(found) if page.name not in ("json.md", "warnings.md")
    ]  # identifiers with their words


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_pages(page: Path) -> None:
    banned = {**BANNED, **READERS}
    for word in EXCEPTIONS.get(str(page.relative_to(ROOT)), set()):
        del banned[word]
    seen = [match[0] for match in words(banned).finditer(CODE.sub("`", page.read_text()))]
    assert not seen, "a better word is in BANNED or READERS"


def test_help() -> None:
    for name, _ in reference.commands():
        shown = CliRunner().invoke(app, [*name.split()[1:], "--help"], prog_name="vmtax").stdout
        assert not (match := words({**BANNED, **READERS}).search(shown)), f"{name}: {match and match[0]}"


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of what a file prints or explains: its strings of several words, but for docstrings and scripts."""
    tree = ast.parse(path.read_text())
    silent = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    silent |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            text = node.value
        else:
            continue
        if " " in text.strip() and not re.search(r"\bimport \w+|\$\(|; do |\{\}: ", text):
            yield node.lineno, text


@pytest.mark.parametrize("package", sorted(path.name for path in SOURCE.iterdir() if path.name[0] != "_"))
@pytest.mark.varied(10)
def test_messages(package: str) -> None:
    seen = [
        f"{path.relative_to(ROOT)}:{line}: {match[0]!r} in {text!r}"
        for path in sorted((SOURCE / package).rglob("*.py"))
        for line, text in messages(path)
        if (match := words(BANNED).search(text))
    ]
    assert not seen, "\n".join(seen)


def test_comments_and_tools_say_who_reports_what() -> None:
    """Of the habit to call a parse, a warning or a remedy "being told"."""
    habit = words(
        {
            r"(is|are|was|were|be) told": "gets, parses, reports",
            r"so many things": "up to N",
            r"one by itself": "a group",
        }
    )
    assert habit.search("a reader is told that") and not habit.search("untold")
    files = [*SOURCE.rglob("*.py"), *(ROOT / "tools").rglob("*.py")]
    assert not [f"{file.name}: {match[0]}" for file in files if (match := habit.search(file.read_text()))]


def test_glossary() -> None:
    assert not words(BANNED).findall("\n".join(f"{term.word} {term.meaning}" for term in GLOSSARY))


def test_banned_words_are_seen() -> None:
    text = "Mend it: this is dearer, as told"
    assert [match[0] for match in words(BANNED).finditer(text)] == ["Mend", "dearer", "told"]
    assert not words(BANNED).search("recommended, x-told, untold")
