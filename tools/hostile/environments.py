"""Odd surroundings for every kind of command: streams, locale, terminal, directories, limits, rights, disks."""

from __future__ import annotations

import ctypes
import functools
import os
import random
import re
import resource
import signal
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.sample import sample_experiment
from tools.hostile.case import Case, Result, complaints, forked, started
from tools.hostile.options import json_complaints
from vmtax.store import Store

TITLE = "environments"
MOST_BYTES = 4 * 10**6  # of output: an HTML report is the longest
RUNS = ("20261121-0412-quick-0000", "20261121-0412-quick-0001")
PRINTING = (  # commands that succeed in any good environment, and print
    *(("runs",), ("runs", "--json"), ("show",), ("show", "--full"), ("show", "--json"), ("compare", *RUNS)),
    *(("show", "--format", "markdown"), ("show", "--format", "csv"), ("plan", "list"), ("plan", "check", "quick")),
    *(("plan", "show", "layers"), ("lab", "list"), ("--help",), ("run", "--help"), ("--version",)),
    *(("report", "-o", "r.html"), ("export", "-o", "x.run.gz"), ("compare", *RUNS, "-o", "c.txt")),
)
OTHERS = (
    *(("run",), ("run", "--json"), ("lab", "stop"), ("import", "nosuch"), ("show", "nosuch"), ("watch",), ("nosuch",)),
    *(("image", "list"), ("lab", "status", "--json"), ("show", "--json", "--nosuch"), ("doctor", "--try")),
)
NONSENSE = ("", "0", "-1", "1", "7", "100000000", "9" * 5000, "²", "abc", "1e3", " 80 ", "\udcff")
# "~" is the category's own directory: nothing may be made anywhere else, and root can make whatever is not impossible.
PLACES = ("/proc/x", "/dev/null", "~/" + "h" * 300, "~" + "/h" * 4500, "~/new/x", "~/\udcff", "~/\x1b[2J", "~/f")
NO_PLACES = ("", "relative")
LOCALES = (
    *({"LC_ALL": name, "LANG": name} for name in ("C", "POSIX", "de_DE.ISO-8859-1", "xx_XX.nonsense", "\udcff")),
    *({"PYTHONIOENCODING": name} for name in ("latin-1", "ascii", "cp1252:strict", "utf-16", "koi8-r")),
    {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is odd."""

    name: str
    changes: Mapping[str, str | None] = field(default_factory=dict)
    before: Callable[[], None] = lambda: None
    python: bool = False  # it matters how Python itself starts
    stdout_lost: bool = False
    stderr_lost: bool = False
    hopeless: bool = False  # Python itself may fail


def cases(source: random.Random, home: Path, share: float) -> Iterator[Case]:
    """Each of the surroundings with some of the commands, all of them in the end."""
    prepare(home)
    every = list(_every(home))
    count = max(1, round(share * 560))
    for number in range(count):
        where = every[number % len(every)] if share >= 1 else source.choice(every)
        pool = PRINTING if where.stdout_lost or source.random() < 0.7 else OTHERS
        argv = source.choice(pool)
        yield Case(f"{where.name}: vmtax {' '.join(argv)}", functools.partial(_tried, argv, where, home))


def _every(home: Path) -> Iterator[Surroundings]:
    yield from _streams()
    for change in LOCALES:
        yield Surroundings(f"locale {change}", change, python="PYTHONIOENCODING" not in change)
    for name in ("COLUMNS", "LINES", "TERMINAL_WIDTH"):
        yield from (Surroundings(f"{name}={text[:9]!r}", {name: text}, python=name[0] == "T") for text in NONSENSE)
    for name in ("TERM", "TZ", "TMPDIR", "PATH", "NO_COLOR", "FORCE_COLOR", "SHELL", "PWD", "PAGER", "USER"):
        yield from (
            Surroundings(f"{name}={text[:9]!r}", {name: text}) for text in ("", "nonsense", "\x1b[2J", "\udcff")
        )
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        for text in (*PLACES, *(NO_PLACES if name != "HOME" else ())):
            yield Surroundings(f"{name}={text[:9]!r}", {name: text.replace("~", str(home), 1)})
    yield from _limits()
    yield from _rights(home)


def _streams() -> Iterator[Surroundings]:
    for numbers in ((0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)):
        for python in (False, True):
            close = functools.partial(_close, numbers)
            yield Surroundings(
                f"closed {numbers}", {}, close, python, stdout_lost=1 in numbers, stderr_lost=2 in numbers
            )
    for number in (1, 2):
        for name, before in (
            ("full", functools.partial(_replace, "/dev/full", number)),
            ("reader gone", functools.partial(_unread, number)),
            ("read-only", functools.partial(_replace, "/dev/zero", number, os.O_RDONLY)),
        ):
            yield Surroundings(f"{name} {number}", {}, before, stdout_lost=number == 1, stderr_lost=number == 2)
    yield Surroundings("stdin is zeros", before=functools.partial(_replace, "/dev/zero", 0))
    yield Surroundings("stdin write-only", before=functools.partial(_replace, "/dev/null", 0, os.O_WRONLY))


def _limits() -> Iterator[Surroundings]:
    def limited(name: str, kind: int, number: int, *, from_start: bool = False) -> Surroundings:
        before = functools.partial(_limit, kind, number)
        mute = kind == resource.RLIMIT_FSIZE and number < 1000  # stderr is a file here
        return Surroundings(f"{name} {number}", {}, before, from_start, stderr_lost=mute, hopeless=from_start)

    for size in (0, 1000, 20_000, 60_000):
        yield limited("ulimit -f", resource.RLIMIT_FSIZE, size)
    for count in (3, 4, 5, 6, 7, 8, 10, 14, 20):
        yield limited("ulimit -n", resource.RLIMIT_NOFILE, count)
    for size in (1, 400, 600):
        yield limited("memory, MB", resource.RLIMIT_AS, size * 10**6)
    for size in (120, 160, 220, 300, 400):
        yield limited("memory, MB, from the start", resource.RLIMIT_AS, size * 10**6, from_start=True)
    yield limited("ulimit -s", resource.RLIMIT_STACK, 300_000)


def _rights(home: Path) -> Iterator[Surroundings]:
    if os.geteuid() == 0:
        for number in (54321, 65534):
            become = functools.partial(_become, number)
            yield Surroundings(f"user {number}, home of another", before=become)
            yield Surroundings(f"user {number} without HOME", {"HOME": None}, become)
            yield Surroundings(f"user {number}, home is /", {"HOME": "/"}, become)
            for text in NO_PLACES:
                yield Surroundings(f"user {number}, HOME={text!r}", {"HOME": text}, become)
    yield Surroundings("working directory is gone", before=functools.partial(_nowhere, home))
    if os.geteuid() == 0 and _may_mount():
        yield Surroundings("home is read-only", before=functools.partial(_mounted, home, None))
        for size in ("4k", "128k", "400k"):
            yield Surroundings(f"disk of {size} is full", before=functools.partial(_mounted, home, size))


def _tried(argv: tuple[str, ...], where: Surroundings, home: Path) -> Iterable[str]:
    start = started if where.python else forked
    result = start(*argv, home=home, cwd=home / "here", changes=where.changes, before=where.before)
    if where.hopeless and (not _reached(result)):
        return
    wrong = complaints(result, (0, 1, 2, 4, -signal.SIGPIPE), escapes=not re.match("FORCE_COLOR|.*utf-16", where.name))
    yield from (one for one in wrong if not (where.stderr_lost and one == "failed without a word"))
    yield from _loss_complaints(argv, where, result)
    if len(result.stdout) + len(result.stderr) > MOST_BYTES:
        yield f"{len(result.stdout) + len(result.stderr)} bytes of output"
    unreadable = ("utf-16", "ulimit -f 0")  # nothing at all can be written under the latter
    readable = not where.stdout_lost and b"standard output" not in result.stderr
    readable = readable and not any(word in where.name for word in unreadable)
    if "--json" in argv and readable:
        yield from json_complaints(result)


def _loss_complaints(argv: tuple[str, ...], where: Surroundings, result: Result) -> Iterable[str]:
    if where.stderr_lost and b"vmtax: " in result.stdout:
        yield f"an error on stdout: {result.stdout[:200]!r}"
    if where.stdout_lost and argv in PRINTING:
        if "reader gone" in where.name and result.code != -signal.SIGPIPE:
            yield f"exit code {result.code} after the reader has gone"
        if "reader gone" not in where.name and result.code != 1:
            yield f"exit code {result.code}, though nothing was written"
        if "reader gone" not in where.name and not where.stderr_lost and b"standard output" not in result.stderr:
            yield f"nobody says that stdout takes nothing: {result.error[-200:]!r}"


def _reached(result: Result) -> bool:
    """Whether Python was able to start and to import the program: before, nothing of ours runs."""
    return b"vmtax: " in result.stderr or (result.code == 0 and not result.stderr)


def prepare(home: Path) -> None:
    """A store with a run, and a working directory."""
    (home / "here").mkdir()
    (home / "f").write_text("a file, where a directory should be")
    file = home / ".local/share/vmtax/vmtax.sqlite"
    file.parent.mkdir(parents=True)
    with Store(file) as store:
        for seed in (0, 1):
            store.put(sample_experiment(rounds=2, seed=seed))


# What runs in the child before the command does.


def _close(numbers: Iterable[int]) -> None:
    for number in numbers:
        os.close(number)


def _replace(path: str, number: int, flags: int = os.O_RDWR) -> None:
    os.dup2(os.open(path, flags), number)


def _unread(number: int) -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    os.dup2(ours.fileno(), number)


def _limit(kind: int, number: int) -> None:
    resource.setrlimit(kind, (number, number))


def _become(number: int) -> None:
    os.setgroups([])
    os.setgid(number)
    os.setuid(number)


def _nowhere(home: Path) -> None:
    gone = home / f"gone-{os.getpid()}"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _may_mount() -> bool:
    pid = os.fork()
    if pid == 0:
        os._exit(0 if _libc().unshare(0x20000) == 0 else 1)
    return os.waitpid(pid, 0)[1] == 0


def _mounted(home: Path, size: str | None) -> None:
    """In a mount namespace that ends with the child: home as a small disk, or read-only."""
    libc, target = _libc(), os.fsencode(home)
    private, bind, remount, read_only, recursive = 1 << 18, 4096, 32, 1, 16384
    libc.unshare(0x20000)
    libc.mount(b"none", b"/", None, private | recursive, None)
    if size is None:
        libc.mount(target, target, None, bind, None)
        libc.mount(b"none", target, None, remount | bind | read_only, None)
    else:
        libc.mount(b"tmpfs", target, b"tmpfs", 0, f"size={size}".encode())
        (home / "here").mkdir()
    os.chdir(home / "here")
