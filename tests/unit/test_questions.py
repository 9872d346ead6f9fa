"""The page of users' questions: each has its answer, its command is one that begins, and the sums are right."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.unit.test_docs import invocations, parsed
from vmtax.cli.asked import Measured, PlanChanges
from vmtax.cli.running import new_work

PAGE = Path(__file__).parents[2] / "docs/development/questions-from-threads.md"
TEXT = PAGE.read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (\d+) \| (.+?) \| (.+?) \| (.+) \|$", TEXT, re.MULTILINE)
COMMANDS = [command for *_, answer in ROWS for command in re.findall(r"`(vmtax [^`]+)`", answer)]


def test_every_question_is_there_once() -> None:
    assert [int(number) for number, *_ in ROWS] == [*range(1, 25), *range(1, 49)]


def test_every_question_is_answered_by_a_command_or_says_what_is_missing() -> None:
    kinds = [re.match(r"(yes|half|no)\b(.*)", answer) for *_, answer in ROWS]
    assert all(kinds)
    for (number, thread, *_), found in zip(ROWS, kinds, strict=True):
        assert found is not None
        assert (": `vmtax " in found[2]) or (found[1] == "no" and len(found[2]) > 3), (number, thread)
        assert found[1] != "half" or found[2].startswith(", "), f"{number} {thread}: a half says what is missing"
    counts = Counter(found[1] for found in kinds if found)
    assert f"{counts['yes']} of 72 are a yes, {counts['half']} a half, {counts['no']} a no" in TEXT


@pytest.mark.parametrize("line", dict.fromkeys(COMMANDS))
def test_a_command_that_answers_is_accepted(line: str) -> None:
    """As `plan check` with the same options would: a level that would not be measured is refused."""
    (words,) = invocations(line)
    context = parsed(words)
    if words[0] != "run":
        return
    given = context.params
    existing = given["guest"] is not None
    changes = PlanChanges(
        layers=given["layers"], vary=given["vary"], memory=given["memory"], vcpus=given["vcpus"], budget=given["budget"]
    )
    if not existing:  # a VM of the user's would have to be there
        assert new_work(given["plan"], Measured(changes)).plan.treatments()[0]
