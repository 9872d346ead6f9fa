"""Describe what is wrong with a plan, in one clear line for each problem."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from vmtax.core.errors import BadInput
from vmtax.core.units import at_most, shortened, show


@dataclass(frozen=True, slots=True)
class Unknown:
    """An unknown name, with the most similar legal name and all legal ones.

    The text is composed only when it is shown: searching the nearest name takes longer than all other checks.
    """

    what: str
    name: object
    legal: Sequence[str]

    def __str__(self) -> str:
        if not self.legal:
            return f"unknown {self.what} {show(self.name)}; no {self.what} is legal here: leave it out"
        name = self.name if isinstance(self.name, str) else show(self.name)
        # A wrong number is no misspelling of another number.
        close = [] if name.lstrip("-").isdigit() else difflib.get_close_matches(name[:100], self.legal, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        ends = itertools.accumulate(len(text) + len(", ") for text in self.legal)
        most = max(1, sum(end <= _LONGEST_LEGAL for end in ends))
        return f"unknown {self.what} {show(self.name)}; {hint}legal: {', '.join(at_most(most, self.legal))}"


Place = tuple[str | int, ...]  # keys and list indexes, from the top of the plan
Problem = tuple[Place, str | Unknown]  # place, and what is wrong there and what would be right

MOST_PROBLEMS = 20  # that are shown for one plan; the rest is counted
_LONGEST_KEY = 60  # characters of a key
_LONGEST_LINE = 1500
_LONGEST_LEGAL = 950  # characters of a list of legal names: all factors


class PlanError(BadInput):
    """An unusable plan; `problems` holds one printable line for each mistake."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(dict.fromkeys(shortened(_one_line(problem), _LONGEST_LINE) for problem in problems))
        super().__init__("\n".join(self.problems))


def unknown(what: str, name: object, legal: Iterable[str]) -> Unknown:
    """The message for a name that is not among the legal ones."""
    return Unknown(what, name, list(legal))


def key(place: Place) -> str:
    """A place as a person writes it: `("workloads", 1, "disk")` is `workloads[1].disk`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{shortened(part, _LONGEST_KEY)}" for part in place)
    return text.removeprefix(".")


def raise_problems(problems: Sequence[Problem]) -> None:
    """For pydantic validators: report all of these problems, if any. Places are the plan's."""
    if problems:
        _raise(problems)


def problems_of(error: ValidationError, model: type[BaseModel], at: Place = ()) -> Iterator[Problem]:
    """A pydantic error of `model`, which is at `at` in the plan, in our words."""
    details = error.errors(include_url=False)
    for detail in details:
        if detail["type"] == "too_short" and any(_is_inside(other["loc"], detail["loc"]) for other in details):
            continue  # it has entries, but pydantic counts only the valid ones
        if detail["type"] == "problems":
            yield from detail["ctx"]["problems"]
        else:
            place = tuple(part for part in detail["loc"] if part != "[key]")
            yield (*at, *place), _phrase(detail, model)


def _raise(problems: Sequence[Problem]) -> NoReturn:
    raise PydanticCustomError("problems", "see ctx", {"problems": list(problems)})


def _phrase(detail: ErrorDetails, model: type[BaseModel]) -> str | Unknown:
    kind, value = detail["type"], detail["input"]
    if kind == "extra_forbidden":
        return unknown("key", detail["loc"][-1], _keys_at(model, detail["loc"][:-1]))
    if kind == "missing":
        return "is missing"
    if kind in ("value_error", "assertion_error"):
        return str(detail["ctx"]["error"])
    if kind == "too_short":
        return "must have at least one entry"
    if kind == "literal_error":
        return unknown("value", value, filter(None, re.findall(r"'([^']*)'", detail["ctx"]["expected"])))
    if (template := _TEMPLATES.get(kind)) is not None:
        return f"{template(detail.get('ctx', {}))}, not {show(value)}"
    return f"cannot be {show(value)}"  # a kind of error that none of our types causes


_TEMPLATES: dict[str, Callable[[dict[str, Any]], str]] = {
    "string_type": lambda _: "must be text",
    "int_type": lambda _: "must be a whole number",
    "int_parsing": lambda _: "must be a whole number",
    "int_from_float": lambda _: "must be a whole number",
    "float_type": lambda _: "must be a number",
    "float_parsing": lambda _: "must be a number",
    "bool_type": lambda _: "must be true or false",
    "bool_parsing": lambda _: "must be true or false",
    "model_type": lambda _: "must be a mapping (key: value)",
    "dict_type": lambda _: "must be a mapping (key: value)",
    "list_type": lambda _: "must be a list",
    "tuple_type": lambda _: "must be a list",
    "finite_number": lambda _: "must be a finite number",
    "too_long": lambda ctx: f"must have at most {ctx['max_length']:,} entries",
    "greater_than_equal": lambda ctx: f"must be at least {_number(ctx['ge'])}",
    "less_than_equal": lambda ctx: f"must be at most {_number(ctx['le'])}",
    "less_than": lambda ctx: f"must be less than {_number(ctx['lt'])}",
}


def _is_inside(inner: Place, outer: Place) -> bool:
    return len(inner) > len(outer) and inner[: len(outer)] == outer


def _keys_at(model: type[BaseModel], place: Sequence[str | int]) -> Sequence[str]:
    """The legal keys of the model at `place` below `model`; empty if they cannot be determined."""
    for part in place:
        if part not in model.model_fields:
            continue  # a name or a number in a mapping or a list of models
        annotation = model.model_fields[str(part)].annotation
        kinds = [kind for kind in (annotation, *get_args(annotation)) if isinstance(kind, type)]
        models = [kind for kind in kinds if issubclass(kind, BaseModel)]
        if not models:
            return ()
        model = models[0]
    return list(model.model_fields)


def _number(bound: float) -> str:
    """3600.0 as a person writes it."""
    return str(int(bound)) if bound == int(bound) else f"{bound:g}"


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
