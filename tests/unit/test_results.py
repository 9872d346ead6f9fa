"""What an analysis computed is kept with its run, and given back for the same records and the same program only.

UPDATE_GOLDEN=1 writes tests/golden/results.json.xz anew, once `VERSION` in analysis/results.py was raised.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import lzma
import math
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.sample import sample_experiment, without_raw
from tests.sample_storage import storage_experiment
from vmtax.analysis import results
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.weight_profiles import PROFILES
from vmtax.cli import app
from vmtax.cli.keeping import keep_results
from vmtax.core.records import Experiment
from vmtax.report.wording.headline import in_few_words
from vmtax.store import Store

GOLDEN = Path(__file__).parents[1] / "golden"
KEPT = GOLDEN / "results.json.xz"
QUICK = without_raw(sample_experiment(rounds=6, emulated=True, failures=3))
STORAGE = without_raw(storage_experiment(rounds=6, sequential=True, few=True))
HEAVY = ("numpy", "scipy", "ruptures", "jinja2", "yaml")


_texts: dict[str, str] = {}


def text_of(run: Experiment) -> str:
    """Its results as they are kept; computed once, for that takes seconds."""
    if run.id not in _texts:
        _texts[run.id] = results.written(Analysis(run).results)
    return _texts[run.id]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    with opened(home) as store:
        for run in (QUICK, STORAGE):
            store.put(run)
    return home


@pytest.fixture
def home(filled: Path, tmp_path: Path) -> Path:
    """A data directory whose store holds two runs of which nothing is kept yet."""
    return Path(shutil.copytree(filled, tmp_path / "home"))


def opened(home: Path) -> Store:
    return Store(home / "vmtax/vmtax.sqlite")


def kept(store: Store, id: str) -> results.Results | None:
    run = store.load(id)
    text = store.results(run)
    return None if text is None else results.read(text, run)


def keep(store: Store, run: Experiment) -> None:
    store.keep_results(store.load(run.id), text_of(run))


def show(home: Path, *words: str) -> str:
    done = CliRunner(env={"XDG_DATA_HOME": str(home)}).invoke(app, ["show", *words])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def files(home: Path) -> dict[Path, bytes]:
    """What is stored; the files beside the database are SQLite's own."""
    found = (path for path in home.rglob("*") if path.is_file() and path.name[-4:] not in ("-wal", "-shm"))
    return {path: path.read_bytes() for path in found}


@pytest.mark.parametrize("run", [QUICK, STORAGE], ids=["quick", "storage"])
@pytest.mark.varied(1)
def test_results_are_read_as_they_were_written(run: Experiment) -> None:
    found = results.read(text_of(run), run)
    assert found is not None
    assert results.written(found) == text_of(run)
    assert len(found.comparisons) > 20


@pytest.mark.parametrize("words", [(), ("--json",)])
@pytest.mark.parametrize("run", [QUICK, STORAGE], ids=["quick", "storage"])
@pytest.mark.varied(1)
def test_a_run_is_shown_alike_from_what_is_kept_and_without(home: Path, run: Experiment, words: tuple[str]) -> None:
    without = show(home, run.id, *words)
    with opened(home) as store:
        assert kept(store, run.id) is None
        keep(store, run)
        assert kept(store, run.id) is not None
    assert show(home, run.id, *words) == without


def test_show_writes_nothing(home: Path) -> None:
    before = files(home)
    show(home, QUICK.id)
    assert files(home) == before


@pytest.mark.parametrize(("run", "absent"), [(QUICK, HEAVY), (STORAGE, HEAVY[1:])], ids=["quick", "storage"])
@pytest.mark.variations
def test_show_imports_nothing_that_computes(home: Path, run: Experiment, absent: tuple[str, ...]) -> None:
    with opened(home) as store:
        keep(store, run)
    code = "import sys; from vmtax.cli import app; app(standalone_mode=False); print(*sys.modules, file=sys.stderr)"
    argv = [sys.executable, "-c", code, "show", run.id]
    done = subprocess.run(argv, env={**os.environ, "XDG_DATA_HOME": str(home)}, check=True, capture_output=True)
    imported = done.stderr.decode().split()
    assert set(imported).isdisjoint(absent)
    assert "vmtax.analysis.comparisons" in imported


def test_what_is_kept_is_used(home: Path) -> None:
    with opened(home) as store:
        run = store.load(QUICK.id)
        found = Analysis(run).results
        first, *others = found.comparisons
        store.keep_results(run, results.written(dataclasses.replace(found, comparisons=(first,))))
        again = kept(store, QUICK.id)
    assert others and again is not None
    assert Analysis(run, results=again).comparisons == (first,)


def test_scores_of_a_profile_are_not_those_that_are_kept() -> None:
    profile = PROFILES["database"]
    known = results.read(text_of(STORAGE), STORAGE)
    assert known is not None
    mixed = Analysis(STORAGE, profile, results=known)
    assert mixed.comparisons is known.comparisons
    assert "score.database" in {score.metric.name for score in mixed.scores.found}
    with pytest.raises(ValueError, match="not kept"):
        _ = mixed.results


def test_results_of_other_records_are_not_given_back(home: Path) -> None:
    with opened(home) as store:
        for change in (
            lambda: store.add_trials(QUICK.id, dataclasses.replace(QUICK.trials[0], iteration=9)),
            lambda: store.add_facts(QUICK.id, "host", {"emulated_cpu": True}),
            lambda: store.add_boot(QUICK.id, QUICK.boots[0]),
        ):
            keep_results(store, QUICK.id)
            assert kept(store, QUICK.id) is not None
            change()
            assert kept(store, QUICK.id) is None


def test_an_end_and_a_removal_take_what_is_kept_along(home: Path) -> None:
    with opened(home) as store:
        keep_results(store, QUICK.id)
        assert store.orphans() == []
        assert any(path.name == "results.gz" for path in files(home))
        store.remove(QUICK.id)
        assert not any(path.name == "results.gz" for path in files(home))
        assert store.orphans() == []


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "no gzip": lambda data: b"\x1f\x8bnonsense",
    "damaged inside": lambda data: data[:200] + bytes(40) + data[240:],
    "no text": lambda data: gzip.compress(b"\xff\xfe\n\xff"),
    "another number": lambda data: gzip.compress(gzip.decompress(data).replace(b'"ratio":0.', b'"ratio":1.', 1)),
    "no fingerprint": lambda data: gzip.compress(gzip.decompress(data).partition(b"\n")[2]),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.varied(1)
def test_a_damaged_file_is_as_none(home: Path, damage: Callable[[bytes], bytes]) -> None:
    with opened(home) as store:
        keep(store, QUICK)
        file = home / f"vmtax/raw/{QUICK.id}/results.gz"
        file.write_bytes(damage(file.read_bytes()))
        assert kept(store, QUICK.id) is None
    assert QUICK.id in show(home, QUICK.id)


def test_what_another_version_wrote_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    text = text_of(QUICK)
    for name, value in (("VERSION", results.VERSION + 1), ("__version__", "0.0.1")):
        with monkeypatch.context() as patch:
            patch.setattr(results, name, value)
            assert results.read(text, QUICK) is None
    assert results.read(text, QUICK) is not None


@pytest.mark.parametrize("part", ["comparisons", "rankings", "primary_rankings", "factor_effects", "gains"])
@pytest.mark.varied(2)
def test_results_of_another_run_are_not_read(part: str) -> None:
    mine, others = (json.loads(text_of(run).partition("\n")[2]) for run in (QUICK, STORAGE))
    mixed = json.dumps({**mine, part: others[part]})
    head = text_of(QUICK).partition("\n")[0]
    assert others[part]
    assert results.read(f"{head}\n{json.dumps(mine)}", QUICK) is not None
    assert results.read(f"{head}\n{mixed}", QUICK) is None


def test_what_is_no_results_is_not_read() -> None:
    head, _, body = text_of(QUICK).partition("\n")
    for bad in ("", "{", "[]", "null", '{"comparisons": 7}', body.replace('"worse"', '"awful"')):
        assert results.read(f"{head}\n{bad}", QUICK) is None


# The same records give the same results, or VERSION is another.


def computed(home: Path) -> dict[str, Any]:
    """Of the stored runs in the golden files, which are made up or were measured."""
    with tarfile.open(sorted(GOLDEN.glob("20??-??-??"))[0] / "store.tar.xz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # as in test_still_readable
        archive.extractall(home / "vmtax")
    with opened(home) as store:
        runs = store.load_all(lambda entry: entry.name != "calibrate")
    return {run.id: json.loads(results.written(Analysis(run).results).partition("\n")[2]) for run in runs}


def differences(then: Any, now: Any, path: str = "") -> Iterator[str]:
    if isinstance(then, dict) and isinstance(now, dict) and then.keys() == now.keys():
        for key in then:
            yield from differences(then[key], now[key], f"{path}.{key}")
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for number, (one, other) in enumerate(zip(then, now, strict=True)):
            yield from differences(one, other, f"{path}.{number}")
    elif isinstance(then, float) and isinstance(now, (float, int)):
        both_nan = math.isnan(then) and math.isnan(now)
        if not both_nan and not math.isclose(then, now, rel_tol=1e-6, abs_tol=1e-9):
            yield f"{path} was {then}, is {now}"
    elif then != now:
        yield f"{path} was {str(then)[:200]}, is {str(now)[:200]}"


def test_other_results_have_another_version(tmp_path: Path) -> None:
    now = {"version": results.VERSION, "runs": computed(tmp_path)}
    then = json.loads(lzma.decompress(KEPT.read_bytes())) if KEPT.exists() else {"version": 0, "runs": {}}
    changed = list(differences(then["runs"], now["runs"]))
    raised = now["version"] > then["version"]
    if raised and "UPDATE_GOLDEN" in os.environ:
        KEPT.write_bytes(lzma.compress(json.dumps(now).encode()))
        return
    assert not changed, "raise VERSION in analysis/results.py, for stored results are others now, then UPDATE_GOLDEN=1"
    assert now["version"] == then["version"], "VERSION was raised: UPDATE_GOLDEN=1 writes the file anew"


def test_a_comparison_without_a_value_is_kept_too() -> None:
    """Of a side that failed in all rounds the ratio is NaN, which JSON's null is not."""
    run = sample_experiment(rounds=2)
    metric = run.trials[0].measurements[0].metric
    lost = tuple(
        dataclasses.replace(trial, status="failed", measurements=(), error="gone")
        if trial.treatment == "vm" and metric in [measurement.metric for measurement in trial.measurements]
        else trial
        for trial in run.trials
    )
    run = dataclasses.replace(run, trials=lost)
    computed = Analysis(run).results
    assert any(math.isnan(comparison.ratio) for comparison in computed.comparisons)
    kept = results.read(results.written(computed), run)
    assert kept is not None and len(kept.comparisons) == len(computed.comparisons)
    assert in_few_words(Analysis(run)).startswith("VM "), "and its headline names what was measured"
