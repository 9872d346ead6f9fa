"""The programs that vmtax calls on a host, the oldest version of each that does what is asked of it, and for what.

Hosts are of any age and kind: what a program is asked for must be in its least version. Doctor and the lines before a
run ask here; what an old program says is shown in its own words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from vmtax.core.machines import Reader
from vmtax.machine.local import PYTHON
from vmtax.machine.packages import install, missing

SHOWN = 200  # characters of a program's words


@dataclass(frozen=True, slots=True)
class Tool:
    """A program, for one use of it."""

    file: str  # its name, or its path; the last part of it is a row of core/packages.py
    use: str  # what takes it: a key of `of`
    least: tuple[int, ...] = ()  # the oldest version that will do; (): any
    because: str = ""  # what older ones lack
    asked: str = ""  # the word with which it prints its version; "": it is only looked for

    @property
    def name(self) -> str:
        return self.file.rpartition("/")[2]


HOST, COPY, NETWORK, CARDS, DEVICES, BUILD, STORAGE, SHARE = (
    *("every run", "copying the image", "a bridge", "a card of the host's", "--disk-device"),
    *("kernel builds on the host", "disks under test", "SMB copies"),
)
# Asks Python for its version and for modules of the standard library that a smaller package of it lacks, such as
# Debian's python3-minimal. One word; constant text.
NOT_WHOLE = "its standard library is not whole"
ASK_PYTHON = (
    "-IScimport sys\ntry: import concurrent.futures, ctypes, tempfile\n"
    f"except ImportError as error: sys.exit('{NOT_WHOLE}: %s' % error)\n"
    "print('Python ' + sys.version.split()[0])"
)
TOOLS = (
    Tool("bwrap", HOST, (0, 4), "", "--version"),
    Tool(PYTHON, HOST, (3, 7), "annotations that are not evaluated", ASK_PYTHON),
    Tool("taskset", HOST),
    Tool("timeout", HOST),
    Tool("fallocate", HOST),
    Tool("lsblk", HOST, (2, 27), "--json", "--version"),
    Tool("tar", COPY, (1, 31), "--zstd", "--version"),
    Tool("zstd", COPY),
    Tool("ip", NETWORK, (), "", "-V"),
    Tool("ip", CARDS, (4, 17), "JSON of routes", "-V"),
    Tool("bwrap", BUILD, (0, 7), "--size of a tmpfs", "--version"),
    Tool("bwrap", SHARE, (0, 7), "--size of a tmpfs", "--version"),
    Tool("sfdisk", DEVICES, (2, 36), "--lock", "--version"),
    Tool("wipefs", DEVICES, (2, 31), "--output", "--version"),
    Tool("losetup", STORAGE, (2, 29), "--direct-io", "--version"),
    Tool("mdadm", STORAGE),
    Tool("lvcreate", STORAGE),
    Tool("zpool", STORAGE),
    Tool("zfs", STORAGE),
    Tool("mkfs.ext4", STORAGE),
    Tool("mkfs.xfs", STORAGE),
    Tool("mkfs.btrfs", STORAGE),
)
# Prints "NAME<tab>exit status<tab>its words" of each that is there. Arguments: pairs of a name and its option, or "-".
# Constant text.
ASK = (
    *("sh", "-c"),
    'while [ $# -gt 1 ]; do if command -v "$1" > /dev/null; then words= code=0; '
    '[ "$2" = - ] || { words=$("$1" "$2" 2>&1 < /dev/null); code=$?; }; '
    'printf "%s\\t%s\\t%s\\n" "$1" "$code" "$(printf "%s" "$words" | head -n 1)"; fi; shift 2; done',
    "sh",
)


@dataclass(frozen=True, slots=True)
class FoundTool:
    """A program that is there, and what it said when it was asked for its version."""

    code: int  # exit status
    words: str  # the first line

    @property
    def version(self) -> tuple[int, ...] | None:
        """None if it does not say, as snapshots and programs of another origin may not."""
        seen = re.search(r"(?<![\d.])\d{1,4}(?:\.\d{1,6})+", self.words, re.ASCII)
        return tuple(int(part) for part in seen[0].split(".")) if seen else None


def of(*uses: str) -> tuple[Tool, ...]:
    """The programs for these uses."""
    return tuple(tool for tool in TOOLS if tool.use in uses)


def of_vm() -> tuple[Tool, ...]:
    """Those of a VM that is logged in to: the image's own bubblewrap is used there, and a part of Python's library."""
    needed = (tool for tool in of(HOST, COPY) if tool.name != "bwrap")
    return tuple(replace(tool, asked="--version") if tool.file == PYTHON else tool for tool in needed)


def named(names: Iterable[str]) -> tuple[Tool, ...]:
    """The first row of each of these programs that is about any plan with it."""
    wanted = set(names)
    return tuple({tool.name: tool for tool in reversed(TOOLS) if tool.name in wanted}.values())[::-1]


def read(machine: Reader, tools: Iterable[Tool]) -> Mapping[str, FoundTool]:
    """Those that are there, by name, read with one command. Raises only MachineLost."""
    asked: dict[str, str] = {}
    for tool in tools:
        asked[tool.file] = tool.asked or asked.get(tool.file) or "-"
    said = machine.try_run(*ASK, *(word for pair in asked.items() for word in pair)).stdout
    lines = [line.split("\t", 2) for line in said.splitlines() if line.count("\t") >= 2]
    names = {tool.file: tool.name for tool in TOOLS}
    return {
        names[file]: FoundTool(int(code), words[:SHOWN].strip())
        for file, code, words in lines
        if file in names and code.isascii() and code.isdigit() and len(code) < 5
    }


def complaint(tool: Tool, found: Mapping[str, FoundTool]) -> str:
    """What is wrong with it, to follow its name in a line; "" if it will do. A version that it does not say will do."""
    have = found.get(tool.name)
    if have is None:
        return "is missing there"
    if not tool.asked:
        return ""
    if have.code != 0:
        return f"does not work: {have.words or f'exit code {have.code}'}"
    if not tool.least:
        return ""
    least, lacks = ".".join(map(str, tool.least)), f", for {tool.because}" if tool.because else ""
    if "busybox" in have.words.lower():
        return f"is that of busybox; {least} or newer of the usual one is needed{lacks}"
    if have.version is not None and have.version < tool.least:
        return f"is too old ({have.words}); {least} or newer is needed{lacks}"
    return ""


def why_not(machine: Reader, tools: Iterable[Tool]) -> str:
    """What is wrong with the first of these that will not do, in one line; "" if all will."""
    wanted = tuple(tools)
    found = read(machine, wanted) if wanted else {}
    return next((words for tool in wanted if (words := refusal(machine, tool, found))), "")


def refusal(machine: Reader, tool: Tool, found: Mapping[str, FoundTool]) -> str:
    """What is wrong with it, and what installs what is missing, in one line; "" if it will do."""
    if tool.name not in found:
        return missing(machine, tool.name)
    words = complaint(tool, found)
    remedy = f": {install(machine, tool.name)}" if NOT_WHOLE in words else ""
    return words and f"{tool.name} {words}{remedy}"
