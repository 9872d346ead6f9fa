"""Make records fit to be read again before they are stored: nothing is written that `model` would call damaged.

Tools, guests and remote hosts produce most of the data, so it may be anything. Unfit data costs the trial or the text,
never the run.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from vmtax.core.records import Boot, Experiment, Json, Trial
from vmtax.store import model
from vmtax.store.failure import StoreError
from vmtax.store.model import DEEPEST, LONGEST_TEXT, Unfit
from vmtax.store.schema import AGAIN, KEY

_Record = TypeVar("_Record", Trial, Boot)
ID = re.compile(r"(?!last$)[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # used as a directory name; "last" means the newest run
_CUT_TEXT = LONGEST_TEXT // 8  # characters that are kept of a text that is too long


def check_id(id: str) -> None:
    """Raises StoreError if it cannot be an experiment's id."""
    if not ID.fullmatch(id):
        raise StoreError(f"{id[:100]!r} cannot be an experiment's id: letters, digits, - _ . only, and not 'last'")


def fitting_trial(trial: Trial) -> Trial:
    """The trial as it can be recorded: an unfit one is replaced by a failed one with the reason.

    Raises StoreError if even its identity is unfit.
    """
    trial = _with_fitting_texts(trial)
    wrong = _wrong(_trial(), _trial_fields(trial))
    if wrong is None:
        return trial
    took = trial.wall_seconds if 0 <= trial.wall_seconds < 1e10 else 0.0
    error = f"its result cannot be recorded: {wrong}"
    nothing: dict[str, Any] = {"measurements": (), "latencies": (), "disturbance": None, "readings": {}}
    failed = dataclasses.replace(trial, status="failed", error=error, wall_seconds=took, **nothing)
    still = _wrong(_trial(), _trial_fields(failed))
    if still is not None:
        raise StoreError(f"a trial of {trial.workload[:100]!r} cannot be recorded: {still}")
    return failed


def fitting_boot(boot: Boot) -> Boot:
    """The boot with texts cut to the limits. Raises StoreError if a number is impossible."""
    boot = _with_fitting_texts(boot)
    wrong = _wrong(_boot(), _fields(boot))
    if wrong is not None:
        raise StoreError(f"a boot of {boot.path[:100]!r} cannot be recorded: {wrong}")
    return boot


def fitting_facts(path: str, facts: Json, others: Json) -> Json:
    """The facts with texts cut, and with numbers beyond the limits as text; `others`: facts of other machines.

    Of facts with the wrong structure only the reason is kept, as of all if there are still too many.
    """
    fitting = {str(key): _fitting_value(value, DEEPEST - 4) for key, value in facts.items()}
    unfit = {key: why for key, value in fitting.items() if (why := _unfit_facts({path: {key: value}}))}
    if unfit:
        fitting = {key: value for key, value in fitting.items() if key not in unfit}
        fitting["not_kept"] = "; ".join(unfit.values())
    why = _unfit_facts({**others, path: fitting})
    return {"not_kept": why} if why else fitting


def _unfit_facts(facts: Json) -> str | None:
    try:
        model.check_facts(facts)
    except Unfit as error:
        return str(error)
    return None


def fitting_text(text: str) -> str:
    """Undecodable bytes become escapes; a text that is too long is cut, with a remark."""
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-8", "backslashreplace").decode()
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:_CUT_TEXT]} … (cut here: it had {len(text)} characters, {LONGEST_TEXT} are the most)"


def with_one_result_each(records: Iterable[Boot | Trial]) -> Iterator[Boot | Trial]:
    """The records, of which only the first result of each trial counts."""
    seen = set[tuple[object, ...]]()
    for record in records:
        if isinstance(record, Trial) and record.status == "ok":
            key = tuple(getattr(record, name) for name in KEY if name != "experiment")
            if key in seen:
                yield dataclasses.replace(record, status="refused", error=AGAIN, measurements=(), latencies=())
                continue
            seen.add(key)
        yield record


def check_new(experiment: Experiment) -> None:
    """Raises StoreError if a new run could not be read again."""
    treatments = tuple(_fields(treatment) for treatment in experiment.treatments)
    try:
        model.run_of({**_fields(experiment), "command": fitting_text(experiment.command), "treatments": treatments})
    except Unfit as error:
        raise StoreError(f"{experiment.id} cannot be recorded: {error}") from error


def _fitting_value(value: object, levels: int) -> Any:
    if isinstance(value, str):
        return fitting_text(value)
    if isinstance(value, Mapping) and levels:
        return {fitting_text(str(key)): _fitting_value(below, levels - 1) for key, below in value.items()}
    if isinstance(value, (list, tuple)) and levels:
        return [_fitting_value(below, levels - 1) for below in value]
    finite = isinstance(value, float) and math.isfinite(value)
    if value is None or finite or (isinstance(value, int) and -(2**63) <= value < 2**63):
        return value
    return (
        "(cut here: nested too deeply)"
        if isinstance(value, (Mapping, list, tuple))
        else str(value)
        if isinstance(value, float)
        else "(cut here: no value that JSON can hold)"
    )


def _with_fitting_texts(record: _Record) -> _Record:
    """The record with fitting error, command line and warnings; names are not cut, because they are its identity."""
    changed: dict[str, Any] = {}
    for name in ("error", "argv", "warnings"):
        value = getattr(record, name, None)
        if value is not None:
            changed[name] = fitting_text(value) if isinstance(value, str) else tuple(map(fitting_text, value))
    return dataclasses.replace(record, **changed)


def _trial_fields(trial: Trial) -> dict[str, Any]:
    measured = [{"metric": _fields(m.metric), "value": m.value} for m in trial.measurements]
    disturbed = _fields(trial.disturbance) if trial.disturbance else None
    return {**_fields(trial), "measurements": measured, "disturbance": disturbed, "raw": ""}


def _fields(record: Any) -> dict[str, Any]:
    """Its fields, because pydantic would accept the record itself unchecked."""
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}


@functools.cache
def _trial() -> TypeAdapter[Trial]:
    """This and the next are created when something is recorded: they take time, and commands that only read do not need
    them.
    """
    return TypeAdapter(Trial)


@functools.cache
def _boot() -> TypeAdapter[Boot]:
    return TypeAdapter(Boot)


def _wrong(adapter: TypeAdapter[Any], fields: dict[str, Any]) -> str | None:
    try:
        adapter.validate_python(fields)
    except ValidationError as error:
        return model.explained(error)
    return None
