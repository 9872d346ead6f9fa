"""A machine reached by the OpenSSH client: another host with the user's own configuration, or a guest."""

from __future__ import annotations

import contextlib
import functools
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from vmtax.core.machines import (
    DEFAULT_TIMEOUT,
    CommandFailed,
    CommandStuck,
    Idle,
    MachineError,
    MachineLost,
    Outcome,
    how_ended,
    last_words,
    ran_out,
)
from vmtax.machine import progress
from vmtax.machine.guarded import LOADER, SSH_FAILED, Guard, GuardedMachine
from vmtax.machine.local import ISOLATED, PYTHON, BytesOutcome, LocalMachine, to_bytes
from vmtax.machine.login_shell import PROBE, LoginShell, WindowsThere, windows_shell
from vmtax.machine.pipes import BANNER_BYTES, excerpt
from vmtax.machine.progress import Progress
from vmtax.machine.remote_command import (
    BEGIN_SECONDS,
    END_COMMAND,
    ENTRY,
    NO_ENTRY,
    USUAL_PATH,
    Begin,
    for_login,
    quoted,
)
from vmtax.machine.ssh_options import LOGIN, options
from vmtax.system.packages import install_here

# A connection that is silent for half a minute counts as cut, first for us (ssh_options.LOGIN) and then for the remote
# guard, which gets a ping every ten seconds.
GUARD_SILENCE = 40.0  # seconds
LOGIN_SECONDS = 60.0  # for the first command to begin
ASK_SECONDS = 2.0  # between two questions whether a login is hopeless
# The state directory is the remote user's.
START_GUARD = (
    "d=${XDG_STATE_HOME:-${HOME:?is not set on that host}/.local/state}/vmtax/undo; "
    f'PATH={USUAL_PATH}:$PATH exec {quoted((PYTHON, *ISOLATED, LOADER))} "$d" '
)
LOOK_SECONDS = 20.0  # to say how far a command is
DEAD_SECONDS = 15.0  # beyond the time limit of a command, which the remote side enforces
MOST_LOG = 64 * 2**10  # bytes of the client's own output
# What the client prints if it gets no session from a master connection, in this order: why, which is here that the
# server has as many commands on it as its MaxSessions allows (10 by default); then it turns to its ProxyCommand, which
# fails. The command has not begun in either case.
REFUSED = "Session open refused by peer"
NO_SESSION = "UNKNOWN port 65535"
MOST_RETRIES = 3  # on new connections, for one command


def client_missing() -> str:
    """What a host without ssh needs."""
    return f"the OpenSSH client is needed here: {install_here('ssh')}"


@dataclass(frozen=True, slots=True)
class SshRoute:
    """How the ssh client reaches a machine."""

    destination: str  # in ssh's syntax
    options: tuple[str, ...] = ()


class SshProcess:
    """A background process on the remote side."""

    def __init__(self, machine: SshMachine, argv: tuple[str, ...]) -> None:
        self.argv = argv
        self._machine = machine
        for connection in machine.connections():
            begin = Begin(machine.token, argv)
            self._client = machine.local.start(*machine.client(connection))
            try:
                with contextlib.suppress(BrokenPipeError):  # its last output says why
                    self._client.stdin.write(to_bytes(begin.input))
                    self._client.stdin.flush()
                self._pid = begin.wait(self._client.stdout)
                break
            except MachineLost as error:
                words = last_words(self._client)
                self._client.stop()
                if not machine.tries_another(connection, words):
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
    """Any machine behind ssh. A master connection carries commands, forwards and the guard; more of them carry the
    commands for which it has no session left.
    """

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
            self._control = str(local.scratch / f"ssh-{SshMachine._count}")
        self.why_gone: Callable[[], str] = str  # returns the reason for a lost connection, if known; or ""
        self._options = tuple(options)
        self._connections = [0]
        self._opened = 1  # connections ever
        self._closed = False
        self._opening = threading.Lock()
        self._stuck: CommandStuck | None = None

    def _base(self, connection: int = 0) -> tuple[str, ...]:
        """The client that uses a master connection, and none of the user's configuration. Without a master it must
        fail, and not silently log in again.
        """
        return ("ssh", "-S", self._socket(connection), "-F", "none", "-o", "ProxyCommand=false")

    def _socket(self, connection: int) -> str:
        return f"{self._control}-{connection}" if connection else self._control

    def connect(self, timeout: float, is_hopeless: Callable[[], bool] | None = None) -> None:
        """Log in. Raises MachineLost with the client's output, including host key warnings, if that fails, and with
        the login shell's if that executes nothing. `is_hopeless`: asked meanwhile, now and then
        """
        if (problem := self._log_in(0, timeout, is_hopeless=is_hopeless)) is not None:
            raise MachineLost(f"{self.path}: ssh {self.destination}: {problem}")
        if not self.is_guest:
            self._check_shell()
            _ = self.guard  # started now, because on a permanent host, everything we start must be ended

    def _check_shell(self) -> None:
        begin = Begin(self.token, ("true",))
        done, _ = self._execute(begin, "", LOGIN_SECONDS)
        if begin.after(done.stdout) is None:
            if (shell := self.windows_shell()) is not None:
                raise WindowsThere(self.path, self.destination, shell)
            said = (done.stdout or done.stderr)[-BANNER_BYTES:].encode()
            late = f"no answer within {LOGIN_SECONDS:.0f} s; " if done.timed_out else ""
            raise MachineLost(f"{self.path}: ssh {self.destination}: {late}it said {excerpt(said)}: {NO_ENTRY}")

    def windows_shell(self) -> LoginShell | None:
        """The shell of a login, if that is one of Windows."""
        answer = self.local.watched_run(
            *self._base(), "-T", self.destination, "--", PROBE, input="", timeout=LOGIN_SECONDS
        )
        return windows_shell(answer.stdout)

    def bytes_of(self, line: str, given: bytes, timeout: float) -> BytesOutcome:
        """What a login prints that executes this line, whatever shell it has; also ssh's own words. No guard and no
        entry is needed there. Raises MachineLost, and TimeoutError if it has not ended by then.
        """
        return self._first_of(lambda number: (*self._base(number), "-T", self.destination, "--", line), given, timeout)

    def transfer(self, batch: str, timeout: float) -> BytesOutcome:
        """Carry out lines for sftp's batch mode, up to the first that fails. Raises as `bytes_of`."""
        alone = ("-F", "none", "-o", "ProxyCommand=false", "-o", "ControlMaster=no", "-q", "-b", "-")
        # The socket says where: no name is looked up.
        return self._first_of(
            lambda number: ("sftp", "-o", f"ControlPath={self._socket(number)}", *alone, "there"),
            to_bytes(batch),
            timeout,
        )

    def _first_of(self, client: Callable[[int], Sequence[str]], given: bytes, timeout: float) -> BytesOutcome:
        """How a client ends on the first connection that takes it."""
        for connection in self.connections():
            done = self.local.bytes_of(*client(connection), input=given, timeout=timeout)
            words = done.stderr.decode(errors="replace")
            if done.code != SSH_FAILED or not self.tries_another(connection, words):
                break
        if done.code == SSH_FAILED and not self._alive(connection):
            raise MachineLost(f"{self.path}: the connection is gone: {self.why_gone() or words.strip() or 'no answer'}")
        return done

    def _log_in(
        self, connection: int, timeout: float, *more: str, is_hopeless: Callable[[], bool] | None = None
    ) -> str | None:
        """Open a connection. Returns the client's output if that fails. Raises MachineError without a client."""
        log = Path(f"{self._socket(connection)}.log")
        argv = ["ssh", "-S", self._socket(connection), *self._options, *options(LOGIN), *more]
        argv += ["-M", "-o", "ControlPersist=no", "-f", "-N", "-E", str(log), self.destination]
        # In our process group and with our terminal, because ssh may have to ask the user for a passphrase.
        try:
            client = subprocess.Popen(argv, stdout=subprocess.DEVNULL, env=self.local.environment(), cwd="/")
        except OSError as error:
            raise MachineError(f"{self.path}: ssh: {error.strerror}; {client_missing()}") from error
        limit, code = time.monotonic() + timeout, None
        try:
            while code is None:
                try:
                    code = client.wait(max(0.0, min(ASK_SECONDS, limit - time.monotonic())))
                except subprocess.TimeoutExpired:
                    if time.monotonic() >= limit:
                        return f"no answer within {timeout:.0f} s"
                    if is_hopeless is not None and is_hopeless():
                        return "given up"
        finally:
            if code is None:
                client.kill()
                client.wait()
        if code == 0:
            return None
        words = log.read_bytes()[-MOST_LOG:].decode(errors="replace").strip() if log.exists() else ""
        return words or "could not log in"

    def connections(self) -> Iterator[int]:
        """The connections to try for a command: the newest first, then new ones. Raises MachineLost if none can be
        opened, or if the server refuses the command on new ones as well.
        """
        with self._opening:
            known = list(self._connections)
        yield from reversed(known)
        for _ in range(MOST_RETRIES):  # other threads may fill a new connection first
            with self._opening:
                if self._connections[-1] == known[-1]:
                    self._connect_again()
                known = list(self._connections)
            yield known[-1]
        raise MachineLost(f"{self.path}: its ssh server refuses commands, on new connections too")

    def _connect_again(self) -> None:
        """Open another connection, without asking the user anything."""
        number, problem = self._opened, None
        if not self._closed:
            problem = self._log_in(number, 60.0, "-o", "BatchMode=yes")
        if self._closed:
            problem = "this one is being closed"
            self._exit(number)
        if problem is not None:
            raise MachineLost(
                f"{self.path}: its ssh server allows no more commands on one connection, and another connection is not"
                f" possible ({problem.splitlines()[-1]}); set MaxSessions 100 in its sshd_config"
            )
        self._opened += 1
        self._connections.append(number)

    def tries_another(self, connection: int, words: str) -> bool:
        """Whether a command that failed with these words of the client may be tried on another connection: it has not
        begun, because this one has no session left, or is an additional one and gone. Without the first, all is lost.
        """
        if REFUSED in words:
            return True
        if NO_SESSION not in words:
            return False
        if connection == 0 or self._alive(connection):
            return False
        with self._opening, contextlib.suppress(ValueError):
            self._connections.remove(connection)
        return True

    def client(self, connection: int = 0) -> tuple[str, ...]:
        """The local argv that executes there what its standard input begins with."""
        return (*self._base(connection), "-T", self.destination, "--", ENTRY)

    def _start_guard(self) -> Guard:
        silence = str(0.0 if self.is_guest else GUARD_SILENCE)
        entry = for_login(START_GUARD + silence)
        return Guard(self.path, self.client(), self.token, pings=not self.is_guest, entry=entry)

    def try_run(self, *argv: str, input: str | None = None, timeout: float = DEFAULT_TIMEOUT) -> Outcome:
        # A time limit is enforced on the remote side, where the process is; ours is only for a dead connection. Whether
        # work goes on is asked from here, once it takes long.
        if self._stuck:
            raise self._stuck
        if isinstance(timeout, Idle):
            begin = Begin(self.token, argv)
            look = functools.partial(self._look, begin)
            done, connection = self._execute(begin, input or "", timeout, look)
        else:
            begin = Begin(self.token, ("timeout", "-k", "2", f"{timeout:.1f}", *argv))
            done, connection = self._execute(begin, input or "", timeout + DEAD_SECONDS)
        stdout, stderr = begin.after(done.stdout), begin.after(done.stderr)
        stderr = done.stderr if stderr is None else stderr
        if done.timed_out and self._ended(begin, argv, timeout):
            return Outcome(self.path, argv, done.code, stdout or "", stderr, done.seconds, timed_out=True)
        # A command may exit with ssh's own error code: asking the master distinguishes the two.
        if done.timed_out or (done.code == SSH_FAILED and not self._alive(connection)):
            reason = self.why_gone() or stderr.strip() or "no answer"
            raise MachineLost(f"{self.path}: the connection is gone: {reason}")
        if stdout is None:
            instead = f"instead came {excerpt(done.stdout[:BANNER_BYTES].encode())}" if done.stdout else stderr
            raise MachineLost(f"{self.path}: {argv[0]} did not begin: {instead.strip() or how_ended(done.code)}")
        late = not isinstance(timeout, Idle) and ran_out(done.code, done.seconds, timeout)
        return Outcome(self.path, argv, done.code, stdout, stderr, done.seconds, timed_out=late)

    def _look(self, begin: Begin) -> Progress:
        """How far a command is; as if nothing had been done if the machine does not answer."""
        asking = Begin(self.token, ("timeout", "-k", "2", f"{LOOK_SECONDS:.1f}", *progress.ASK, begin.word))
        with contextlib.suppress(MachineLost):
            answer, _ = self._execute(asking, "", LOOK_SECONDS + DEAD_SECONDS)
            return progress.parse(asking.after(answer.stdout) or "")
        return Progress()

    def _execute(
        self, begin: Begin, given: str, timeout: float, look: Callable[[], Progress] | None = None
    ) -> tuple[Outcome, int]:
        """The outcome of the local client, and the connection that it used."""
        for connection in self.connections():
            client = self.client(connection)
            done = self.local.watched_run(*client, input=begin.input + given, timeout=timeout, look=look)
            if done.code != SSH_FAILED or begin.after(done.stdout) is not None:
                break
            if not self.tries_another(connection, done.stderr):
                break
        return done, connection

    def _ended(self, begin: Begin, argv: tuple[str, ...], timeout: float) -> bool:
        """End a command that has not ended within its time limit. False if the machine does not answer.

        Raises CommandStuck if something in a guest was killed and does not end.
        """
        asking = Begin(self.token, (*END_COMMAND, begin.word))
        answer, _ = self._execute(asking, "", BEGIN_SECONDS)
        unkillable = asking.after(answer.stdout)
        if not answer.ok or unkillable is None:
            return False
        if unkillable and self.is_guest:
            how = "did nothing for" if isinstance(timeout, Idle) else "did not end within"
            words = f"{argv[0]} {how} {timeout:.0f} s, and does not end when it is killed, although the machine answers"
            self._stuck = CommandStuck(f"{self.path}: {words}", unkillable)
            raise self._stuck
        return True

    def _alive(self, connection: int) -> bool:
        return self.local.succeeds(*self._base(connection), "-O", "check", self.destination, timeout=10)

    def start(self, *argv: str) -> SshProcess:
        return SshProcess(self, argv)

    def reach(self, port: int) -> tuple[str, ...]:
        through = shlex.join([*self._base(), "-W", f"127.0.0.1:{port}", self.destination])
        return ("-o", f"ProxyCommand={through.replace('%', '%%')}")

    def forward(self, here: PurePosixPath, there: PurePosixPath, *, back: bool = False) -> Callable[[], None]:
        """Forward a new socket of the machine that runs vmtax to a remote one; `back`: the other way round.

        It uses the master connection. Call the result to end it. Raises CommandFailed.
        """
        what = ("-R", f"{there}:{here}") if back else ("-L", f"{here}:{there}")
        remedy = "the ssh server there must let sockets be forwarded (AllowStreamLocalForwarding)"
        self.local.run(*self._base(), "-O", "forward", *what, self.destination, remedy=remedy)

        def end() -> None:
            self.local.try_run(*self._base(), "-O", "cancel", *what, self.destination, timeout=10)

        return end

    def push(self, source: Path, target: PurePosixPath, timeout: float = 600.0) -> None:
        for connection in self.connections():
            try:
                self._push(source, target, timeout, connection)
                return
            except CommandFailed as failure:
                if not self.tries_another(connection, failure.outcome.stderr):
                    raise

    def _push(self, source: Path, target: PurePosixPath, timeout: float, connection: int) -> None:
        started = time.monotonic()
        argv = ("dd", f"of={target}", "bs=1M", "status=none")
        begin = Begin(self.token, argv)
        client = self.local.start(*self.client(connection))
        # Stopping the client at the time limit also ends a write to it that blocks.
        limit = threading.Timer(timeout, client.stop)
        limit.start()
        code, lost = 0, "it ended before it began"
        try:
            with source.open("rb") as file, contextlib.suppress(BrokenPipeError, ValueError):
                client.stdin.write(to_bytes(begin.input))
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
            words = last_words(client)
            code = SSH_FAILED if NO_SESSION in words or REFUSED in words else client.poll() or 0
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
        """End the connections and everything that uses them; nothing is undone there."""
        self._closed = True
        for connection in range(self._opened):
            self._exit(connection)

    def _exit(self, connection: int) -> None:
        with contextlib.suppress(MachineError):
            self.local.try_run(*self._base(connection), "-O", "exit", self.destination, timeout=10)


def connect_host(
    local: LocalMachine, route: SshRoute, timeout: float = 60.0, *, path: str = "host", guarded: bool = True
) -> SshMachine:
    """A host under test, logged in; `guarded`: with a guard from the beginning."""
    machine = SshMachine(path, local, route.destination, route.options, is_guest=not guarded)
    machine.connect(timeout)
    return machine


def ssh_route(url: str) -> SshRoute:
    """The route of `ssh://[user@]host[:port]`, with the user's own ssh configuration; an IPv6 address is in
    brackets.
    """
    user, at, place = url.removeprefix("ssh://").rstrip("/").rpartition("@")
    if place.startswith("["):
        host, _, port = place[1:].partition("]")
        port = port.removeprefix(":")
    else:
        host, _, port = place.partition(":")
    return SshRoute(f"{user}{at}{host}", ("-p", port) if port else ())
