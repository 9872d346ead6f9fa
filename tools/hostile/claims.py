"""Claims: the ones that come with vmtax, with values, lines and characters changed, in `vmtax claim check`."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from tools.hostile.case import Case, forked
from tools.hostile.plans import wrong_with
from vmtax.claims.files import CLAIM
from vmtax.core.errors import BAD_INPUT, CLAIM_FAILS, DONE

TITLE = "claims"
COUNT = 300
VALUE = re.compile(r"(?<=: )[^,}\]\n]+")
VALUES = (
    *("0", "-1", "-0", "0.0", "5.", "1e300", "1e-300", "1e18", "1e400", "nan", ".inf", "9" * 20, f"1.{'0' * 27}1"),
    *("null", "true", "a", "''", "[]", "{}", '"\\x00"', '"\\ud800"', '"\\e]0;title"', "x" * 3000),
)
CHARACTERS = ("", "{", "}", ":", "- ", "\t", "é", "\n", "\x00", "\N{RIGHT-TO-LEFT OVERRIDE}")


def cases(source: random.Random, home: Path, share: float) -> Iterator[Case]:
    """Each is refused with a line, or checked."""
    for number in range(math.ceil(COUNT * share)):
        text = changed(source)
        yield Case(f"claim check: {text[:200]!r}", partial(_attempt, home, number, text))


def _attempt(home: Path, number: int, text: str) -> Iterable[str]:
    file = home / f"{number}.yaml"
    file.write_text(text, encoding="utf-8")
    return wrong_with(forked("claim", "check", str(file), home=home), (DONE, BAD_INPUT, CLAIM_FAILS))


def changed(source: random.Random) -> str:
    """One of the claims, with one to three changes."""
    text = source.choice(list(CLAIM.files.values())).read_text(encoding="utf-8")
    for _ in range(source.randint(1, 3)):
        change = source.choices((_another_value, _another_line, _another_character), (6, 2, 2))[0]
        text = change(text, source)
    return text


def _another_value(text: str, source: random.Random) -> str:
    found = list(VALUE.finditer(text))
    place = source.choice(found)
    value = source.choice((*VALUES, *(one[0] for one in found)))
    return f"{text[: place.start()]}{value}{text[place.end() :]}"


def _another_line(text: str, source: random.Random) -> str:
    lines = text.split("\n")
    place = source.randrange(len(lines))
    lines[place : place + 1] = source.choice(([], [lines[place], source.choice(lines)]))
    return "\n".join(lines)


def _another_character(text: str, source: random.Random) -> str:
    place = source.randrange(len(text))
    return f"{text[:place]}{source.choice(CHARACTERS)}{text[place + 1 :]}"
