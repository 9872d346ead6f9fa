"""A PostgreSQL server of Debian's package, on a Unix socket in a temporary directory, for tests of a shared store."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import quote

from vmtax.store.address import ServerAddress

USER = "nobody"  # whom the server runs as: it refuses to be root
# A kill is no power cut, so nothing is lost without fsync; the store itself sets that a commit is written at once.
QUICK = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")
SETTINGS = ("listen_addresses=", "max_connections=40", "shared_buffers=16MB", "logging_collector=off")


def programs() -> Path:
    """Of the newest version that is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[4]))
    assert found, "no PostgreSQL server here: ./tools/packages postgresql"
    return found[-1].parent


@dataclass
class PostgresqlServer:
    """Started by `with`, and removed at its end."""

    settings: tuple[str, ...] = QUICK
    place: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="vmtax-pg-", dir="/tmp")))
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def __enter__(self) -> Self:
        account = pwd.getpwnam(USER)
        if os.geteuid() == 0:
            os.chown(self.place, account.pw_uid, account.pw_gid)
        self.place.chmod(0o755)
        self.run("initdb", "--auth=trust", "--username=vmtax", "--encoding=UTF8", "--no-sync", "-D", str(self.data))
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop("immediate")
        shutil.rmtree(self.place)

    @property
    def data(self) -> Path:
        return self.place / "data"

    def run(self, program: str, *words: str) -> None:
        done = subprocess.run(self._argv(program, *words), cwd="/", capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        settings = " ".join(f"-c {one}" for one in (*SETTINGS, f"unix_socket_directories={self.place}", *self.settings))
        log = str(self.place / "log")
        self.run("pg_ctl", "start", "-w", "-D", str(self.data), "-l", log, "-o", settings)

    def stop(self, how: str = "fast") -> None:
        if (self.data / "postmaster.pid").exists():
            self.run("pg_ctl", "stop", "-w", "-D", str(self.data), "-m", how)

    def kill(self) -> None:
        """As a fault would: all its processes end at once."""
        pid = int((self.data / "postmaster.pid").read_text().split()[0])
        children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
        for each in (pid, *map(int, children)):
            os.kill(each, signal.SIGKILL)
        while any(Path(f"/proc/{each}").exists() for each in (pid, *children)):
            pass
        (self.data / "postmaster.pid").unlink()

    def database(self, *options: str) -> ServerAddress:
        """A new, empty one."""
        name = f"store{next(self._numbers)}"
        self.run("createdb", "-h", str(self.place), "-U", "vmtax", *options, name)
        return self.address(name)

    def address(self, name: str, user: str = "vmtax") -> ServerAddress:
        return ServerAddress(f"postgresql://{user}@/{name}?host={quote(str(self.place), safe='')}")

    def sql(self, address: ServerAddress, statement: str) -> str:
        argv = [str(programs() / "psql"), "-qAt", "-v", "ON_ERROR_STOP=1", "-c", statement, address.url]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()

    def _argv(self, program: str, *words: str) -> list[str]:
        account = pwd.getpwnam(USER)
        as_user = ("setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups")
        return [*(as_user if os.geteuid() == 0 else ()), str(programs() / program), *words]
