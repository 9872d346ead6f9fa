"""Carries runs between machines: one file with everything the store has of an experiment, raw outputs included."""

from __future__ import annotations

import dataclasses
import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import TypeAdapter, ValidationError

from vmtax.exits import CannotDo
from vmtax.machine.local import LocalMachine
from vmtax.outfile import refuse_no_file, replacing
from vmtax.plan import PlanError, from_data
from vmtax.result import LAYERS, Experiment
from vmtax.store import Store
from vmtax.units import UNITS

SCHEMA, KIND = "vmtax/1", "run"
OTHER_VERSION = "written by another version of vmtax?"
LATEST_SECONDS = 2.0**33  # of any time since the epoch: the year 2242
LARGEST_BYTES = 2**30  # unpacked; 100,000 measurements with their raw outputs take a tenth of that


class ShareError(CannotDo):
    """A file that holds no run, or a place that takes none; the text says what to do."""


def export(store: Store, run: str, target: Path | None) -> Path:
    """Write the run to `target`, by default vmtax-RUN.run.gz here; replaced in one step. Raises ShareError."""
    experiment = store.load(run, with_raw=True)
    answer = {"schema": SCHEMA, "kind": KIND, "data": dataclasses.asdict(experiment)}
    file = target or Path(f"vmtax-{experiment.id}.run.gz")
    keeper = LocalMachine()  # so that a half-written file is removed even after SIGKILL
    try:
        refuse_no_file(file)
        with replacing(file, mode=0o600, before=lambda new: keeper.remove_later(PurePosixPath(new))) as stream:
            stream.write(gzip.compress(json.dumps(answer, allow_nan=False).encode(), mtime=0))
        return file.resolve()
    except OSError as error:
        raise ShareError(f"{file}: {error.strerror}; name another file with --output") from error
    finally:
        keeper.close()


def import_(store: Store, source: Path) -> Experiment:
    """Add the run in `source` to the store. Raises ShareError, and StoreError where it is there already."""
    experiment = _checked(source, _read(source))
    state = "interrupted" if experiment.state == "running" else experiment.state
    carried = dataclasses.replace(
        experiment,
        state=state,
        host=experiment.host.removesuffix(IMPORTED) + IMPORTED,
        options={**experiment.options, "imported": True},
    )
    store.put(carried)
    return carried


IMPORTED = ", imported"  # ends the host of a run that was measured elsewhere


def _read(source: Path) -> Any:
    try:
        with gzip.open(source) as stream:
            text = stream.read(LARGEST_BYTES + 1)
        if len(text) > LARGEST_BYTES:
            raise ShareError(f"{source}: more than 1 GiB when unpacked, so it is no run")
        answer = json.loads(text)
    except (gzip.BadGzipFile, zlib.error, EOFError, ValueError, RecursionError) as error:
        raise ShareError(f"{source}: not a file that `vmtax export` wrote, or not whole: {error}") from error
    except OSError as error:
        raise ShareError(f"{source}: {error.strerror}") from error
    if not isinstance(answer, dict) or (answer.get("schema"), answer.get("kind")) != (SCHEMA, KIND):
        raise ShareError(f"{source}: not a file that `vmtax export` wrote: it is no {KIND} of {SCHEMA}")
    return answer.get("data")


def _checked(source: Path, data: Any) -> Experiment:
    """Everything that the reports rely on, so that a made-up file is refused here and not met later."""
    try:
        experiment = TypeAdapter(Experiment).validate_python(data)
        plan = from_data(experiment.plan, source="plan").model_dump(mode="json")  # every key there
        json.dumps(data, ensure_ascii=False).encode()
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ShareError(f"{source}: {where}: {first['msg']}; {OTHER_VERSION}") from error
    except UnicodeEncodeError as error:
        raise ShareError(f"{source}: holds text that is no Unicode; {OTHER_VERSION}") from error
    except PlanError as error:
        raise ShareError(f"{source}: {str(error).splitlines()[0]}; {OTHER_VERSION}") from error
    names = [treatment.name for treatment in experiment.treatments]
    unknown = {trial.treatment for trial in experiment.trials} | {boot.treatment for boot in experiment.boots}
    unknown |= {treatment.repeats for treatment in experiment.treatments if treatment.repeats is not None}
    unknown -= set(names)
    layers = {treatment.layer for treatment in experiment.treatments} - set(LAYERS)
    if unknown or layers or len(set(names)) < len(names):
        wrong = ", ".join(sorted(unknown | layers)) or "a treatment that is given twice"
        raise ShareError(f"{source}: does not fit together: {wrong}")
    odd = next(_out_of_bounds(experiment), None)
    if odd is not None:
        raise ShareError(f"{source}: {odd}: no run has that; {OTHER_VERSION}")
    return dataclasses.replace(experiment, plan=plan)


def _out_of_bounds(experiment: Experiment) -> Iterator[str]:
    """Numbers and units that a made-up file may hold, and no report can show."""
    times = (experiment.created, experiment.finished or 0.0, *(trial.started for trial in experiment.trials))
    yield from (f"time {value}" for value in times if not 0 <= value < LATEST_SECONDS)
    counts = (number for t in experiment.trials for number in (t.round, t.position, t.iteration))
    yield from (f"count {number}" for number in counts if not 0 < number < 2**31)
    for measurement in (measurement for trial in experiment.trials for measurement in trial.measurements):
        if measurement.metric.unit not in UNITS:
            yield f"unit {measurement.metric.unit!r} of {measurement.metric.name}"
        if not (measurement.value == 0 or 1e-100 < abs(measurement.value) < 1e100):
            yield f"{measurement.metric.name} = {measurement.value}"
