"""The documentation is held to the program: commands exist, plans are legal, links lead somewhere."""

from __future__ import annotations

import functools
import itertools
import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tools import picture, reference, site_hooks
from vmtax.cli import app
from vmtax.cli.asked import PlanChanges
from vmtax.cli.contents import COMMANDS, GROUPS
from vmtax.cli.help import EXAMPLES, examples
from vmtax.cli.running import overridden
from vmtax.plan.schema import load, parse

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
HELP = {"--help", "-h"}


FENCE = re.compile(r"^( *)(```+|~~~+)(.*)\n((?:.*\n)*?) *\2 *$", re.MULTILINE)


def blocks(text: str, language: str) -> list[str]:
    """What stands between fences of that language, without the indentation of the list that it is in."""
    return [textwrap.dedent(found[4]) for found in FENCE.finditer(text) if found[3].split()[:1] == [language]]


RUN_LIKE = re.compile(r"\b on (\S+) \([^)\n]*(?:bare metal|VM under)|^\S+ +\d+ rounds · took ", re.MULTILINE)
INVENTED = "An invented example"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_an_invented_run_says_so_in_its_first_line_and_its_host_is_called_example(page: Path) -> None:
    for found in FENCE.finditer(page.read_text(encoding="utf-8")):
        text = textwrap.dedent(found[4])
        for run in RUN_LIKE.finditer(text):
            assert text.startswith(INVENTED) and run[1] in (None, "example"), f"{page.name}: {text[:200]}"


def test_an_example_of_a_recommendation_is_what_the_program_prints() -> None:
    printed = (ROOT / "tests/golden/show-card-advice.txt").read_text().rpartition("What each")[0]
    assert "Apply it" in printed and f"\n\n{printed}```\n" in (ROOT / "docs/how-to/network.md").read_text()


def prose(text: str) -> str:
    """Without what is code: a comment of a shell is no heading, an index of a list no link."""
    return re.sub(r"`[^`\n]+`", "`code`", FENCE.sub("", text))


def invocations(block: str) -> Iterator[list[str]]:
    """The words of every command that is vmtax: after a prompt, sudo or a variable, in a pipe, over several lines."""
    for line in block.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line.strip().removeprefix("$ "), posix=True, punctuation_chars="|&;<>()")
        lexer.commenters, lexer.whitespace_split = "#", True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if not set(word) <= set("|&;<>()"):
                words.append(word)
                continue
            while words and (words[0] in ("sudo", "time", "nohup") or re.match(r"\w+=", words[0])):
                del words[0]
            if words and words[0].rpartition("/")[2] == "vmtax":
                yield words[1:]
            words = ["file"] if "<" in word or ">" in word else []


def commands() -> list[tuple[str, list[str]]]:
    return [
        (name, words)
        for page, name in zip(PAGES, NAMES, strict=True)
        for block in blocks(page.read_text(), "sh")
        for words in invocations(block)
    ]


def plans() -> list[tuple[str, str]]:
    return [
        (name, block)
        for page, name in zip(PAGES, NAMES, strict=True)
        for block in blocks(page.read_text(), "yaml")
        if re.search(r"^workloads:", block, re.MULTILINE)
    ]


@functools.cache
def root() -> Any:
    return typer.main.get_command(app)


def parsed(words: list[str]) -> Any:
    """The context of the command that `words` name, parsed and not run; raises what the command line would say."""
    command, name, parent = root(), "vmtax", None
    while hasattr(command, "commands"):
        if not words and command.invoke_without_command:
            return None  # `vmtax runs` lists them
        if words[:1] and words[0].startswith("-"):
            assert words[0] in {option for parameter in command.params for option in parameter.opts} | HELP, words[0]
            return None  # nothing follows what prints and ends
        parent = command.context_class(command, info_name=name, parent=parent)
        name, *words = words
        assert name in command.commands, name
        command = command.commands[name]
    return None if HELP & {*words} else command.make_context(name, [*words], parent=parent)


@pytest.mark.parametrize(
    ("page", "words"), commands(), ids=lambda value: value if isinstance(value, str) else " ".join(value)
)
def test_commands_exist(page: str, words: list[str]) -> None:
    parsed(words)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("vmtax run --no-such-option", "(?i)no such option"),
        ("vmtax nosuch", "nosuch"),
        ("vmtax --nosuch", "nosuch"),
        ("vmtax report one two", "unexpected"),
        ("vmtax run --rounds many", "integer"),
        ("sudo A=b .venv/bin/vmtax show --full | less; $ x && vmtax plan \\\n  nosuch # vmtax runs", "nosuch"),
    ],
)
def test_what_does_not_exist_is_noticed(line: str, complaint: str) -> None:
    *_, last = invocations(line)
    with pytest.raises(Exception, match=complaint):
        parsed(last)


def test_what_exists_is_not_run() -> None:
    for line in ("vmtax --version", "vmtax run --help", "vmtax plan -h", "vmtax runs --json > runs.json 2>&1"):
        for words in invocations(line):
            parsed(words)


@pytest.mark.parametrize(("page", "text"), plans(), ids=lambda value: value.split()[-1])
def test_plans_are_legal(page: str, text: str) -> None:
    assert parse(text).treatments()[0]


QUESTIONS = ROOT / "docs/how-to/which-plan-answers-my-question.md"


@pytest.mark.parametrize("line", re.findall(r"`(vmtax run[^`…]*)`", QUESTIONS.read_text()))
def test_the_plan_that_answers_a_question_exists_and_can_be_varied_so(line: str) -> None:
    (words,) = invocations(line)
    given = parsed(words).params
    changes = PlanChanges(layers=given["layers"], vary=given["vary"])
    assert overridden(load(given["plan"] or "quick"), changes).treatments()[0]


def test_there_is_something_to_check() -> None:
    assert len(commands()) > 20 and len(plans()) > 2
    assert {"README.md", "CONTRIBUTING.md", "docs/tutorial.md", "docs/reference/plan.md"} <= {*NAMES}


def anchors(page: Path) -> set[str]:
    """What GitHub makes of headings; one that is there already gets a number."""
    found: set[str] = set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", page.read_text()))
    for head in re.findall(r"^#+ +(.+?) *#*$", FENCE.sub("", page.read_text()), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", head)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        numbered = (f"{slug}-{number}" for number in itertools.count(1))
        found.add(slug if slug not in found else next(name for name in numbered if name not in found))
    return found


def links(page: Path) -> list[str]:
    """Everything that the page leads to, pictures too."""
    text = prose(page.read_text())
    inline = re.findall(r"\]\(\s*<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\s*\)", text)
    return (
        inline + re.findall(r"^ *\[[^\]]+\]: +(\S+)", text, re.MULTILINE) + re.findall(r"(?:href|src)=\"([^\"]+)", text)
    )


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    for link in links(page):
        if re.match(r"\w+:", link):
            continue  # elsewhere: no test may need a network
        file, _, anchor = link.partition("#")
        target = (page.parent / file if file else page).resolve()
        assert target.exists() and target.is_relative_to(ROOT), link
        assert not anchor or anchor in anchors(target), link


def test_headings_and_links_are_found_as_github_finds_them(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '# A `b`: c\n## A\n## A\n```sh\n# no\n[n](no)\n```\n[x](y.md#z "t") `[n](no)` ![p](q.png)\n\n[r]: s.md\n'
    )
    assert anchors(page) == {"a-b-c", "a", "a-1"}
    assert links(page) == ["y.md#z", "q.png", "s.md"]


def test_every_page_is_reached_from_the_index() -> None:
    seen: set[Path] = set()
    todo = [ROOT / "docs/README.md"]
    while todo:
        page = todo.pop().resolve()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        todo += [page.parent / link.partition("#")[0] for link in links(page) if ":" not in link]
    assert set((ROOT / "docs").rglob("*.md")) <= seen


def test_the_site_has_every_page_once() -> None:
    listed = re.findall(r"([\w./-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("one\n- a\n- b\n  more", "one\n\n- a\n- b\n  more"),
        ("one:\n1. a\n2. b", "one:\n\n1. a\n2. b"),
        ("| a |\n|---|\n| b |", "| a |\n|---|\n| b |"),
        ("```\nx\n- y\n```\n| a |", "```\nx\n- y\n```\n\n| a |"),
        ("one\n```sh\nx\n```", "one\n\n```sh\nx\n```"),
        ("- a\n  b\n- c", "- a\n  b\n- c"),
        ("", ""),
    ],
)
def test_lists_tables_and_blocks_are_found_on_the_site(written: str, read: str) -> None:
    assert site_hooks.spaced(written) == read
    assert site_hooks.spaced(read) == read


def test_links_of_the_site_stay_in_it() -> None:
    text = "[a](../../Makefile) [b](../x.md#y) ![c](../../c.svg) [d](z.md)"
    assert site_hooks.within(text, 1) == "a [b](../x.md#y) ![c](../../c.svg) [d](z.md)"


def test_the_picture_is_what_show_prints() -> None:
    assert picture.PICTURE.read_text(encoding="utf-8") == picture.picture(), "draw it anew: make picture"


def test_the_readme_is_one_page() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 60
    assert "emulated" in lines[lines.index(next(line for line in lines if line.startswith("!["))) + 2], (
        "beside the picture"
    )


def leaves() -> list[str]:
    """Every command that does something, as it is typed."""
    return [name for name, command in reference.commands() if not hasattr(command, "commands")]


@pytest.mark.parametrize("name", leaves())
def test_help_has_examples_that_are_legal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = examples(name)
    assert lines, f"{name} has no example: add one to EXAMPLES"
    for line in lines:
        assert line.startswith(name)
        (words,) = invocations(line)
        parsed(words)
    shown = CliRunner().invoke(app, [*name.split()[1:], "--help"], prog_name="vmtax").stdout
    assert all(line in shown for line in lines) and "<bool>" not in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_examples_belong_to_commands() -> None:
    assert {f"vmtax {name}" for name in EXAMPLES} <= {name for name, _ in reference.commands()}


def test_every_command_is_in_a_group_of_the_help() -> None:
    shown = CliRunner().invoke(app, ["--help"]).stdout
    command = root()
    assert {name: " ".join(each.help.split()) for name, each in command.commands.items()} == {
        name: declared.help for name, declared in COMMANDS.items()
    }
    assert [heading for heading in shown.splitlines() if heading in GROUPS] == [*GROUPS]
