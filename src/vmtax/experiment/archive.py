"""Move runs between machines: one file holds everything that the store has of an experiment, raw outputs included.

The file is gzip over JSON lines: a line that identifies the format, `{"run": ...}` without boots and trials, then
`{"boot": ...}` and `{"trial": ...}` for each of them. It may come from an untrusted source, so it is read in small
pieces, twice: all of it is checked before anything is stored. Earlier versions wrote a single object, which is split
into such lines.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import io
import itertools
import json
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, BinaryIO, cast

from annotated_types import Len
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import from_json
from typing_extensions import TypedDict

from vmtax.core.compact import unpacked
from vmtax.core.errors import BAD_INPUT, CannotDo
from vmtax.core.names import EXAMPLE_ID, RUN_ID
from vmtax.core.records import Boot, Experiment, Json, Trial
from vmtax.machine import MachineError
from vmtax.machine.local import LocalMachine
from vmtax.plan.schema import PlanError, from_data
from vmtax.store import Store, StoreError
from vmtax.store.choice import IMPORTED
from vmtax.store.model import Unfit, check_json, check_treatment, explained, treatment_names
from vmtax.system.output_file import refuse_no_file, replacing

SCHEMA, KIND, OLDER_KIND = "vmtax/1", "run-lines", "run"
NO_EXPORT = "not a file that `vmtax export` wrote, or not all of it"
OTHER_VERSION = "written by another version of vmtax?"
# 322 trials are 4 MB with their raw outputs and 0.4 MB without; 100,000 measurements are 20,000 trials.
LARGEST_FILE = 64 * 2**20  # compressed, as the file is on the disk
LARGEST_BYTES = 128 * 2**20  # unpacked: 10,000 trials; refusing the last of them takes 2 s
LARGEST_LINE = 4 * 2**20  # a trial with its raw output; parsed JSON takes up to 40 times its size in memory
MOST_VALUES = 300_000  # in one line; each may take 1 KB of memory while it is checked
LARGEST_OLDER = 16 * 2**20  # of the single line of an earlier version: 1,300 trials
MOST_OLDER_VALUES = 10**6  # in that line
MOST_RECORDS = 50_000  # boots and trials together
MOST_MEASUREMENTS = 200_000
AHEAD_SECONDS = 86400.0  # by which the clock of the other machine may be ahead of ours
PIECE = 2**16  # bytes that are read and unpacked at a time


class ShareError(CannotDo):
    """A file that holds no run, or a target that cannot be written; the text says what to do."""


class NoRunFile(ShareError):
    """The file to be imported holds no run."""

    exit_code = BAD_INPUT


@dataclass(frozen=True, slots=True)
class Exported:
    """What `export` wrote."""

    file: Path
    missing: tuple[str, ...]  # why raw outputs are not in it; one line for each affected trial


@dataclass(frozen=True, slots=True)
class Imported:
    """What `import_` added."""

    id: str
    name: str
    host: str
    trials: int
    dropped: str = ""  # why the run lost its label, in one line; "": it kept what it had


class _Record(TypedDict, total=False):
    """One line of the file, with exactly one of these keys."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]  # how pydantic configures a TypedDict

    run: Experiment
    boot: Boot
    trial: Trial


_RECORD = TypeAdapter(Annotated[_Record, Len(1, 1)])


def export(
    store: Store, run: str, target: Path | None, change: Callable[[Experiment], Experiment] | None = None
) -> Exported:
    """Write the run to `target`, by default vmtax-RUN.run.gz here; replaced in one step. Raises ShareError.

    A raw output that cannot be read, or that no import would take, is left out: the measurements do not need it.
    change: what is changed in the run first; then all raw outputs are left out
    """
    id, records = store.count_records(run)
    if records > MOST_RECORDS:
        raise ShareError(f"{id}: it has {records} boots and trials, and a file takes {MOST_RECORDS} at most")
    experiment = store.load(id)
    raws: Iterator[str | StoreError] = store.raws(id)
    if change is not None:
        experiment, raws = change(experiment), itertools.repeat("", len(experiment.trials))
    file = target or Path(f"vmtax-{experiment.id}.run.gz")
    keeper = LocalMachine()  # its guard removes a half-written file even after SIGKILL
    missing: list[str] = []
    try:
        refuse_no_file(file)
        with (
            replacing(file, mode=0o600, before=lambda new: _removed_later(keeper, new)) as stream,
            gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0) as packed,
        ):
            for line in _lines_of(experiment, raws, missing):
                packed.write(line)
    except OSError as error:
        raise ShareError(f"{file}: {error.strerror}; name another file with --output") from error
    finally:
        keeper.close()
    return Exported(file.resolve(), tuple(missing))


def _removed_later(keeper: LocalMachine, new: Path) -> None:
    """Where no undo list can be written, as on a full disk, only SIGKILL in the middle leaves the half-written file."""
    with contextlib.suppress(MachineError):
        keeper.remove_later(PurePosixPath(new))


def import_(store: Store, source: Path) -> Imported:
    """Add the run in `source` to the store.

    Raises NoRunFile if it holds no run, ShareError if it cannot be read, StoreError if the store has the run already.
    """
    try:
        if not source.is_file():
            raise NoRunFile(f"{source}: {_why_no_file(source)}")
        with source.open("rb") as stream:
            for _ in _records(stream):
                pass  # the whole file is checked before any of it is stored
            stream.seek(0)
            records = _records(stream)
            run = cast(Experiment, next(records))
            counted = _Counted(cast(Iterator[Boot | Trial], records))
            carried, dropped = _without_taken_label(_carried(run), store)
            store.put(carried, counted)
    except Unfit as error:
        raise NoRunFile(f"{source}: {error}") from error
    except OSError as error:
        raise ShareError(f"{source}: {error.strerror}") from error
    return Imported(carried.id, carried.name, carried.host, counted.trials, dropped)


def _carried(run: Experiment) -> Experiment:
    """The run as the store keeps it: imported, so it is not running here and was not measured here."""
    return dataclasses.replace(
        run,
        state="interrupted" if run.state == "running" else run.state,
        host=run.host.removesuffix(IMPORTED) + IMPORTED,
        options={**run.options, "imported": True},
    )


def _without_taken_label(run: Experiment, store: Store) -> tuple[Experiment, str]:
    """The run without a label that means something here already, and why it lost it: labels are names that a user of
    this store gave, and scripts rely on them.
    """
    holder = store.holder(run.label) if run.label else None
    if holder is None or holder == run.id:  # which is not stored again
        return run, ""
    return dataclasses.replace(run, label=""), f"its label {run.label!r} is left out: here it means run {holder}"


def _why_no_file(source: Path) -> str:
    if source.is_dir():
        return "Is a directory"
    return "is no regular file: copy it into one" if source.exists() else "No such file or directory"


@dataclass
class _Counted:
    """Counts the trials that pass through."""

    records: Iterator[Boot | Trial]
    trials: int = 0

    def __iter__(self) -> Iterator[Boot | Trial]:
        for record in self.records:
            self.trials += isinstance(record, Trial)
            yield record


# Writing


def _lines_of(experiment: Experiment, raws: Iterator[str | StoreError], missing: list[str]) -> Iterator[bytes]:
    """The file, line by line; `missing` gets a line for each raw output that is left out."""
    yield _line({"schema": SCHEMA, "kind": KIND})
    head = dataclasses.replace(experiment, boots=(), trials=())
    lines = [_line({"run": dataclasses.asdict(head)})]
    lines += (_line({"boot": dataclasses.asdict(boot)}) for boot in experiment.boots)
    yield from lines
    room = LARGEST_BYTES - PIECE - sum(map(len, lines)) - sum(len(_trial_line(trial)) for trial in experiment.trials)
    for number, (trial, raw) in enumerate(zip(experiment.trials, raws, strict=False), start=1):
        line = _trial_line(trial)
        if isinstance(raw, StoreError):
            missing.append(str(raw))
            raw = ""
        whole = _trial_line(dataclasses.replace(trial, raw=_printable(raw))) if raw else line
        if not _fits(whole) or len(whole) - len(line) > room:
            missing.append(f"trial {number}: its raw output is too large for the file")
            whole = line
        room -= len(whole) - len(line)
        yield whole


def _trial_line(trial: Trial) -> bytes:
    return _line({"trial": dataclasses.asdict(unpacked(trial))})


def _line(record: Json) -> bytes:
    return json.dumps(record, allow_nan=False).encode() + b"\n"


def _fits(line: bytes) -> bool:
    return len(line) <= LARGEST_LINE and _values(line) <= MOST_VALUES


def _values(line: bytes) -> int:
    """An upper bound on the number of JSON values in the line."""
    return sum(map(line.count, (b",", b"[", b"{")))


def _printable(raw: str) -> str:
    """The text with bytes that are not UTF-8 as escapes, because JSON has only text."""
    return raw.encode("utf-8", "backslashreplace").decode()


# Reading


def _records(stream: BinaryIO) -> Iterator[Experiment | Boot | Trial]:
    """The run without boots and trials, then these in the order of the file. Raises Unfit."""
    fit: _Fit | None = None
    for number, line in enumerate(_json_lines(_Unpacked(stream)), start=2):
        if not _fits(line):
            raise Unfit(f"line {number}: more than {LARGEST_LINE} bytes or {MOST_VALUES} values; {OTHER_VERSION}")
        try:
            found = _RECORD.validate_json(line, strict=True)
        except ValidationError as error:
            raise Unfit(f"line {number}: {explained(error, with_value=len(line) < PIECE)}; {OTHER_VERSION}") from error
        (record,) = found.values()
        if isinstance(record, Experiment) != (fit is None):
            raise Unfit(f"line {number}: a file begins with its one run")
        if isinstance(record, Experiment):
            record = _complete(record)
            fit = _Fit.of(record)
        elif fit:
            fit.check(cast(Boot | Trial, record))
        yield cast(Experiment | Boot | Trial, record)
    if fit is None:
        raise Unfit(f"no run is in it; {OTHER_VERSION}")


def _complete(run: Experiment) -> Experiment:
    """The run with every key of its plan. Raises Unfit for errors that the records' own types do not detect."""
    if not RUN_ID.fullmatch(run.id):
        raise Unfit(f"run.id: {run.id[:60]!r} is none that vmtax gives, such as {EXAMPLE_ID}; {OTHER_VERSION}")
    try:
        plan = from_data(run.plan, source="plan").model_dump(mode="json")
    except PlanError as error:
        raise Unfit(f"{str(error).splitlines()[0]}; {OTHER_VERSION}") from error
    if run.created > time.time() + AHEAD_SECONDS:
        raise Unfit(f"created: {run.created:.0f} is in the future; is the clock of this machine right?")
    if run.boots or run.trials:
        raise Unfit("boots and trials have lines of their own")
    complete = dataclasses.replace(run, plan=plan)
    check_json(complete)
    return complete


@dataclass
class _Fit:
    """Checks that records belong to a run, and are not more than a run can have."""

    treatments: frozenset[str]
    records: int = 0
    measurements: int = 0

    @staticmethod
    def of(run: Experiment) -> _Fit:
        return _Fit(treatment_names(run))

    def check(self, record: Boot | Trial) -> None:
        """Raises Unfit."""
        check_treatment(record, self.treatments)
        self.records += 1
        if isinstance(record, Trial):
            self.measurements += len(record.measurements) + len(record.latencies) // 10
        if self.records > MOST_RECORDS or self.measurements > MOST_MEASUREMENTS:
            raise Unfit(f"more than {MOST_RECORDS} boots and trials, or {MOST_MEASUREMENTS} measurements")


def _json_lines(unpacked: _Unpacked) -> Iterator[bytes]:
    """The lines after the first, which identifies the format. Raises Unfit."""
    first = unpacked.line(LARGEST_OLDER)
    if _values(first) > MOST_OLDER_VALUES:
        raise Unfit("not a file that `vmtax export` wrote: too many values")
    try:
        record: Any = from_json(first)
    except ValueError as error:
        raise Unfit(NO_EXPORT) from error
    kind = record.get("kind") if isinstance(record, dict) and record.get("schema") == SCHEMA else None
    if kind == OLDER_KIND:
        yield from _older_lines(record.get("data"))
    elif kind != KIND:
        raise Unfit(f"not a file that `vmtax export` wrote: it is no {OLDER_KIND} of {SCHEMA}")
    del record, first
    while line := unpacked.line(LARGEST_LINE):
        yield line


def _older_lines(data: Any) -> Iterator[bytes]:
    """The single object of an earlier version, as lines."""
    if not isinstance(data, dict):
        raise Unfit("not a file that `vmtax export` wrote: it has no data")
    parts = {"boot": data.pop("boots", []), "trial": data.pop("trials", [])}
    yield json.dumps({"run": {**data, "boots": [], "trials": []}}).encode()
    for name, records in parts.items():
        if not isinstance(records, list):
            raise Unfit(f"{name}s: must be a list")
        for record in records:
            yield json.dumps({name: record}).encode()


class _Unpacked:
    """The lines of a gzip stream. Unpacks no more than is asked for."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._gzip = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        self._packed = self._unpacked = 0  # bytes so far
        self._rest = b""

    def line(self, longest: int) -> bytes:
        """The next line; empty at the end. Raises Unfit for a line that is longer, and if the data is no gzip."""
        pieces = io.BytesIO()
        while True:
            end = self._rest.find(b"\n") + 1
            pieces.write(self._rest[: end or None])
            if pieces.tell() > longest:
                raise Unfit(f"a line of more than {longest} bytes, so it is no run")
            self._rest = self._rest[end:] if end else b""
            if end:
                return pieces.getvalue()
            self._rest = self._piece()
            if not self._rest:
                return pieces.getvalue()

    def _piece(self) -> bytes:
        """Some unpacked bytes; empty at the end."""
        while not self._gzip.eof:
            packed = self._gzip.unconsumed_tail or self._stream.read(PIECE)
            self._packed += 0 if self._gzip.unconsumed_tail else len(packed)
            if not packed:
                raise Unfit(NO_EXPORT)
            try:
                piece = self._gzip.decompress(packed, PIECE)
            except zlib.error as error:
                raise Unfit(NO_EXPORT) from error
            self._unpacked += len(piece)
            if self._packed > LARGEST_FILE or self._unpacked > LARGEST_BYTES:
                raise Unfit(f"more than {LARGEST_BYTES // 2**20} MiB when unpacked, so it is no run")
            if piece:
                return piece
        if self._gzip.unused_data or self._stream.read(1):
            raise Unfit("not a file that `vmtax export` wrote: something follows its end")
        return b""
