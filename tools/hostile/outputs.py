"""Hostile strings in every string of a run, shown in every format: they are text there, and nothing else.

Each is compared with the same run that has harmless strings of the same shape in the same places.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from markdown_it import MarkdownIt
from pydantic import TypeAdapter

from tests.sample import sample_experiment
from tools.hostile.case import Case, complaints, forked
from vmtax.core.records import Experiment
from vmtax.store import Store

TITLE = "outputs"
PAYLOADS = (
    *("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</td></table></script></style>", "<!--", "]]>"),
    *("{{7*7}}{% raw %}", "%{y}<b>x</b>", "&lt;b&gt;&#60;", "' onclick='x", "javascript:alert(1)", "<a href=//x>y</a>"),
    *(
        "```\n# x\n",
        "| a | b |",
        "`x` *y* _z_ ~~w~~",
        "[x](javascript:alert(1))",
        "![x](//y)",
        "\n\n---\n# y",
        "http://x",
    ),
    *("=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", "-2+3", "\t=1", '",=1,"', "'=1"),
    *("\x1b]0;x\a", "\x1b[2J\x1b[31m", "\x9b31m", "\r\nvmtax: faked", "\u202egnp.exe\u2066", "\u2028\u0085", "\x00x"),
    *(":smile: lab:m :boom:", "[bold]x[/bold][/]", "[link=file:///etc/passwd]x[/link]", "[red", "%s%n{0}", "\\"),
    *("long " * 600, "w" * 3000, "\u0301" * 50, "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\uffff\ufeff"),
)
PLACES: dict[str, tuple[str, ...]] = {  # what is called alike must stay so -> paths in the run's data
    "name": ("name",),
    "host": ("host",),
    "command": ("command",),
    "end": ("ended",),
    "notes": ("notes.*",),
    "treatments": ("treatments.*.name", "treatments.*.repeats", "trials.*.treatment", "boots.*.treatment"),
    "levels": ("treatments.*.levels.*",),
    "paths": ("boots.*.path",),
    "argv": ("boots.*.argv.*",),
    "doubts of boots": ("boots.*.warnings.*",),
    "doubts of trials": ("trials.*.warnings.*",),
    "errors": ("trials.*.error",),
    "cases": ("trials.*.case",),
    "metrics": ("trials.*.measurements.*.metric.name",),
    "facts": ("facts.*.*", "facts.*.*.*", "facts.*.*.*.*"),
}
# The names that the host's layer and the sentences are found by.
KEPT = ("host", "chess.nodes_per_second", "disk.randread-4k-qd1.iops")
CASES = ("", "faults", "randread-4k-qd1")  # of the sample, so that a case takes less time
EMOJI = ("\U0001f604", "\u24c2", "\U0001f4a5")  # what rich makes of :smile:, :m: and :boom:
FORMATS: dict[str, tuple[str, ...]] = {
    "terminal": ("show", "last", "--full"),
    "narrow": ("show", "last"),
    "runs": ("runs",),
    "markdown": ("show", "last", "--format", "markdown"),
    "csv": ("show", "last", "--format", "csv"),
    "json": ("show", "last", "--json"),
    "html": ("show", "last", "--format", "html"),
    "change": ("compare", "FIRST", "last", "--full"),
    "change markdown": ("compare", "FIRST", "last", "--format", "markdown"),
    "change junit": ("compare", "FIRST", "last", "--format", "junit"),
    "change json": ("compare", "FIRST", "last", "--json"),
    "change file": ("compare", "FIRST", "last", "-o", "/dev/stdout"),
}


def cases(source: random.Random, home: Path, share: float) -> Iterator[Case]:
    """Each payload in some places, and in all at once; each of these in several formats."""
    made: list[tuple[str, str]] = [(payload, "everything") for payload in PAYLOADS]
    made += list(itertools.product(PAYLOADS, PLACES))
    made += [("".join(source.choices(PAYLOADS, k=3)), "everything") for _ in range(20)]
    for number in range(max(3, round(170 * share))):
        payload, place = made[number] if share >= 1 and number < len(PAYLOADS) else source.choice(made)
        places = tuple(PLACES) if place == "everything" else (place,)
        keep = functools.lru_cache(functools.partial(_stores, home / str(number), payload, places))
        for format in source.sample(list(FORMATS), 3):
            name = f"{payload[:40]!r} in {place}, {format}"
            yield Case(name, functools.partial(_tried, payload, format, keep))


def _tried(payload: str, format: str, stores: Callable[[], tuple[Path, Path]]) -> Iterable[str]:
    shown = []
    for home in stores():
        first = sample_experiment(rounds=2, seed=0).id
        argv = [first if word == "FIRST" else word for word in FORMATS[format]]
        wide = {"COLUMNS": "80" if format == "narrow" else "1000"}
        shown.append(forked(*argv, home=home, changes=wide))
    hostile, harmless = shown
    yield from complaints(hostile, (0,), escapes="html" not in format)
    if harmless.code:
        yield f"the harmless one fails: {harmless.error!r}"
    if not hostile.code and not harmless.code:
        here, there = hostile.stdout.decode(), harmless.stdout.decode()
        yield from CHECKS.get(format.split()[-1], _check_text)(payload, here, there)
        yield from (f"{sign} comes of a code" for sign in EMOJI if sign in here and sign not in payload)


def _check_text(payload: str, here: str, there: str) -> Iterable[str]:
    """On a terminal: the payload is there, letter for letter, wherever the harmless one is."""
    wanted, plain = (" ".join(text.split()) for text in (payload, _harmless(payload)))
    # A shorter one is in other words too.
    shown = wanted.isprintable() and 3 < len(wanted) < 200 and plain in " ".join(there.split())
    if shown and wanted not in " ".join(here.split()):
        yield f"{wanted!r} is not shown as it is"


def _check_html(payload: str, here: str, there: str) -> Iterable[str]:
    yield from _more("elements", _elements(here), _elements(there))


def _check_markdown(payload: str, here: str, there: str) -> Iterable[str]:
    renderer = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    yield from _more("elements", _elements(renderer.render(here)), _elements(renderer.render(there)))


def _check_csv(payload: str, here: str, there: str) -> Iterable[str]:
    rows, others = (list(csv.reader(io.StringIO(text))) for text in (here, there))
    if list(map(len, rows)) != list(map(len, others)):
        yield f"{len(rows)} rows of {len(rows[0])}, not {len(others)} of {len(others[0])}"
    for cell in itertools.chain.from_iterable(rows):
        if re.match(r"\s*[=+@-]", cell) and not re.fullmatch(r"-?[\d.]+(e[+-]?\d+)?", cell):
            yield f"a formula: {cell[:60]!r}"
            return


def _check_json(payload: str, here: str, there: str) -> Iterable[str]:
    yield from _more("shapes", _shapes(json.loads(here)), _shapes(json.loads(there)))


def _check_junit(payload: str, here: str, there: str) -> Iterable[str]:
    tags = (Counter(element.tag for element in ET.fromstring(text).iter()) for text in (here, there))
    yield from _more("elements", *tags)


CHECKS: dict[str, Callable[[str, str, str], Iterable[str]]] = {
    "html": _check_html,
    "markdown": _check_markdown,
    "csv": _check_csv,
    "json": _check_json,
    "junit": _check_junit,
}


def _more(what: str, here: Counter[Any], there: Counter[Any]) -> Iterable[str]:
    if here != there:
        yield f"other {what}: more {dict(here - there)}, fewer {dict(there - here)}"[:600]


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: Counter[tuple[str, ...]] = Counter()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found[(tag, *sorted(name for name, _ in attrs))] += 1

    def handle_comment(self, data: str) -> None:
        self.found[("comment",)] += 1


def _elements(text: str) -> Counter[tuple[str, ...]]:
    """How often each element with these attributes is there."""
    parser = _Elements()
    parser.feed(text)
    parser.close()
    return parser.found


def _shapes(value: Any) -> Counter[str]:
    if isinstance(value, dict):
        return sum(map(_shapes, value.values()), Counter(["object"]))
    if isinstance(value, list):
        return sum(map(_shapes, value), Counter(["list"]))
    return Counter([type(value).__name__])


def _harmless(payload: str) -> str:
    """The same lengths of words, and the same characters that names are taken apart at. A store keeps NUL as \\x00."""
    return re.sub(r"[^\s.=/,-]", "x", payload.replace("\0", r"\x00"))


def _stores(home: Path, payload: str, places: tuple[str, ...]) -> tuple[Path, Path]:
    """Two homes with two runs each: with the payload, and with the harmless one."""
    for name, text in (("hostile", payload), ("harmless", _harmless(payload))):
        file = home / name / ".local/share/vmtax/vmtax.sqlite"
        file.parent.mkdir(parents=True)
        with Store(file) as store:
            for seed in (0, 1):
                run = sample_experiment(rounds=2, seed=seed, failures=2)
                trials = tuple(trial for trial in run.trials if trial.case in CASES)
                store.put(_with(dataclasses.replace(run, created=run.created + seed, trials=trials), text, places))
    return home / "hostile", home / "harmless"


def _with(run: Experiment, text: str, places: tuple[str, ...]) -> Experiment:
    data = json.loads(json.dumps(dataclasses.asdict(run)))
    data["ended"] = "budget"
    for path in itertools.chain.from_iterable(PLACES[place] for place in places):
        _put(data, path.split("."), text)
    return TypeAdapter(Experiment).validate_python(data)


def _put(data: Any, path: list[str], text: str) -> None:
    """`text` after every string at that path, before it where nothing is found by its beginning."""
    key, rest = path[0], path[1:]
    keys: Iterable[Any] = range(len(data)) if isinstance(data, list) else list(data)
    for one in keys if key == "*" else [one for one in keys if one == key]:
        if rest and isinstance(data[one], (dict, list)):
            _put(data[one], rest, text)
        elif not rest and isinstance(data[one], str) and data[one] not in KEPT:
            first = path == ["*"] or key in ("ended", "command", "case", "error")
            data[one] = f"{text} {data[one]}" if first else f"{data[one]} {text}"
