"""PostgreSQL as a writer of plan `durability`: its statements, the answers to them, and its pack."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from importlib import resources
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.sample import sample_experiment
from tests.unit.test_cleanup import vmtax
from tests.unit.test_preview import host, said
from vmtax.core.errors import BadInput
from vmtax.experiment import cleanup
from vmtax.image import packs, postgresql
from vmtax.image.cache import ImageError
from vmtax.image.packs import Pack, PackKind
from vmtax.plan.schema import Plan, parse
from vmtax.report.sections.beside import machine
from vmtax.store import Store
from vmtax.testbed.host import needs
from vmtax.workload.durability import Durability, DurabilityParameters, checks, is_control, writers
from vmtax.workload.durability import postgresql as server
from vmtax.workload.durability.checks import Found, check
from vmtax.workload.durability.postgresql import Recovered
from vmtax.workload.durability.records import record
from vmtax.workload.durability.source import FILES

NAME, LYING = "postgresql", "lying-postgresql"
FINE = Found(0, 0, "")


def row(number: int) -> bytes:
    return record(NAME, number, 512)


# What is found.


@pytest.mark.parametrize(
    ("rows", "damage", "found"),
    [
        ({1: row(1), 2: row(2), 3: row(3)}, "", FINE),
        ({1: row(1), 2: row(2), 3: row(3), 4: row(4), 5: row(5)}, "", FINE),
        ({1: row(1), 3: row(3)}, "", Found(1, 0, "row 2 is missing")),
        ({}, "", Found(3, 0, "row 1 is missing")),
        ({1: row(1), 2: row(2), 3: row(2)}, "", Found(1, 0, "row 3 has another payload")),
        ({1: row(1), 2: row(2), 3: row(3), 4: row(9)}, "", Found(0, 1, "row 4 has another payload")),
        ({1: row(1), 2: row(2), 3: row(3), 5: row(5)}, "", Found(0, 1, "row 4 is missing")),
        ({1: row(1), 2: row(2), 3: row(3), 2**62: row(4)}, "", Found(0, 1, "row 4 is missing")),
        ({1: row(1), 2: row(2), 3: row(3)}, "pg_checksums: 1 bad", Found(0, 1, "pg_checksums: 1 bad")),
        ({1: row(1)}, "ERROR:  invalid page", Found(2, 1, "ERROR:  invalid page")),
        (None, "the server did not recover", Found(3, 1, "the server did not recover")),
    ],
)
def test_rows_are_lost_or_torn(
    monkeypatch: pytest.MonkeyPatch, rows: dict[int, bytes] | None, damage: str, found: Found
) -> None:
    monkeypatch.setattr(checks, "recovered", lambda directory: Recovered(rows, damage))
    assert check("/mnt", {NAME: 3}) == {NAME: found}


def test_the_answer_of_a_server() -> None:
    lines = (
        "",
        "PostgreSQL stand-alone backend 17.12",
        f"backend> row\t1\t{row(1).hex()}",
        f"row\t2\t{row(2).hex()}",
        "backend> backend> \t 1: bt_index_check\t(typeid = 2278, len = 4, typmod = -1, byval = t)",
        "backend> end",
    )
    said = "\n".join(lines)
    log = "LOG:  database system was not properly shut down; automatic recovery in progress\nLOG:  redo done"
    assert server.answer(said, log) == Recovered({1: row(1), 2: row(2)}, "")
    damaged = "backend> damage\t4\tline pointer points past end"
    found = server.answer(said.replace("backend> end", f"{damaged}\nend"), log)
    assert found.damage == "verify_heapam: block 4: line pointer points past end" and found.rows
    error = (
        "WARNING:  page verification failed\nERROR:  invalid page in block 2 of relation base/5/16384\nSTATEMENT:  COPY"
    )
    assert server.answer(said, error).damage == "ERROR:  invalid page in block 2 of relation base/5/16384"
    rows, damage = server.answer(
        "", "LOG:  starting\nPANIC:  could not locate a valid checkpoint record at 0/15B\nLOG:  x"
    )
    assert rows is None
    assert damage == "the server did not recover: PANIC:  could not locate a valid checkpoint record at 0/15B"
    assert server.answer("", "").damage == "the server did not recover: it did not say why"


# How it writes. Small programs take the place of PostgreSQL's, and record what they receive.

BWRAP = """\
#!{python}
import os, sys
words = sys.argv[1:]
program, *rest = words[words.index("--") + 1:]
directory = words[words.index("--bind") + 1]
program = os.path.basename(program)
def say(text):
    with open(os.path.join(directory, "received"), "a") as received:
        received.write(text)
say(" ".join([program, *rest]) + "\\n")
if program == "initdb":
    if os.path.exists(directory + "/full"):
        sys.exit("initdb: error: could not create directory: No space left on device")
    sys.exit()
if "--single" in rest:
    print("LOG:  redo starts at 0/1", file=sys.stderr, flush=True)
if program == "postgres":
    print("LOG:  database system is ready to accept connections", flush=True)
    sys.stdin.read()
    while True: __import__("signal").pause()
for line in sys.stdin:
    if line.startswith("\\\\echo "):
        print(line[6:], end="", flush=True)
        continue
    say(line)
    if line.startswith("INSERT INTO records VALUES (40,"):
        sys.exit("psql:<stdin>:7: ERROR:  could not extend file: No space left on device")
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of a writer, in which its programs record what they receive."""
    programs, own = tmp_path / "programs", tmp_path / "own"
    programs.mkdir()
    own.mkdir()
    (programs / "bwrap").write_text(BWRAP.format(python=sys.executable))
    (programs / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    started: list[subprocess.Popen[str]] = []
    start = subprocess.Popen

    def kept(*words: object, **options: object) -> subprocess.Popen[str]:
        started.append(start(*words, **options))  # type: ignore[call-overload]  # it passes on whatever it gets
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", kept)
    yield own
    for process in started:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


@pytest.mark.parametrize("name", [NAME, LYING])
def test_each_record_is_a_transaction_and_acknowledged_after_its_commit(directory: Path, name: str) -> None:
    writer = server.Server(str(directory), name)
    heard: list[str] = []

    def say(line: str) -> None:
        """With what the client had received by then."""
        heard.append(f"{line} {(directory / 'received').read_text().splitlines()[-1]}")

    writers.run(writer, 33, say, lambda: None)
    writer.close()
    assert heard == [f"ack {name} {number} COMMIT;" for number in range(1, 34)]
    lines = (directory / "received").read_text().splitlines()
    assert lines[0].startswith("initdb ") and "--data-checksums" in lines[0] and "--wal-segsize=1" in lines[0]
    assert "fsync" not in lines[1] and "listen_addresses= " in lines[1], "it flushes, and takes no network connection"
    assert ("SET synchronous_commit = off;" in lines) == (name == LYING)
    assert "synchronous_commit" not in "".join(lines) or name == LYING
    at = lines.index("BEGIN;")
    payload = record(name, 1, 512).hex()
    assert lines[at : at + 3] == ["BEGIN;", f"INSERT INTO records VALUES (1, '\\x{payload}');", "COMMIT;"]
    assert lines.count("CHECKPOINT;") == 1 and lines.count("COMMIT;") == 33


def test_what_the_server_or_its_maker_refuses_is_told_in_a_line(directory: Path) -> None:
    writer = server.Server(str(directory), NAME)
    heard: list[str] = []
    with pytest.raises(
        OSError, match=r"^psql: psql:<stdin>:7: ERROR:  could not extend file: No space left on device$"
    ):
        writers.run(writer, 50, heard.append, lambda: None)
    assert heard[-1] == f"ack {NAME} 39", "what was not committed is not acknowledged"
    (directory / "full").touch()
    with pytest.raises(OSError, match=r"^initdb: initdb: error: could not create directory: No space left on device$"):
        server.Server(str(directory), NAME)


def test_a_server_that_does_not_end_is_an_error_that_says_so(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CHECK_SECONDS", 2.0)
    started = time.monotonic()
    with pytest.raises(OSError, match=r"^postgres: no end within 2 s: LOG:  redo starts at 0/1$"):
        server.recovered(str(directory))
    assert time.monotonic() - started < 60


def test_it_is_not_root_there_and_has_its_own_directory_only() -> None:
    words = server.entered("/mnt/postgresql", "postgres")
    assert words[-2:] == ("--", "/usr/lib/postgresql/17/bin/postgres")
    assert words[words.index("--uid") + 1] != "0" and "--unshare-user" in words
    assert [words[place + 1] for place, word in enumerate(words) if word == "--bind"] == ["/mnt/postgresql"]
    assert words[words.index("--ro-bind") + 1] == server.ROOT
    assert "--as-pid-1" in words, "or its file system would be in use when bubblewrap has ended"


def test_the_files_of_the_program_in_the_guest_give_no_name_twice() -> None:
    """They are one text there: the later would take the place of the former."""
    package = resources.files("vmtax.workload.durability")
    names = Counter(name for file in FILES for name in _given(ast.parse(package.joinpath(file).read_text())))
    assert [name for name, count in names.items() if count > 1] == []


def _given(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        yield from (one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))


# In a plan.


def plan(writers: str, memory: str = "512MiB", more: str = "") -> Plan:
    text = f"durability: {{writers: [{writers}]{more}}}"
    return parse(f"name: x\nlayers: [vm]\nguest: {{memory: {memory}}}\nworkloads: [{text}]\n", "plan.yaml")


def test_a_plan_counts_the_room_and_the_time_of_a_database() -> None:
    without, served = plan("sqlite-wal"), plan("sqlite-wal, postgresql")
    assert (needs.databases(without), needs.databases(served)) == (0, 1)
    assert needs.cut_room(served) - needs.cut_room(without) > 64 * 2**20
    first, second = (each.build_workloads(emulated=True)[0].seconds("") for each in (without, served))
    assert second >= first + 300 * 2, "states are many, and each recovery takes seconds"
    assert is_control(LYING) and not is_control(NAME)
    assert NAME not in DurabilityParameters().writers
    assert {f"durability.power-cut.{NAME}.{measure}" for measure in ("states", "lost", "torn")} <= {
        metric.name for metric in Durability(DurabilityParameters(writers=(NAME,))).metrics()
    }


def test_what_is_too_small_is_refused() -> None:
    with pytest.raises(ValidationError, match="a database of PostgreSQL takes room: size must be 128MiB or more"):
        DurabilityParameters(writers=(NAME,), size="127MiB")
    DurabilityParameters(writers=("sqlite-wal",), size="64MiB")
    needs.refuse_small_for_databases(plan(f"{NAME}, {LYING}"))
    needs.refuse_small_for_databases(plan("sqlite-wal", "256MiB"))
    with pytest.raises(BadInput, match=r"1 PostgreSQL server need 384 MiB .* have 256 MiB; set guest.memory to 384MiB"):
        needs.refuse_small_for_databases(plan(NAME, "256MiB"))
    with pytest.raises(BadInput, match=r"2 PostgreSQL servers need 512 MiB"):
        needs.refuse_small_for_databases(plan(f"{NAME}, {LYING}", "384MiB"))


# The pack.


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for kind in ("DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    return tmp_path


def make_pack() -> Pack:
    directory = postgresql.KIND.home / postgresql.PACK.key()
    directory.mkdir(parents=True)
    (directory / packs.EROFS).write_text("a pack")
    pack = packs.described(
        directory / packs.EROFS, kernel=packs.ANY, version="17.6-0+deb13u1", key=postgresql.PACK.key()
    )
    (directory / packs.INFO).write_text(json.dumps({k: v for k, v in asdict(pack).items() if k != "path"}))
    return pack


def test_a_pack_is_of_one_recipe_listed_and_cleaned(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert postgresql.PACK.current() is None and not postgresql.PACK.is_there()
    pack = make_pack()
    assert postgresql.PACK.current() == pack and postgresql.PACK.is_there() and postgresql.PACK.useless() == []
    assert "PostgreSQL pack 17.6-0+deb13u1  6 B  current" in vmtax("image", "list", home=own).stdout
    listed = json.loads(vmtax("image", "list", "--json", home=own).stdout)["data"]
    assert [(one["what"], one["usable"]) for one in listed] == [("PostgreSQL pack", True)]
    with Store() as store:
        assert cleanup.found(store, images=True) == []
        monkeypatch.setattr(postgresql, "LAYOUT", 999)
        assert [leftover.what for leftover in cleanup.found(store, images=True)] == ["useless pack"]
        assert cleanup.remove(store, images=True) == []
    assert postgresql.KIND.all() == []


def test_a_pack_that_must_be_built_is_announced_and_one_that_cannot_be_is_refused(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = plan(NAME)
    monkeypatch.setattr(PackKind, "refuse", lambda self: None)
    answers = own / "answers"
    monkeypatch.setattr(packs, "REACH", ("sh", "-c", f"cat {answers} >&2; test ! -s {answers}", "sh"))
    answers.write_text("")
    first = said(served, host())["first"]
    assert first.startswith("builds the PostgreSQL pack of server and client: about a minute, once")
    answers.write_text("Err:1 http://deb.debian.org\nE: Failed to fetch http://x  Could not resolve 'x'\n\n")
    with pytest.raises(ImageError, match=r"^building the PostgreSQL pack: Failed to fetch .*'x'; the package archive"):
        said(served, host())
    assert "first" not in said(plan("sqlite-wal"), host()), "nothing else needs it"
    make_pack()
    assert "first" not in said(served, host())


def test_a_report_names_the_version() -> None:
    run = sample_experiment(rounds=2)
    facts = {**run.facts, "host": {**run.facts["host"], "postgresql_pack": {"version": "17.6-0", "digest": "5d"}}}
    assert "17.6-0" in str(machine(replace(run, facts=facts))) and "PostgreSQL" not in str(machine(run))
