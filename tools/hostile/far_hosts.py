"""A far host that prints banners, answers garbage, answers nothing, or never stops: through a made-up `ssh` in PATH."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import os
import random
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from tools.hostile.case import Case, Result, complaints, forked

TITLE = "far hosts"
HOW_MANY = 100  # generated cases at full size
LIMIT = 1.5  # seconds; every limit of time is set to it, where a host does not answer as it should
PATIENCE = 60.0  # seconds; likewise where it does, which on a busy machine takes longer
MOST_LINES = 4
LIMITS = {
    "vmtax.machine.reader.LOGIN_SECONDS": LIMIT,
    "vmtax.machine.reader.LATE_SECONDS": LIMIT,
    "vmtax.machine.ssh.BEGIN_SECONDS": LIMIT,
    "vmtax.machine.ssh.LOGIN_SECONDS": LIMIT,
    "vmtax.machine.guarded.GREETING_SECONDS": LIMIT,
    "vmtax.machine.guarded.ANSWER_SECONDS": LIMIT,
    "vmtax.machine.guarded.UNDO_SECONDS": LIMIT,
    "vmtax.doctor.readings.LOAD_SECONDS": 0.1,
}
# Logs in and ends as ssh does; else does what the case says with the command for the far shell, which is "$*".
CLIENT = """#!/bin/sh
case " $* " in *" -N "*|*" -O "*|*" -V "*|*" -G "*) exit 0;; esac
while [ "$1" != -- ]; do shift; done
shift
HOME={home}; export HOME; unset XDG_STATE_HOME XDG_CACHE_HOME XDG_DATA_HOME
{does}
"""
HONEST = 'exec sh -c "$*"'
WITH_TOOLS = f"PATH={{tools}}:$PATH; export PATH; {HONEST}"
COMMANDS = {
    "doctor": ("doctor", "--host", "ssh://far"),
    # Ends, on a host that answers as it should, with the one clear line that this directory is not there.
    "run": (
        "run",
        "--host",
        "ssh://far",
        "--layers",
        "host",
        "--rounds",
        "1",
        "--disk-dir",
        "/nowhere/at/all",
        "--yes",
    ),
    # Ends, where `ip` says what IP_SAYS has, with the line that the two cards have different MTUs.
    "wire": (
        *("run", "network", "--host", "ssh://far", "--card", "eth9", "--peer", "ssh://far2", "--peer-card", "eth8"),
        *("--rounds", "1", "--yes", "--emulate"),
    ),
}
WORKED = {
    "doctor": b"Host and VM can probably",
    "run": b"no directory /nowhere/at/all",
    "wire": b"set both alike",
}
LINK = '{"ifname": "%s", "link_type": "ether", "mtu": %d}'
# What `ip` says of two cards, by a pattern of its arguments.
IP_SAYS = {
    "-d -j link": f"[{LINK % ('eth9', 1500)}, {LINK % ('eth8', 9000)}]".encode(),
    "-j address*": b'[{"addr_info": []}]',
    "*route*": b"[]",
}
# Programs that answers are asked of; one of them at a time answers oddly.
ONE_TOOL = (
    *("cat", "readlink", "id", "uname", "stat", "grep", "find", "lsblk", "df", "realpath", "getconf", "ls", "head"),
    *("test", "mkdir", "nproc", "zpool", "zfs", "qemu-system-x86_64", "bwrap", "systemd-detect-virt", "od", "tr"),
)
JSON_PIECES = (
    *(b"[]", b"{}", b"null", b"[null]", b"[{}]", b"[[]]", b"3", b'"x"', b'[{"ifname": 3}]', b'[{"addr_info": 3}]'),
    *(b'[{"dst": null}]', b'[{"addr_info": [{}]}]', b'[{"ifname": "eth9"}]', b"[" * 5000, b'[{"a": ' * 2000),
    *((LINK % ("eth9", 1500)).encode(), f"[{LINK % ('eth9', -1)}]".encode(), b"[" + b"9" * 5000 + b"]"),
    *(f"[{LINK % ('e' * 70000, 1)}]".encode(), f"[{LINK % ('eth9', 1)}, {{}}]".encode(), b'[{"dst": "\\u001b[2J"}]'),
)
PIECES = (
    *(b"{}", b"[]", b"null", b'{"error": ""}', b'{"hello": "x"}', b'{"recovered": 0, "left": [], "last": 0}'),
    *(
        b"abc",
        b"1234",
        b"-1",
        b"1e400",
        b"9" * 5000,
        b"nan",
        b"0x10",
        b"",
        b" ",
        b"\t",
        b"\0\0",
        b"\xff\xfe",
        b"\x1b[2J",
    ),
    *(b"[" * 5000, b'{"error": ' * 2000, b"\r", b"%s%n", b"/", b"no", b"x" * 70000, "\u202e".encode()),
)


@dataclass(frozen=True, slots=True)
class Host:
    """How a far host behaves."""

    name: str
    does: str  # the rest of CLIENT
    works: bool  # whether it must be measured all the same
    tools: Mapping[str, str] = field(default_factory=dict)  # name -> script that stands for the program there
    command: str = ""  # the only one of COMMANDS that is tried; empty: any


def cases(source: random.Random, home: Path, share: float) -> Iterator[Case]:
    hosts = [*FIXED, *(_host(source) for _ in range(int(HOW_MANY * share)))]
    for number, host in enumerate(hosts):
        both = host in FIXED and share >= 0.1
        usual = ("doctor", "run")  # no far host has the two cards
        for command in (host.command,) if host.command else usual if both else (source.choice(usual),):
            place = home / f"{number}-{command}"
            yield Case(f"{command}: {host.name}", functools.partial(_tried, host, command, place))


def _fixed() -> Iterator[Host]:
    yield Host("honest", HONEST, True)
    yield Host("a banner", f"echo welcome; {HONEST}", True)
    yield Host("a banner without an end", f"printf 'welcome\\n> '; {HONEST}", True)
    yield Host("a banner like an answer", f'printf \'{{"hello": "x"}}\'; {HONEST}', True)
    yield Host("nothing", "exit 0", False)
    yield Host("bytes", "head -c 1000 /dev/urandom", False)
    yield Host("an empty object", "echo '{}'", False)
    yield Host("no number", "echo abc", False)
    yield Host("silence", "exec sleep 30", False)
    yield Host("no end of lines", "exec yes", False)
    yield Host("no end of one line", "exec cat /dev/zero", False)
    yield Host("no end of errors", "exec yes >&2", False)
    yield _with_ip("two cards", IP_SAYS, works=True)
    for odd in IP_SAYS:
        for data in (b"", b"not json", *JSON_PIECES):
            if _is_odd(data, odd):
                yield _with_ip(f"ip {odd} prints {data[:200]!r}", {**IP_SAYS, odd: data}, works=False)


def _host(source: random.Random) -> Host:
    kind = source.choice((_banner, _banner, _instead, _cut, _dies, _tools, _one_tool, _one_tool, _ip, _ip, _slow))
    return kind(source)


def _data(source: random.Random, most: int = 6) -> bytes:
    ends = (b"\n", b"\r\n", b"", b"\n\n")
    pieces = (source.choice(PIECES) + source.choice(ends) for _ in range(source.randint(1, most)))
    return b"".join(source.randbytes(source.randint(1, 200)) if source.random() < 0.2 else piece for piece in pieces)


def _print(data: bytes) -> str:
    return "printf %b " + shlex.quote("".join(f"\\0{byte:03o}" for byte in data))


def _banner(source: random.Random) -> Host:
    data = _data(source)
    while len(data) > 60_000:
        data = _data(source)
    return Host(f"banner {data[:200]!r}", f"{_print(data)}\n{HONEST}", True)


def _instead(source: random.Random) -> Host:
    data, code = _data(source), source.choice((0, 0, 1, 2, 126, 127, 254, 255))
    words = source.choice(("", "echo 'Permission denied' >&2\n"))
    return Host(f"instead {data[:200]!r}, {code}", f"{words}{_print(data)}\nexit {code}", False)


def _cut(source: random.Random) -> Host:
    size = source.choice((0, 1, 10, 30, 40, 60, 100, source.randint(0, 3000)))
    return Host(f"cut after {size} bytes", f'sh -c "$*" | head -c {size}', False)


def _dies(source: random.Random) -> Host:
    signal = source.choice(("KILL", "TERM", "HUP", "PIPE"))
    return Host(f"dies of {signal}", f"{_print(_data(source))}\nkill -{signal} $$", False)


def _slow(source: random.Random) -> Host:
    data = source.choice(PIECES[:20])
    return Host(f"slow {data[:50]!r}", f"while sleep 0.05; do {_print(data)} || exit; done", False)


def _tools(source: random.Random) -> Host:
    """It starts each command, but every command prints this and does nothing."""
    data = _data(source, 3)
    # Every command but the first of a connection is started by timeout.
    return Host(f"commands print {data[:200]!r}", WITH_TOOLS, False, {"timeout": _print(data)})


def _one_tool(source: random.Random) -> Host:
    """All commands do what they should, but one program prints this; sometimes only where it is given one argument."""
    data, tool = _data(source, 3), source.choice(ONE_TOOL)
    code = source.choice((0, 0, 0, 1, 2, 127))
    return Host(f"{tool} prints {data[:200]!r}, {code}", WITH_TOOLS, False, {tool: f"{_print(data)}\nexit {code}"})


def _ip(source: random.Random) -> Host:
    """Its `ip` answers one of three questions oddly."""
    odd = source.choice(list(IP_SAYS))
    every = (
        source.choice((source.choice(JSON_PIECES), source.choice(JSON_PIECES), _data(source, 2)))
        for _ in itertools.count()
    )
    data = next(data for data in every if _is_odd(data, odd))
    return _with_ip(f"ip {odd} prints {data[:200]!r}", {**IP_SAYS, odd: data}, works=False)


def _is_odd(data: bytes, question: str) -> bool:
    """An empty list, or nothing, is an answer, but for the addresses of a card; white space adds nothing to it."""
    return data.strip() not in (b"[]", b"") or question == "-j address*"


def _with_ip(name: str, says: Mapping[str, bytes], *, works: bool) -> Host:
    cases = "\n".join(f"{_quoted(pattern)}) {_print(data)};;" for pattern, data in says.items())
    return Host(name, WITH_TOOLS, works, {"ip": f'case "$*" in\n{cases}\nesac'}, "wire")


def _quoted(pattern: str) -> str:
    return "*".join(shlex.quote(part) if part else "" for part in pattern.split("*"))


FIXED = tuple(_fixed())


def _tried(host: Host, command: str, place: Path) -> Iterable[str]:
    tools, far = place / "tools", place / "far"
    for directory in (place / "bin", tools, far):
        directory.mkdir(parents=True)
    for name, script in host.tools.items():
        _executable(tools / name, f"#!/bin/sh\n{script}\n")
    does = host.does.replace("{tools}", str(tools))
    _executable(place / "bin/ssh", CLIENT.format(home=far, does=does))
    path = {"PATH": f"{place / 'bin'}:{os.environ['PATH']}"}
    with contextlib.ExitStack() as stack:
        for name, value in LIMITS.items():
            stack.enter_context(mock.patch(name, PATIENCE if host.works and value == LIMIT else value))
        result = forked(*COMMANDS[command], home=place, changes=path)
    # What the doctor has to say of a host that cannot be measured is its output.
    said = (
        result
        if command != "doctor" or not result.stdout
        else dataclasses.replace(result, stderr=result.stderr or b" ")
    )
    yield from complaints(said, codes=(0, 1, 2))
    yield from _wrong(result, host, command)


def _wrong(result: Result, host: Host, command: str) -> Iterator[str]:
    worked = WORKED[command] in result.stdout + result.stderr
    if host.works and not worked:
        yield f"was not examined: {result.error[-300:]!r}"
    if command == "wire" and not host.works and worked:
        yield "what its ip printed was taken for what it should"
    if not host.works and (not host.tools or command == "wire"):
        if result.code != 1 or worked:
            yield f"was taken for a host: exit code {result.code}"
        if not 0 < result.stderr.count(b"\n") <= MOST_LINES:
            yield f"not told in one line: {result.error[-300:]!r}"


def _executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
