"""Finds code that parses what a machine printed by itself, from the syntax tree of a module.

What a machine prints is followed from `run`, `try_run`, `read_text`, `.stdout`, `.stderr` and `.output` through names,
calls, and the functions of the same module that get it or return it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

ASKED = ("run", "try_run", "read_text", "stderr_tail")  # methods that return what a machine printed
PRINTED = ("stdout", "stderr", "output")  # attributes that hold it
# Functions that raise for some texts.
NUMBERS = ("int", "float", "complex", "Decimal", "Fraction", "literal_eval", "fromhex", "UUID", "chr", "ord")
TIMES = ("fromisoformat", "strptime", "fromtimestamp", "ip_address", "ip_interface", "ip_network")
DECODERS = ("loads", "load", "raw_decode", "safe_load", "unpack", "unpack_from", "b64decode", "unhexlify")
RAISING = (*NUMBERS, *TIMES, *DECODERS, "validate_json", "validate_python", "validate_strings", "model_validate_json")
SPLITS = ("split", "rsplit", "splitlines")
SURE = ("partition", "rpartition", "groups")  # as many parts whatever the text is; groups: as the pattern says
HARMLESS = ("len", "bool", "isinstance", "any", "all")  # the result is no text of a machine any more
# Modules whose functions take any text.
TYPED = ("vmtax.machine.answer", "vmtax.meter.text", "vmtax.workload.output")
LOOSE = ("object_or_none",)  # of them, those whose values may be anything
_ANY = re.compile(rf"\.\s*(?:{'|'.join((*ASKED, *PRINTED))})\b")  # without one, nothing is a machine's answer
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class RawParse:
    """A place that parses a machine's answer by itself."""

    function: str  # "" outside of functions
    line: int
    how: str  # "int", "loads", "unpacking", "index"
    code: str

    def __str__(self) -> str:
        return f"{self.line}: {self.function}: {self.how}: {self.code}"


def raw_parses(source: str) -> list[RawParse]:
    """The places of a module, in order."""
    if not _ANY.search(source):
        return []
    module = _Module(ast.parse(source))
    return sorted(module.found(), key=lambda one: one.line)


@dataclass
class _Module:
    tree: ast.Module
    told: dict[int, set[str]] = field(default_factory=dict)  # function (id) -> names that hold a machine's answer
    answering: set[int] = field(default_factory=set)  # functions (id) that return one
    own: dict[int, list[ast.AST]] = field(default_factory=dict)  # function (id) -> its nodes

    def __post_init__(self) -> None:
        self.typed: set[str] = set()  # names that are functions of TYPED
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module in TYPED:
                self.typed |= {each.asname or each.name for each in node.names} - {*LOOSE}
            elif isinstance(node, ast.ImportFrom):
                self.typed |= {each.asname or each.name for each in node.names if f"{node.module}.{each.name}" in TYPED}
        self.functions: dict[str, list[Function]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, Function):
                self.functions.setdefault(node.name, []).append(node)
        self.parents = {id(child): node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    def found(self) -> Iterator[RawParse]:
        scopes = [self.tree, *(each for same in self.functions.values() for each in same)]
        before = None
        while before != (before := (sum(map(len, self.told.values())), len(self.answering))):
            for scope in scopes:
                self._follow(scope)
        for scope in scopes:
            name = "" if isinstance(scope, ast.Module) else scope.name
            for node in self._own(scope):
                if how := self._wrong(node, self._names(scope)):
                    shown = node.iter if isinstance(node, ast.For | ast.comprehension) else node
                    yield RawParse(name, shown.lineno, how, ast.unparse(shown)[:120])

    def _own(self, scope: ast.AST) -> list[ast.AST]:
        """All nodes of a function without those of functions in it."""
        if id(scope) not in self.own:
            self.own[id(scope)] = [*self._walk(scope)]
        return self.own[id(scope)]

    def _walk(self, scope: ast.AST) -> Iterator[ast.AST]:
        for child in ast.iter_child_nodes(scope):
            if not isinstance(child, Function):
                yield child
                yield from self._walk(child)
            else:
                yield from child.decorator_list

    def _names(self, scope: ast.AST | None) -> set[str]:
        """The names that hold an answer, those of functions around it included."""
        names: set[str] = set()
        while scope is not None:
            names |= self.told.get(id(scope), set())
            scope = self.parents.get(id(scope))
        return names

    def _follow(self, scope: ast.AST) -> None:
        own = self.told.setdefault(id(scope), set())
        size = -1
        while size != (size := len(own)):
            for node in self._own(scope):
                new = self._named(node, self._names(scope))
                own |= new
                self.told.setdefault(id(self.tree), set()).update(name for name in new if name.startswith("self."))
        names = self._names(scope)
        for node in self._own(scope):
            if isinstance(node, ast.Call):
                self._pass(node, names)
            if (
                isinstance(node, ast.Return | ast.Yield | ast.YieldFrom)
                and node.value
                and self.holds(node.value, names)
            ):
                self.answering.add(id(scope))

    def _named(self, node: ast.AST, names: set[str]) -> set[str]:
        """The names to which this statement or part of one gives an answer."""
        pairs: list[tuple[ast.AST, ast.AST | None]] = []
        match node:
            case ast.Assign():
                pairs = [(target, node.value) for target in node.targets]
            case ast.AnnAssign() | ast.AugAssign() | ast.NamedExpr():
                pairs = [(node.target, node.value)]
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                pairs = [(node.target, node.iter)]
            case ast.withitem():
                pairs = [(node.optional_vars, node.context_expr)] if node.optional_vars else []
            case ast.Match():
                held = [each for case in node.cases for each in ast.walk(case.pattern)]
                new = {each.name for each in held if isinstance(each, ast.MatchAs | ast.MatchStar) and each.name}
                return new if self.holds(node.subject, names) else set()
        found: set[str] = set()
        for target, value in pairs:
            if value is not None and self.holds(value, names):
                found |= set(_targets(target))
        if isinstance(node, ast.Call) and any(self.holds(each, names) for each in node.args):
            given = (*node.args, *(one.value for one in node.keywords))
            found |= {one.arg for each in given if isinstance(each, ast.Lambda) for one in each.args.args}
        return found - {"self", ""}

    def _pass(self, call: ast.Call, names: set[str]) -> None:
        """An answer that is an argument is one in the function of this module."""
        for function in self._called(call.func):
            arguments = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
            arguments = arguments[arguments[:1] in (["self"], ["cls"]) :]
            every = {*arguments, *(each.arg for each in function.args.kwonlyargs)}
            told = self.told.setdefault(id(function), set())
            for number, value in enumerate(call.args):
                if self.holds(value, names):
                    whole = isinstance(value, ast.Starred)
                    told |= set(arguments) if whole else set(arguments[number : number + 1])
                    if function.args.vararg and number >= len(arguments):
                        told.add(function.args.vararg.arg)
            told |= {each.arg for each in call.keywords if each.arg in every and self.holds(each.value, names)}

    def _called(self, called: ast.expr) -> list[Function]:
        if isinstance(called, ast.Name):
            return self.functions.get(called.id, [])
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
            return self.functions.get(called.attr, [])
        return []

    def holds(self, node: ast.AST, names: set[str]) -> bool:
        """Whether an expression has something of an answer."""
        match node:
            case ast.Name():
                return node.id in names
            case ast.Compare() | ast.Lambda():
                return False
            case ast.Attribute():
                if node.attr in PRINTED and _spelled(node.value) not in ("sys", "subprocess"):
                    return True
                return _spelled(node) in names or self.holds(node.value, names)
            case ast.Call():
                return self._returns(node, names)
        return any(self.holds(each, names) for each in ast.iter_child_nodes(node))

    def _returns(self, call: ast.Call, names: set[str]) -> bool:
        last = _last(call.func)
        if _first(call.func) in self.typed:
            return False
        if isinstance(call.func, ast.Name) and (last in HARMLESS or last.lstrip("_")[:1].isupper()):
            return False  # a record has types of its own
        if isinstance(call.func, ast.Attribute) and last in ASKED:
            where = _first(call.func)
            return where not in ("subprocess", "asyncio") and bool(call.args)
        own = self._called(call.func)
        if own:
            return any(id(each) in self.answering for each in own)
        return any(self.holds(each, names) for each in ast.iter_child_nodes(call))

    def _wrong(self, node: ast.AST, names: set[str]) -> str:
        """What is parsed there; "" if nothing is."""
        match node:
            case ast.Call():
                return self._wrong_call(node, names)
            case ast.Assign():
                targets = [each for each in node.targets if isinstance(each, ast.Tuple | ast.List)]
                return "unpacking" if any(self._is_unsure(each, node.value, names) for each in targets) else ""
            case ast.For() | ast.comprehension() if isinstance(node.target, ast.Tuple | ast.List):
                return "unpacking" if not _has_pairs(node.iter) and self._is_unsure(None, node.iter, names) else ""
            case ast.Subscript() if isinstance(node.ctx, ast.Load) and not isinstance(node.slice, ast.Slice):
                splits = isinstance(node.value, ast.Call) and _last(node.value.func) in SPLITS
                named = isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)
                return "index" if (splits or named) and self.holds(node.value, names) else ""
        return ""

    def _wrong_call(self, call: ast.Call, names: set[str]) -> str:
        last, arguments = _last(call.func), [*call.args, *(each.value for each in call.keywords)]
        if last in self.typed or not any(self.holds(each, names) for each in arguments):
            return ""
        if last in RAISING:
            return last
        if handed := [_last(each) for each in arguments if _last(each) in RAISING]:
            return f"{last} of {handed[0]}"
        if last == "dict" and any(_last(each) in SPLITS for one in call.args for each in ast.walk(one)):
            return "dict of words"
        strict = [each for each in call.keywords if each.arg == "strict" and _is_true(each.value)]
        return "zip strict" if last == "zip" and strict else ""

    def _is_unsure(self, target: ast.Tuple | ast.List | None, value: ast.expr, names: set[str]) -> bool:
        """Whether an unpacked value may have another number of parts than names."""
        if isinstance(value, ast.Tuple | ast.List) or not self.holds(value, names):
            return False
        if isinstance(value, ast.GeneratorExp):  # as many as it goes over
            (each, *more) = value.generators
            return bool(more) or not isinstance(each.iter, ast.Tuple | ast.List)
        if not isinstance(value, ast.Call):
            return True
        starred = target is not None and [isinstance(each, ast.Starred) for each in target.elts].count(True) == 1
        at_least_one = _last(value.func) == "split" and bool(value.args) and _spelled(value.func) != "re.split"
        if starred and at_least_one and target is not None and len(target.elts) == 2:
            return False
        return not (_last(value.func) in SURE or self._called(value.func))  # a function has a type of its own


def _has_pairs(value: ast.expr) -> bool:
    """Whether it gives tuples whatever the text is."""
    return isinstance(value, ast.Call) and _last(value.func) in ("zip", "enumerate", "items", "pairwise", "findall")


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _targets(node: ast.AST) -> Iterator[str]:
    """The names that an assignment gives a value, or that hold it."""
    match node:
        case ast.Tuple() | ast.List():
            for each in node.elts:
                yield from _targets(each)
        case ast.Starred() | ast.Subscript():
            yield from _targets(node.value)
        case _:
            yield _spelled(node)


def _spelled(node: ast.AST) -> str:
    """The name, or the name after "self."; "" for other expressions."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return f"self.{node.attr}"
    return ""


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _first(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
