"""Runs carried to another machine: what arrives is what left, and what is no run is refused in one line."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sample import sample_experiment
from vmtax.analysis.analysis import Analysis
from vmtax.core.errors import BAD_INPUT
from vmtax.core.records import Experiment
from vmtax.experiment import archive
from vmtax.experiment.archive import ShareError
from vmtax.experiment.resume import CannotResume, resumable
from vmtax.plan.schema import from_data
from vmtax.store import Store, StoreError

MADE = sample_experiment(rounds=3, failures=2)
SAMPLE = dataclasses.replace(MADE, plan=from_data(MADE.plan).model_dump(mode="json"))


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a store, and a file of its run."""
    directory = tmp_path_factory.mktemp("here")
    with Store(directory / "here.sqlite") as store:
        store.put(SAMPLE)
        archive.export(store, "last", directory / "carried")
    return directory


@pytest.fixture
def file(here: Path, tmp_path: Path) -> Path:
    shutil.copytree(here, tmp_path, dirs_exist_ok=True)
    return tmp_path / "carried"


def test_what_arrives_is_what_left(file: Path, tmp_path: Path) -> None:
    with Store(tmp_path / "there.sqlite") as store:
        carried = archive.import_(store, file)
        found = store.load(carried.id, with_raw=True)
        assert found == dataclasses.replace(SAMPLE, host="local, imported", options={"imported": True}), (
            "raw outputs, facts, disturbances and all"
        )
        assert (carried.name, carried.host, carried.trials) == (found.name, found.host, len(found.trials))
        assert Analysis(found).comparisons == Analysis(SAMPLE).comparisons
        with pytest.raises(StoreError, match=f"^run {SAMPLE.id} is already stored$") as twice:
            archive.import_(store, file)
        assert twice.value.exit_code == BAD_INPUT
        with pytest.raises(CannotResume, match="was imported"):
            resumable(found)
        again = archive.export(store, "last", tmp_path / "again").file
    with Store(tmp_path / "third.sqlite") as store:
        assert archive.import_(store, again).host == "local, imported", "said once"


def test_a_run_that_goes_on_arrives_as_interrupted(tmp_path: Path) -> None:
    with Store(tmp_path / "here.sqlite") as store:
        store.put(dataclasses.replace(SAMPLE, state="running", finished=None))
        file = archive.export(store, "last", tmp_path / "carried").file
    with Store(tmp_path / "there.sqlite") as store:
        archive.import_(store, file)
        assert store.load().state == "interrupted"


def older(path: Path, experiment: Experiment) -> Path:
    """As an earlier version wrote it: one object."""
    answer = {"schema": "vmtax/1", "kind": "run", "data": dataclasses.asdict(experiment)}
    path.write_bytes(gzip.compress(json.dumps(answer).encode()))
    return path


def test_a_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    with Store(tmp_path / "there.sqlite") as store:
        archive.import_(store, older(tmp_path / "older", SAMPLE))
        found = store.load("last", with_raw=True)
    assert found == dataclasses.replace(SAMPLE, host="local, imported", options={"imported": True})


def test_a_raw_output_that_is_gone_is_left_out(tmp_path: Path) -> None:
    with Store(tmp_path / "here.sqlite") as store:
        store.put(SAMPLE)
        next((tmp_path / "raw").rglob("0002-*")).unlink()
        exported = archive.export(store, "last", tmp_path / "carried")
    assert len(exported.missing) == 1 and "0002-" in exported.missing[0]
    with Store(tmp_path / "there.sqlite") as store:
        archive.import_(store, exported.file)
        raws = [trial.raw for trial in store.load("last", with_raw=True).trials]
    assert raws == [*(t.raw for t in SAMPLE.trials[:1]), "", *(t.raw for t in SAMPLE.trials[2:])]


TRIAL = json.loads(json.dumps(dataclasses.asdict(SAMPLE.trials[0])))
FOO = {"name": "x.y", "unit": "foo", "better": "lower"}


def changed(file: Path, change: dict[str, Any]) -> Path:
    kind, run, *others = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    if trials := change.pop("trials", None):
        others = [{"trial": trial} for trial in trials]
    run["run"] |= change
    file.write_bytes(gzip.compress("\n".join(map(json.dumps, [kind, run, *others])).encode()))
    return file


NO_IDS = (  # each could stand for a label, or for the beginning of an id
    *("last", "before", "after", "a", "2026", "20261121", "20261121-0412", "20261121-0412-quick", "run"),
    *("20261121-0412-quick-7F3A", "20261121-0412-quick-7f3", "20261121-0412-quick-7f3a5", "20261121-0412--7f3a"),
    *("20261121-0412-Quick-7f3a", "20261121-0412-qu.ck-7f3a", "20261121-0412-quick--x-7f3a", "20261121-0412-7f3a"),
    *(
        "2026112-0412-quick-7f3a",
        "x20261121-0412-quick-7f3a",
        "20261121-0412-" + "q" * 33 + "-7f3a",
        "٢0261121-0412-q-7f3a",
    ),
    *("20261121-0412-quick-7f3a ", "20261121-0412-quick-7f3a\n", "damaged-ff00"),
)


def test_a_run_that_is_too_large_for_a_file_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = len(SAMPLE.boots) + len(SAMPLE.trials)
    with Store(tmp_path / "here.sqlite") as store:
        store.put(SAMPLE)
        monkeypatch.setattr(archive, "MOST_RECORDS", records)
        archive.export(store, "last", tmp_path / "carried")
        monkeypatch.setattr(archive, "MOST_RECORDS", records - 1)
        monkeypatch.setattr(Store, "load", lambda *_: pytest.fail("it is read"))
        with pytest.raises(ShareError, match=f"{SAMPLE.id}: it has {records} boots and trials, and a file takes"):
            archive.export(store, "last", tmp_path / "carried")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"treatments": []}, "does not fit together: "),
        ({"plan": {}}, "plan: name:"),
        ({"trials": [None]}, "trial: Input should be an object"),
        ({"id": "../../etc/cron.d/x"}, "is none that vmtax gives"),
        ({"created": "soon"}, "created:"),
        ({"state": "dancing"}, "state:"),
        ({"created": 1e12}, "created: Input should be less than 8589934592"),
        ({"created": 8e9}, "is in the future"),
        *(({"id": id}, f"run.id: {id!r} is none that vmtax gives, such as 20261121-") for id in NO_IDS),
        ({"label": "20261121-0412"}, "run.label: looks like a run's id"),
        ({"label": "last"}, "run.label: always means the newest run"),
        ({"facts": {"host": None}}, "facts.host:"),
        ({"facts": {"host": {"boot_id": {}}}}, "facts.host.boot_id:"),
        ({"facts": {"host": {"cpu_model": "\ud800"}}}, "Invalid JSON"),
        ({"facts": {"host": {"x": 2**70}}}, "more than 64 bits"),
        ({"trials": [{**TRIAL, "round": 10**30}]}, "trial.round:"),
        ({"trials": [{**TRIAL, "round": 2**40}]}, "less than 2147483648, not '1099511627776'"),
        ({"trials": [{**TRIAL, "round": True}]}, "trial.round:"),
        ({"trials": [{**TRIAL, "measurements": [{"metric": FOO, "value": 1.0}]}]}, "not 'foo'"),
        ({"trials": [{**TRIAL, "measurements": [{"metric": {**FOO, "unit": "s"}, "value": 1e-320}]}]}, "not '1e-320'"),
    ],
)
@pytest.mark.varied(8)
def test_a_made_up_run_is_refused(file: Path, change: dict[str, Any], words: str, tmp_path: Path) -> None:
    with Store(tmp_path / "there.sqlite") as store:
        with pytest.raises((ShareError, StoreError)) as caught:
            archive.import_(store, changed(file, change))
        assert words in str(caught.value) and len(str(caught.value).splitlines()) == 1
        assert store.experiments() == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200) | st.binary(max_size=200).map(gzip.compress) | st.integers(1, 2000))
def test_anything_else_is_refused(file: Path, tmp_path: Path, content: bytes | int) -> None:
    other = tmp_path / "other"
    other.write_bytes(content if isinstance(content, bytes) else file.read_bytes()[:-content])
    with Store(tmp_path / "there.sqlite") as store, pytest.raises(ShareError, match="other: "):
        archive.import_(store, other)


def test_files_that_are_not_there(tmp_path: Path, file: Path) -> None:
    with Store(tmp_path / "there.sqlite") as store:
        with pytest.raises(ShareError, match="No such file"):
            archive.import_(store, tmp_path / "nothing")
        with pytest.raises(ShareError, match="Is a directory"):
            archive.import_(store, tmp_path)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("target")
    with Store(tmp_path / "here.sqlite") as store:
        with pytest.raises(ShareError, match="is no regular file"):
            archive.export(store, "last", tmp_path / "fifo")
        archive.export(store, "last", tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").is_file() and (tmp_path / "fifo").is_fifo()
    with Store(tmp_path / "here.sqlite") as store, pytest.raises(ShareError, match="name another file with --output"):
        archive.export(store, "last", tmp_path / "no" / "directory")
