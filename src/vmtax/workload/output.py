"""Read what a tool printed with mistrust: each figure has a range, and a tool's own doubt counts. Pure.

Whatever was printed instead, nothing but BadOutput is raised.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from vmtax.core.records import Measurement, Unit

SHOWN = 100  # characters of a figure or a line in a message
# The most that a figure can be, in base units; beyond, a counter has wrapped or a clock has jumped.
MOST: dict[Unit, float] = {
    "s": 1e7,  # four months
    "1/s": 1e12,
    "B/s": 1e15,
    "bit/s": 1e16,
    "B": 1e18,
    "s/B": 1.0,
    "1": 1e9,
}
MOST_OPERATIONS = 1e15


class BadOutput(Exception):
    """The tool succeeded, but its output is not as expected, or fails a check of its correctness."""


class _Wrong(BadOutput):
    """What is wrong with a figure, without the tool that printed it."""


@dataclass(frozen=True, slots=True)
class _Twice:
    """Different values of one key of a JSON object."""

    values: tuple[Any, ...]

    def __str__(self) -> str:
        return " and ".join(map(str, self.values))


@contextlib.contextmanager
def reading(tool: str) -> Iterator[None]:
    """Code that reads what the tool printed: whatever exception comes of it is BadOutput."""
    try:
        yield
    except _Wrong as problem:
        raise BadOutput(f"{tool}: {problem}") from problem
    except BadOutput:
        raise
    except Exception as problem:
        what = f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__
        raise BadOutput(f"what {tool} printed is not its usual output ({_short(what)})") from problem


def refuse_doubts(tool: str, doubts: Sequence[str], output: str) -> None:
    """Raises BadOutput with the first line in which the tool doubts itself."""
    if not doubts:
        return
    doubt = re.compile("|".join(f"(?:{one})" for one in doubts))
    for line in output.splitlines():
        if doubt.search(line):
            raise BadOutput(f"{tool} doubts its figures: {_short(line.strip())}")


def only(pattern: str, output: str) -> re.Match[str] | None:
    """The match of a pattern with one group on lines of its own; None if there is none. Two that differ are refused."""
    found = list(re.finditer(pattern, output, re.MULTILINE | re.ASCII))
    if len({match[1] for match in found}) > 1:
        said = " and ".join(_short(match[0].strip()) for match in found[:2])
        raise _Wrong(f"two figures stand where one is expected: {said}")
    return found[0] if found else None


def json_at(text: str, start: int) -> tuple[dict[str, Any], int]:
    """The JSON object that begins there, and where it ends. Raises BadOutput."""
    try:
        found, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError) as problem:
        raise _Wrong(f"its JSON cannot be read: {_short(str(problem))}") from problem
    if not isinstance(found, dict):
        raise _Wrong("its JSON is no object")
    return found, end


def json_of(text: str) -> dict[str, Any]:
    """The only JSON object between lines of other text. Raises BadOutput."""
    start = text.find("{")
    if start < 0:
        raise _Wrong("there is no JSON")
    found, end = json_at(text, start)
    if "{" in text[end:]:
        raise _Wrong("more stands after its JSON")
    return found


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        found[name] = value if name not in found or found[name] == value else _Twice((found[name], value))
    return found


def _no_number(text: str) -> str:
    return text  # which no figure may be


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_no_number)


def number(node: Any, *path: str | int, least: float = 0.0, most: float = math.inf) -> float:
    """The figure there, in its unit. Raises BadOutput that names it if it is missing, no number, or out of range."""
    name = ".".join(map(str, path))
    for key in path:
        try:
            node = node[key]
        except (LookupError, TypeError):
            raise _Wrong(f"its JSON has no {name}") from None
    try:
        value = math.nan if isinstance(node, bool) or not isinstance(node, int | float) else float(node)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise _Wrong(f"{name} is {_short(str(node))}, which is no number")
    within(name, value, least, most)
    return value


def within(name: str, value: float, least: float, most: float, unit: str = "") -> None:
    """Raises BadOutput if the value is not in the range, such as no number at all."""
    if least <= value <= most:
        return
    low = "above 0" if least == math.ulp(0.0) else f"at least {least:g}"
    bounds = f"from {least:g} to {most:g}" if least == 0 and math.isfinite(most) else low
    bounds += f" and at most {most:g}" if least and math.isfinite(most) else ""
    raise _Wrong(f"{name} is {value:g}{unit}, which is impossible: it is {bounds}{unit}")


def refuse_falling(measurements: Sequence[Measurement]) -> None:
    """Raises BadOutput if a higher percentile of the same latency is smaller."""
    found = []
    for one in measurements:
        match = re.fullmatch(r"(.*)p(\d+)_seconds", one.metric.name)
        if match:
            found.append((match[1], float(f"0.{match[2]}"), one))
    found.sort(key=lambda entry: entry[:2])
    for (kind, _, lower), (other, _, higher) in itertools.pairwise(found):
        if kind == other and higher.value < lower.value:
            raise _Wrong(
                f"{higher.metric.name} is {higher.value:g} s, less than {lower.metric.name}, {lower.value:g} s"
            )


def refuse_bad_latencies(pairs: Sequence[tuple[float, float]]) -> None:
    """Raises BadOutput if these are not rising pairs of a share and seconds."""
    for share, seconds in pairs:
        within("the share of a percentile", share, 0.0, 1.0)
        within(f"the {100 * share:g}th percentile", seconds, 0.0, MOST["s"], " s")
    for (share, seconds), (more, longer) in itertools.pairwise(pairs):
        if more <= share or longer < seconds:
            raise _Wrong(f"the {100 * more:g}th percentile is {longer:g} s, the {100 * share:g}th {seconds:g} s")


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
