"""Run files: what `vmtax import` accepts can be shown, reported, compared, exported and removed; the rest is refused.

Mutants of files that `vmtax export` wrote, of runs of every built-in plan and of every way to run one, in their present
and in their earlier form, and files made to exhaust.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import gzip
import io
import json
import os
import random
import resource
import shutil
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from tests.sample import sample_experiment, with_repeat
from tests.sample_plans import WAYS, run_of
from tests.sample_storage import storage_experiment
from tools.hostile.case import Case, called, complaints, in_memory, started
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.sessions import compared
from vmtax.core.errors import BadInput, CannotDo
from vmtax.core.records import Experiment
from vmtax.plan.schema import from_data
from vmtax.report.render.exchange import NoCosts
from vmtax.report.render.formats import CHANGE_FORMATS, FORMATS
from vmtax.report.runs import runs_table
from vmtax.report.show import render
from vmtax.store import Store

TITLE = "Run files"
DATABASE = ".local/share/vmtax/vmtax.sqlite"
MUTANTS = 700  # of each of the two runs that have all records, half of them in each form of the file
MUTANTS_OF_PLAN = 80  # of the run of each built-in plan, and of each way to run one
CASES = ("randread-4k-qd1", "randwrite-4k-fsync", "")
Path_ = tuple[str | int, ...]  # keys and indexes, from the top of the document

BAD: dict[str, Any] = {
    "null": None,
    "empty text": "",
    "text": "x",
    "long text": "A" * 2_000_000,
    "escapes": "\x1b]0;title\a\x1b[2J\u202e",
    "markup": "[bold]</style><script>alert(1)</script>",
    "half a character": "\ud800",
    "number as text": "7",
    "true": True,
    "zero": 0,
    "minus one": -1,
    "fraction": 1.5,
    "2^31": 2**31,
    "2^63": 2**63,
    "10^400": 10**400,
    "1e308": 1e308,
    "1e-320": 1e-320,
    "NaN": float("nan"),
    "-Infinity": float("-inf"),
    "list": [],
    "list of null": [None],
    "object": {},
    "object in list": [{"a": [1]}],
    "deep": json.loads("[" * 60 + "]" * 60),
    "deeper": "DEEP",  # becomes 100,000 levels in the text
}
OTHERS = ("absent", "twice", "renamed", "moved")
HOST: Path_ = ("facts", "host")
ALWAYS: tuple[tuple[Path_, str], ...] = (  # what once was accepted and broke a report
    *((HOST, what) for what in ("null", "text", "list", "2^63")),
    *(((*HOST, name), what) for name in ("disk", "image", "boot_id") for what in ("text", "list")),
    ((*HOST, "disk", "features"), "null"),
    (("facts",), "null"),
    (("facts",), "text"),
    (("trials", 0, "disturbance", "wall_seconds"), "zero"),
    (("trials", 0, "disturbance", "throttles"), "10^400"),
    (("boots", 0, "round"), "2^63"),
    *(((*HOST, "boots", 0), what) for what in ("text", "null", "object")),
    *(((*HOST, "boots", 0, key), what) for key in ("level", "round", "over", "boot_id") for what in ("absent", "list")),
    *(((*HOST, "boots", 5, key), what) for key in ("level", "round") for what in ("text", "2^31")),
    *(((*HOST, pack, "digest"), "true") for pack in ("kernel_pack", "postgresql_pack")),
    *(((*HOST, pack), "1e308") for pack in ("kernel_pack", "postgresql_pack")),
    *(
        (("options", name), what)
        for name in ("wire", "power_cut", "destination")
        for what in ("text", "object in list")
    ),
    (("options", "wire", "peer"), "twice"),
)


def cases(source: random.Random, home: Path, share: float) -> Iterator[Case]:
    """Each mutant with all that follows it, then files that are made to exhaust."""
    place = in_memory(home)
    try:
        runs = [(small_run(), MUTANTS), (small_storage_run(), MUTANTS)]
        runs += [(run_of(way), MUTANTS_OF_PLAN) for way in WAYS]
        for run, count in runs:
            document = json.loads(json.dumps(dataclasses.asdict(run)))
            beside = dataclasses.replace(run, id="beside", host=f"{run.host}, imported")
            wanted = [(path, what) for path in paths(document) for what in (*BAD, *OTHERS)]
            chosen = source.sample(wanted, int(count * share) + 1)
            for number, (path, what) in enumerate([*(one for one in ALWAYS if one in wanted), *chosen]):
                older = bool(number % 2)
                yield mutant(place, document, path, what, older, beside=beside, full=not number % 8)
        document = json.loads(json.dumps(dataclasses.asdict(small_run())))
        files = list(exhausting(place, document))
        yield from source.sample(files, max(6, int(len(files) * min(1.0, share))))
    finally:
        shutil.rmtree(place)


def small_run() -> Experiment:
    """A run that has each kind of record, and few of them."""
    made = with_repeat(sample_experiment(rounds=3, failures=1))
    few = [t for t in made.trials if (t.workload, t.case) in (("chess", ""), ("disk", CASES[0]), ("boot", ""))]
    raw = [dataclasses.replace(trial, raw="") for trial in few[3:]]  # each takes a file
    return _cut(made, [*few[:3], *raw])


def small_storage_run() -> Experiment:
    """One whose disks were looked at: it has rankings and a recommendation."""
    made = storage_experiment(rounds=3, features=True)
    few = [t.name for t in made.treatments if t.layer == "vm"][:3]
    kept = _cut(made, [t for t in made.trials if t.treatment in few and t.case in CASES])
    disk = made.facts["host"]["disk"]
    features = {name: found for name, found in disk["features"].items() if name in few}
    facts = {**made.facts, "host": {**made.facts["host"], "disk": {**disk, "features": features}}}
    treatments = tuple(t for t in made.treatments if t.name in few)
    boots = tuple(boot for boot in kept.boots if boot.treatment in few)
    return dataclasses.replace(kept, facts=facts, treatments=treatments, boots=boots)


def _cut(made: Experiment, trials: Iterable[Any]) -> Experiment:
    patterns = [case for case in CASES if case]
    workloads = ["chess", {"disk": {"patterns": patterns, "size": "1GiB"}}, "boot"]
    wanted = {**made.plan, "workloads": workloads, "primary": ["disk.randread-4k-qd1.iops"]}
    plan = from_data(wanted).model_dump(mode="json")
    return dataclasses.replace(made, plan=plan, trials=tuple(trials))


# Mutants


def paths(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Of everything in a document; of long lists only the first and the last entry."""
    if path:
        yield path
    if isinstance(value, dict):
        for key in value:
            yield from paths(value[key], (*path, key))
    elif isinstance(value, list):
        for index in sorted({0, len(value) - 1} if value else ()):
            yield from paths(value[index], (*path, index))


def changed(document: Any, path: Path_, what: str) -> Any:
    """The document with that change at that path."""
    made = copy.deepcopy(document)
    parent = made
    for part in path[:-1]:
        parent = parent[part]
    last: Any = path[-1]
    if what in BAD:
        parent[last] = BAD[what]
    elif what == "absent":
        del parent[last]
    elif what == "twice":
        if isinstance(parent, list):
            parent.append(copy.deepcopy(parent[last]))
        else:
            parent[f"{last} again"] = parent[last]
    elif what == "renamed":
        made["name" if isinstance(parent, list) else f"{last} renamed"] = parent.pop(last)
    else:
        parent[last], made["command"] = made["command"], parent[last]
    return made


def written(document: Any, file: Path, *, older: bool) -> Path:
    """As a file to import."""
    if older or not isinstance(document, dict):
        lines = [{"schema": "vmtax/1", "kind": "run", "data": document}]
    else:
        head = {name: value for name, value in document.items() if name not in ("boots", "trials")}
        lines = [{"schema": "vmtax/1", "kind": "run-lines"}, {"run": {**head, "boots": [], "trials": []}}]
        for name in ("boot", "trial"):
            records = document.get(f"{name}s", [])
            lines += [{name: record} for record in (records if isinstance(records, list) else [records])]
    text = "\n".join(map(json.dumps, lines)).replace('"DEEP"', "[" * 100_000 + "]" * 100_000)
    file.write_bytes(gzip.compress(text.encode(), compresslevel=1))
    return file


def mutant(place: Path, document: Any, path: Path_, what: str, older: bool, *, beside: Experiment, full: bool) -> Case:
    """`full`: followed by every command; else what these print is made in one go. `beside`: a run to compare with."""

    def tried() -> Iterator[str]:
        file = written(changed(document, path, what), place / "mutant", older=older)
        home = place / "home"
        yield from _of("import", complaints(result := called("import", str(file), home=home)))
        if result.code == 0:
            id = result.stdout.split()[0].decode()
            yield from _followed(home, id, file) if full else _rendered(home, id, beside)
        elif len(result.error.splitlines()) != 1:
            yield f"refused in {len(result.error.splitlines())} lines: {result.error[:300]!r}"
        shutil.rmtree(home, ignore_errors=True)

    return Case(f"{'earlier form' if older else 'lines'}: {'.'.join(map(str, path))}: {what}", tried)


def _rendered(home: Path, id: str, beside: Experiment) -> Iterator[str]:
    """What the commands print, without the 30 ms that each of them takes to open the store; compared with `beside`."""
    try:
        with Store(home / DATABASE) as store:
            run = store.load(id)
            (entry,) = store.experiments()
            with contextlib.suppress(CannotDo, BadInput):
                sessions = compared([beside], [run], [], same_within=0.03, limit=None)
                for format in CHANGE_FORMATS:
                    CHANGE_FORMATS[format](sessions, True)
            store.remove(id)
        console = Console(file=io.StringIO(), width=100)
        console.print(runs_table([entry]))
        console.print(render(Analysis(run), full=True))
        for format in FORMATS.values():
            with contextlib.suppress(NoCosts):
                format.render(Analysis(run))
    except Exception:
        yield f"traceback: {traceback.format_exc()[-500:]!r}"


def _followed(home: Path, id: str, file: Path) -> Iterator[str]:
    commands = [["show"], ["show", "--full"], ["runs"], ["calibrate", "--show", id]]
    commands += [["report", "--format", format, "-o", str(file.parent / "report")] for format in FORMATS]
    commands += [["compare", id, id], ["show", "--apply"], ["runs", "--json"]]
    commands += [["export", "-o", str(file.parent / "exported")], ["run", "--resume", id]]
    for argv in commands:
        codes = (0, 1, 2, 3, 4) if argv[0] in ("compare", "calibrate", "run") or "--apply" in argv else (0,)
        result = called(*argv, home=home)
        if argv[0] == "report" and "has no costs to write" in result.error:
            codes = (2,)
        yield from _of(" ".join(argv[:3]), complaints(result, codes))
    yield from _of("runs rm", complaints(called("runs", "rm", id, "--yes", home=home), (0,)))
    if left := [path.name for path in home.rglob("raw/*")]:
        yield f"runs rm left {left}"


def _of(command: str, found: Iterable[str]) -> Iterator[str]:
    yield from (f"{command}: {complaint}" for complaint in found)


# Files that are made to exhaust


def exhausting(place: Path, document: Any) -> Iterator[Case]:
    """All must be refused, in little time and memory."""
    head, trial, boot = _lines_of(document)
    numbers = b"[0.5,1]"
    many = json.dumps({"trial": {**document["trials"][0], "latencies": "MANY"}}).encode() + b"\n"
    older = b'{"schema": "vmtax/1", "kind": "run", "data": {"facts": [%s0]}}'
    parts: dict[str, Callable[[], Iterable[bytes]]] = {
        "1 GiB of zeros": lambda: [bytes(2**20)] * 1024,
        "1 GiB of empty lines": lambda: [b"\n" * 2**20] * 1024,
        "older: 15 MiB of objects": lambda: [older % (b"{}," * (5 * 2**20))],
        "older: 900,000 objects": lambda: [older % (b"{}," * 450_000)],
        "older: 149,000 objects, as many as may be": lambda: [older % (b"{}," * 149_000)],
        "older: 15 MiB of text with one wide character": lambda: [older % ('"' + "a" * 15 * 2**20 + '🐍",').encode()],
        "older: 900 MiB of objects": lambda: [older[:60], *([b"{}," * 2**18] * 1200)],
        "a line of 3.9 MiB of objects": lambda: [head, b'{"trial": [' + b"{}," * 1_300_000 + b"0]}\n"],
        "a line of 149,000 objects, as many as may be": lambda: [head, b'{"trial": [' + b"{}," * 149_000 + b"0]}\n"],
        "lines of nested lists": lambda: [head, *([b'{"trial": [' + b"[[[[[]]]]]," * 370_000 + b"0]}\n"] * 30)],
        "a line of 100 MiB": lambda: [head, b'{"trial": "', *([b"a" * 2**20] * 100)],
        "30 trials with 3.9 MiB of raw output, then none": lambda: [head, *([_raw(document)] * 30), b"{}\n"],
        "120,000 boots": lambda: [head, *([boot * 1000] * 120)],
        "60,000 trials": lambda: [head, *([trial * 1000] * 60)],
        "26,000 disk trials with their raw output, then none": lambda: [
            head,
            *([_disk(document) * 100] * 260),
            b"{}\n",
        ],
        "trials with 200,000 latencies each": lambda: [
            head,
            *([many.replace(b'"MANY"', b"[" + numbers + (b"," + numbers) * 200_000 + b"]")] * 40),
        ],
        "facts of 200,000 values": lambda: [
            _lines_of(_with_facts(document, dict.fromkeys(map(str, range(200_000)))))[0]
        ],
        "facts of text": lambda: [_lines_of(_with_facts(document, {"a": "b" * 3 * 2**20}))[0]],
        "2 runs": lambda: [head, head.partition(b"\n")[2]],
        "boots and trials in the run": lambda: [_whole(document)],
    }
    for name, pieces in parts.items():
        yield Case(name, _refused(place, place / "file", lambda pieces=pieces: _packed(pieces())))
    yield Case("60 MB of a gzip file's name", _refused(place, place / "file", _long_name))
    yield Case("a million gzip members", _refused(place, place / "file", lambda: [gzip.compress(b"") * 10**6]))
    yield Case("60 MB of empty gzip blocks", _refused(place, place / "file", _empty_blocks))
    yield Case("a FIFO", _refused(place, place / "fifo", lambda: os.mkfifo(place / "fifo") or ()))
    for special in ("/dev/zero", "/dev/null", "/", "/proc/self/mem", "/nowhere"):
        yield Case(special, _refused(place, Path(special), lambda: ()))
    yield Case("the smallest file under ulimit -v 400000", lambda: _under_limit(place, document))


def _refused(place: Path, file: Path, pieces: Callable[[], Iterable[bytes]]) -> Callable[[], Iterator[str]]:
    def tried() -> Iterator[str]:
        made = iter(pieces())
        if file == place / "file":
            with file.open("wb") as stream:
                stream.writelines(made)
        result = started("import", str(file), home=place)
        yield from complaints(result, (1, 2))
        if result.error.count("\n") != 1:
            yield f"refused in {result.error.count(chr(10))} lines"

    return tried


def _under_limit(place: Path, document: Any) -> Iterator[str]:
    file = written(document, place / "small", older=False)
    limit = 400_000 * 1024

    def before() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    yield from complaints(started("import", str(file), home=place, before=before), (0,))


def _lines_of(document: Any) -> tuple[bytes, bytes, bytes]:
    """The first two lines of a file, one with a trial, one with a boot."""
    head = [{"schema": "vmtax/1", "kind": "run-lines"}, {"run": {**document, "boots": [], "trials": []}}]
    bare = {**document["trials"][0], "raw": ""}
    records = ({"trial": bare}, {"boot": document["boots"][0]})
    trial, boot = (json.dumps(record).encode() + b"\n" for record in records)
    return "".join(json.dumps(line) + "\n" for line in head).encode(), trial, boot


def _whole(document: Any) -> bytes:
    return b'{"schema": "vmtax/1", "kind": "run-lines"}\n' + json.dumps({"run": document}).encode() + b"\n"


def _raw(document: Any) -> bytes:
    trial = {**document["trials"][0], "raw": 'a"\n' * 780_000}
    return json.dumps({"trial": trial}).encode() + b"\n"


def _disk(document: Any) -> bytes:
    trial = next(trial for trial in document["trials"] if trial["latencies"])
    return json.dumps({"trial": {**trial, "raw": "a line of text\n" * 150}}).encode() + b"\n"


def _with_facts(document: Any, facts: Any) -> Any:
    return {**document, "facts": {"host": facts}}


def _packed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    pack = zlib.compressobj(1, wbits=31)
    yield from (pack.compress(piece) for piece in pieces)
    yield pack.flush()


def _long_name() -> Iterator[bytes]:
    yield b"\x1f\x8b\x08\x08" + bytes(6)
    yield from [b"a" * 10**6] * 60


def _empty_blocks() -> Iterator[bytes]:
    yield b"\x1f\x8b\x08\x00" + bytes(6)
    yield from [b"\x00\x00\x00\xff\xff" * 200_000] * 60
