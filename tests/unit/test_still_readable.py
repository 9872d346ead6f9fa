"""What earlier versions stored, exported and answered stays readable, and their plans mean the same.

Each directory tests/golden/YYYY-MM-DD, with a letter for a second one, was written by tools/golden.py with the version
of that day. It is never changed: where a test fails here, fix the program. An answer may gain keys, and its
sentences may be reworded.
"""

from __future__ import annotations

import json
import lzma
import math
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from vmtax.cli import app
from vmtax.core.errors import BAD_INPUT, FAILED, UNDECIDED, WORSE
from vmtax.experiment.resume import resumable
from vmtax.plan.schema import from_data, parse
from vmtax.store import Store

DAYS = sorted((Path(__file__).parents[1] / "golden").glob("20??-??-??*"))
FORMATS = ("html", "markdown", "json", "csv", "parquet")
REWORDED = {  # computed sentences and names of an answer
    *("summary.figures.label", "figures.label", "scores.missing", "lines.why"),
    *("comparisons.warnings", "noise_floor.warnings"),
    *("advice.by", "advice.notes", "advice.reasons", "advice.runner_up_words", "advice.export.proxmox_notes"),
}
# Workload -> measures that it reports since these plans were stored.
ADDED = defaultdict(frozenset[str], {"net": frozenset({"host_cpu_seconds", "host_side_seconds"})})
TOLERANCE = 1e-4  # of a number in the files, which have fewer digits
Case = tuple[Path, str]  # a day, and a file in one of its directories without its ending


def cases(directory: str, pattern: str = "*") -> list[Any]:
    found = [(day, path.name.split(".")[0]) for day in DAYS for path in sorted((day / directory).glob(pattern))]
    assert found
    return [pytest.param((day, name), id=f"{day.name}:{name}") for day, name in found]


def unpacked(path: Path) -> Any:
    return json.loads(lzma.decompress(path.read_bytes()))


def answer(day: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = unpacked(day / f"answers/{name}.json.xz")
    return found


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Path]:
    """For each day a data directory with its store."""
    homes = {day: tmp_path_factory.mktemp(day.name) for day in DAYS}
    for day, home in homes.items():
        with tarfile.open(day / "store.tar.xz") as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.2 has none, 3.13 wants one
            archive.extractall(home / "vmtax")
    return homes


def vmtax(home: Path, *words: str, exits: tuple[int, ...] = (0,)) -> Result:
    done = CliRunner(env={"XDG_DATA_HOME": str(home)}).invoke(app, words)
    assert done.exit_code in exits, (done.output, done.exception)
    return done


def asked(home: Path, *words: str) -> Any:
    return json.loads(vmtax(home, *words, "--json", exits=(0, WORSE, UNDECIDED)).stdout)


def lost(then: Any, now: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """What of an answer is missing or different in another one."""
    where = ".".join(path) or "the answer"
    if isinstance(then, dict) and isinstance(now, dict):
        yield from (f"{where} has no {key!r}" for key in then.keys() - now.keys())
        for key in then.keys() & now.keys():
            yield from lost(then[key], now[key], (*path, key))
    elif ".".join(path[1:]) in REWORDED and then is not None:
        if type(now) is not type(then) or bool(now) != bool(then):
            yield f"{where} was {then!r}, is {now!r}"
    elif isinstance(then, list) and isinstance(now, list):
        if len(then) != len(now):
            yield f"{where} had {len(then)} entries, has {len(now)}"
        for one, other in zip(then, now, strict=False):
            yield from lost(one, other, path)
    elif isinstance(then, float) and isinstance(now, float):
        if not math.isclose(then, now, rel_tol=TOLERANCE, abs_tol=1e-9):
            yield f"{where} was {then}, is {now}"
    elif type(then) is not type(now) or then != now:
        yield f"{where} was {then!r}, is {now!r}"


def brought(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer about a run after its import."""
    data = answer["data"]
    return {**answer, "data": {**data, "host": f"{data['host']}, imported"}}


@pytest.mark.parametrize("case", cases("answers", "20*"))
@pytest.mark.varied(4)
def test_a_stored_run_is_shown_and_reported_as_it_was(case: Case, homes: dict[Path, Path], tmp_path: Path) -> None:
    day, run = case
    then = answer(day, run)
    assert list(lost(then, asked(homes[day], "show", run))) == []
    # What makes runs of one day unlike each other is in the answer and in CSV; other formats show what these have.
    first = run == min(path.name.split(".")[0] for path in (day / "answers").glob("20*"))
    if first:
        assert run in vmtax(homes[day], "show", run, "--full").stdout
    for format in FORMATS if first else ("csv",):
        file = tmp_path / format
        vmtax(homes[day], "report", run, "--format", format, "--output", str(file))
        assert file.stat().st_size > 500
    assert not first or list(lost(then, json.loads((tmp_path / "json").read_text()))) == []
    assert len((tmp_path / "csv").read_text().splitlines()) > len(then["data"]["measurements"])


@pytest.mark.parametrize("case", cases("answers", "20*"))
@pytest.mark.varied(2)
def test_a_stored_run_is_exported_whole_and_imported(case: Case, homes: dict[Path, Path], tmp_path: Path) -> None:
    day, run = case
    file = str(tmp_path / "file")
    assert "left out" not in vmtax(homes[day], "export", run, "--output", file).output
    vmtax(tmp_path, "import", file)
    assert list(lost(brought(answer(day, run)), asked(tmp_path, "show", run))) == []


@pytest.mark.parametrize("case", cases("exported"))
@pytest.mark.varied(2)
def test_an_exported_run_is_imported(case: Case, tmp_path: Path) -> None:
    day, name = case
    run = vmtax(tmp_path, "import", str(day / f"exported/{name}.run.gz")).stdout.split()[0]
    assert list(lost(brought(answer(day, run)), asked(tmp_path, "show", run))) == []


@pytest.mark.parametrize("day", DAYS, ids=lambda day: day.name)
def test_mixes_needs_and_comparisons_of_stored_runs_are_as_they_were(day: Path, homes: dict[Path, Path]) -> None:
    runs = {path.name.split("-")[2]: path.name.split(".")[0] for path in (day / "answers").glob("20*")}
    mix = asked(homes[day], "show", runs["storage"], "--for", "database", "--needs", "thin", "--accept-loss")
    assert list(lost(answer(day, "database"), mix)) == []
    then = answer(day, "compare")
    sides = (",".join(then["data"][side]) for side in ("before", "after"))
    assert list(lost(then, asked(homes[day], "compare", *sides, "--fail-if-worse", "3%"))) == []


@pytest.mark.parametrize("day", DAYS, ids=lambda day: day.name)
def test_stored_runs_are_listed_and_the_stopped_ones_can_be_resumed(day: Path, homes: dict[Path, Path]) -> None:
    stored = [answer(day, path.name.split(".")[0])["data"] for path in (day / "answers").glob("20*")]
    states = {run["id"]: run["state"] for run in asked(homes[day], "runs")["data"]}
    assert states == {run["id"]: run["state"] for run in stored}
    assert set(states.values()) == {"complete", "interrupted"}
    for run, state in states.items():
        done = vmtax(homes[day], "run", "--resume", run, exits=(FAILED, BAD_INPUT))
        reason = f"{done.output} {done.exception}"
        assert ("is complete" in reason) == (state == "complete"), reason
        assert ("--yes" in reason) == (state == "interrupted"), "all that is missing is consent"
    with Store(homes[day] / "vmtax/vmtax.sqlite") as store:
        stopped = [store.load(run) for run, state in states.items() if state == "interrupted"]
    for experiment in stopped:
        plan, options = resumable(experiment)
        assert (plan.model_dump(mode="json"), options.to_json()) == (experiment.plan, experiment.options)


@pytest.mark.parametrize("case", cases("plans"))
def test_a_plan_means_the_same(case: Case) -> None:
    day, name = case
    then = unpacked(day / "plans.json.xz")[name]
    text = (day / f"plans/{name}.yaml").read_text()
    for plan in (parse(text, name), from_data(then["plan"])):
        treatments, left_out = plan.treatments()
        now = {
            "plan": plan.model_dump(mode="json"),
            "treatments": [
                {"name": t.name, "layer": t.layer, "levels": dict(t.levels), "repeats": t.repeats, "side": t.side}
                for t in treatments
            ],
            "left_out": len(left_out),
            "metrics": {
                workload.name: [
                    metric.name for metric in workload.metrics() if metric.measure not in ADDED[workload.name]
                ]
                for workload in plan.build_workloads()
            },
        }
        assert list(lost(then, now)) == []
