"""Makes what a run wants to record fit to be read again: what `model` would call damaged is never written.

Tools, guests and far hosts print most of it, so it may be anything. It costs them the trial or the text, never the run.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from vmtax.core.records import Boot, Experiment, Json, Trial
from vmtax.store import model
from vmtax.store.failure import StoreError
from vmtax.store.model import DEEPEST, LONGEST_TEXT, Unfit

_Record = TypeVar("_Record", Trial, Boot)
ID = re.compile(r"(?!last$)[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # it names a directory; "last" is the newest run
_CUT_TEXT = LONGEST_TEXT // 8  # characters that stay of a text that is too long


def check_id(id: str) -> None:
    """Raises StoreError for what cannot be an experiment's id."""
    if not ID.fullmatch(id):
        raise StoreError(f"{id[:100]!r} cannot be an experiment's id: letters, digits, - _ . only, and not 'last'")


def fitting_trial(trial: Trial) -> Trial:
    """As it can be recorded: a failed one that says why in place of one that no store could be read with.

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
    """With texts cut to the limits. Raises StoreError if a number is not possible."""
    boot = _with_fitting_texts(boot)
    wrong = _wrong(_boot(), _fields(boot))
    if wrong is not None:
        raise StoreError(f"a boot of {boot.path[:100]!r} cannot be recorded: {wrong}")
    return boot


def fitting_facts(path: str, facts: Json, others: Json) -> Json:
    """With texts cut and numbers written as text where they are beyond the limits; `others`: of other machines.

    Where they are still too many or not of the right kind, only the reason is kept.
    """
    fitting = {str(key): _fitting_value(value, DEEPEST - 4) for key, value in facts.items()}
    try:
        model.check_facts({**others, path: fitting})
    except Unfit as error:
        return {"not_kept": str(error)}
    return fitting


def fitting_text(text: str) -> str:
    """Undecodable bytes show as escapes; a text that is too long is cut and says so."""
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-8", "backslashreplace").decode()
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:_CUT_TEXT]} … (cut here: it had {len(text)} characters, {LONGEST_TEXT} are the most)"


def check_new(experiment: Experiment) -> None:
    """Raises StoreError if a run that begins could not be read again."""
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
    """Error, command line and warnings; names are not cut, for they say what it is."""
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
    """Not the record itself: pydantic takes that as it is."""
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}


@functools.cache
def _trial() -> TypeAdapter[Trial]:
    """This and the next are made when something is recorded: they take time, and a command that reads needs neither."""
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
