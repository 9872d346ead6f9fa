"""A machine reached by the OpenSSH client: another host with the user's own configuration, or a guest."""

from __future__ import annotations

import contextlib
import re
import secrets
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from vmtax.core.machines import DEFAULT_TIMEOUT, CommandFailed, MachineError, MachineLost, Outcome, how_ended
from vmtax.machine.guarded import SSH_FAILED, Guard, GuardedMachine, guard_source
from vmtax.machine.local import ISOLATED, PYTHON, LocalMachine
from vmtax.machine.pipes import BANNER_BYTES, TooMuch, excerpt, read_line
from vmtax.machine.processes import MARK

# A connection that is silent for half a minute counts as cut, first for us and then for the remote guard, which gets a
# ping every ten seconds.
ALIVE = ("-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3")
GUARD_SILENCE = 40.0  # seconds
CLIENT_MISSING = "the OpenSSH client is needed here (Debian: apt-get install openssh-client)"
USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# A login starts in a directory of the user's, with the login's PATH: change to /, and replace a PATH that has relative
# directories. Constant text.
ANYWHERE = f'cd / || exit 125; case ":$PATH:" in *:[!/]*) PATH={USUAL_PATH};; esac; export PATH; '
# Reads the run's mark from its input, where no other user sees it; prints its process id after a word that
# distinguishes the line from a login's output; then executes the command. Constant text, the arguments stay arguments.
BEGIN = (
    *("sh", "-c"),
    f'{ANYWHERE}IFS= read -r {MARK} || exit 125; export {MARK} LC_ALL=C.UTF-8; printf "%s %s\\n" "$1" "$$"; shift; '
    'exec "$@"',
    "sh",
)
# The state directory is the remote user's.
START_GUARD = (
    *("sh", "-c"),
    f"{ANYWHERE}d=${{XDG_STATE_HOME:-${{HOME:?is not set on that host}}/.local/state}}/vmtax/undo; "
    f'PATH={USUAL_PATH}:$PATH exec {PYTHON} {" ".join(ISOLATED)} "$1" "$d" "$2"',
    "sh",
)
BEGIN_SECONDS = 60.0  # for a remote background process to report its start
MOST_LOG = 64 * 2**10  # bytes of the client's own output


@dataclass(frozen=True, slots=True)
class Route:
    """How the ssh client reaches a machine."""

    destination: str  # in ssh's syntax
    options: tuple[str, ...] = ()


class Begin:
    """The start of one command on the remote side: how it is started, and its first line of output."""

    def __init__(self, token: str) -> None:
        self._word = secrets.token_hex(16)
        self._said = re.compile(rf"{self._word} (\d{{1,10}})\n")
        self.argv = (*BEGIN, self._word)  # followed by the command
        self.input = f"{token}\n".encode()  # followed by the command's own input

    def wait(self, pipe: IO[bytes]) -> int:
        """Its process id, after any output of the login. Raises MachineLost if it does not come."""
        deadline, before = time.monotonic() + BEGIN_SECONDS, b""
        try:
            while line := read_line(pipe, deadline, BANNER_BYTES):
                before += line
                if match := self._said.search(line.decode(errors="replace")):
                    return int(match[1])
                if len(before) > BANNER_BYTES:
                    break
        except TimeoutError:
            raise MachineLost(f"no answer within {BEGIN_SECONDS:.0f} s") from None
        except TooMuch:
            before = before or b"a line without an end"
        raise MachineLost(f"it was to begin, instead came {excerpt(before)}")

    def after(self, text: str) -> str | None:
        """The command's part of the whole output; None if the command did not start."""
        match = self._said.search(text)
        return text[match.end() :] if match else None


class SshProcess:
    """A background process on the remote side."""

    def __init__(self, machine: SshMachine, argv: tuple[str, ...]) -> None:
        self.argv = argv
        self._machine = machine
        begin = Begin(machine.token)
        self._client = machine.local.start(*machine.client((*begin.argv, *argv)))
        try:
            with contextlib.suppress(BrokenPipeError):  # its last output says why
                self._client.stdin.write(begin.input)
                self._client.stdin.flush()
            self._pid = begin.wait(self._client.stdout)
        except MachineLost as error:
            words = self._client.stderr_tail().strip()
            self._client.stop()
            raise MachineLost(f"{machine.path}: {argv[0]} was not started: {words or error}") from None

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def stdin(self) -> IO[bytes]:
        return self._client.stdin

    @property
    def stdout(self) -> IO[bytes]:
        return self._client.stdout

    def poll(self) -> int | None:
        return self._client.poll()

    def wait(self, timeout: float) -> int:
        return self._client.wait(timeout)

    def stop(self) -> None:
        with contextlib.suppress(MachineLost):
            if self.poll() is None:
                self._machine.try_run("kill", "-TERM", str(self.pid), timeout=10)
                with contextlib.suppress(TimeoutError):
                    self.wait(2.0)
            if self.poll() is None:
                self._machine.try_run("kill", "-KILL", str(self.pid), timeout=10)
        self._client.stop()

    def stderr_tail(self) -> str:
        return self._client.stderr_tail()


class SshMachine(GuardedMachine):
    """Any machine behind ssh. One master connection carries all commands."""

    _count = 0
    _count_lock = threading.Lock()

    def __init__(
        self,
        path: str,
        local: LocalMachine,
        destination: str,
        options: Sequence[str] = (),
        *,
        is_guest: bool,
    ) -> None:
        """`destination`: in ssh's syntax. A guest vanishes with its QEMU: its guard starts only when needed."""
        super().__init__(path)
        self.local = local
        self.destination = destination
        self.is_guest = is_guest
        with SshMachine._count_lock:
            SshMachine._count += 1
            control = local.scratch / f"ssh-{SshMachine._count}"
        self.why_gone: Callable[[], str] = str  # returns the reason for a lost connection, if known; or ""
        self._log = Path(f"{control}.log")
        self._login = ("ssh", "-S", str(control), *options)
        # Without a master connection, a client must fail, and not silently log in again: the first ProxyCommand counts.
        self._base = ("ssh", "-S", str(control), "-o", "ProxyCommand=false", *options)

    def connect(self, timeout: float) -> None:
        """Log in. Raises MachineLost with the client's output, including host key warnings, if that fails."""
        argv = [*self._login, *ALIVE, "-M", "-o", "ControlPersist=no", "-f", "-N"]
        argv += ["-E", str(self._log), self.destination]
        # In our process group and with our terminal, because ssh may have to ask the user for a passphrase.
        try:
            client = subprocess.Popen(argv, stdout=subprocess.DEVNULL, env=self.local.environment(), cwd="/")
        except OSError as error:
            raise MachineError(f"{self.path}: ssh: {error.strerror}; {CLIENT_MISSING}") from error
        try:
            code = client.wait(timeout)
        except subprocess.TimeoutExpired:
            client.kill()
            client.wait()
            raise MachineLost(f"{self.path}: ssh {self.destination}: no answer within {timeout:.0f} s") from None
        if code != 0:
            words = self._log.read_bytes()[-MOST_LOG:].decode(errors="replace").strip() if self._log.exists() else ""
            raise MachineLost(f"{self.path}: ssh {self.destination}: {words or 'could not log in'}")
        if not self.is_guest:
            _ = self.guard  # started now, because on a permanent host, everything we start must be ended

    def client(self, argv: Sequence[str]) -> tuple[str, ...]:
        """The local argv that runs `argv` there. ssh passes a single string to a shell, so every word is quoted."""
        return (*self._base, "-T", self.destination, "--", shlex.join(argv))

    def _start_guard(self) -> Guard:
        silence = str(0.0 if self.is_guest else GUARD_SILENCE)
        argv = (*START_GUARD, guard_source(), silence)
        return Guard(self.path, self.client(argv), self.token, pings=not self.is_guest)

    def try_run(self, *argv: str, input: str | None = None, timeout: float = DEFAULT_TIMEOUT) -> Outcome:
        # The time limit is enforced on the remote side, where the process is; ours is only for a dead connection.
        begin = Begin(self.token)
        limited = (*begin.argv, "timeout", "-k", "2", f"{timeout:.1f}", *argv)
        given = begin.input.decode() + (input or "")
        done = self.local.try_run(*self.client(limited), input=given, timeout=timeout + 15)
        # A command may exit with ssh's own error code: asking the master distinguishes the two.
        if done.timed_out or (done.code == SSH_FAILED and not self._alive()):
            reason = self.why_gone() or done.stderr.strip() or "no answer"
            raise MachineLost(f"{self.path}: the connection is gone: {reason}")
        stdout = begin.after(done.stdout)
        if stdout is None:
            instead = f"instead came {excerpt(done.stdout[:BANNER_BYTES].encode())}" if done.stdout else done.stderr
            raise MachineLost(f"{self.path}: {argv[0]} did not begin: {instead.strip() or how_ended(done.code)}")
        late = done.code in (124, 137) and done.seconds >= timeout
        return Outcome(self.path, argv, done.code, stdout, done.stderr, done.seconds, timed_out=late)

    def _alive(self) -> bool:
        return self.local.succeeds(*self._base, "-O", "check", self.destination, timeout=10)

    def start(self, *argv: str) -> SshProcess:
        return SshProcess(self, argv)

    def reach(self, port: int) -> tuple[str, ...]:
        through = shlex.join([*self._base, "-W", f"127.0.0.1:{port}", self.destination])
        return ("-o", f"ProxyCommand={through.replace('%', '%%')}")

    def forward(self, here: PurePosixPath, there: PurePosixPath, *, back: bool = False) -> Callable[[], None]:
        """Forward a new socket of the machine that runs vmtax to a remote one; `back`: the other way round.

        It uses the master connection. Call the result to end it. Raises CommandFailed.
        """
        what = ("-R", f"{there}:{here}") if back else ("-L", f"{here}:{there}")
        remedy = "the ssh server there must let sockets be forwarded (AllowStreamLocalForwarding)"
        self.local.run(*self._base, "-O", "forward", *what, self.destination, remedy=remedy)

        def end() -> None:
            self.local.try_run(*self._base, "-O", "cancel", *what, self.destination, timeout=10)

        return end

    def push(self, source: Path, target: PurePosixPath, timeout: float = 600.0) -> None:
        started, begin = time.monotonic(), Begin(self.token)
        argv = ("dd", f"of={target}", "bs=1M", "status=none")
        client = self.local.start(*self.client((*begin.argv, *argv)))
        # Stopping the client at the time limit also ends a write to it that blocks.
        limit = threading.Timer(timeout, client.stop)
        limit.start()
        code, lost = 0, "it ended before it began"
        try:
            with source.open("rb") as file, contextlib.suppress(BrokenPipeError, ValueError):
                client.stdin.write(begin.input)
                client.stdin.flush()
                begin.wait(client.stdout)  # a login that ended successfully may still have copied nothing
                lost = ""
                shutil.copyfileobj(file, client.stdin, 2**20)
                client.stdin.close()
            code = client.wait(max(1.0, started + timeout - time.monotonic()))
        except TimeoutError:
            code = -1
        except MachineLost as error:
            lost = str(error)
            with contextlib.suppress(TimeoutError):
                code = client.wait(2.0)
        finally:
            limit.cancel()
            client.stop()
        seconds = time.monotonic() - started
        if seconds >= timeout:
            raise MachineLost(f"{self.path}: copying took more than {timeout:.0f} s")
        if lost and not code:
            raise MachineLost(f"{self.path}: nothing was copied: {lost}")
        if code != 0:
            raise CommandFailed(Outcome(self.path, argv, code, "", client.stderr_tail(), seconds))

    def close(self) -> None:
        with contextlib.suppress(MachineError):
            super().close()
        self.hang_up()

    def hang_up(self) -> None:
        """End the connection and everything that uses it; nothing is undone there."""
        with contextlib.suppress(MachineError):
            self.local.try_run(*self._base, "-O", "exit", self.destination, timeout=10)


def connect_host(
    local: LocalMachine, route: Route, timeout: float = 60.0, *, path: str = "host", guarded: bool = True
) -> SshMachine:
    """A host under test, logged in; `guarded`: with a guard from the beginning."""
    machine = SshMachine(path, local, route.destination, route.options, is_guest=not guarded)
    machine.connect(timeout)
    return machine


def ssh_route(url: str) -> Route:
    """The route of `ssh://[user@]host[:port]`, with the user's own ssh configuration; an IPv6 address is in
    brackets.
    """
    user, at, place = url.removeprefix("ssh://").rstrip("/").rpartition("@")
    if place.startswith("["):
        host, _, port = place[1:].partition("]")
        port = port.removeprefix(":")
    else:
        host, _, port = place.partition(":")
    return Route(f"{user}{at}{host}", ("-p", port) if port else ())
