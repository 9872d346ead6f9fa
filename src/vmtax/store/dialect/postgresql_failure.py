"""Describe failures of a PostgreSQL server in one line: what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import SQLAlchemyError, StatementError

from vmtax.store.address import ServerAddress
from vmtax.store.failure import StoreError

GONE = "see whether the server runs, then repeat; `vmtax run --resume` goes on"
CAUSES = {  # SQLSTATE or its class (postgresql.org/docs/current/errcodes-appendix.html) -> what, cure
    "53100": ("its disk is full", "free some space on the server, then repeat"),
    "53300": ("the server has no connection left", "raise its max_connections, or let fewer measure at the same time"),
    "53": ("the server has no resources left", "see its log, then repeat"),
    "25006": ("can only be read", "name the primary server, not a standby, and a user who may write"),
    "42501": ("this user may not do that", "let its owner GRANT it, or name another user"),
    "42P01": ("a table is missing", "restore a backup, or name an empty database"),
    "57P": ("the server ended the connection", GONE),
    "08": ("the connection to the server was lost", GONE),
    "28": ("the server does not let this user in", "see pg_hba.conf on the server and ~/.pgpass here"),
    "3D": ("there is no such database", "create it: `createdb`"),
    "40": ("another writer was in the way", "repeat"),
}
LOST = ("closed the connection", "connection is closed", "connection is lost", "consuming input")  # psycopg's words
UNREACHED = ("cannot be reached", "`psql` with the same address tells more")


@contextmanager
def explained(address: ServerAddress) -> Iterator[None]:
    """Turns errors of the database into a StoreError."""
    import psycopg

    try:
        yield
    except OSError as error:
        raise StoreError(f"{address}: cannot be used ({error.strerror or error})") from error
    except (SQLAlchemyError, psycopg.Error) as error:
        # libpq quotes an address that it cannot read, with its password.
        raise StoreError(f"{address}: {_explain(error).replace(address.url, str(address))}") from error


def _explain(error: Exception) -> str:
    origin = error.orig if isinstance(error, StatementError) and error.orig else error
    code = getattr(origin, "sqlstate", None) or ""
    reason = " ".join(str(origin).split())[:500]
    constraint = getattr(getattr(origin, "diag", None), "constraint_name", None)
    if code == "23503":
        return "nothing recorded: no such experiment, or no such configuration in it"
    if code == "23505" and constraint == "trial_result":
        return "nothing recorded: this trial has a result already"
    if cause := CAUSES.get(code) or CAUSES.get(code[:3]) or CAUSES.get(code[:2]):
        what, cure = cause
        return f"{what} ({reason}): {cure}"
    if not code and _is_operational(origin):
        what, cure = CAUSES["08"] if any(words in reason for words in LOST) else UNREACHED
        return f"{what} ({reason}): {cure}"
    return f"nothing recorded: {reason}"


def _is_operational(error: BaseException) -> bool:
    return type(error).__name__ in ("OperationalError", "AdminShutdown", "ConnectionTimeout")
