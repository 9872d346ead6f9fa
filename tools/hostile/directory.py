"""The current directory: another user's traps for every module that our Pythons import, and for every tool we start.

Each command runs, as root, in a sticky directory of another user's that holds them, with PATH and Python's variables
leading there too. None may fire.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import random
import shutil
import stat
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from tests.sample import sample_experiment
from tools.hostile.case import Case, complaints, forked
from vmtax.doctor.readings import TOOLS_HERE
from vmtax.image.build import TOOLS as BUILD_TOOLS
from vmtax.lab.end import GO_ON
from vmtax.machine.guarded import guard_source
from vmtax.machine.local import PYTHON
from vmtax.machine.tools import TOOLS
from vmtax.meter.below import CPUID
from vmtax.storage.ground import CLAIM, HOLDERS
from vmtax.store import Store

TITLE = "current directory"
HOW_MANY = 40  # generated cases at full size
OTHER = 65534  # whose directory it is
NOWHERE = "/nowhere/at/all"
# Code that python3 runs, anywhere.
PROGRAMS = (guard_source(), *(argv[-1] for argv in (GO_ON, CLAIM, HOLDERS, CPUID)))
# What any Python may import at its start, or when it fails.
ALWAYS = ("site", "sitecustomize", "usercustomize", "encodings", "codecs", "io", "abc", "os", "traceback", "linecache")
STARTED = (
    *(*(tool.name for tool in TOOLS), *TOOLS_HERE, *BUILD_TOOLS),
    *("sh", "env", "timeout", "cat", "grep", "mkdir", "rm", "cp", "uname", "id", "stat", "pgrep", "lscpu", "lsblk"),
    *("findmnt", "df", "nproc", "getconf", "systemd-detect-virt", "qemu-system-x86_64", "qemu-img", "losetup", "tee"),
    *("sha256sum", "dd", "sync", "ps", "realpath", "readlink", "test", "true", "printf", "date", "hostname", "sleep"),
)
# PATH, with the directory as {here} and what it was before as {path}.
PATHS = (
    ".:{path}",
    ":{path}",
    "{path}:",
    "{here}:{path}",
    "bin/../.:{path}",
    "{here}/sub:{path}",
    "{link}:{path}",
    "{here}",
)
VARIABLES = {
    "PYTHONPATH": "{here}",
    "PYTHONSTARTUP": "{here}/site.py",
    "PYTHONHOME": "{here}",
    "PYTHONUSERBASE": "{here}",
}
# In a Python that is only starting there is no open() yet.
TRAP = "import posix\nposix.write(posix.open({file!r}, 0o2101, 0o600), b'module {name}\\n')\n"


@dataclass(frozen=True, slots=True)
class Command:
    """A command that goes as far as it can without a guest."""

    argv: tuple[str, ...]
    guard: bool = False  # whether it starts one


COMMANDS = (
    Command(("run", "--layers", "host", "--rounds", "1", "--disk-dir", NOWHERE, "--yes"), guard=True),
    Command(("run", "--host", "ssh://127.0.0.1:1", "--yes"), guard=True),
    Command(("run", "--resume", "--yes")),
    Command(("calibrate", "--disk-dir", NOWHERE, "--yes"), guard=True),
    Command(("export", "-o", "{home}/run.gz"), guard=True),
    Command(("image", "import", "/etc/hostname")),
    Command(("lab", "start", "--memory", "900TiB"), guard=True),
    Command(("clean", "--yes"), guard=True),
    Command(("clean", "--images", "--yes"), guard=True),
    Command(("doctor",)),
    Command(("doctor", "--host", "ssh://127.0.0.1:1")),
    Command(("report", "-o", "{home}/report.html")),
    *(Command((name,)) for name in ("show", "runs", "watch")),
    Command(("compare", "last", "last")),
    Command(("import", "/etc/hostname")),
    *(Command(("plan", *words)) for words in (("list",), ("show", "quick"), ("check", "quick"))),
    *(Command(("image", *words)) for words in (("list",), ("remove", "0000"), ("export", "{home}/image"))),
    *(Command(("lab", name)) for name in ("list", "status", "stop", "cut", "save")),
    Command(("lab", "ssh", "lab", "true")),
    Command(("lab", "remove", "lab", "--yes")),
)


def modules() -> set[str]:
    """Every module that one of PROGRAMS imports, and all that these import: seen in a Python that did."""
    lines = {ast.unparse(node) for text in PROGRAMS for node in ast.walk(ast.parse(text)) if _is_import(node)}
    text = "\n".join(sorted(lines, key=lambda line: "__future__" not in line))
    names = subprocess.run(
        [PYTHON, "-I", "-c", f"{text}\nimport sys; print(*sys.modules)"], capture_output=True, text=True
    )
    found = {name.partition(".")[0] for name in names.stdout.split()}
    assert {"json", "subprocess", "socket", "ctypes", "glob"} <= found, names.stderr
    return (found | set(ALWAYS)) - {"__main__"}


def _is_import(node: ast.AST) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def cases(source: random.Random, home: Path, share: float) -> Iterator[Case]:
    home.chmod(0o755)
    here = _traps(home)
    with Store(home / "with-a-run/.local/share/vmtax/vmtax.sqlite") as store:
        store.put(sample_experiment())
    # At a small share those that start a guard: they start what the others start, too.
    fixed = [
        command for command in COMMANDS if share >= 0.1 or (command.guard and command.argv[0] in ("export", "clean"))
    ]
    everything = {"PATH": ":".join(PATHS[:-1]), **VARIABLES}
    chosen = [(command, everything) for command in fixed]
    for _ in range(int(HOW_MANY * share)):
        some = {name: text for name, text in VARIABLES.items() if source.random() < 0.5}
        chosen.append((source.choice(COMMANDS), {"PATH": source.choice(PATHS), **some}))
    for number, (command, changes) in enumerate(chosen):
        name = f"{' '.join(command.argv)} with {json.dumps(changes)}"
        yield Case(name, functools.partial(_tried, command, changes, here, home / f"home{number}"))


def _traps(home: Path) -> Path:
    """The directory; whatever fires there writes its name to the file "fired" beside it."""
    here = home / "sticky"
    (here / "sub").mkdir(parents=True)
    (home / "link").symlink_to(here)
    fired = home / "fired"
    for name in modules():
        (here / f"{name}.py").write_text(TRAP.format(file=str(fired), name=name))
    for name in set(STARTED):
        for directory in (here, here / "sub"):
            (directory / name).write_text(f"#!/bin/sh\necho 'program {name}' >>{fired}\nexit 1\n")
            (directory / name).chmod(0o755)
    for path in (here, *here.rglob("*")):
        os.chown(path, OTHER, OTHER)
    here.chmod(0o777 | stat.S_ISVTX)
    return here


def _tried(command: Command, changes: dict[str, str], here: Path, home: Path) -> Iterable[str]:
    shutil.copytree(here.parent / "with-a-run", home)
    lists = home / ".local/state/vmtax/undo"
    lists.mkdir(parents=True, mode=0o700)
    listed = lists / "0123.undo"
    listed.write_text('{"add": 1, "remove": "/nowhere/at/all"}\n')  # what a guard strikes off at its start
    (here.parent / "fired").unlink(missing_ok=True)
    places = {"here": str(here), "link": str(here.parent / "link"), "path": os.environ["PATH"]}
    argv = [word.replace("{home}", str(home)) for word in command.argv]
    with mock.patch("vmtax.doctor.readings.LOAD_SECONDS", 0.1):
        given = {name: text.format(**places) for name, text in changes.items()}
        result = forked(*argv, home=home, cwd=here, changes=given)
    yield from complaints(result, codes=(0, 1, 2), cpu_seconds=6.0)
    if command.guard and listed.exists():
        yield f"started no guard: {result.error[-300:]!r}"
    fired = here.parent / "fired"
    if fired.exists():
        yield f"fired: {', '.join(sorted(set(fired.read_text().splitlines())))}"
