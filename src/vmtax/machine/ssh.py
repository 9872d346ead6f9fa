"""A machine reached by the OpenSSH client: another host with the user's own configuration, or a guest."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from vmtax.machine.base import DEFAULT_TIMEOUT, CommandFailed, MachineError, MachineLost, Outcome
from vmtax.machine.guarded import SSH_FAILED, Guard, GuardedMachine, guard_source
from vmtax.machine.local import LocalMachine

# A line that says nothing for half a minute is taken for cut, by us and then by the guard on the far side, which gets
# a ping every ten seconds.
ALIVE = ("-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3")
GUARD_SILENCE = 40.0  # seconds
CLIENT_MISSING = "the OpenSSH client is needed here (Debian: apt-get install openssh-client)"
# Says which process it became, then becomes the command: constant text, the arguments stay arguments.
ANNOUNCE = ("sh", "-c", 'echo "$$"; exec "$@"', "sh")


@dataclass(frozen=True, slots=True)
class Route:
    """How the ssh client reaches a machine."""

    destination: str  # as ssh takes it
    options: tuple[str, ...] = ()


class SshProcess:
    """A background process on the far side."""

    def __init__(self, machine: SshMachine, argv: tuple[str, ...]) -> None:
        self.argv = argv
        self._machine = machine
        self._client = machine.local.start(*machine.client(ANNOUNCE + machine.marked(argv)))
        first = self._client.stdout.readline()
        if not first.strip().isdigit():
            words = self._client.stderr_tail()
            self._client.stop()
            raise MachineLost(f"{machine.path}: {argv[0]} was not started: {words}")
        self._pid = int(first)

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
    """Any machine behind ssh. One master connection carries every command."""

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
        """`destination` as ssh takes it. A guest vanishes with its QEMU: its guard starts only when needed."""
        super().__init__(path)
        self.local = local
        self.destination = destination
        self.is_guest = is_guest
        with SshMachine._count_lock:
            SshMachine._count += 1
            control = local.scratch / f"ssh-{SshMachine._count}"
        self.why_gone: Callable[[], str] = str  # a reason for a line that is gone, where somebody knows one; or ""
        self._log = Path(f"{control}.log")
        self._login = ("ssh", "-S", str(control), *options)
        # A client that finds no master must fail, not log in anew behind our back: the first ProxyCommand counts.
        self._base = ("ssh", "-S", str(control), "-o", "ProxyCommand=false", *options)

    def connect(self, timeout: float) -> None:
        """Log in; raises MachineLost with the client's words, host key warnings included, when that fails."""
        argv = [*self._login, *ALIVE, "-M", "-o", "ControlPersist=no", "-f", "-N"]
        argv += ["-E", str(self._log), self.destination]
        # In our process group and with our terminal: ssh may have to ask the user for a passphrase.
        try:
            client = subprocess.Popen(argv, stdout=subprocess.DEVNULL, env=self.local.environment())
        except OSError as error:
            raise MachineError(f"{self.path}: ssh: {error.strerror}; {CLIENT_MISSING}") from error
        try:
            code = client.wait(timeout)
        except subprocess.TimeoutExpired:
            client.kill()
            client.wait()
            raise MachineLost(f"{self.path}: ssh {self.destination}: no answer within {timeout:.0f} s") from None
        if code != 0:
            words = self._log.read_text(errors="replace").strip() if self._log.exists() else ""
            raise MachineLost(f"{self.path}: ssh {self.destination}: {words or 'could not log in'}")
        if not self.is_guest:
            self.guard  # noqa: B018 (on a host that stays, everything we start must have an end)

    def client(self, argv: Sequence[str]) -> tuple[str, ...]:
        """The local argv that runs `argv` there. ssh hands a shell one string: every word of it is quoted."""
        return (*self._base, "-T", self.destination, "--", shlex.join(argv))

    def marked(self, argv: Sequence[str]) -> tuple[str, ...]:
        return ("env", self.mark, "LC_ALL=C.UTF-8", *argv)

    def _start_guard(self) -> Guard:
        # The state directory is the far user's; constant text again, the arguments stay arguments.
        places = 'd=${XDG_STATE_HOME:-$HOME/.local/state}/vmtax/undo; exec python3 -c "$1" "$d" "$2" "$3"'
        silence = str(0.0 if self.is_guest else GUARD_SILENCE)
        argv = ["sh", "-c", places, "sh", guard_source(), self.token, silence]
        return Guard(self.path, self.client(argv), pings=not self.is_guest)

    def try_run(self, *argv: str, input: str | None = None, timeout: float = DEFAULT_TIMEOUT) -> Outcome:
        # The limit is kept on the far side, where the process is; ours is only for a dead line.
        limited = self.marked(("timeout", "-k", "2", f"{timeout:.1f}", *argv))
        done = self.local.try_run(*self.client(limited), input=input, timeout=timeout + 15)
        # A command that ends as ssh's own failures do is told apart by asking the master.
        if done.timed_out or (done.code == SSH_FAILED and not self._alive()):
            reason = self.why_gone() or done.stderr.strip() or "no answer"
            raise MachineLost(f"{self.path}: the connection is gone: {reason}")
        late = done.code in (124, 137) and done.seconds >= timeout
        return Outcome(self.path, argv, done.code, done.stdout, done.stderr, done.seconds, timed_out=late)

    def _alive(self) -> bool:
        return self.local.succeeds(*self._base, "-O", "check", self.destination, timeout=10)

    def start(self, *argv: str) -> SshProcess:
        return SshProcess(self, argv)

    def reach(self, port: int) -> tuple[str, ...]:
        through = shlex.join([*self._base, "-W", f"127.0.0.1:{port}", self.destination])
        return ("-o", f"ProxyCommand={through.replace('%', '%%')}")

    def push(self, source: Path, target: PurePosixPath, timeout: float = 600.0) -> None:
        argv = self.client(self.marked(("dd", f"of={target}", "bs=1M", "status=none")))
        with source.open("rb") as file:
            self._transfer(argv, timeout, stdin=file, stdout=None)

    def pull(self, source: PurePosixPath, target: Path, timeout: float = 600.0) -> None:
        with target.open("wb") as file:
            self._transfer(self.client(self.marked(("cat", str(source)))), timeout, stdin=None, stdout=file)

    def _transfer(
        self, argv: tuple[str, ...], timeout: float, *, stdin: IO[bytes] | None, stdout: IO[bytes] | None
    ) -> None:
        started = time.monotonic()
        try:
            done = subprocess.run(
                argv,
                stdin=stdin or subprocess.DEVNULL,
                stdout=stdout or subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=timeout,
                env=self.local.environment(),
                process_group=0,
            )
        except subprocess.TimeoutExpired as error:
            raise MachineLost(f"{self.path}: copying took more than {timeout:.0f} s") from error
        if done.returncode != 0:
            words = done.stderr.decode(errors="replace")
            seconds = time.monotonic() - started
            raise CommandFailed(Outcome(self.path, argv, done.returncode, "", words, seconds))

    def close(self) -> None:
        with contextlib.suppress(MachineError):
            super().close()
        with contextlib.suppress(MachineError):
            self.local.try_run(*self._base, "-O", "exit", self.destination, timeout=10)


def connect_host(
    local: LocalMachine, route: Route, timeout: float = 60.0, *, path: str = "host", guarded: bool = True
) -> SshMachine:
    """A host under test, logged in; `guarded`: its guard runs from the beginning."""
    machine = SshMachine(path, local, route.destination, route.options, is_guest=not guarded)
    machine.connect(timeout)
    return machine


def ssh_route(url: str) -> Route:
    """Of `ssh://[user@]host[:port]`, with the user's own ssh configuration; an IPv6 address is in brackets."""
    user, at, place = url.removeprefix("ssh://").rstrip("/").rpartition("@")
    if place.startswith("["):
        host, _, port = place[1:].partition("]")
        port = port.removeprefix(":")
    else:
        host, _, port = place.partition(":")
    return Route(f"{user}{at}{host}", ("-p", port) if port else ())
