"""The arrows of ARCHITECTURE.md: imports only go down."""

from __future__ import annotations

import ast
import functools
import graphlib
from collections import defaultdict
from collections.abc import Iterator

from tests.sources import ROOT, modules, statements
from vmtax.machine.local import PYTHON
from vmtax.machine.ssh import START_GUARD

# From the top down; a part imports only parts of lower lines.
LEVELS = (
    {"__main__"},
    {"cli"},
    {"fleet"},
    {"experiment", "doctor", "report"},
    {"testbed", "recommend", "existing", "claims"},
    {"attach", "storage", "lab", "analysis"},
    {"hypervisor", "container", "plan"},
    {"image", "network", "meter", "design", "store"},
    {"machine", "stats", "workload"},
    {"system"},
    {"core"},
)
LEVEL = {name: number for number, names in enumerate(LEVELS) for name in names}
SETTING_UP = {"storage", "lab", "attach", "hypervisor", "container", "image", "network"}
MEASURING = {"experiment", "doctor", "testbed", "meter", "machine", *SETTING_UP}
READING = {"report", "claims", "recommend", "analysis", "plan", "design", "workload", "store", "stats"}


@functools.cache
def imports() -> dict[str, set[str]]:
    """File -> the files of vmtax that it imports, wherever in it; both as `part/file.py`."""
    return {file: set(_imported(tree)) for file, tree in modules("")}


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in statements(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vmtax":
            yield from (_file(f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (_file(alias.name) for alias in node.names if alias.name.split(".")[0] == "vmtax")


def _file(name: str) -> str:
    """The file of a dotted name, whose last word may be something inside it."""
    words = name.split(".")[1:]
    while words and not (ROOT.joinpath(*words).with_suffix(".py").exists() or ROOT.joinpath(*words).is_dir()):
        words.pop()
    path = ROOT.joinpath(*words)
    return str((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).relative_to(ROOT))


def part(file: str) -> str:
    """The part of vmtax that a file belongs to."""
    return file.split("/")[0].removesuffix(".py")


def arrows() -> set[tuple[str, str]]:
    """(importing file, imported file) between two parts."""
    return {(file, used) for file, all_used in imports().items() for used in all_used if part(used) != part(file)}


def test_imports_only_go_down() -> None:
    between = {(file, used) for file, used in arrows() if part(file) in LEVEL and part(used) in LEVEL}
    assert len(between) > 50, "the walk sees the imports"
    assert [f"{file} imports {used}" for file, used in between if LEVEL[part(file)] >= LEVEL[part(used)]] == []


def test_every_part_has_its_level() -> None:
    assert {path.name.removesuffix(".py") for path in ROOT.iterdir() if path.name[:2] not in ("__", "py")} | {
        "__main__"
    } == set(LEVEL)


def test_no_file_imports_itself_by_way_of_others() -> None:
    sorter = graphlib.TopologicalSorter({file: used - {file} for file, used in imports().items()})
    sorter.prepare()  # CycleError: its second argument is the circle


def node(file: str) -> str:
    """What a file is in its part: itself, or the folder there that it is in."""
    return "/".join(file.split("/")[:2])


def inside_parts() -> dict[str, set[str]]:
    """Node -> the other nodes of its part that it imports."""
    found: dict[str, set[str]] = {}
    for file, all_used in imports().items():
        mine = found.setdefault(node(file), set())
        mine |= {node(used) for used in all_used if part(used) == part(file)} - {node(file)}
    return found


def test_no_folder_of_a_part_imports_itself_by_way_of_others() -> None:
    """Only then can each folder be read without those above it."""
    edges = inside_parts()
    assert "report/document.py" in edges["report/sections"], "the walk sees the imports"
    sorter = graphlib.TopologicalSorter(edges)
    sorter.prepare()  # CycleError: its second argument is the circle


def test_what_reads_records_never_imports_what_touches_machines() -> None:
    """One bridge is allowed: what is recommended is written as QEMU's and qemu-img's arguments, by pure functions."""
    across = {(file, used) for file, used in arrows() if part(file) in READING and part(used) in MEASURING}
    disk = {"hypervisor/spec.py", "hypervisor/qemu/drives.py", "hypervisor/qemu/img.py"}
    card = {"hypervisor/spec.py", "hypervisor/qemu/cards.py"}
    pure = {
        *(("recommend/disk_export.py", used) for used in disk),
        *(("recommend/card_export.py", used) for used in card),
    }
    assert across <= pure


def test_only_what_asks_qemu_something_knows_that_it_is_qemu() -> None:
    """The others boot guests by what every hypervisor has, and would by another one."""
    asking = {
        "storage/backing.py",
        "storage/chain.py",
        "storage/features.py",
        "testbed/host/disks.py",
        "testbed/machines/interleave.py",
    }
    asking |= {"lab/end.py", "lab/monitor.py", "recommend/card_export.py", "recommend/disk_export.py"}
    assert {file for file, used in arrows() if used.startswith("hypervisor/qemu/")} <= asking


def test_what_touches_machines_takes_only_the_analysis_of_what_reads_records() -> None:
    across = {part(used) for file, used in arrows() if part(file) in MEASURING}
    assert across.isdisjoint({"report", "recommend"})


def test_the_leaves_import_nothing_of_vmtax() -> None:
    assert {part(used) for file, used in arrows() if part(file) in ("core", "stats")} <= set()


def test_only_the_command_line_prints() -> None:
    # The guard's standard output is its answer to us.
    assert {file.partition("/")[0] for file in calls("print")} <= {"__main__.py", "cli", "machine"}


def calls(name: str) -> set[str]:
    """Files in which a function or class of that name is called."""
    return {
        file
        for file, tree in modules(f"{name}(")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    }


def test_what_is_printed_goes_through_functions_that_clean_it() -> None:
    assert calls("print") - {"machine/guard.py"} <= {"cli/app.py", "__main__.py"}
    app = ast.parse((ROOT / "cli/app.py").read_text(encoding="utf-8"))
    printing = {
        function.name
        for function in app.body
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert printing == {"say", "asked", "document"}
    assert calls("PlainConsole") == {"system/console.py"}
    assert calls("Console") <= {"hypervisor/qemu/boot.py"}  # a guest's, not rich's


def test_no_machine_looks_for_python_in_its_search_path() -> None:
    """What comes first in the search path of a machine's root may be anybody's."""
    bare = [
        f"{file}:{node.lineno}"
        for file, module in modules("python3")
        for node in ast.walk(module)
        if isinstance(node, ast.Tuple | ast.List | ast.Call)
        for words in [node.args if isinstance(node, ast.Call) else node.elts]
        if len(words) > 1 and isinstance(words[0], ast.Constant) and words[0].value == "python3"
    ]
    assert not bare
    assert f" exec {PYTHON} -I " in START_GUARD


def test_a_public_class_has_a_name_of_its_own() -> None:
    """Two of one name would make a reader ask which one is meant, in every import."""
    places: dict[str, list[str]] = defaultdict(list)
    for file, module in modules("class "):
        for node in module.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(file)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
