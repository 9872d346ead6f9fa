"""Stores: damaged cells, tables and files under every command that reads them, and imports that are killed.

A damaged run is named, with the cell and the cure; the other runs stay usable, and the damaged one can be removed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.sample_plans import WAYS, run_of
from tools.hostile.case import Case, called, complaints, environment, in_memory
from tools.hostile.run_files import BAD, DATABASE, OTHERS, changed, paths, small_run, small_storage_run
from vmtax.core.records import Experiment
from vmtax.experiment import archive as share
from vmtax.store import Store
from vmtax.store.schema import TABLES

TITLE = "Stores"
DAMAGES = 72  # each followed by all of COMMANDS
KILLS = 12
DAMAGED, HEALTHY, STOPPED = "20261121-0412-quick-0000", "20261121-0412-storage-0001", "20261120-0000-quick-0003"
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("runs",),
    ("runs", "--json"),
    ("show", DAMAGED, "--full"),
    ("report", DAMAGED, "-o", "report.html"),
    ("report", DAMAGED, "-o", "report.parquet", "--format", "parquet"),
    ("export", DAMAGED, "-o", "run.gz"),
    ("compare", DAMAGED, HEALTHY),
    ("watch",),
    ("clean", "--images"),
    ("run", "--resume", STOPPED),
    ("run", "--resume", DAMAGED),
    ("calibrate", "--show", DAMAGED),
    ("show",),
)
USABLE: tuple[tuple[str, ...], ...] = (
    ("show", HEALTHY),
    ("report", HEALTHY, "-o", "healthy.html"),
    ("export", HEALTHY, "-o", "healthy.gz"),
)
VALUES: tuple[Any, ...] = (
    *("abc", "", "[", "[]", "{}", "null", "5", "[[1, 2], 3]", '{"a": {"b": [null]}}', '[{"name": 1}]', "NaN", "1e999"),
    *("[" * 5000, '{"primary": 5}', '{"host": null}', '{"disk": 5}', "\x1b[2Jcleared", "../../../etc/passwd"),
    *(-1, 0, 5, 2**62, 0.5, -1e300, 1e300, b"", b"\xff\xfe\x00", b"abc"),
)
JSON_CELLS = ("plan", "options", "facts")
SHARED = ("metric", "meta")  # tables that are not of one run


def cases(source: random.Random, home: Path, share: float) -> Iterator[Case]:
    """One for each damage, with all commands; then imports that are killed."""
    place = in_memory(home)
    try:
        template = _made(place / "template", small_run())
        fixed = [*_fixed(), *_files()]
        few = source.sample(fixed, max(6, int(len(fixed) * min(1.0, share))))
        for what, harm, of_all in (*_cells(source, int(DAMAGES * share) + 2), *few):
            yield Case(what, _damaged(template, place / "home", harm, of_all=of_all))
        for way, document in _documents(source, int(DAMAGES * share) + len(WAYS)):
            yield from _inside(source, place, way, document)
        yield from _kills(source, place, int(KILLS * share) + 1)
    finally:
        shutil.rmtree(place)


def _made(home: Path, damaged: Experiment) -> Path:
    """A home with three runs, one of which is to be damaged."""
    run, other = small_run(), small_storage_run()
    stopped = dataclasses.replace(run, id=STOPPED, created=run.created - 90_000, state="interrupted", finished=None)
    with Store(home / DATABASE) as store:
        for one in (stopped, dataclasses.replace(other, id=HEALTHY), dataclasses.replace(damaged, id=DAMAGED)):
            store.put(one)
    return home


# Damages


def _cells(source: random.Random, count: int) -> Iterator[tuple[str, Callable[[Path], None], bool]]:
    """One cell of one row, by chance."""
    columns = [column for table in TABLES.tables.values() for column in table.columns]
    wanted = [(column, value) for column in columns for value in VALUES]
    for column, value in source.sample(wanted, min(count, len(wanted))):
        table = column.table.name
        of = {"experiment": f"id = '{DAMAGED}'", "measurement": "1", "metric": "1", "meta": "1"}
        where = of.get(table, f"experiment = '{DAMAGED}'")
        key = "trial" if table == "measurement" else "rowid"
        row = f'SELECT {key} FROM "{table}" WHERE {where} ORDER BY {key} DESC LIMIT 1'
        statement = f'UPDATE OR IGNORE "{table}" SET "{column.name}" = ? WHERE {key} = ({row})'
        shown = repr(value)[:40]
        yield f"{table}.{column.name} = {shown}", _sql((statement, (value,))), table in SHARED


def _documents(source: random.Random, count: int) -> Iterator[tuple[str, Any]]:
    """Every way to run a plan, several times, as a JSON document."""
    documents = {way: json.loads(json.dumps(dataclasses.asdict(run_of(way)))) for way in WAYS}
    for way in itertools.islice(itertools.cycle(source.sample(list(WAYS), len(WAYS))), count):
        yield way, documents[way]


def _inside(source: random.Random, place: Path, way: str, document: Any) -> Iterator[Case]:
    """Something within the JSON of a plan, of options or of facts, in the run of a built-in plan."""
    template = place / f"template {way}"
    if not template.exists():
        _made(template, run_of(way))
    wanted = [path for path in paths(document) if path[0] in JSON_CELLS and len(path) > (1 + (path[0] == "facts"))]
    path, what = source.choice(wanted), source.choice((*BAD, *OTHERS))
    part, cells = path[0], changed(document, path, what)
    of_facts = part == "facts"
    found = cells[part][path[1]] if of_facts else cells[part]
    text = json.dumps(found).replace('"DEEP"', "[" * 100_000 + "]" * 100_000)
    where = (
        f"facts SET facts = ? WHERE experiment = '{DAMAGED}' AND path = '{path[1]}'"
        if of_facts
        else f"experiment SET {part} = ? WHERE id = '{DAMAGED}'"
    )
    harm = _sql((f"UPDATE {where}", (text,)))
    name = f"{way}: {'.'.join(map(str, path))}: {what}"
    yield Case(name, _damaged(template, place / "home", harm, of_all=False))


def _fixed() -> Iterator[tuple[str, Callable[[Path], None], bool]]:
    """Cells that once broke a command, and tables that are empty."""
    text = f"UPDATE experiment SET command = CAST(x'ff41' AS TEXT) WHERE id = '{DAMAGED}'"
    yield "text that is no UTF-8", _sql((text, ())), False
    no_plan = f"UPDATE experiment SET plan = '[]' WHERE id = '{DAMAGED}'"
    yield "a plan that is a list", _sql((no_plan, ())), False
    no_time = f"UPDATE experiment SET created = 'abc' WHERE id = '{DAMAGED}'"
    yield "a time that is a word", _sql((no_time, ())), False
    yield "a blob for an id", _sql((f"UPDATE experiment SET id = x'ff00' WHERE id = '{DAMAGED}'", ())), False
    for table in ("treatment", "trial", "measurement", "metric", "facts"):
        yield f"{table} is empty", _sql((f'DELETE FROM "{table}"', ())), True


def _files() -> Iterator[tuple[str, Callable[[Path], None], bool]]:
    raw = f"raw/{DAMAGED}"

    def each(change: Callable[[Path], None]) -> Callable[[Path], None]:
        return lambda data: change(sorted((data / raw).iterdir())[0])

    yield "one raw output is missing", each(lambda file: file.unlink()), False
    yield "one raw output is damaged", each(lambda file: file.write_bytes(b"\x1f\x8bnonsense") and None), False
    yield "one raw output is a directory", each(lambda file: (file.unlink(), file.mkdir(), None)[2]), False
    yield "all raw outputs are missing", lambda data: shutil.rmtree(data / raw), False
    yield "raw is a file", lambda data: (shutil.rmtree(data / "raw"), (data / "raw").write_text(""), None)[2], True
    yield "the database is cut", lambda data: os.truncate(data / "vmtax.sqlite", 20_000), True
    yield "the database is text", lambda data: (data / "vmtax.sqlite").write_text("text" * 2000) and None, True


def _sql(*statements: tuple[str, tuple[Any, ...]]) -> Callable[[Path], None]:
    def harm(data: Path) -> None:
        with contextlib.closing(sqlite3.connect(data / "vmtax.sqlite")) as connection:
            connection.execute("PRAGMA foreign_keys = OFF")
            for statement, values in statements:
                with contextlib.suppress(sqlite3.IntegrityError):
                    connection.execute(statement, values)
            connection.commit()

    return harm


def _damaged(template: Path, home: Path, harm: Callable[[Path], None], *, of_all: bool) -> Callable[[], Iterator[str]]:
    """`of_all`: it is not one run's alone, so that the others may be lost too."""

    def tried() -> Iterator[str]:
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(template, home)
        harm((home / DATABASE).parent)
        before = Path.cwd()
        os.chdir(home)
        try:
            for argv in COMMANDS:
                yield from _tried(argv, home, (0, 1, 2, 3, 4))
            if of_all:
                return
            for argv in (("runs",), *USABLE):
                yield from _tried(argv, home, (0,))
            ids = _ids(home)
            if damaged := next((id for id in ids if id not in (HEALTHY, STOPPED)), None):
                yield from _tried(("runs", "rm", damaged, "--yes"), home, (0,))
            if {HEALTHY, STOPPED} != set(_ids(home)):
                yield f"after its removal there are {_ids(home)}"
        finally:
            os.chdir(before)

    return tried


def _tried(argv: tuple[str, ...], home: Path, codes: tuple[int, ...]) -> Iterator[str]:
    result = called(*argv, home=home)
    command = " ".join(argv)
    yield from (f"{command}: {complaint}" for complaint in complaints(result, codes))
    # Which run was chosen, and why, comes before what is wrong with it
    told = "".join(line for line in result.error.splitlines(keepends=True) if "no run has a result yet; " not in line)
    if "is damaged: " in told and (told.count("\n") != 1 or "vmtax runs rm " not in told):
        yield f"{command}: no cure, or more than one line: {told[:300]!r}"


def _ids(home: Path) -> list[str]:
    with Store(home / DATABASE) as store:
        return [entry.id for entry in store.experiments()]


# Imports that are killed


def _kills(source: random.Random, place: Path, count: int) -> Iterator[Case]:
    file = place / "carried.gz"
    with Store(place / "template" / DATABASE) as store:
        share.export(store, DAMAGED, file)
    for number in range(count):
        yield Case(f"import killed, {number}", _killed(place / f"killed-{number}", file, source.random()))


def _killed(home: Path, file: Path, moment: float) -> Callable[[], Iterator[str]]:
    """At a moment after the first raw output is there."""

    def tried() -> Iterator[str]:
        argv = [sys.executable, "-m", "vmtax", "import", str(file)]
        started = subprocess.Popen(argv, env={**os.environ, **environment(home)}, stdout=subprocess.DEVNULL)
        raw = (home / DATABASE).parent / "raw"
        while started.poll() is None and not list(raw.glob("*/*")):
            time.sleep(0.001)
        time.sleep(0.02 * moment)
        with contextlib.suppress(ProcessLookupError):
            started.send_signal(signal.SIGKILL)
        started.wait()
        whole = bool(_ids(home))
        yield from _tried(("clean", "--yes"), home, (0,))
        if not whole and (left := list(raw.rglob("*"))):
            yield f"{len(left)} raw outputs of no run are left"
        yield from _tried(("import", str(file)), home, (2,) if whole else (0,))
        yield from _tried(("show", "--full"), home, (0,))

    return tried
