"""The writer of the workload durability that uses a PostgreSQL server, and the recovery and check of its database.

Server and client come from a pack that is mounted at ROOT and entered with bubblewrap: not as root, which the server
refuses, and with none of the guest's files but the writer's own directory. fsync and synchronous_commit have
PostgreSQL's defaults, except for a lying writer, which commits asynchronously.

This file is part of the text that runs in the guest (source.py), so it imports the standard library only.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from typing import NamedTuple

from vmtax.workload.durability.records import kind_of, record

NAME = "postgresql"  # of the writer
ROOT = "/opt/postgresql"  # where the pack is mounted
PROGRAMS = "/usr/lib/postgresql/17/bin"
DIRECTORY = "/mnt"  # where the programs see the writer's own directory
CLUSTER = "data"  # the server's data directory in it
ENTER = (
    *("bwrap", "--die-with-parent", "--unshare-user", "--uid", "65534", "--gid", "65534"),
    # As the first process in its PID namespace, it is gone and has released the file system before bubblewrap ends.
    *("--unshare-pid", "--as-pid-1", "--unshare-ipc", "--cap-drop", "ALL"),
    *("--ro-bind", ROOT, "/", "--dev", "/dev", "--proc", "/proc"),
    *("--tmpfs", "/tmp", "--chdir", "/tmp", "--clearenv", "--setenv", "TZ", "UTC", "--setenv", "LC_ALL", "C"),
)
USER = "postgres"  # name of the user in the database, and of the database
# The program flushes the whole file system after preparing everything, so initdb need not.
INITDB = ("--no-locale", "--encoding=UTF8", "--data-checksums", "--wal-segsize=1", "--auth=trust", "--no-sync")
SMALL = {"shared_buffers": "8MB", "max_connections": "8", "jit": "off", "log_line_prefix": ""}
SERVING = {**SMALL, "listen_addresses": "", "unix_socket_directories": DIRECTORY}
RECOVERING = {**SMALL, "fsync": "off"}  # recovery need not be durable
READY = "ready to accept connections"
START_SECONDS = 120.0
CHECK_SECONDS = 50.0  # for recovery, and for the check after it
WAIT_SECONDS = 0.05
CHECKPOINT = 32  # rows between two checkpoints; after one, recovery needs the tables as well as the log
SCHEMA = """\
CREATE EXTENSION amcheck;
CREATE TABLE records (number bigint PRIMARY KEY, payload bytea NOT NULL);
"""
# One statement per line, as the server takes them in single-user mode. The first word of an answer's line is its kind.
ROW, DAMAGE, END = "row", "damage", "end"
QUESTIONS = (
    f"COPY (SELECT '{ROW}', number, encode(payload, 'hex') FROM records ORDER BY number) TO STDOUT;",
    f"COPY (SELECT '{DAMAGE}', blkno, msg FROM verify_heapam('records')) TO STDOUT;",
    "SELECT bt_index_check('records_pkey', true);",
    f"COPY (SELECT '{END}') TO STDOUT;",
)
PROMPT = "backend> "
GRAVE = ("ERROR: ", "FATAL: ", "PANIC: ")


class Server:
    """One transaction for each record; `ack` follows when the client has the answer to its COMMIT."""

    def __init__(self, directory: str, name: str) -> None:
        self.name, self.kind = name, kind_of(name)
        self.log = os.memfd_create(name)  # output of the programs
        made = subprocess.run(
            entered(directory, "initdb", *INITDB, "-U", USER, "-D", inside()),
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
        )
        if made.returncode:
            raise self._failure("initdb")
        words = ("postgres", "-D", inside(), *settings(SERVING))
        self.server = subprocess.Popen(
            entered(directory, *words), stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log
        )
        self._wait()
        words = ("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", DIRECTORY, "-U", USER, "-d", USER)
        self.client = subprocess.Popen(
            entered(directory, *words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        self.ask(SCHEMA)
        if self.kind.lying:
            self.ask("SET synchronous_commit = off;\n")

    def _wait(self) -> None:
        end = time.monotonic() + START_SECONDS
        while READY not in self._words():
            if self.server.poll() is not None or time.monotonic() > end:
                raise self._failure("the server did not start")
            time.sleep(WAIT_SECONDS)

    def _words(self) -> str:
        return os.pread(self.log, 2**20, 0).decode(errors="replace")

    def _failure(self, what: str) -> OSError:
        return OSError(f"{what}: {reason(self._words())}")

    def ask(self, statements: str) -> None:
        """Execute statements, lines that end with a newline each. Raises OSError if one of them fails."""
        assert self.client.stdin and self.client.stdout
        try:
            self.client.stdin.write(f"{statements}\\echo {END}\n")
            self.client.stdin.flush()
        except BrokenPipeError:
            pass  # the server's log has the reason
        if self.client.stdout.readline() != f"{END}\n":
            raise self._failure("psql")

    def write(self, number: int) -> None:
        if number % CHECKPOINT == 0:
            self.ask("CHECKPOINT;\n")
        self.ask(transaction(number, record(self.name, number, self.kind.size)))

    def flush(self) -> None:
        """Nothing to do: the server flushed before COMMIT returned or, for a lying writer, soon does so unasked."""

    def close(self) -> None:
        """Let the server run: it must lose its power, not shut down in order."""
        assert self.client.stdin
        self.client.stdin.close()
        self.client.wait()


class Recovered(NamedTuple):
    """What a server found after it had recovered a database."""

    rows: dict[int, bytes] | None  # None: they could not be read
    damage: str  # the first error; empty if there is none


def transaction(number: int, payload: bytes) -> str:
    return f"BEGIN;\nINSERT INTO records VALUES ({number}, '\\x{payload.hex()}');\nCOMMIT;\n"


def settings(values: dict[str, str]) -> tuple[str, ...]:
    return tuple(word for name, value in values.items() for word in ("-c", f"{name}={value}"))


def inside() -> str:
    return f"{DIRECTORY}/{CLUSTER}"


def entered(directory: str, program: str, *words: str) -> Sequence[str]:
    """The argv of a program of the pack, with access to that directory."""
    return (*ENTER, "--bind", directory, DIRECTORY, "--", f"{PROGRAMS}/{program}", *words)


def reason(log: str) -> str:
    """Why a program of PostgreSQL failed: its first error line, otherwise its last line."""
    lines = [line for line in map(str.strip, log.splitlines()) if line]
    grave = (line for line in lines if line.startswith(GRAVE) or ": error: " in line)
    return next(grave, lines[-1] if lines else "it did not say why")


def recovered(directory: str) -> Recovered:
    """Let a server in single-user mode recover the database, read all rows, and check it."""
    words = ("--single", *settings(RECOVERING), "-D", inside(), USER)
    asked = carried_out(directory, "postgres", *words, given="\n".join(QUESTIONS) + "\n")
    rows, damage = answer(asked.stdout, asked.stderr)
    if not damage:
        checked = carried_out(directory, "pg_checksums", "--check", "-D", inside())
        damage = f"pg_checksums: {reason(checked.stderr)}" if checked.returncode else ""
    return Recovered(rows, damage)


def carried_out(directory: str, program: str, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program of the pack to its end. Raises OSError if it does not end."""
    argv = entered(directory, program, *words)
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        try:
            said, log = process.communicate(given, CHECK_SECONDS)
        except subprocess.TimeoutExpired as late:
            process.kill()
            log = (late.stderr or b"").decode(errors="replace")
            raise OSError(f"{program}: no end within {CHECK_SECONDS:.0f} s: {reason(log)}") from None
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(argv, process.returncode, said, log)


def answer(said: str, log: str) -> Recovered:
    """Parse the answers to QUESTIONS of a server in single-user mode."""
    rows: dict[int, bytes] = {}
    damage, ended = "", False
    for line in said.splitlines():
        kind, *fields = line.replace(PROMPT, "").split("\t")
        if kind == ROW:
            rows[int(fields[0])] = bytes.fromhex(fields[1])
        elif kind == DAMAGE:
            damage = damage or f"verify_heapam: block {fields[0]}: {fields[1]}"
        ended = ended or kind == END
    if not ended:
        return Recovered(None, f"the server did not recover: {reason(log)}")
    return Recovered(rows, damage or next((line.strip() for line in log.splitlines() if line.startswith(GRAVE)), ""))
