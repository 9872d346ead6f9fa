"""Describe failures of files and of SQLite in one line: what is wrong, where, and what to do."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError, StatementError

from vmtax.store.failure import StoreError

ELSEWHERE = "set XDG_DATA_HOME to a directory elsewhere"
FULL = ("no space left", f"free some, or {ELSEWHERE}")
FORBIDDEN = ("cannot be opened for writing", f"give yourself access to it and its directory, or {ELSEWHERE}")
BROKEN = ("is damaged, or not a database", "move it away and a new one is made; `sqlite3 FILE .recover` saves the rows")

SQLITE_CAUSES = {  # primary result code -> what, cure
    sqlite3.SQLITE_FULL: FULL,
    sqlite3.SQLITE_CANTOPEN: FORBIDDEN,
    sqlite3.SQLITE_PERM: FORBIDDEN,
    sqlite3.SQLITE_READONLY: FORBIDDEN,
    sqlite3.SQLITE_CORRUPT: BROKEN,
    sqlite3.SQLITE_NOTADB: BROKEN,
    sqlite3.SQLITE_IOERR: ("cannot be read or written", f"see `dmesg` and the free space and quota, or {ELSEWHERE}"),
    sqlite3.SQLITE_BUSY: ("another process is writing and does not end", "end it (`fuser FILE` names it), then repeat"),
}
OS_CAUSES = {
    errno.ENOSPC: FULL,
    errno.EDQUOT: FULL,
    errno.EFBIG: ("the file may not grow further", f"raise the limit (`ulimit -f`), or {ELSEWHERE}"),
    errno.EACCES: FORBIDDEN,
    errno.EPERM: FORBIDDEN,
    errno.EROFS: FORBIDDEN,
}


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns errors of the file system and the database at `path` into a StoreError."""
    try:
        yield
    except OSError as error:
        where = Path(error.filename) if error.filename else path
        what, cure = OS_CAUSES.get(error.errno or 0, ("cannot be used", ELSEWHERE))
        raise StoreError(f"{where}: {what} ({error.strerror}): {_fit(cure, where)}") from error
    except (sqlite3.Error, SQLAlchemyError) as error:
        raise StoreError(f"{path}: {_explain(error, path)}") from error


def is_full(error: StoreError) -> bool:
    """Whether the disk has no room, which SQLite may also report as a failure of reading or writing."""
    cause = error.__cause__
    if isinstance(cause, OSError):
        return cause.errno in (errno.ENOSPC, errno.EDQUOT)
    origin = cause.orig if isinstance(cause, StatementError) else cause
    return getattr(origin, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


def _explain(error: Exception, path: Path) -> str:
    origin = error.orig if isinstance(error, StatementError) and error.orig else error
    reason = " ".join(str(origin).split())
    # Extended codes contain the primary one in their low byte; errors of the module itself have no code.
    code = getattr(origin, "sqlite_errorcode", 0) & 0xFF
    if code in SQLITE_CAUSES:
        what, cure = SQLITE_CAUSES[code]
        return f"{what} ({reason}): {_fit(cure, path)}"
    if code == sqlite3.SQLITE_CONSTRAINT and "FOREIGN KEY" in reason:
        return "nothing recorded: no such experiment, or no such configuration in it"
    if code == sqlite3.SQLITE_CONSTRAINT and "trial.iteration" in reason:
        return "nothing recorded: this trial has a result already"
    return f"nothing recorded: {reason}"


def _fit(cure: str, path: Path) -> str:
    return cure.replace("FILE", str(path))
