"""The arrows of ARCHITECTURE.md: imports only go down."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import vmtax
from vmtax.machine.local import PYTHON
from vmtax.machine.ssh import START_GUARD

ROOT = Path(vmtax.__file__).parent
# From the top down; what stands on one line may import each other.
LEVELS = (
    {"__main__"},
    {"cli"},
    {"clean"},
    {"live"},
    {"screen", "runner"},
    {"report", "resume", "outlook", "share"},
    {"calibration"},
    {"sessions"},
    {"trial"},
    {"layer", "doctor", "interleave"},
    {"provision"},
    {"environment"},
    {"disks"},
    {"hosts"},
    {"score", "within"},
    {"advice"},
    {"ranking", "mix"},
    {"compare", "plan", "plan_advice", "plan_rules", "plan_yaml", "plan_file", "plan_error", "store"},
    {"lab"},
    {
        "ceiling",
        "schedule",
        "stopping",
        "emulation",
        "sides",
        "treatment",
        "factor",
        "workload",
        "network",
        "storage",
        "meter",
    },
    {"hypervisor"},
    {"image"},
    {"machine"},
    {"event"},
    {"result"},
    {"console", "quantity"},
    {"pace", "stats", "units", "places", "search_path", "ownership", "outfile", "exits", "streams"},
)
LEVEL = {name: number for number, names in enumerate(LEVELS) for name in names}


@functools.cache
def files() -> dict[Path, ast.Module]:
    """Every file of the package, parsed."""
    return {path: ast.parse(path.read_text()) for path in ROOT.rglob("*.py")}


def imports() -> Iterator[tuple[Path, str, str]]:
    """(file, its part of vmtax, a part it imports)."""
    for path, tree in files().items():
        part = path.relative_to(ROOT).parts[0].removesuffix(".py")
        for node in ast.walk(tree):
            modules: list[str] = []
            if isinstance(node, ast.ImportFrom) and node.module:
                modules = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            for module in modules:
                words = module.split(".")
                if words[0] == "vmtax" and words[1] in LEVEL and words[1] != part:
                    yield path, part, words[1]


def test_imports_only_go_down() -> None:
    found = list(imports())
    assert len(found) > 50, "the walk sees the imports"
    wrong = [f"{path.name}: {part} imports {used}" for path, part, used in found if LEVEL[part] > LEVEL[used]]
    assert wrong == []


def test_every_part_has_its_level() -> None:
    parts = {path.name.removesuffix(".py") for path in ROOT.iterdir() if path.name[0].islower()} - {"plans", "py"}
    assert parts | {"__main__"} == set(LEVEL)


def test_the_leaves_import_nothing_of_vmtax() -> None:
    assert [str(path) for path, part, _ in imports() if part in ("stats", "units", "result")] == []


def test_only_the_command_line_prints() -> None:
    printing = {
        path.relative_to(ROOT).parts[0]
        for path, tree in files().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    # The guard's standard output is its answer to us.
    assert printing <= {"__main__.py", "cli", "machine"}


def calls(name: str) -> set[str]:
    """Files in which a function or class of that name is called."""
    return {
        str(path.relative_to(ROOT))
        for path, tree in files().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    }


def test_what_is_printed_goes_through_functions_that_clean_it() -> None:
    assert calls("print") - {"machine/guard.py"} <= {"cli/app.py", "__main__.py"}
    assert calls("PlainConsole") == {"console.py"}
    assert calls("Console") <= {"lab/start.py", "hypervisor/boot.py"}  # a guest's, not rich's


def test_no_machine_looks_for_python_in_its_search_path() -> None:
    """What comes first in the search path of a machine's root may be anybody's."""
    bare = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path, module in files().items()
        for node in ast.walk(module)
        if isinstance(node, ast.Tuple | ast.List | ast.Call)
        for words in [node.args if isinstance(node, ast.Call) else node.elts]
        if len(words) > 1 and isinstance(words[0], ast.Constant) and words[0].value == "python3"
    ]
    assert not bare
    assert f" exec {PYTHON} -I " in START_GUARD[2]
