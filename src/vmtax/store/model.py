"""Validate runs: all data from the store or from a file is checked here before it is used.

The types in `records.py` define valid records. Plan, facts and options are JSON, to which later versions may add: the
models in `core/stored.py` define the parts that readers rely on, and `bounded` limits the rest.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from vmtax.core.compact import Packer, unpacked
from vmtax.core.names import label_problem
from vmtax.core.records import Boot, Experiment, Json, Measurement, Metric, Trial, Value
from vmtax.core.stored import MachineFacts, StoredOptions, StoredPlan

DEEPEST = 32  # levels of nested JSON; facts have 5
MOST_VALUES = 100_000  # in one JSON object; the features of 2,000 disks have 56,000
LONGEST_TEXT = 2**20  # characters
AT_ONCE = 1000  # trials that are read, checked and written together
_HALF = re.compile("[\ud800-\udfff]")  # one of the two halves in which JSON writes rare characters


class Unfit(Exception):
    """Data that are no valid run; the text says where, what is wrong, and what would be right, in one line."""


_RUN = TypeAdapter(Experiment)
_JSON: Mapping[str, TypeAdapter[Any]] = {
    "plan": TypeAdapter(StoredPlan),
    "facts": TypeAdapter(dict[str, MachineFacts]),
    "options": TypeAdapter(StoredOptions),
}
_TRIALS = TypeAdapter(list[Trial])
_METRICS = TypeAdapter(dict[int, Metric])
_MEASUREMENTS = TypeAdapter(list[tuple[int, int, Value]])


def run_of(data: Mapping[str, Any]) -> Experiment:
    """The run with these fields; numbers written as text are accepted. Raises Unfit."""
    try:
        run = _RUN.validate_python(data)
    except ValidationError as error:
        raise Unfit(explained(error)) from error
    check_json(run)
    names = treatment_names(run)
    records: tuple[Boot | Trial, ...] = (*run.boots, *run.trials)
    for record in records:
        check_treatment(record, names)
    return run


class Trials:
    """Checks the trials of a run part by part, in their order."""

    def __init__(self, run: Experiment) -> None:
        self._names = treatment_names(run)
        self._count = 0
        self._packer = Packer()

    def of(self, data: Sequence[Mapping[str, Any]]) -> Iterator[Trial]:
        """The next trials; numbers written as text are accepted. Raises Unfit."""
        try:
            trials = _TRIALS.validate_python(data)
        except ValidationError as error:
            raise Unfit(explained(error, "trials", start=self._count)) from error
        self._count += len(trials)
        for trial in trials:
            check_treatment(trial, self._names)
            yield self._packer.packed(trial)


def fingerprint(run: Experiment, *more: str) -> str:
    """Digest of all records of a run except raw outputs, and of these texts: any change gives another digest."""
    digest = hashlib.blake2b(digest_size=32)
    for piece in json_pieces(run):
        digest.update(piece)
    for text in more:
        digest.update(text.encode())
    return digest.hexdigest()


def json_pieces(run: Experiment) -> Iterator[bytes]:
    """The JSON of a run without raw outputs, some trials at a time: that of a large run takes hundreds of MB."""
    names = [field.name for field in dataclasses.fields(Experiment)]
    place = names.index("trials")
    yield _RUN.dump_json(run, include={*names[:place]}).removesuffix(b"}") + b',"trials":['
    trials, between = iter(run.trials), b""
    while part := [unpacked(trial) for trial in itertools.islice(trials, AT_ONCE)]:
        yield between + _TRIALS.dump_json(part, exclude={"__all__": {"raw"}})[1:-1]
        between = b","
    yield b"]," + _RUN.dump_json(run, include={*names[place + 1 :]}).removeprefix(b"{")


def treatment_names(run: Experiment) -> frozenset[str]:
    """Names of its treatments. Raises Unfit if the treatments do not fit together."""
    names = [treatment.name for treatment in run.treatments]
    unknown = {t.repeats for t in run.treatments if t.repeats is not None} - set(names)
    if unknown or len(set(names)) < len(names):
        wrong = ", ".join(sorted(unknown)) or "one is given twice"
        raise Unfit(f"configurations do not fit together: {wrong[:200]}")
    return frozenset(names)


def check_treatment(record: Boot | Trial, names: Collection[str]) -> None:
    """Raises Unfit if the record belongs to none of these treatments."""
    if record.treatment not in names:
        raise Unfit(f"does not fit together: no configuration is called {record.treatment[:200]!r}")


def check_json(run: Experiment) -> None:
    """Raises Unfit if its plan, facts or options contain values that the reports cannot show."""
    for name in _JSON:
        _check_json(name, getattr(run, name))
    most = run.plan["rounds"]["max"]
    for path, facts in run.facts.items():
        for number, boot in enumerate(facts.get("boots") or ()):
            if boot["round"] > most:
                where = f"facts.{path[:100]}.boots.{number}.round"
                raise Unfit(f"{where}: {boot['round']} is more than the plan's rounds.max, {most}")


def check_facts(facts: Json) -> None:
    """Raises Unfit if facts, by machine path, cannot be shown."""
    _check_json("facts", facts)


def _check_json(name: str, value: Json) -> None:
    try:
        _JSON[name].validate_python(value)
        bounded(value)
    except ValidationError as error:
        raise Unfit(explained(error, name)) from error
    except ValueError as error:
        raise Unfit(f"{name}: {error}") from error


def measurements_of(metrics: Mapping[int, Json], rows: Sequence[tuple[Any, Any, Any]]) -> list[tuple[int, Measurement]]:
    """Rows of (trial, metric, value) as (trial, measurement); `metrics` by their numbers. Raises Unfit."""
    try:
        valid = _MEASUREMENTS.validate_python(rows)
        known = _METRICS.validate_python({number: metrics[number] for number in {row[1] for row in valid}})
    except ValidationError as error:
        raise Unfit(explained(error, "measurement")) from error
    except KeyError as error:
        raise Unfit(f"measurement: metric number {error} is missing") from error
    return [(trial, Measurement(known[metric], value)) for trial, metric, value in valid]


def bounded(value: object) -> None:
    """Raises ValueError for JSON that is nested too deeply or too large, has numbers beyond 64 bits, or texts that are
    no Unicode.
    """
    level, count = [value], 1
    for _ in range(DEEPEST):
        below: list[object] = []
        for entry in level:
            if isinstance(entry, dict):
                below += entry.values()
                below += entry.keys()
            elif isinstance(entry, list):
                below += entry
            else:
                _check_scalar(entry)
        count += len(below)
        if count > MOST_VALUES:
            raise ValueError(f"more than {MOST_VALUES} values")
        if not below:
            return
        level = below
    raise ValueError(f"nested more than {DEEPEST} levels deep")


def _check_scalar(value: object) -> None:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("a whole number of more than 64 bits")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a finite number")
    if isinstance(value, str):
        if len(value) > LONGEST_TEXT:
            raise ValueError(f"text of more than {LONGEST_TEXT} characters")
        if not value.isascii() and _HALF.search(value):
            raise ValueError(f"text with half a character, {value[:40]!a}, which no file can hold")
    if not isinstance(value, (str, int, float, bool, type(None))):
        raise ValueError("cannot be read as JSON")


def explained(error: ValidationError, within: str = "", *, with_value: bool = True, start: int = 0) -> str:
    """The first error, of a list whose entries count from `start`: "trials.6.wall_seconds: Input should be greater than
    or equal to 0, not '-1'".
    """
    first = error.errors(include_url=False, include_context=False, include_input=with_value)[0]
    loc = [part + start if number == 0 and isinstance(part, int) else part for number, part in enumerate(first["loc"])]
    where = ".".join(filter(None, (within, *(str(part)[:100] for part in loc))))
    value = first.get("input")
    found = f", not {str(value)[:40]!r}" if isinstance(value, (str, int, float)) and first["loc"] else ""
    message = first["msg"][:150]
    if first["type"] == "predicate_failed":
        problem = label_problem(value) if first["loc"][-1:] == ("label",) and isinstance(value, str) else None
        message = problem or "Input is not possible"
    return f"{where or 'line'}: {message}{found}"
