"""The host that runs vmtax, as a machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from vmtax.core.machines import DEFAULT_TIMEOUT, Idle, MachineError, Outcome
from vmtax.machine.guarded import LOADER, Guard, GuardedMachine
from vmtax.machine.pipes import MOST_BYTES, TooMuch, listen
from vmtax.machine.processes import MARK
from vmtax.machine.progress import Patience, Progress, of_group
from vmtax.system.paths import state_home

# The system's own Python on every machine, by its full path: it does not depend on root's search path there, and a
# guard survives the removal of a virtual environment.
PYTHON = "/usr/bin/python3"
MOST_WORDS = 64 * 2**10  # bytes of a background process's stderr that are kept
LISTENING_SECONDS = 5.0  # for what an ended process wrote to be read
FIRST_BYTES = 2**20  # kept of output that is too long
ISOLATED = ("-I", "-S", "-c")  # independent of the current directory, environment variables and installed packages


def state_directory() -> Path:
    """The directory for undo lists, which survive us."""
    return state_home() / "undo"


class LocalProcess:
    """A background process on this host. Its stderr is read in a thread, so that it never blocks, and its end is kept.

    A process that outlives us must write its stderr somewhere else.
    """

    def __init__(self, argv: tuple[str, ...], environment: dict[str, str]) -> None:
        self.argv = argv
        self._last_words = bytearray()
        # A process group of its own, because we handle Ctrl-C, in order.
        self._popen = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd="/",
            process_group=0,
        )
        self._listener = threading.Thread(target=self._listen, name=f"stderr of {argv[0]}", daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._popen.stderr
        with self._popen.stderr as pipe:
            while said := os.read(pipe.fileno(), 65536):
                self._last_words += said
                del self._last_words[:-MOST_WORDS]

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def stdin(self) -> IO[bytes]:
        assert self._popen.stdin
        return self._popen.stdin

    @property
    def stdout(self) -> IO[bytes]:
        assert self._popen.stdout
        return self._popen.stdout

    def poll(self) -> int | None:
        return self._popen.poll()

    def wait(self, timeout: float) -> int:
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"{self.argv[0]} did not end within {timeout:.0f} s") from error

    def stop(self) -> None:
        for number, patience in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 10.0)):
            if self._popen.poll() is not None:
                break
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._popen.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(patience)
        for pipe in (self._popen.stdin, self._popen.stdout):
            assert pipe
            with contextlib.suppress(OSError):
                pipe.close()

    def last_words(self) -> bytes:
        """The last MOST_WORDS of its stderr."""
        if self._popen.poll() is not None:
            self._listener.join(LISTENING_SECONDS)  # not longer: its children may keep the pipe open
        return bytes(self._last_words)

    def stderr_tail(self) -> str:
        return self.last_words()[-4096:].decode(errors="replace")


@dataclass(frozen=True, slots=True)
class BytesOutcome:
    """How a process here ended, and what it printed in an encoding that only its caller knows."""

    code: int
    stdout: bytes
    stderr: bytes  # the last MOST_WORDS


class LocalMachine(GuardedMachine):
    """This host; path "host"."""

    def __init__(self, path: str = "host") -> None:
        super().__init__(path)
        self._started: list[LocalProcess] = []
        self._left_alone: list[LocalProcess] = []

    def _start_guard(self) -> Guard:
        argv = [PYTHON, *ISOLATED, LOADER, str(state_directory()), "0"]
        return Guard(self.path, argv, self.token, pings=False)

    def environment(self) -> dict[str, str]:
        return {**plain_environment(), MARK: self.token}

    def try_run(self, *argv: str, input: str | None = None, timeout: float = DEFAULT_TIMEOUT) -> Outcome:
        _ = self.guard  # as in start
        return run_here(self.path, argv, self.environment(), input, timeout)

    def watched_run(
        self, *argv: str, input: str, timeout: float, look: Callable[[], Progress] | None = None
    ) -> Outcome:
        """Like `try_run`, for a client of another machine: `look` tells how far the command there is."""
        _ = self.guard
        return run_here(self.path, argv, self.environment(), input, timeout, look)

    def bytes_of(self, *argv: str, input: bytes, timeout: float) -> BytesOutcome:
        """What a client of another machine prints, as it is. Raises TimeoutError, and TooMuch."""
        process = self.start(*argv)
        try:
            heard: dict[IO[bytes], bytearray] = {process.stdout: bytearray()}
            deadline = time.monotonic() + timeout
            listen(heard, deadline, feed=(process.stdin, input))
            code = process.wait(max(1.0, deadline - time.monotonic()))
            return BytesOutcome(code, bytes(heard[process.stdout]), process.last_words())
        finally:
            process.stop()
            self._started.remove(process)

    def start(self, *argv: str) -> LocalProcess:
        _ = self.guard  # started before the process, so that it can end it
        try:
            process = LocalProcess(argv, self.environment())
        except OSError as error:
            raise MachineError(f"{self.path}: {argv[0]}: {error.strerror}") from error
        self._started.append(process)
        return process

    def leave_to(self, pid: int, logs: Sequence[str] = ()) -> None:
        super().leave_to(pid, logs)
        self._left_alone, self._started = self._started, []

    def close(self) -> None:
        super().close()
        for process in self._started:
            process.stop()  # the guard has ended it; its pipes are still ours
        self._started.clear()

    def reach(self, port: int) -> tuple[str, ...]:
        return ("-p", str(port))

    def push(self, source: Path, target: PurePosixPath, timeout: float = 600.0) -> None:
        shutil.copyfile(source, target)


def plain_environment() -> dict[str, str]:
    """Our environment with the one locale whose numbers and messages can be parsed everywhere."""
    return {**os.environ, "LC_ALL": "C.UTF-8"}


def run_here(
    path: str,
    argv: tuple[str, ...],
    environment: dict[str, str],
    input: str | None,
    timeout: float,
    look: Callable[[], Progress] | None = None,
) -> Outcome:
    """Run a command on this host to its end. One that prints more than pipes.MOST_BYTES is killed, and counts as
    failed.

    `look`: how far it is; by default what its processes on this host have done
    """
    started = time.monotonic()
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE if input is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd="/",
            process_group=0,
        )
    except OSError as error:
        code = 127 if isinstance(error, FileNotFoundError) else 126
        return Outcome(path, argv, code, "", f"{argv[0]}: {error.strerror}", 0.0)
    assert process.stdout and process.stderr
    heard: dict[IO[bytes], bytearray] = {process.stdout: bytearray(), process.stderr: bytearray()}
    feed = (process.stdin, to_bytes(input or "")) if process.stdin else None
    late, words = False, ""
    patience = Patience(timeout, look or (lambda: of_group(process.pid)))
    with process, _killed_on_error(process):
        try:
            listen(heard, patience.deadline, feed=feed, extend=patience.extend)
            _wait(process, patience)
        except TimeoutError:
            late = True
        except TooMuch:
            words = f"it printed more than {MOST_BYTES >> 20} MiB, so it was ended"
            for said in heard.values():
                del said[FIRST_BYTES:]
        if late or words:
            _end(process, heard)
    stdout, stderr = (_text(heard[pipe]) for pipe in (process.stdout, process.stderr))
    seconds = time.monotonic() - started
    if late and isinstance(timeout, Idle):
        stderr += f"neither it nor its children used CPU, read or wrote for {timeout:.0f} s, so it was ended\n"
    return Outcome(path, argv, process.returncode, stdout, words or stderr, seconds, timed_out=late)


def _wait(process: subprocess.Popen[bytes], patience: Patience) -> None:
    """Raises TimeoutError."""
    while True:
        try:
            process.wait(max(0.0, patience.deadline - time.monotonic()))
            return
        except subprocess.TimeoutExpired:
            patience.extend()


def to_bytes(text: str) -> bytes:
    """What a process reads: a name that is no UTF-8 is what it was when it came from the system."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="replace")


def _end(process: subprocess.Popen[bytes], heard: dict[IO[bytes], bytearray]) -> None:
    """Kill it; its last output is still read, but not that of processes which outlive it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError, TooMuch):
        listen(heard, time.monotonic() + 1.0, most=FIRST_BYTES)
    process.wait()


def _text(data: bytearray) -> str:
    text = data.decode(errors="replace")
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


@contextlib.contextmanager
def _killed_on_error(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kill the command on Ctrl-C, so that nothing continues in the background."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        raise
