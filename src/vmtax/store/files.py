"""Files beside the database: compressed raw outputs, one per trial and durable when `write` returns, and results of
runs.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vmtax.store.failure import StoreError
from vmtax.system.paths import make_private, private, sync_directory

RESULTS = "results.gz"  # in the directory of its run, and removed with it; no trial's file has this name
COSTS = "costs.gz"  # likewise, in a shared store only
BALLAST = "ballast"  # beside the database: space with which runs can be removed where the disk is full
BALLAST_BYTES = 2**20
MOST_RESULTS = 2**28  # characters; enough for some 2,000 treatments


@dataclass(frozen=True, slots=True)
class RawFiles:
    """The directory `raw` beside a database, with one directory per experiment; it needs no connection to that."""

    root: Path

    def write(self, connection: object, experiment: str, file: str, text: str) -> None:
        """Leaves nothing behind if it fails."""
        path = self.root / experiment / file
        make_private(path.parent)
        try:
            with open(path, "wb", opener=private) as stream:
                stream.write(gzip.compress(text.encode("utf-8", "surrogatepass"), compresslevel=6, mtime=0))
                stream.flush()
                os.fsync(stream.fileno())
            sync_directory(path.parent)
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def read(self, connection: object, experiment: str, file: str) -> str:
        path = self.root / experiment / file
        if Path(file).name != file or Path(experiment).name != experiment:
            raise StoreError(f"{path}: is no raw output of {experiment}; the measurements are intact")
        try:
            return gzip.decompress(path.read_bytes()).decode("utf-8", "surrogatepass")
        except (OSError, EOFError, ValueError, zlib.error) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise StoreError(
                f"{path}: the raw output cannot be read ({reason}); the measurements are intact"
            ) from error

    def results(self, connection: object, experiment: str) -> str | None:
        """The text of the file RESULTS; None if it is missing or unreadable."""
        try:
            with gzip.open(self.root / experiment / RESULTS) as stream:
                return stream.read(MOST_RESULTS).decode()
        except (OSError, EOFError, ValueError, zlib.error):
            return None

    def costs(self, connection: object, experiments: Sequence[str]) -> Mapping[str, str]:
        """None: they are in their user's cache."""
        return {}

    def keep_only(self, experiment: str, files: Collection[str]) -> None:
        """Remove the files of trials that were never committed."""
        directory = self.root / experiment
        if directory.exists():
            self.remove([path for path in directory.iterdir() if path.name not in files])

    def without(self, known: Collection[tuple[str, str | None]]) -> list[Path]:
        """Files that are not in `known` (experiment and file name), and empty directories.

        If a known file of an experiment is missing, any other file there may be it, under a damaged name: then all of
        them are kept.
        """
        directories = {path: list(path.iterdir()) for path in self.root.glob("*") if path.is_dir()}
        files = {(path.parent.name, path.name): path for paths in directories.values() for path in paths}
        doubtful = {experiment for experiment, file in known if (experiment, file) not in files}
        known = {*known, *((experiment, RESULTS) for experiment, _ in known)}
        found = [path for name, path in files.items() if name not in known and name[0] not in doubtful]
        return sorted([*found, *(directory for directory, files in directories.items() if not files)])

    def remove(self, files: Collection[Path]) -> None:
        """Remove these files, and directories that are then empty."""
        for path in files:
            if not path.is_dir():
                path.unlink(missing_ok=True)
        for directory in {path if path.is_dir() else path.parent for path in files}:
            with contextlib.suppress(OSError):  # it is not empty
                directory.rmdir()


def raw_name(number: int, workload: str, case: str) -> str:
    """The file name of a trial's raw output: "0007-disk-read-1m.gz"."""
    what = re.sub(r"[^A-Za-z0-9._-]+", "_", f"{workload}-{case}" if case else workload)
    return f"{number:04d}-{what[:100]}.gz"


def create_private(path: Path) -> None:
    """Create an empty file if there is none; SQLite gives the files beside it the same permissions."""
    make_private(path.parent)
    if path.exists():
        return
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    sync_directory(path.parent)


def set_aside(ballast: Path) -> None:
    """Take some space for the time when there is none; never an error."""
    with contextlib.suppress(OSError):
        if ballast.exists() and ballast.stat().st_size == BALLAST_BYTES:
            return
        with open(ballast, "wb", opener=private) as stream:
            try:
                os.posix_fallocate(stream.fileno(), 0, BALLAST_BYTES)
            except OSError:
                ballast.unlink()
