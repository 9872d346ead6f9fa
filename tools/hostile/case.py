"""A case, and the command run in a child process whose time, memory and output are watched."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tools.program import import_all, main
from vmtax.testbed.session.exclusive import LOCK

CPU_SECONDS = 4.0  # no command may use more, whatever it is given, where ORDINARY takes ORDINARY_SECONDS
# Beside a build, CPUs are half as fast as alone, and of a virtual machine the time that others got is counted, too.
ORDINARY, ORDINARY_SECONDS = ("plan", "show", "quick"), 0.6
MEMORY_BYTES = 500 * 10**6
PATIENCE = 60.0  # seconds in which a command that hangs uses no CPU; on a busy machine it may not get any for some
HOPELESS = 120.0  # seconds of CPU after which a command is ended
MOST_LINES = 25  # of an error
ALONE = f"hostile-{os.getpid()}"  # so that a measurement of this host, which has nothing to do with it, fails no case
CODES = (0, 1, 2)
FAULT = b"this is a fault in vmtax"  # stands for a traceback
# Terminals act on these, the last ones reorder text; a tab and a newline are text.
ESCAPES = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\x8e\x8f\xaa-\xae]|\xe2\x81[\xa6-\xa9]")


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that is tried."""

    name: str  # enough to try it again: the arguments, the plan, the change that was made
    complaints: Callable[[], Iterable[str]]  # tries it; yields nothing if vmtax does what it must


@dataclass(frozen=True, slots=True)
class Result:
    """What a command did."""

    code: int | None  # None: it did not end within PATIENCE; negative: the signal that ended it
    stdout: bytes
    stderr: bytes
    cpu_seconds: float
    peak_bytes: int

    @property
    def error(self) -> str:
        return self.stderr.decode(errors="replace")


def environment(home: Path) -> dict[str, str]:
    """Of a command whose files all lie in `home`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "VMTAX_"))}
    return {**kept, "HOME": str(home), LOCK: ALONE}


def forked(
    *argv: str,
    home: Path,
    cwd: Path | None = None,
    changes: Mapping[str, str | None] | None = None,
    stdin: bytes = b"",
    before: Callable[[], None] = lambda: None,
) -> Result:
    """`vmtax ARGV` in a fork of this process, which has imported everything: thousands of cases take minutes.

    Its own time and memory are counted; `changes` are made to its environment (None removes), and `before` runs in
    it. What depends on how Python itself starts (locale, limits) needs `started` instead.
    """
    import_all()

    def child() -> NoReturn:
        os.chdir(cwd or home)
        os.environ.clear()
        variables = {**environment(home), **(changes or {})}
        os.environ.update({name: value for name, value in variables.items() if value is not None})
        before()
        main(argv)

    return _watched(child, stdin)


def started(
    *argv: str,
    home: Path,
    cwd: Path | None = None,
    changes: Mapping[str, str | None] | None = None,
    stdin: bytes = b"",
    before: Callable[[], None] = lambda: None,
) -> Result:
    """`python -m vmtax ARGV` anew, in an environment with these changes (None removes); `before` runs in the child."""

    def child() -> NoReturn:
        os.chdir(cwd or home)
        variables = {**environment(home), **(changes or {})}
        before()
        words = [sys.executable, "-m", "vmtax", *argv]
        os.execve(words[0], words, {name: value for name, value in variables.items() if value is not None})

    return _watched(child, stdin)


def called(*argv: str, home: Path) -> Result:
    """`vmtax ARGV` within this process, for what a fork is too slow for: its memory is not counted.

    An error that `main` would explain is explained here; any other exception is a traceback.
    """
    import_all()
    from vmtax.cli.app import app, warn
    from vmtax.core.errors import BadInput, CannotDo

    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    code: object = 0
    before, clock = dict(os.environ), time.process_time()
    os.environ.clear()
    os.environ.update(environment(home))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                app(argv, prog_name="vmtax")
            except SystemExit as end:
                code = end.code
            except (BadInput, CannotDo) as error:
                warn(str(error))
                code = error.exit_code
            except Exception:
                traceback.print_exc()
                code = 1
    finally:
        os.environ.clear()
        os.environ.update(before)
    for stream in (out, err):
        stream.flush()
    number = code if isinstance(code, int) else int(code is not None)
    seconds = time.process_time() - clock
    return Result(number, out.buffer.getvalue(), err.buffer.getvalue(), seconds, 0)


def in_memory(home: Path) -> Path:
    """A directory in which what is flushed costs nothing; `home` where there is none."""
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix=f"{home.name}-", dir=memory if os.access(memory, os.W_OK) else home))


def complaints(
    result: Result, codes: Sequence[int] = CODES, *, cpu_seconds: float = CPU_SECONDS, escapes: bool = True
) -> Iterable[str]:
    """What is wrong with how any command ended: these rules hold for all input."""
    if result.code is None:
        yield f"did not end: {result.cpu_seconds:.1f} s of CPU, or none for {PATIENCE:.0f} s"
    elif result.code not in codes:
        yield f"exit code {result.code}, not one of {codes}: {result.error[-300:]!r}"
    text = result.stdout + result.stderr
    if b"Traceback (most recent call last)" in text:
        yield f"traceback: {result.error[-500:]!r}"
    if FAULT in text:
        yield f"an exception that nothing expected: {result.error[-500:]!r}"
    if result.code in (1, 2) and not result.stderr and b'"error"' not in result.stdout:
        yield "failed without a word"
    if result.cpu_seconds > cpu_seconds and result.cpu_seconds > (allowed := cpu_seconds * slowness()):
        yield f"{result.cpu_seconds:.1f} s of CPU, more than {allowed:.1f}"
    if result.peak_bytes > MEMORY_BYTES:
        yield f"{result.peak_bytes / 1e6:.0f} MB of memory"
    if (lines := result.stderr.count(b"\n")) > MOST_LINES:
        yield f"an error of {lines} lines"
    if escapes and (found := ESCAPES.search(text)):
        yield f"control character {found[0]!r} in the output"


def _watched(child: Callable[[], NoReturn], stdin: bytes) -> Result:
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                for number, file in enumerate((given, out, err)):
                    os.dup2(file.fileno(), number)
                child()
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(70)
        code, cpu, peak = _wait(pid)
        for file in (out, err):
            file.seek(0)
        return Result(code, out.read(), err.read(), cpu, peak)


def slowness() -> float:
    """How many times the CPU seconds that are usual an ordinary command takes at the moment; at least 1."""
    with tempfile.TemporaryDirectory() as home:
        return max(1.0, *(started(*ORDINARY, home=Path(home)).cpu_seconds / ORDINARY_SECONDS for _ in range(3)))


def _wait(pid: int) -> tuple[int | None, float, int]:
    """(exit code, CPU seconds, peak bytes) of that child and what it waited for; it is ended where it hangs."""
    used, deadline = 0.0, time.monotonic() + PATIENCE
    while time.monotonic() < deadline and used < HOPELESS:
        got, status, usage = os.wait4(pid, os.WNOHANG)
        if got:
            return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
        time.sleep(0.002)
        if (now := _cpu_seconds(pid)) > used:
            used, deadline = now, time.monotonic() + PATIENCE
    os.killpg(pid, signal.SIGKILL)
    _, _, usage = os.wait4(pid, 0)
    return None, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def _cpu_seconds(pid: int) -> float:
    """Of a child that was not waited for, and of the children that it waited for."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")
