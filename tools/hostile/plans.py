"""Plans: every key with values of every kind, YAML of every kind, plans too large, files that are no plans."""

from __future__ import annotations

import functools
import itertools
import json
import math
import os
import random
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from tools.hostile.case import Case, Result, complaints, forked
from tools.hostile.plan_maker import KEYS, NUMBERS, WORKLOAD_KEYS, at, default_first, factors_of, kinds_of, valid_plan
from vmtax.design.factors import FACTORS

TITLE = "plans"
Plan = dict[str, Any]

COMMAND_LINE = ("command", "run")  # the parameter that takes almost any text
MOST_LINES = 21  # of an error: twenty problems, and how many more
LONGEST_LINE = 1100  # characters
MOST_CONFIGURATIONS = 10_000
# Words of the libraries below, which tell the reader of a message nothing.
JARGON = re.compile(r"pydantic|[Ii]nput should|Python|NoneType|<class|validat|tag:yaml|Errno|object at 0x|type=|codec")

TEXTS = (
    "",
    " ",
    "x" * 3000,
    "\u202eabc",
    "\N{SNOWMAN}",
    "\x1b]0;title\x07",
    "a\x00b",
    "\ud800",
    "../../etc/passwd",
    "$(id)",
)
WRONG = ({"x": {"y": 1}}, [[[]]], [{}], -1, 10**30, -(10**400), 1e400, float("nan"), *(t for t in TEXTS if t.strip()))
ODD = (None, True, False, 0, 1, 2, 1.5, [], {}, "", "none", "auto", "1GiB", "9" * 400 + "TiB", "1e9999%", ["a"] * 500)


# A valid plan may list levels that do not go together, or that this host cannot have: these are refused by name.
LEVEL = re.compile(rf"^vmtax: (host: )?({'|'.join(map(re.escape, FACTORS))})\b", re.MULTILINE)


def cases(source: random.Random, home: Path, share: float) -> Iterator[Case]:
    """Named regressions first, then about a thousand generated plans."""
    numbers = itertools.count()

    def of_text(kind: str, text: str | bytes, codes: Sequence[int], *command: str, says: str = "") -> Case:
        raw = text if isinstance(text, bytes) else text.encode(errors="surrogatepass")
        file = home / f"{next(numbers)}.yaml"
        words = command or source.choices((("plan", "check"), ("plan", "show")), (9, 1))[0]

        def attempt() -> Iterable[str]:
            file.write_bytes(raw)
            result = forked(*words, str(file), home=home)
            refused = words == ("plan", "check") and 0 in codes and LEVEL.search(result.error)
            yield from wrong_with(result, (*codes, 2) if refused else codes, says)

        return Case(f"{' '.join(words)} {kind}: {raw[:200]!r}", attempt)

    yield from regressions(of_text)
    for command, name in paths(home / "paths", source, share):
        words = (*command, "--", name)
        yield Case(f"{' '.join(command)} {name[:80]!r}", functools.partial(refused, words, home / "paths"))
    for kind, maker, count in GENERATED:
        for _ in range(math.ceil(count * share)):
            yield of_text(kind, *maker(source))
    for number in range(math.ceil(40 * share)):
        yield shown_and_read_again(home / f"shown-{number}", valid_plan(source))


def wrong_with(result: Result, codes: Sequence[int], says: str = "") -> Iterable[str]:
    """What is wrong with how a command ended that was given a plan."""
    yield from complaints(result, codes)
    lines = result.error.splitlines()
    if len(lines) > MOST_LINES:
        yield f"an error of {len(lines)} lines"
    if (longest := max((len(line) for line in lines), default=0)) > LONGEST_LINE:
        yield f"a line of {longest} characters"
    if jargon := JARGON.search(result.error):
        yield f"{jargon[0]!r} in {result.error[:300]!r}"
    if result.code == 2 and not (lines and lines[0].startswith("vmtax: ")):
        yield f"refused without a reason: {result.error[:300]!r}"
    if says not in result.error:
        yield f"{says!r} is not in {result.error[:300]!r}"


# What fell once, and what must never hang


def regressions(of_text: Callable[..., Case]) -> Iterator[Case]:
    every = json.dumps({name: factor.levels for name, factor in FACTORS.items()})
    head = "name: a\nworkloads: [chess]\n"
    check = ("plan", "check")
    count = 3 * math.prod(len(factor.levels) for factor in FACTORS.values())  # on three layers
    yield of_text("all factors", f"{head}factors: {every}", (2,), *check, says=f"{count:,} configurations before")
    yield of_text("all factors one at a time", f"{head}design: one-at-a-time\nfactors: {every}", (0,), *check)
    for command in (check, ("plan", "show"), ("run",), ("calibrate",)):
        yield of_text("all factors", f"{head}factors: {every}", (2,), *command, says="one-at-a-time")
    five = json.dumps({name: FACTORS[name].levels for name in list(FACTORS)[12:15]})
    entries = "  - {disk.cache: unsafe, disk.bus: ide}\n" * 1000
    yield of_text("1000 excludes", f"{head}factors: {five}\nexclude:\n{entries}", (0,), *check)
    yield of_text("1000 idle excludes", f"{head}exclude:\n{entries}", (0,), *check)
    yield of_text("10,000 excludes", f"{head}exclude: [{'layers: vm,' * 10_000}]", (2,), *check, says="64 KiB")
    yield of_text("10,000 values", f"{head}exclude: [{'a,' * 10_000}]", (2,), *check, says="10,000 values")
    yield of_text("3000 combinations", f"{head}combinations: [{'disk.bus: ide,' * 3000}]", (0,), *check)
    yield of_text("6000 keys", "".join(f"k{i}: 1\n" for i in range(4990)), (2,), *check, says="more problems")
    yield of_text("5000 factors", f"{head}factors: {{{','.join(f'k{i}: a' for i in range(4000))}}}", (2,), *check)
    yield of_text("9000 metrics", f"{head}primary: [{'a,' * 9000}]", (2,), *check)
    yield of_text("depth", f"{head}seed: {'[' * 20_000}", (2,), *check, says=":3:")
    yield of_text("escape", f'{head}host: "\\UFFFFFFFF"', (2,), *check, says=":3:")
    yield of_text("digits", f"{head}seed: {'9' * 5000}", (2,), *check, says="5,000")
    for parameter in ("chess: {depth: true}", "chess: {depth: '13'}", f"disk: {{fresh_size: {'9' * 400}TiB}}"):
        yield of_text("parameter", f"name: a\nworkloads: [{parameter}]", (2,), *check)
    yield of_text("size", f"name: a\nworkloads: [disk: {{size: {'9' * 30}TiB}}]", (2,), "run", says="64TiB")
    yield of_text("laughs", bomb(), (2,), *check)


def bomb() -> str:
    lines = ["a0: &a0 [x, x]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30))]
    return "\n".join(lines)


def paths(home: Path, source: random.Random, share: float) -> Iterator[tuple[tuple[str, ...], str]]:
    """(command, what is given it as a plan and is none): each that takes a plan says so and ends."""
    home.mkdir()
    os.mkfifo(home / "pipe.yaml")
    (home / "loop.yaml").symlink_to("loop.yaml")
    (home / "broken.yaml").symlink_to("nothing")
    (home / "to-zero.yaml").symlink_to("/dev/zero")
    (home / "directory.yaml").mkdir()
    (home / "directory").mkdir()
    (home / "empty.yaml").touch()
    (home / "long.yaml").write_bytes(b"#" * 70_000)
    with socket.socket(socket.AF_UNIX) as server, (home / "sparse.yaml").open("wb") as sparse:
        server.bind(str(home / "socket.yaml"))
        sparse.truncate(2**40)
    found = sorted(entry.name for entry in home.iterdir())
    long = ["a" * 300, "a" * 300 + ".yaml", "/" + "b" * 5000, "/".join(["c"] * 3000), "d/" * 60 + "e.yaml"]
    odd = ["", " ", ".", "..", "/", "quik", "a\nb", "\x1b[2J", "\udcff", "quick ", "*", "plan.yml", "~"]
    special = ["/dev/zero", "/dev/full", "/dev/tty", "/dev/null", "/proc/self/mem", "/proc/kmsg", "/proc/self/environ"]
    for name in (*found, *long, *odd, *special):
        yield ("plan", "check"), name
        for command in (("plan", "show"), ("run",), ("calibrate",)):
            if source.random() < share and (name or command != ("run",)):  # `run ""` is `run quick`
                yield command, name


def refused(words: Sequence[str], home: Path) -> Iterable[str]:
    yield from wrong_with(forked(*words, home=home), (2,))


def shown_and_read_again(file: Path, plan: Plan) -> Case:
    """What `plan show` prints of a valid plan is one, and is printed alike."""

    def attempt() -> Iterable[str]:
        file.with_suffix(".yaml").write_text(yaml.safe_dump(plan))
        first = forked("plan", "show", str(file.with_suffix(".yaml")), home=file.parent)
        yield from wrong_with(first, (0,))
        file.with_suffix(".again.yaml").write_bytes(first.stdout)
        second = forked("plan", "show", str(file.with_suffix(".again.yaml")), home=file.parent)
        yield from wrong_with(second, (0,))
        if second.stdout != first.stdout:
            yield "is shown differently when what was shown is read"

    return Case(f"plan show, twice: {plan!r}"[:400], attempt)


# Generated: (text, exit codes that are right, ...)

Made = tuple[str | bytes, Sequence[int]]


def accepted(source: random.Random) -> Made:
    return written(source, valid_plan(source)), (0,)


def wrong_value(source: random.Random) -> Made:
    """A valid plan in which one key has a value that is never right."""
    plan = valid_plan(source)
    at(plan, source.choice(KEYS), source.choice(WRONG))
    return written(source, plan), (2,)


def odd_value(source: random.Random) -> Made:
    """One to three keys with values that are seldom right."""
    plan = valid_plan(source)
    for _ in range(source.randint(1, 3)):
        at(plan, source.choice(KEYS), source.choice((*ODD, *WRONG)))
    return written(source, plan), (0, 2)


def wrong_parameter(source: random.Random) -> Made:
    """A parameter of a workload with a value that is never right."""
    plan = valid_plan(source)
    workload, key = source.choice(WORKLOAD_KEYS)
    kinds = kinds_of(workload, key)
    others = [value for value in (True, "13", None) if type(value) not in kinds]  # which some parameters may be
    never = [*WRONG, *others, {}, [[]], "9" * 400 + "TiB"]
    if (workload, key) == COMMAND_LINE:
        never = [value for value in never if not isinstance(value, str)]
    value = source.choice(never)
    plan |= {"layers": ["vm"], "workloads": [{workload: {key: value}}]}
    plan.pop("primary", None)
    plan.pop("factors", None)
    return written(source, plan), (2,)


def out_of_bounds(source: random.Random) -> Made:
    """A number just beyond a bound, or far beyond."""
    plan = valid_plan(source)
    key, low, high, form = source.choice(NUMBERS)
    size = source.choice((low - 1, high + 1, high * 10**20, -high, 0 if low > 0 else -1))
    at(plan, key, form.format(size) if form else size)
    return written(source, plan), (2,)


def product(source: random.Random) -> Made:
    """Any factors with all their levels: refused from more than 10,000 configurations on, and in no other case."""
    layers = source.sample(["host", "vm", "nested"], source.randint(1, 3))
    if "vm" not in layers:
        layers.append("vm")
    usable = factors_of(layers)
    names = source.sample(usable, min(len(usable), source.randint(1, 20)))
    # The default first: then the first combination is legal.
    factors = {name: default_first(name) for name in names}
    design = source.choice(["full", "full", "one-at-a-time"])
    plan = {"name": "a", "layers": layers, "design": design, "factors": factors, "workloads": ["chess"]}
    if source.random() < 0.5:
        entry = {name: source.choice(factors[name][1:]) for name in source.sample(names, min(2, len(names)))}
        plan["exclude"] = [{**entry, "layers": source.choice(layers)} for _ in range(source.randint(1, 500))]
    size = math.prod(len(levels) for levels in factors.values()) * len(layers)
    return written(source, plan), (2,) if design == "full" and size > MOST_CONFIGURATIONS else (0,)


def thousands(source: random.Random) -> Made:
    """Very many entries of one kind, most of them wrong."""
    plan = valid_plan(source)
    count = source.randint(100, 4000)
    word = source.choice(["vm", "disk.cache", "chess", "x", "disk.randread-4k-qd1.iops"])
    many: list[Any] = [word if source.random() < 0.5 else f"{word}{i}" for i in range(count)]
    key = source.choice(
        ["", "layers", "factors", "factors.disk.bus", "combinations", "exclude", "workloads", "primary"]
    )
    if key in ("", "factors") or source.random() < 0.2:
        at(plan, key, {f"{name}{i}": "x" for i, name in enumerate(many)})
    else:
        at(plan, key, [{name: "x"} for name in many] if key in ("combinations", "exclude") else many)
    return written(source, plan), (2,)


def syntax(source: random.Random) -> Made:
    """A valid plan with one kind of YAML in it that no plan may have."""
    text = str(written(source, valid_plan(source)))
    depth, word = source.randint(21, 3000), source.choice(["a", "'", '"', "é", "\N{SNOWMAN}"])
    key = f"\nseed{source.randint(0, 9)}: "
    extra = source.choice(
        [
            *(f"{key}{part * depth}" for part in ("[", "{a: ", "- ", "? ", "!x ", "&a ", "*", "[{", "- ? ")),
            *(
                f"{key}{tag} {word}"
                for tag in ("!!python/object:os.system", "!!binary", "!!int", "!!set", "!<x>", "!!map")
            ),
            *(f'{key}"{escape}"' for escape in ("\\UFFFFFFFF", "\\ud800", "\\x1b", "\\z", "\\u12", "\\U00110000")),
            *(
                f"{key}{number}"
                for number in ("9" * depth, "1." + "0" * depth, "1e" + "9" * depth, "0x10", "1_0", "1:2")
            ),
            *(f"{key}{text}" for text in ("&x 1\nseed: *x", "|\n\ta", ">9\n a", "'", '"', "%", "@", "`", "a: b", "}")),
            *(f"{key}{char}" for char in ("\x00", "\x07", "\x1b[2J", "\x7f", "\x85", "\u2028", "\ufeff", "\ufffe")),
            *(
                "\nname: b\nname: c",
                "\n---\nname: b",
                "\n<<: {seed: 1}",
                "\n? [a]\n: b",
                "\n%YAML 9.9\n---",
                "\n\tx: 1",
            ),
        ]
    )
    return text.rstrip() + extra, (2,)


def encoding(source: random.Random) -> Made:
    """A valid plan in another encoding, or cut, or with bytes changed."""
    text = str(written(source, valid_plan(source)))
    raw = text.encode()
    start = source.randrange(len(raw))
    return source.choice(
        [
            (b"\xef\xbb\xbf" + raw, (0,)),
            (text.replace("\n", "\r\n").encode(), (0,)),
            *(((text + "# é").encode(name), (2,)) for name in ("utf-16", "utf-32", "utf-16-be", "latin-1")),
            (raw[:start], (0, 2)),
            (raw[:start] + source.randbytes(source.randint(1, 4)) + raw[start:], (0, 2)),
            (raw[:start] + raw[start + 1 :], (0, 2)),
            (raw + b"#" * 2**16, (2,)),
            (source.randbytes(source.randint(1, 2000)), (2,)),
            (bytes(source.choices(b"a:-[]{}&*!|>'\"%@`,?# \n\t0\\Uu", k=source.randint(1, 400))), (2,)),
        ]
    )


def slip(source: random.Random) -> Made:
    """A valid plan with a few characters exchanged, doubled or left out."""
    text = list(str(written(source, valid_plan(source))))
    for _ in range(source.randint(1, 4)):
        place = source.randrange(len(text))
        text[place : place + source.randint(0, 3)] = source.choice(["", ":", "[", "- ", "\n", "'", "#", "0", "{", ","])
        text = text or ["x"]
    return "".join(text), (0, 2)


def written(source: random.Random, plan: Any) -> str:
    """As YAML of one style or another."""
    if source.random() < 0.3:
        try:
            text = json.dumps(plan, ensure_ascii=source.random() < 0.5)
        except ValueError:
            pass
        else:
            return text.replace("NaN", ".nan").replace("-Infinity", "-.inf").replace("Infinity", ".inf")
    unicode, width = source.random() < 0.5, source.choice([40, 80, 10**6])
    return yaml.safe_dump(
        plan, default_flow_style=source.choice([True, False, None]), allow_unicode=unicode, width=width
    )


GENERATED: tuple[tuple[str, Callable[[random.Random], Made], int], ...] = (
    ("valid", accepted, 200),
    ("a wrong value", wrong_value, 200),
    ("odd values", odd_value, 100),
    ("a wrong parameter", wrong_parameter, 100),
    ("out of bounds", out_of_bounds, 60),
    ("a product", product, 80),
    ("thousands", thousands, 60),
    ("syntax", syntax, 120),
    ("encoding", encoding, 80),
    ("a slip", slip, 80),
)
