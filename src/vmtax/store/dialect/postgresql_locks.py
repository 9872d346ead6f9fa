"""Locks of PostgreSQL: who runs an experiment, and who measures a host, among all machines that share the store."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Container
from typing import Any

import sqlalchemy as sa

from vmtax.store.failure import StoreError
from vmtax.store.owner import Locks, lock_number

RETAKE_SECONDS = 60.0  # to wait for a server that is restarted
RETRY_SECONDS = 0.2
# A machine that lost its power frees its locks after a minute, not after two hours; an idle session is not ended. Each
# setting exists from some version on.
SETTINGS = {
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    "idle_session_timeout": "0",
    "application_name": "vmtax, locks",
}
SET = "SELECT set_config(name, %s, false) FROM pg_settings WHERE name = %s"
TAKE = "SELECT pg_try_advisory_lock(%s)"
RELEASE = "SELECT pg_advisory_unlock(%s)"
# pg_locks shows the two halves of a number, in the database in which it is taken.
TAKEN = sa.text(
    "SELECT classid::bigint, objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


class ServerLocks(Locks):
    """Session-level advisory locks, on a connection of their own, which is held as long as they are.

    They end when that connection ends: with this process, with its machine, and with the server. Then they are taken
    again before the next commit, or that commit is refused.
    """

    def __init__(self, where: str, connect: Callable[[], Any], error: type[Exception], engine: sa.Engine) -> None:
        """`where`: the database in messages; `connect` opens a connection that commits each statement; `error`: what
        the connection raises.
        """
        self._where, self._connect, self._error, self._engine = where, connect, error, engine
        self._session: Any = None
        self._held: set[str] = set()
        self._lost: set[str] = set()  # those that another process took while the server was away
        self._changes = threading.RLock()

    def take(self, run: str) -> bool:
        with self._changes:
            if run in self._held:
                return self.confirm(run)
            if self._session is None:
                self._session = self._opened()
            if not self._is_there():
                self._take_again()
            if not self._taken(run):
                return False
            self._held.add(run)
            self._lost.discard(run)
            return True

    def holds(self, run: str) -> bool:
        return run in self._held

    def is_taken(self, run: str) -> bool:
        return self.holds(run) or run in self.among([run])

    def among(self, runs: Collection[str]) -> Container[str]:
        """In one query: a fleet has a thousand of them."""
        if not runs:
            return ()
        with self._engine.connect() as connection:
            taken = {(high << 32) + low for high, low in connection.execute(TAKEN)}
        return {run for run in runs if self.holds(run) or lock_number(run) in taken}

    def confirm(self, run: str) -> bool:
        with self._changes:
            if self._held and not self._is_there():
                self._take_again()
            return run not in self._lost

    def release(self, run: str) -> None:
        with self._changes:
            self._lost.discard(run)
            if run in self._held:
                self._held.discard(run)
                with contextlib.suppress(self._error):  # the server is away: then it holds no lock
                    self._session.execute(RELEASE, [lock_number(run)])

    def release_all(self) -> None:
        with self._changes:
            self._held.clear()
            self._lost.clear()
            if self._session is not None:
                self._session.close()
                self._session = None

    def _is_there(self) -> bool:
        try:
            self._session.execute("SELECT 1")
        except self._error:
            return False
        return True

    def _take_again(self) -> None:
        """After a restart of the server. Raises StoreError if it does not return."""
        deadline = time.monotonic() + RETAKE_SECONDS
        self._session.close()
        while True:
            try:
                self._session = self._opened()
                break
            except self._error as error:
                if time.monotonic() >= deadline:
                    raise StoreError(
                        f"{self._where}: the server ended the connection that held the locks, and does not return"
                        f" ({' '.join(str(error).split())})"
                    ) from error
            time.sleep(RETRY_SECONDS)
        self._lost |= {run for run in self._held if not self._taken(run)}
        self._held -= self._lost

    def _opened(self) -> Any:
        session = self._connect()
        for name, value in SETTINGS.items():
            session.execute(SET, [value, name])
        return session

    def _taken(self, run: str) -> bool:
        return bool(self._session.execute(TAKE, [lock_number(run)]).fetchone()[0])
