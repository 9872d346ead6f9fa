"""The programs of made-up hosts, as `machine/tools.py` asks for them."""

from __future__ import annotations

from pathlib import Path

from vmtax.machine.tools import ASK, TOOLS

USERLANDS = Path(__file__).parent / "golden" / "userlands"  # what real ones answer
VERSION = "99.1"  # newer than any that is asked for


def asks_tools(argv: tuple[str, ...]) -> bool:
    return argv[: len(ASK)] == ASK


def programs(*missing: str, **words: str) -> str:
    """The answer of a host that has all but those; `words`: the exit status and words of others, as "0 tar 1.30"."""
    lines = {}
    for tool in TOOLS:
        if tool.name not in missing:
            code, _, said = words.get(tool.name, f"0 {tool.name} {VERSION}").partition(" ")
            lines[tool.file] = f"{tool.file}\t{code}\t{said}\n"
    return "".join(lines.values())
