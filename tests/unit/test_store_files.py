"""The store's files: where they are, whose they are, and what happens if files and disks fail."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.sample import large_experiment, sample_experiment, without_raw
from tests.unit.test_store_faults import SAMPLE, execute, run_child
from vmtax.cli import app
from vmtax.core.errors import UNDECIDED, BadInput, CannotDo
from vmtax.store import Store, StoreError, default_path
from vmtax.store.dialect.sqlite import SqliteDatabase
from vmtax.store.dialect.sqlite_engine import Way
from vmtax.store.schema import VERSION


def test_default_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert Store().path == default_path() == tmp_path / "vmtax/vmtax.sqlite"
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_DATA_HOME", value)
        assert default_path() == tmp_path / ".local/share/vmtax/vmtax.sqlite"


def test_private_and_durable(store: Store, path: Path) -> None:
    store.put(SAMPLE)
    directories = [path.parent, path.parent / "raw", path.parent / "raw" / SAMPLE.id]
    assert [oct(directory.stat().st_mode & 0o777) for directory in directories] == ["0o700"] * 3
    assert path.stat().st_mode & 0o777 == 0o600
    with store._database.engine.connect() as connection:
        pragmas = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        values = [connection.exec_driver_sql(f"PRAGMA {pragma}").scalar() for pragma in pragmas]
    assert values == ["wal", 2, 1, 120_000]


def test_newer_schema_is_refused(path: Path) -> None:
    with Store(path):
        pass
    execute(path, "UPDATE meta SET value = '99'")
    with pytest.raises(StoreError, match="schema 99, this vmtax knows 8 only"), Store(path):
        pass


def test_older_schema_is_brought_up_to_date(path: Path) -> None:
    with Store(path) as store:
        store.put(SAMPLE)
    for statement in (
        "DROP INDEX trial_result",
        *(f"ALTER TABLE experiment DROP COLUMN {name}" for name in ("label", "seconds", "result")),
        "ALTER TABLE experiment DROP COLUMN ended",
        "ALTER TABLE treatment DROP COLUMN repeats",
        "ALTER TABLE treatment DROP COLUMN side",
        "ALTER TABLE experiment DROP COLUMN options",
        "ALTER TABLE trial DROP COLUMN disturbance",
        "ALTER TABLE trial DROP COLUMN latencies",
        "ALTER TABLE trial DROP COLUMN machine",
        "ALTER TABLE trial DROP COLUMN readings",
        "ALTER TABLE boot DROP COLUMN obtained",
        "UPDATE meta SET value = '1'",
    ):
        execute(path, statement)
    with Store(path) as store:
        found = store.load(SAMPLE.id)
        assert [t.measurements for t in found.trials] == [t.measurements for t in SAMPLE.trials]
        assert (found.label, found.seconds, found.took) == ("", None, SAMPLE.took)
        assert all(t.disturbance is None and t.latencies == () for t in found.trials)
        store.put(dataclasses.replace(SAMPLE, id="new"))
        assert store.load("new").trials[0].disturbance == SAMPLE.trials[0].disturbance


def test_database_of_another_program(tmp_path: Path) -> None:
    execute(tmp_path / "other", "CREATE TABLE cookies (id)")
    with pytest.raises(StoreError, match="another program's"), Store(tmp_path / "other"):
        pass


def test_not_a_database(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"half a download" * 1000)
    with pytest.raises(StoreError, match=r"is damaged, or not a database .*move it away"), Store(path):
        pass


def test_corrupt_in_the_middle(path: Path) -> None:
    with Store(path) as store:
        store.put(without_raw(large_experiment(2000)))
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 4)
        file.write(b"\xff" * (size // 2))
    with pytest.raises(StoreError, match=r"is damaged, or not a database .*recover"), Store(path) as store:
        store.load()


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"file.*(Not a directory|File exists)"), Store(tmp_path / "file" / "x.sqlite"):
        pass
    with pytest.raises(StoreError, match="set XDG_DATA_HOME"), Store(Path("/proc/vmtax/x.sqlite")):
        pass


NOBODY = 65534  # whom the overflow uid stands for: no file belongs to it


def test_directory_without_permission(path: Path) -> None:
    """Root may write everywhere, so a child that is nobody tries it."""
    with Store(path):
        pass  # every module that the child needs is loaded: it may not be able to read them
    with tempfile.TemporaryDirectory() as directory:  # pytest's own are closed to others
        Path(directory).chmod(0o555)
        words = _tried_as_nobody(Path(directory))
    assert words.startswith("StoreError") and "x.sqlite: cannot be opened for writing" in words


def _tried_as_nobody(directory: Path) -> str:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setuid(NOBODY)
            Store(directory / "x.sqlite").__enter__()
            words = "it was written"
        except BaseException as error:
            words = f"{type(error).__name__}: {error}"
        os.write(write, words.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        words = pipe.read()
    os.waitpid(child, 0)
    return words


FULL_DISK = """
import dataclasses, os, subprocess, sys
from pathlib import Path
from tests.sample import sample_experiment, unstarted
from vmtax.cli import app
from vmtax.core.errors import BadInput, CannotDo
from vmtax.store import Store, StoreError
where = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", where], check=True)
(where / "filler").write_bytes(bytes(1 << 20))
sample = sample_experiment(rounds=1)
new = unstarted(sample)
with Store(where / "vmtax.sqlite") as store:
    store.begin(new)
    done = 0
    try:
        while True:
            trial = dataclasses.replace(sample.trials[0], iteration=done + 2, raw=os.urandom(1000).hex())
            store.add_trials(new.id, trial)
            done += 1
    except StoreError as error:
        print(error)
    assert len(store.load(with_raw=True).trials) == done > 10
    assert store.experiments()[0].ok == done
    (where / "filler").unlink()
    store.add_trials(new.id, sample.trials[0])
    store.finish(new.id, "complete", 1.0)
    assert len(store.load(with_raw=True).trials) == done + 1
    assert len(list(where.rglob("*.gz"))) == done + 1
"""


def test_full_disk(tmp_path: Path) -> None:
    """A real one, in a mount namespace that goes away with the child, however it ends."""
    prefix = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "--user", "--map-root-user", "--mount")
    if not shutil.which("unshare") or subprocess.run([*prefix, "true"], capture_output=True).returncode:
        pytest.skip("no mount namespace here: be root, or allow unprivileged user namespaces")
    output, errors = run_child(FULL_DISK, tmp_path, prefix=prefix).communicate(timeout=300)
    assert errors == ""
    assert f"{tmp_path}/" in output
    assert "no space left (" in output
    assert len(output.splitlines()) == 1
    assert not list(tmp_path.iterdir())


FILE_LIMIT = """
import dataclasses, resource, sys
from pathlib import Path
from tests.sample import sample_experiment, unstarted
from vmtax.cli import app
from vmtax.core.errors import BadInput, CannotDo
from vmtax.store import Store, StoreError
sample = sample_experiment(rounds=1)
new = unstarted(sample)
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
with Store(Path(sys.argv[1])) as store:
    store.begin(new)
    try:
        for count in range(10_000):
            store.add_trials(new.id, dataclasses.replace(sample.trials[0], iteration=count + 1))
            print(count)
    except StoreError as error:
        print(error)
"""


@pytest.mark.variations
def test_file_that_may_not_grow(path: Path) -> None:
    output, errors = run_child(FILE_LIMIT, path).communicate(timeout=300)
    *counts, message = output.splitlines()
    assert errors == ""
    assert "cannot be read or written (disk I/O error)" in message
    with Store(path) as store:
        assert len(store.load(with_raw=True).trials) == len(counts) > 10


@pytest.mark.parametrize(
    "words",
    [
        *(("runs",), ("runs", "--json"), ("show",), ("show", "x"), ("report",), ("export",), ("watch",)),
        *(("compare", "a", "b"), ("calibrate", "--show", "x"), ("plan", "list"), ("report", "x", "--format", "csv")),
    ],
)
def test_a_command_that_only_reads_makes_nothing(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "absent" / name))
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, words)
    assert not (done.exception and not isinstance(done.exception, (SystemExit, CannotDo, BadInput))), done.exception
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("state", ["", "created and no more"])
def test_a_store_that_is_not_there_is_read_as_an_empty_one(state: str, tmp_path: Path) -> None:
    path = tmp_path / "absent" / "store.sqlite"
    if state:
        path.parent.mkdir()
        path.touch()
    with Store(path, reads=True) as store:
        assert store.experiments() == []
        with pytest.raises(StoreError, match="no runs yet"):
            store.load()
    assert [*tmp_path.rglob("*")] == ([path.parent, path] if state else [])


def test_a_store_is_read_where_nothing_can_be_written(tmp_path: Path) -> None:
    """Neither a log nor shared memory can be made beside it: files may have no length."""
    with Store(path := tmp_path / "store.sqlite") as store:
        store.put(sample_experiment(rounds=1))
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); from pathlib import Path\n"
        "from vmtax.store import Store\n"
        "with Store(Path(sys.argv[1]), reads=True) as store: print(store.load().id)"
    )
    done = subprocess.run((sys.executable, "-c", code, str(path)), capture_output=True, text=True, check=False)
    assert done.stdout.split() == [sample_experiment(rounds=1).id], done.stderr


OLDER = sorted((Path(__file__).parents[1] / "golden").glob("20??-??-??*/store.tar.xz"))
READERS = ("runs", "show", "show --full", "show --json", "report -o out", "report --format csv -o out", "export -o out")
# Runs each command on a file system that may not be written to, in a mount namespace that goes away with it.
READ_ONLY = """
import os, subprocess, sys
from pathlib import Path
from tools.program import import_all, main
home, *commands = sys.argv[1:]
data = f"{home}/vmtax"
subprocess.run(["mount", "--bind", data, data], check=True)
subprocess.run(["mount", "-o", "remount,bind,ro", data], check=True)
import_all()
for words in commands:
    child = os.fork()
    if not child:
        os.chdir(home)
        os.environ["XDG_DATA_HOME"] = os.environ["XDG_STATE_HOME"] = home
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        main(words.split())
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), words, flush=True)
"""


def schema_of(path: Path) -> str:
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as connection:
        return str(connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()[0])


@pytest.fixture(params=OLDER, ids=lambda path: path.parent.name)
def older(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A database that an earlier version wrote."""
    with tarfile.open(request.param) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.2 has none, 3.13 wants one
        archive.extractall(tmp_path / "vmtax")
    path = tmp_path / "vmtax/vmtax.sqlite"
    assert int(schema_of(path)) < VERSION
    return path


def test_a_reader_leaves_an_older_store_as_it_is(older: Path) -> None:
    before = {path: path.read_bytes() for path in older.parent.rglob("*") if path.is_file()}
    with Store(older, reads=True) as store:
        read = [(entry, store.load(entry.id)) for entry in store.experiments()]
    assert read
    assert {path: path.read_bytes() for path in older.parent.rglob("*") if path.is_file()} == before
    with Store(older) as store:
        assert [(entry, store.load(entry.id)) for entry in store.experiments()] == read
    assert schema_of(older) == str(VERSION), "who writes brings it up to date"


@pytest.mark.parametrize("impossible", [(), ("shared",), ("shared", "alone"), ("shared", "alone", "copy")])
def test_a_reader_opens_a_store_in_the_first_way_that_its_disk_allows(
    monkeypatch: pytest.MonkeyPatch, path: Path, impossible: tuple[Way, ...]
) -> None:
    """A full or read-only disk has no room for the files beside it."""
    with Store(path) as store:
        store.put(SAMPLE)
    database, tried = SqliteDatabase(path), list[Way]()

    def is_older() -> bool:
        if tried[-1] in impossible:
            raise StoreError(f"{tried[-1]}: disk I/O error")
        return False

    monkeypatch.setattr(database, "_use", tried.append)
    monkeypatch.setattr(database, "is_older", is_older)
    ways: list[Way] = ["shared", "alone", "copy"]
    with pytest.raises(StoreError, match="shared: ") if len(impossible) == 3 else contextlib.nullcontext():
        database.open_to_read()
    assert tried == ways[: len(impossible) + 1]


@pytest.mark.variations
def test_commands_that_read_take_an_older_store_that_nobody_may_write(older: Path) -> None:
    commands = (*READERS, "compare 20261122-0201-quick-0001 20261122-0202-quick-0002")
    ran = run_child(READ_ONLY, older.parent.parent, *commands, prefix=("unshare", "--mount"))
    output, errors = ran.communicate(timeout=300)
    codes = {words: int(code) for code, _, words in (line.partition(" ") for line in output.splitlines())}
    assert codes.keys() == set(commands), errors
    assert not {words for words, code in codes.items() if code not in (0, UNDECIDED)}, errors
