"""Parse YAML text to plain data, with the line and column of every key, so that errors can point at it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from vmtax.core.units import show
from vmtax.plan.errors import MOST_PROBLEMS, Place, PlanError, Problem, key

# A plan needs at most a tenth of these limits. They are checked while the text is read, so exceeding them costs
# nothing.
MOST_BYTES = 64 * 1024
MOST_VALUES = 10_000  # scalars, lists and mappings, including keys
DEEPEST = 20  # levels of nesting
_MOST_DIGITS = 40  # of a number
_TAG = "tag:yaml.org,2002:"
_TOO_DEEP = f"nested more than {DEEPEST} levels deep, so it is not a plan"


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """A YAML mapping, and the places of its parts."""

    source: str  # file name for messages
    data: dict[str, Any] = field(default_factory=dict)
    marks: dict[Place, tuple[int, int]] = field(default_factory=dict)  # line and column, from 1, of keys and items
    options: Mapping[str, str] = field(
        default_factory=dict
    )  # keys, "guest.memory", that the command line set -> option

    def lines(self, problems: Iterable[Problem]) -> list[str]:
        """`file:line:column: key: message` for the first problems in the order of the file, and the number of the
        others.
        """
        ordered = sorted(problems, key=lambda problem: self._mark(problem[0]))
        lines = [self._line(place, str(message)) for place, message in ordered[:MOST_PROBLEMS]]
        more = len(ordered) - MOST_PROBLEMS
        return [*lines, *([f"{self.source}: and {more:,} more problems"] if more > 0 else [])]

    def _line(self, place: Place, message: str) -> str:
        for keys in (place[:length] for length in range(1, len(place) + 1)):
            if (option := self.options.get(".".join(map(str, keys)))) is not None:
                return f"{option}: {message}"
        shown = self._known(place)
        if message == "is missing":  # a missing key has no line of its own
            shown = place[: len(shown) + 1]
        where = ":".join([self.source, *map(str, self._mark(place))])
        return f"{where}: {key(shown)}: {message}" if shown else f"{where}: {message}"

    def _mark(self, place: Place) -> tuple[int, ...]:
        return self.marks.get(self._known(place), ())

    def _known(self, place: Place) -> Place:
        """The longest prefix of `place` that is in the text; all of it if there was no text."""
        if not self.marks:
            return place
        return next(place[:end] for end in range(len(place), -1, -1) if place[:end] in self.marks or end == 0)


class _Loader(yaml.SafeLoader):
    """A SafeLoader with fewer kinds of unquoted values and without aliases, which stops at texts that cannot be
    plans.
    """

    # Only the types of YAML 1.2. YAML 1.1, PyYAML's own, reads `off`, `no` and `on` as booleans (so `cpu.mitigations:
    # [auto, off]` would lose its level), `1:30` as 90 and a date as a date.
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (PyYAML's own shape)

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._values = self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Refuses aliases, which can refer to themselves, and texts that are too long or too deep."""
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # PyYAML has no types
        if self.check_event(yaml.AliasEvent):
            raise _refusal("an alias (*name) is not supported: write it out", mark)
        self._values += 1
        self._depth += 1
        if self._values > MOST_VALUES:
            raise _refusal(f"more than {MOST_VALUES:,} values, so it is not a plan", mark)
        if self._depth > DEEPEST:
            raise _refusal(_TOO_DEEP, mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def fetch_flow_collection_start(self, token: type[yaml.Token]) -> None:
        """Limits the depth here as well: the scanner reads ahead of the composer, in time quadratic in the depth."""
        if self.flow_level > DEEPEST:
            raise _refusal(_TOO_DEEP, self.get_mark())
        super().fetch_flow_collection_start(token)


class _Refusal(yaml.MarkedYAMLError):
    """The text may be YAML, but is no plan."""


def _refusal(problem: str, mark: yaml.Mark) -> _Refusal:
    return _Refusal(None, None, problem, mark)


_Loader.add_implicit_resolver(f"{_TAG}null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver(f"{_TAG}bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_Loader.add_implicit_resolver(f"{_TAG}int", re.compile(r"^[-+]?[0-9]+$", re.ASCII), list("-+0123456789"))
_Loader.add_implicit_resolver(
    f"{_TAG}float",
    re.compile(r"^[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$|^[-+]?\.(?:inf|nan)$", re.ASCII),
    list("-+.0123456789"),
)


def read(text: str, source: str) -> YamlDocument:
    """The mapping in `text`. Raises PlanError for anything else."""
    node = _compose(text, source)
    if node is None:
        raise PlanError([f"{source}: the file is empty: a plan needs at least `name` and `workloads`"])
    if not isinstance(node, yaml.MappingNode):
        raise PlanError([f"{source}:1:1: a plan is a mapping (key: value) at the top, not {_kind(node)}"])
    marks: dict[Place, tuple[int, int]] = {(): (1, 1)}
    problems: list[Problem] = []
    data = _value(node, (), marks, problems)
    document = YamlDocument(source, data, marks)
    if problems:
        raise PlanError(document.lines(problems))
    return document


def _compose(text: str, source: str) -> yaml.Node | None:
    if len(text.encode(errors="replace")) > MOST_BYTES:
        raise PlanError([f"{source}: larger than {MOST_BYTES // 1024} KiB, so it is not a plan"])
    try:
        loader = _Loader(text)
        try:
            node: yaml.Node | None = loader.get_single_node()
            return node
        except (ValueError, OverflowError):  # PyYAML passes "\UFFFFFFFF" to chr()
            mark = loader.get_mark()
            message = f"{source}:{mark.line + 1}:{mark.column + 1}: not YAML: this escape is no character of Unicode"
        finally:
            loader.dispose()
    except yaml.reader.ReaderError as error:
        before = text[: error.position].split("\n")
        message = f"{source}:{len(before)}:{len(before[-1]) + 1}: this character is not allowed in YAML"
    except yaml.MarkedYAMLError as error:
        message = _syntax(error, source)
    raise PlanError([message])


def _syntax(error: yaml.MarkedYAMLError, source: str) -> str:
    mark = error.problem_mark or error.context_mark
    where = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
    hint = " (indent with spaces, not tabs)" if error.problem and r"'\t'" in error.problem else ""
    context = f"{error.context}: " if error.context else ""
    kind = "" if isinstance(error, _Refusal) else "not YAML: "
    return f"{where}: {kind}{context}{error.problem}{hint}"


def _value(node: yaml.Node, place: Place, marks: dict[Place, tuple[int, int]], problems: list[Problem]) -> Any:
    """The plain value of a node; records the places of everything in it."""
    if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
        return _mapping(node, place, marks, problems)
    if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
        for index, item in enumerate(node.value):
            marks[*place, index] = _position(item)
        return [_value(item, (*place, index), marks, problems) for index, item in enumerate(node.value)]
    try:
        return _scalar(node)
    except ValueError as error:
        problems.append((place, str(error)))
        return None


def _mapping(
    node: yaml.MappingNode, place: Place, marks: dict[Place, tuple[int, int]], problems: list[Problem]
) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key_node, value_node in node.value:
        name = key_node.value if isinstance(key_node, yaml.ScalarNode) and _encodable(key_node.value) else None
        if name is None:
            marks[*place, "?"] = _position(key_node)
            problems.append(((*place, "?"), "a key must be plain text"))
        elif name in data:
            lines = f"{marks[*place, name][0]} and {_position(key_node)[0]}"
            problems.append(((*place, name), f"given twice, on lines {lines}: keep one"))
        else:
            marks[*place, name] = _position(key_node)
            data[name] = _value(value_node, (*place, name), marks, problems)
    return data


def _scalar(node: yaml.Node) -> str | int | float | bool | None:
    """The value of a scalar; ValueError says what is wrong with it."""
    kind = node.tag.removeprefix(_TAG)
    if not isinstance(node, yaml.ScalarNode) or kind not in ("str", "null", "bool", "int", "float"):
        raise ValueError(f"the tag {show(node.tag.replace(_TAG, '!!'))} is not supported: leave it out")
    text: str = node.value
    if not _encodable(text):
        raise ValueError("this text holds half a character (a lone surrogate)")
    if kind == "str":
        return text
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"a number of {len(text):,} characters is too long: at most {_MOST_DIGITS} are read")
    try:
        match kind:
            case "null":
                return None
            case "bool":
                return {"true": True, "false": False}[text.lower()]
            case "int":
                return int(text)
        return float(re.sub(r"\.(inf|nan)", r"\1", text.lower()))
    except (KeyError, ValueError):  # only if a tag contradicts the text
        raise ValueError(f"{show(text)} is not what its tag !!{kind} says: leave the tag out") from None


def _encodable(text: str) -> bool:
    """False for lone surrogates, which "\\ud800" in quotes gives and nothing else accepts."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _position(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _kind(node: yaml.Node) -> str:
    kinds: Sequence[tuple[type[yaml.Node], str]] = ((yaml.MappingNode, "a mapping"), (yaml.SequenceNode, "a list"))
    return next((name for kind, name in kinds if isinstance(node, kind)), "a single value")
