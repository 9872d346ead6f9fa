"""Readers: run commands on a host without a guard, an undo list, a control socket or any other file."""

from __future__ import annotations

import contextlib
import re
import secrets
import shlex
import subprocess
import time
from typing import IO

from vmtax.core.machines import DEFAULT_TIMEOUT, TAIL_LINES, MachineError, MachineLost, Outcome, ran_out
from vmtax.machine.guarded import SSH_FAILED
from vmtax.machine.local import plain_environment, run_here, to_bytes
from vmtax.machine.login_shell import PROBE, LoginShell, WindowsThere, windows_shell
from vmtax.machine.pipes import BANNER_BYTES, TooMuch, excerpt, listen
from vmtax.machine.remote_command import ENTRY, NO_ENTRY, for_login
from vmtax.machine.ssh import SshRoute, client_missing
from vmtax.machine.ssh_options import ALONE, LOGIN, options

LOGIN_SECONDS = 60.0  # a passphrase may have to be typed
# Beyond a command's own limit, which the remote side enforces, before the connection counts as dead
LATE_SECONDS = 15.0
MOST_ANSWER = 16 * 2**20  # bytes; /proc/cpuinfo of a thousand CPUs has two million
LAST_LINE = 64  # least bytes of the line that ends an answer


class LocalReader:
    """This host; nothing is left behind, because every command is waited for."""

    path = "host"

    def try_run(self, *argv: str, timeout: float = DEFAULT_TIMEOUT) -> Outcome:
        return run_here(self.path, argv, plain_environment(), None, timeout)


class SshReader:
    """Another host over a single login: its shell gets one command after another, delimited by a random word.

    A control socket would be a file, and one login for each command would ask for each passphrase.
    """

    def __init__(self, route: SshRoute) -> None:
        self.path = "host"
        self._destination = route.destination
        self._mark = secrets.token_hex(16)
        self._has_begun = False  # whether a command was executed
        self._was_heard = False  # whether the other side said anything when it was last asked
        self._end = re.compile(rf"\n{self._mark} (\d{{1,3}})\n".encode())
        self._client = ("ssh", "-T", *route.options, *options(LOGIN, ALONE), self._destination, "--")
        # In our process group and with our terminal, because ssh may have to ask the user for a passphrase.
        try:
            self._ssh = subprocess.Popen(
                (*self._client, ENTRY),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=plain_environment(),
                cwd="/",
            )
        except OSError as error:
            raise MachineError(f"{self.path}: ssh: {error.strerror}; {client_missing()}") from error

    def log_in(self) -> None:
        """Raises MachineLost with ssh's own error if that fails."""
        assert self._ssh.stdin
        with contextlib.suppress(BrokenPipeError):  # the answer says why
            self._ssh.stdin.write(for_login("export LC_ALL=C.UTF-8; exec sh").encode())
        # The first answer also consumes the output of login scripts.
        try:
            self._ask(":", LOGIN_SECONDS, BANNER_BYTES)
        except MachineLost as problem:
            if (shell := self._windows_shell()) is not None:
                raise WindowsThere(self.path, self._destination, shell) from None
            raise problem
        self._has_begun = True

    def _windows_shell(self) -> LoginShell | None:
        """The shell of another login, if the first one reached a shell that did not understand us, and it is one of
        Windows. Such a shell ends, or it stays after it has said so.
        """
        code = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._ssh.wait(2.0)
        if code in (0, SSH_FAILED) or (code is None and not self._was_heard):
            return None
        return windows_shell(
            run_here(self.path, (*self._client, PROBE), plain_environment(), None, LOGIN_SECONDS).stdout
        )

    def try_run(self, *argv: str, timeout: float = DEFAULT_TIMEOUT) -> Outcome:
        started = time.monotonic()
        command = shlex.join(("timeout", "-k", "2", f"{timeout:.1f}", *argv))
        code, stdout, stderr = self._ask(f"{command} </dev/null", timeout + LATE_SECONDS)
        seconds = time.monotonic() - started
        late = ran_out(code, seconds, timeout)
        return Outcome(self.path, argv, code, stdout, stderr, seconds, timed_out=late)

    def close(self) -> None:
        """End the remote shell's input, and the connection with it."""
        for pipe in (self._ssh.stdin, self._ssh.stdout, self._ssh.stderr):
            assert pipe
            with contextlib.suppress(OSError):
                pipe.close()
        try:
            self._ssh.wait(2.0)
        except subprocess.TimeoutExpired:
            self._ssh.kill()
            self._ssh.wait()

    def _ask(self, command: str, timeout: float, most: int = MOST_ANSWER) -> tuple[int, str, str]:
        """Exit status, standard output and standard error of a line for the remote shell."""
        assert self._ssh.stdin and self._ssh.stdout and self._ssh.stderr
        mark = f"printf '\\n{self._mark} %d\\n' $code"
        lines = f"{command}\ncode=$?; {mark}; {mark} >&2\n"
        with contextlib.suppress(BrokenPipeError):  # the answer says why
            self._ssh.stdin.write(to_bytes(lines))
            self._ssh.stdin.flush()
        heard: dict[IO[bytes], bytearray] = {self._ssh.stdout: bytearray(), self._ssh.stderr: bytearray()}
        problem = ""
        try:
            listen(heard, time.monotonic() + timeout, most=most, is_enough=self._has_ended)
        except TimeoutError:
            problem = f"no answer within {timeout:.0f} s"
        except TooMuch:
            problem = f"more than {most >> 10} KiB instead of an answer"
        out, err = heard.values()
        self._was_heard = bool(out or err)
        last, end = self._end.search(out), self._end.search(err)  # what start-up files left behind may print after it
        if problem or last is None or end is None:
            raise self._lost(problem, out, err)
        stdout, stderr = out[: last.start()], err[: end.start()]
        return int(last[1]), stdout.decode(errors="replace"), stderr.decode(errors="replace")

    def _has_ended(self, heard: bytearray, before: int) -> bool:
        return self._end.search(heard, max(0, before - LAST_LINE)) is not None

    def _lost(self, problem: str, stdout: bytearray, stderr: bytearray) -> MachineLost:
        """The exception with ssh's own error, if there is one."""
        words = "\n".join(stderr[-BANNER_BYTES:].decode(errors="replace").strip().splitlines()[-TAIL_LINES:])
        if problem or not words:
            said = stdout or stderr
            words = problem or "the connection is gone"
            words += f"; it said {excerpt(bytes(said[:1024]))}" if said or not self._has_begun else ""
            words += "" if self._has_begun else f": {NO_ENTRY}"
        return MachineLost(f"{self.path}: ssh {self._destination}: {words}")
