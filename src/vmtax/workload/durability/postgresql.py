"""The writer of plan `durability` that is a PostgreSQL server, and what a server finds in its database afterwards.

Server and client are those of a pack, which is mounted at ROOT and entered by bubblewrap: not as root, whom the server
refuses, and with no more of the guest's files than the writer's own directory. fsync and synchronous_commit are as
PostgreSQL has them, but that of a lying writer, which commits asynchronously.

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
DIRECTORY = "/mnt"  # what the programs call the writer's own
CLUSTER = "data"  # the server's directory in it
ENTER = (
    *("bwrap", "--die-with-parent", "--unshare-user", "--uid", "65534", "--gid", "65534"),
    # As the first process there it is gone, and has left the file system, before bubblewrap ends.
    *("--unshare-pid", "--as-pid-1", "--unshare-ipc", "--cap-drop", "ALL"),
    *("--ro-bind", ROOT, "/", "--dev", "/dev", "--proc", "/proc"),
    *("--tmpfs", "/tmp", "--chdir", "/tmp", "--clearenv", "--setenv", "TZ", "UTC", "--setenv", "LC_ALL", "C"),
)
USER = "postgres"  # in the database; also the name of the database
# The program flushes the whole file system once all is prepared, so initdb need not.
INITDB = ("--no-locale", "--encoding=UTF8", "--data-checksums", "--wal-segsize=1", "--auth=trust", "--no-sync")
SMALL = {"shared_buffers": "8MB", "max_connections": "8", "jit": "off", "log_line_prefix": ""}
SERVING = {**SMALL, "listen_addresses": "", "unix_socket_directories": DIRECTORY}
RECOVERING = {**SMALL, "fsync": "off"}  # what recovery writes need not survive
READY = "ready to accept connections"
START_SECONDS = 120.0
CHECK_SECONDS = 50.0  # for recovery, and for the look afterwards
WAIT_SECONDS = 0.05
CHECKPOINT = 32  # rows between two checkpoints, after which recovery needs the tables as well as the log
SCHEMA = """\
CREATE EXTENSION amcheck;
CREATE TABLE records (number bigint PRIMARY KEY, payload bytea NOT NULL);
"""
# One statement a line, as the server takes them without a client. The first word says what a line of the answer is.
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
        self.log = os.memfd_create(name)  # what the programs say
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
        """Have them carried out, lines that end with one; raises OSError if one of them is not."""
        assert self.client.stdin and self.client.stdout
        try:
            self.client.stdin.write(f"{statements}\\echo {END}\n")
            self.client.stdin.flush()
        except BrokenPipeError:
            pass  # its log says why
        if self.client.stdout.readline() != f"{END}\n":
            raise self._failure("psql")

    def write(self, number: int) -> None:
        if number % CHECKPOINT == 0:
            self.ask("CHECKPOINT;\n")
        self.ask(transaction(number, record(self.name, number, self.kind.size)))

    def flush(self) -> None:
        """The server has flushed before COMMIT returned; where the writer lies, it does so soon, unasked."""

    def close(self) -> None:
        """The server goes on: it is to lose its power, not to end in order."""
        assert self.client.stdin
        self.client.stdin.close()
        self.client.wait()


class Recovered(NamedTuple):
    """What a server found once it had recovered a database."""

    rows: dict[int, bytes] | None  # None: they could not be read
    damage: str  # the first thing that is wrong; empty if nothing is


def transaction(number: int, payload: bytes) -> str:
    return f"BEGIN;\nINSERT INTO records VALUES ({number}, '\\x{payload.hex()}');\nCOMMIT;\n"


def settings(values: dict[str, str]) -> tuple[str, ...]:
    return tuple(word for name, value in values.items() for word in ("-c", f"{name}={value}"))


def inside() -> str:
    return f"{DIRECTORY}/{CLUSTER}"


def entered(directory: str, program: str, *words: str) -> Sequence[str]:
    """The argv of a program of the pack, which has that directory."""
    return (*ENTER, "--bind", directory, DIRECTORY, "--", f"{PROGRAMS}/{program}", *words)


def reason(log: str) -> str:
    """Why a program of PostgreSQL failed: the first line that says so, else the last of all."""
    lines = [line for line in map(str.strip, log.splitlines()) if line]
    grave = (line for line in lines if line.startswith(GRAVE) or ": error: " in line)
    return next(grave, lines[-1] if lines else "it did not say why")


def recovered(directory: str) -> Recovered:
    """Have a server recover the database, read all rows, and check it; it takes no connections meanwhile."""
    words = ("--single", *settings(RECOVERING), "-D", inside(), USER)
    asked = carried_out(directory, "postgres", *words, given="\n".join(QUESTIONS) + "\n")
    rows, damage = answer(asked.stdout, asked.stderr)
    if not damage:
        checked = carried_out(directory, "pg_checksums", "--check", "-D", inside())
        damage = f"pg_checksums: {reason(checked.stderr)}" if checked.returncode else ""
    return Recovered(rows, damage)


def carried_out(directory: str, program: str, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """A program of the pack that has ended. Raises OSError if it does not end."""
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
    """What a server that takes no connections answered to QUESTIONS."""
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
