"""YAML text → plain data, and the line and column of every key, so that an error can point at it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from vmtax.plan_error import Place, PlanError, Problem, key, show

_DEEPEST = 20  # levels of nesting; a plan needs five
_TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML mapping and where its parts stand."""

    source: str  # the file's name, for messages
    data: dict[str, Any] = field(default_factory=dict)
    marks: dict[Place, tuple[int, int]] = field(default_factory=dict)  # line and column, from 1, of keys and items

    def lines(self, problems: Iterable[Problem]) -> list[str]:
        """`file:line:column: key: message` for each problem, in the order of the file."""
        ordered = sorted(problems, key=lambda problem: self._mark(problem[0]))
        return [self._line(place, message) for place, message in ordered]

    def _line(self, place: Place, message: str) -> str:
        shown = self._known(place)
        if message == "is missing":  # what is missing has no line of its own
            shown = place[: len(shown) + 1]
        where = ":".join([self.source, *map(str, self._mark(place))])
        return f"{where}: {key(shown)}: {message}" if shown else f"{where}: {message}"

    def _mark(self, place: Place) -> tuple[int, ...]:
        return self.marks.get(self._known(place), ())

    def _known(self, place: Place) -> Place:
        """The longest part of `place` that the text has; all of it where there was no text."""
        if not self.marks:
            return place
        return next(place[:end] for end in range(len(place), -1, -1) if place[:end] in self.marks or end == 0)


class _Loader(yaml.SafeLoader):
    """SafeLoader that knows fewer kinds of plain words and no aliases."""

    # Only what YAML 1.2 knows. YAML 1.1, PyYAML's own, reads `off`, `no` and `on` as booleans (so
    # `cpu.mitigations: [auto, off]` would lose its level), `1:30` as 90 and a date as a date.
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (PyYAML's own shape)

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Refuses aliases: they can repeat themselves without end."""
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "an alias (*name) is not supported: write it out", mark)
        return super().compose_node(parent, index)


_Loader.add_implicit_resolver(f"{_TAG}null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver(f"{_TAG}bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_Loader.add_implicit_resolver(f"{_TAG}int", re.compile(r"^[-+]?[0-9]+$", re.ASCII), list("-+0123456789"))
_Loader.add_implicit_resolver(
    f"{_TAG}float",
    re.compile(r"^[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$|^[-+]?\.(?:inf|nan)$", re.ASCII),
    list("-+.0123456789"),
)


def read(text: str, source: str) -> Document:
    """The mapping that `text` holds. PlanError for anything else."""
    node = _compose(text, source)
    if node is None:
        raise PlanError([f"{source}: the file is empty: a plan needs at least `name` and `workloads`"])
    if not isinstance(node, yaml.MappingNode):
        raise PlanError([f"{source}:1:1: a plan is a mapping (key: value) at the top, not {_kind(node)}"])
    marks: dict[Place, tuple[int, int]] = {(): (1, 1)}
    problems: list[Problem] = []
    data = _value(node, (), marks, problems)
    document = Document(source, data, marks)
    if problems:
        raise PlanError(document.lines(problems))
    return document


def _compose(text: str, source: str) -> yaml.Node | None:
    try:
        loader = _Loader(text)
        try:
            node: yaml.Node | None = loader.get_single_node()
            return node
        finally:
            loader.dispose()
    except yaml.reader.ReaderError as error:
        before = text[: error.position].split("\n")
        message = f"{source}:{len(before)}:{len(before[-1]) + 1}: this character is not allowed in YAML"
    except yaml.MarkedYAMLError as error:
        message = _syntax(error, source)
    except RecursionError:
        message = f"{source}: nested too deeply"
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # PyYAML lets "\UFFFFFFFF" through to chr()
        message = f"{source}: not YAML: {error}"
    raise PlanError([message])


def _syntax(error: yaml.MarkedYAMLError, source: str) -> str:
    mark = error.problem_mark or error.context_mark
    where = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
    hint = " (indent with spaces, not tabs)" if error.problem and r"'\t'" in error.problem else ""
    context = f"{error.context}: " if error.context else ""
    return f"{where}: not YAML: {context}{error.problem}{hint}"


def _value(node: yaml.Node, place: Place, marks: dict[Place, tuple[int, int]], problems: list[Problem]) -> Any:
    """The plain value of a node; notes the place of all that is in it."""
    if len(place) > _DEEPEST:
        problems.append((place, "nested too deeply"))
        return None
    if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
        return _mapping(node, place, marks, problems)
    if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
        for index, item in enumerate(node.value):
            marks[*place, index] = _position(item)
        return [_value(item, (*place, index), marks, problems) for index, item in enumerate(node.value)]
    try:
        return _scalar(node)
    except (KeyError, ValueError, TypeError):  # UnicodeEncodeError and too many digits are ValueErrors
        problems.append((place, f"this value cannot be used here: {_kind(node)} tagged {show(node.tag)}"))
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
    if not isinstance(node, yaml.ScalarNode) or not _encodable(node.value):
        raise ValueError
    text: str = node.value
    match node.tag.removeprefix(_TAG):
        case "str":
            return text
        case "null":
            return None
        case "bool":
            return {"true": True, "false": False}[text.lower()]
        case "int":
            return int(text)
        case "float":
            return float(re.sub(r"\.(inf|nan)", r"\1", text.lower()))
    raise ValueError(node.tag)


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
