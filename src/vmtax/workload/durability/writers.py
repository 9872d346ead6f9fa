"""The writers of the workload durability: each writes records, and acknowledges one only after its flush has returned.

They run in a guest: `write DIRECTORY BYTES NAME...` makes a directory for each writer, prepares and flushes all files,
prints `ready`, then a line `ack NAME NUMBER` for each record, or `error NAME WORDS` if a writer cannot continue. Each
ends after BYTES bytes, and all end when the standard input ends.

This file is part of the text that runs in the guest (source.py), so it imports the standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence

from vmtax.workload.durability.postgresql import Server
from vmtax.workload.durability.records import MODES, SYNCHRONOUS, Kind, kind_of, record

DATA = "data"  # the file of a writer, in its own directory
FRESH = "data.new"  # name before it is renamed to DATA
SLOTS = 16  # records in a file that is overwritten
LIE = 8  # records between two flushes of a lying writer, which acknowledges each record at once
PAGE = 4096  # bytes that a database writes at least for a record
SETUP = "PRAGMA page_size = 4096; CREATE TABLE records (number INTEGER PRIMARY KEY, payload BLOB NOT NULL)"
INSERT = "INSERT INTO records VALUES (?, ?)"
LIBC = ctypes.CDLL(None, use_errno=True)


class Append:
    """Each record makes the file longer."""

    def __init__(self, directory: str, name: str) -> None:
        self.name, self.kind = name, kind_of(name)
        self.path = os.path.join(directory, DATA)
        self.prepare()
        synced = os.O_DSYNC if self.kind.flush == "dsync" and not self.kind.lying else 0
        self.file = os.open(self.path, os.O_WRONLY | synced)

    def prepare(self) -> None:
        os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))

    def at(self, number: int) -> int:
        return (number - 1) * self.kind.size

    def write(self, number: int) -> None:
        write_all(self.file, record(self.name, number, self.kind.size), self.at(number))

    def flush(self) -> None:
        flush(self.file, self.kind)

    def close(self) -> None:
        os.close(self.file)


class Overwrite(Append):
    """Record i goes to slot i % SLOTS of a file that first contains copies of record 0."""

    def prepare(self) -> None:
        first = record(self.name, 0, self.kind.size)
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            for slot in range(SLOTS):
                write_all(file, first, slot * self.kind.size)
        finally:
            os.close(file)

    def at(self, number: int) -> int:
        return number % SLOTS * self.kind.size


class Rename:
    """Each record is a new file, which is renamed over the one before."""

    def __init__(self, directory: str, name: str) -> None:
        self.name, self.kind = name, kind_of(name)
        self.fresh, self.path = os.path.join(directory, FRESH), os.path.join(directory, DATA)
        self.directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        self.synced = os.O_DSYNC if self.kind.flush == "dsync" and not self.kind.lying else 0

    def write(self, number: int) -> None:
        file = os.open(self.fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | self.synced, 0o600)
        try:
            write_all(file, record(self.name, number, self.kind.size), 0)
            if not self.kind.lying:
                flush(file, self.kind)
        finally:
            os.close(file)
        os.rename(self.fresh, self.path)

    def flush(self) -> None:
        if self.kind.lying:
            flush_file(self.path)
        os.fsync(self.directory)

    def close(self) -> None:
        os.close(self.directory)


class Database:
    """One SQLite transaction for each record."""

    def __init__(self, directory: str, name: str) -> None:
        self.name, self.kind, self.directory = name, kind_of(name), directory
        path = os.path.join(directory, DATA)
        self.database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.database.executescript(SETUP)
        wanted = "wal" if self.kind.flush == "wal" else "delete"
        (mode,) = self.database.execute(f"PRAGMA journal_mode = {wanted}").fetchone()
        if mode != wanted:
            raise sqlite3.OperationalError(f"the journal mode is {mode} instead of {wanted}")
        self.database.execute(f"PRAGMA synchronous = {'OFF' if self.kind.lying else SYNCHRONOUS[self.kind.flush]}")

    def write(self, number: int) -> None:
        self.database.execute("BEGIN IMMEDIATE")
        self.database.execute(INSERT, (number, record(self.name, number, self.kind.size)))
        self.database.execute("COMMIT")

    def flush(self) -> None:
        """Nothing to do unless the writer lies: SQLite flushed before COMMIT returned."""
        if self.kind.lying:
            for name in os.listdir(self.directory):
                flush_file(os.path.join(self.directory, name))

    def close(self) -> None:
        self.database.close()


Writer = Append | Rename | Database | Server
WRITERS: dict[str, Callable[[str, str], Writer]] = {
    "append": Append,
    "overwrite": Overwrite,
    "rename": Rename,
    "sqlite": Database,
    "postgresql": Server,
}


def write_all(file: int, data: bytes, at: int) -> None:
    """Write all of it, however little the kernel accepts at once."""
    done = os.pwrite(file, data, at)
    while done < len(data):
        done += os.pwrite(file, data[done:], at + done)


def flush(file: int, kind: Kind) -> None:
    """Flush a file as the writer does; O_DSYNC writes are flushed already, and control never flushes."""
    if kind.flush == "fsync":
        os.fsync(file)
    elif kind.flush == "fdatasync" or (kind.flush == "dsync" and kind.lying):
        os.fdatasync(file)


def flush_file(path: str) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def sync(directory: str) -> None:
    """Flush the whole file system of that directory."""
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if LIBC.syncfs(file):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), directory)
    finally:
        os.close(file)


def records_of(kind: Kind, size: int) -> int:
    """How many records a writer writes for `size` bytes."""
    return max(1, size // (kind.size if kind.mode in MODES else PAGE))


def prepare(directory: str, name: str) -> Writer:
    """A writer with all files that it needs, and none left by an earlier one."""
    own = os.path.join(directory, name)
    with contextlib.suppress(FileExistsError):
        os.mkdir(own)
    for old in os.listdir(own):
        os.unlink(os.path.join(own, old))
    return WRITERS[kind_of(name).mode](own, name)


def run(writer: Writer, most: int, say: Callable[[str], None], wait: Callable[[], object]) -> None:
    """Write records 1 to `most`; print `ack` for each."""
    lying = writer.kind.lying
    for number in range(1, most + 1):
        writer.write(number)
        if not lying:
            writer.flush()
        say(f"ack {writer.name} {number}")
        if lying and number % LIE == 0:
            writer.flush()
        wait()


class Output:
    """Writes whole lines to a file descriptor, from any thread."""

    def __init__(self, file: int) -> None:
        self.file, self.lock = file, threading.Lock()

    def say(self, line: str) -> None:
        with self.lock:
            rest = (line + "\n").encode()
            try:
                while rest:
                    rest = rest[os.write(self.file, rest) :]
            except OSError:
                os._exit(0)  # nobody reads any more: end as if the input had ended


def write(directory: str, size: int, names: Sequence[str], say: Callable[[str], None], pause: float = 0.0) -> bool:
    """Run all writers at once until each has written `size` bytes; returns whether none failed."""
    failed: list[str] = []
    pausing = threading.Event()  # never set: waiting for it is a sleep
    ready = threading.Event()

    def attempt(name: str, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # of any kind: the other writers continue, and the error is printed
            failed.append(name)
            say(f"error {name} {words_of(error)}")

    writers: list[Writer] = []

    def begin(name: str) -> None:
        writers.append(prepare(directory, name))

    for name in names:
        attempt(name, functools.partial(begin, name))
    sync(directory)

    def work(writer: Writer) -> None:
        ready.wait()
        run(writer, records_of(writer.kind, size), say, lambda: pause and pausing.wait(pause))
        writer.close()

    threads = [
        threading.Thread(target=attempt, args=(writer.name, functools.partial(work, writer))) for writer in writers
    ]
    for thread in threads:
        thread.start()
    say("ready")
    ready.set()
    for thread in threads:
        thread.join()
    return not failed


def words_of(error: BaseException) -> str:
    """An error's text, in one line."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(text.split()) or type(error).__name__
