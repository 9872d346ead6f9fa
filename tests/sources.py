"""The program's own modules, for tests of what may stand in them."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import vmtax

ROOT = Path(vmtax.__file__).parent


@functools.cache
def texts() -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in sorted(ROOT.rglob("*.py"))}


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(texts()[path])


def modules(*words: str) -> Iterator[tuple[str, ast.Module]]:
    """Path under ROOT and tree of each module in whose text one of the words stands; "": of all."""
    for path, text in texts().items():
        if any(word in text for word in words):
            yield str(path.relative_to(ROOT)), parsed(path)


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """All that stand in it, at any depth; several times quicker than a walk through what they are made of."""
    for place in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, place, ()):
            if isinstance(child, ast.stmt):
                yield child
            yield from statements(child)
