"""Scripts for PowerShell, which none here ran: a grammar of that language parses every one of them."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest
import tree_sitter_powershell
from tree_sitter import Language, Node, Parser

from tests.sources import ROOT, texts
from vmtax.attach.clone.windows_disk import LIST, WRITABLE
from vmtax.machine.windows.command import WindowsCommand
from vmtax.machine.windows.command_line import POWERSHELL, encoded
from vmtax.meter.hyper_v import HOST_QUESTIONS
from vmtax.meter.windows import BOOTED, QUESTIONS
from vmtax.meter.windows_ledger import LINE

LINES = {
    **QUESTIONS,
    **HOST_QUESTIONS,
    "ledger": LINE,
    "boot": encoded(BOOTED),
    "disks of a clone": encoded(LIST),
    "a disk is made writable": encoded(WRITABLE.format(1)),
    "a command where PowerShell is the shell": WindowsCommand("echo 'a \"b\"'& exit 3", "PowerShell").line,
}
SCRIPTS = {name: line for name, line in LINES.items() if line.startswith(POWERSHELL[0])}
# The modules that have scripts; a new one needs a line above.
HAVE_SCRIPTS = {
    "attach/clone/guests.py",
    "machine/windows/command.py",
    "meter/hyper_v.py",
    "meter/windows.py",
    "meter/windows_ledger.py",
}


def wrong(script: str) -> list[str]:
    """Where a script is no PowerShell."""

    def below(node: Node) -> Iterator[str]:
        if node.type == "ERROR" or node.is_missing:
            yield f"line {node.start_point.row + 1}, column {node.start_point.column + 1}"
        for child in node.children:
            yield from below(child)

    return list(below(Parser(Language(tree_sitter_powershell.language())).parse(script.encode()).root_node))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_powershell(name: str) -> None:
    script = base64.b64decode(SCRIPTS[name].rpartition(" ")[2]).decode("utf-16-le")
    assert not wrong(script)
    assert wrong(f"{script}}}"), "the grammar notices"
    assert "$(" not in script or wrong(script.replace("$(", "$((", 1)), "also in a string"


def test_no_module_has_a_script_that_is_not_parsed() -> None:
    files = {str(file.relative_to(ROOT)): text.replace("def encoded(", "") for file, text in texts().items()}
    assert {file for file, text in files.items() if "encoded(" in text} == HAVE_SCRIPTS
