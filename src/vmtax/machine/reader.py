"""Readers: run commands on a host without a guard, an undo list, a control socket or any other file."""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import shlex
import subprocess
import time
from typing import IO

from vmtax.machine.base import DEFAULT_TIMEOUT, MachineError, MachineLost, Outcome
from vmtax.machine.local import plain_environment, run_here
from vmtax.machine.ssh import CLIENT_MISSING, Route

LOGIN_SECONDS = 60.0  # a passphrase may have to be typed
LATE_SECONDS = 15.0  # beyond a command's own limit, which is kept on the far side, before the line is taken for dead
TIMED_OUT = (124, 137)  # exit codes of timeout(1)


class LocalReader:
    """This host; nothing stays, because every command is waited for."""

    path = "host"

    def try_run(self, *argv: str, timeout: float = DEFAULT_TIMEOUT) -> Outcome:
        return run_here(self.path, argv, plain_environment(), None, timeout)


class SshReader:
    """Another host by one login: its shell gets one command after the other, framed by a random word.

    A control socket would be a file, and a login for each command would ask for each passphrase.
    """

    def __init__(self, route: Route) -> None:
        self.path = "host"
        self._destination = route.destination
        self._mark = secrets.token_hex(16)
        # What the user's configuration may say otherwise: both would write files here.
        options = ("-o", "ControlMaster=no", "-o", "UpdateHostKeys=no", *route.options)
        # In our process group and with our terminal: ssh may have to ask the user for a passphrase.
        try:
            self._ssh = subprocess.Popen(
                ("ssh", "-T", *options, self._destination, "--", "exec sh"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=plain_environment(),
            )
        except OSError as error:
            raise MachineError(f"{self.path}: ssh: {error.strerror}; {CLIENT_MISSING}") from error

    def log_in(self) -> None:
        """Raises MachineLost with ssh's own words where that fails."""
        self._ask("export LC_ALL=C.UTF-8", LOGIN_SECONDS)  # its answer swallows what a login script prints

    def try_run(self, *argv: str, timeout: float = DEFAULT_TIMEOUT) -> Outcome:
        started = time.monotonic()
        command = shlex.join(("timeout", "-k", "2", f"{timeout:.1f}", *argv))
        code, stdout, stderr = self._ask(f"{command} </dev/null", timeout + LATE_SECONDS)
        seconds = time.monotonic() - started
        late = code in TIMED_OUT and seconds >= timeout
        return Outcome(self.path, argv, code, stdout, stderr, seconds, timed_out=late)

    def close(self) -> None:
        """End the far shell's input, and the connection with it."""
        for pipe in (self._ssh.stdin, self._ssh.stdout, self._ssh.stderr):
            assert pipe
            with contextlib.suppress(OSError):
                pipe.close()
        try:
            self._ssh.wait(2.0)
        except subprocess.TimeoutExpired:
            self._ssh.kill()
            self._ssh.wait()

    def _ask(self, command: str, timeout: float) -> tuple[int, str, str]:
        """Exit status, standard output and standard error of one line for the far shell."""
        assert self._ssh.stdin and self._ssh.stdout and self._ssh.stderr
        mark = f"printf '\\n{self._mark} %d\\n' $code"
        lines = f"{command}\ncode=$?; {mark}; {mark} >&2\n"
        with contextlib.suppress(BrokenPipeError):  # the answer tells why
            self._ssh.stdin.write(lines.encode())
            self._ssh.stdin.flush()
        stdout, stderr = self._answers((self._ssh.stdout, self._ssh.stderr), time.monotonic() + timeout)
        text, _, code = stdout.rpartition(f"\n{self._mark} ")
        return int(code), text, stderr.rpartition(f"\n{self._mark} ")[0]

    def _answers(self, pipes: tuple[IO[bytes], IO[bytes]], deadline: float) -> list[str]:
        """What comes through each pipe up to the mark."""
        heard = dict.fromkeys(pipes, b"")
        ending = f"\n{self._mark} ".encode()
        with selectors.DefaultSelector() as selector:
            for pipe in pipes:
                selector.register(pipe, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    raise self._lost("no answer")
                for key, _ in ready:
                    pipe = next(pipe for pipe in pipes if pipe is key.fileobj)
                    chunk = os.read(pipe.fileno(), 65536)
                    heard[pipe] += chunk
                    if not chunk or (ending in heard[pipe] and heard[pipe].endswith(b"\n")):
                        selector.unregister(pipe)
        texts = [heard[pipe].decode(errors="replace") for pipe in pipes]
        if not all(ending.decode() in text for text in texts):
            raise self._lost(texts[1].strip() or "the connection is gone")
        return texts

    def _lost(self, words: str) -> MachineLost:
        return MachineLost(f"{self.path}: ssh {self._destination}: {words}")
