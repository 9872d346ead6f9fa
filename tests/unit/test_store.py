"""The store: what goes in comes out, is found again, and what does not belong in it is refused."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sample import CREATED, large_experiment, sample_experiment, unstarted, without_raw
from vmtax.core.records import Experiment, Json, Measurement, Metric, Trial, Unit
from vmtax.store import Store, StoreError, model
from vmtax.store.model import LONGEST_TEXT

SAMPLE = sample_experiment(rounds=2, failures=2)
TRIAL = SAMPLE.trials[0]


def record(store: Store, experiment: Experiment) -> None:
    """As the runner does it."""
    store.begin(unstarted(experiment))
    for machine, facts in experiment.facts.items():
        store.add_facts(experiment.id, machine, facts)
    for boot in experiment.boots:
        store.add_boot(experiment.id, boot)
    for trial in experiment.trials:
        store.add_trials(experiment.id, trial)
    for note in experiment.notes:
        store.add_note(experiment.id, note)
    assert experiment.state != "running"
    assert experiment.finished is not None
    store.finish(experiment.id, experiment.state, experiment.finished)


# Round trip


def test_what_is_recorded_step_by_step_is_what_is_loaded(store: Store) -> None:
    record(store, SAMPLE)
    assert store.load(SAMPLE.id, with_raw=True) == SAMPLE
    assert store.load(SAMPLE.id) == without_raw(SAMPLE)
    assert [store.raw(SAMPLE.id, n) for n in range(1, 6)] == [trial.raw for trial in SAMPLE.trials[:5]]


@pytest.mark.parametrize(("name", "stored"), [("x.a\0b", "x.a\\x00b"), ("x.\ud800", "x.\\ud800"), ("x.ä", "x.ä")])
def test_a_metric_whose_name_cannot_be_stored_has_an_escaped_one(store: Store, name: str, stored: str) -> None:
    """An imported run, or a program of the user's, may have one."""
    metric = dataclasses.replace(TRIAL.measurements[0].metric, name=name)
    one = dataclasses.replace(TRIAL, measurements=(Measurement(metric, 2.0),))
    store.put(dataclasses.replace(SAMPLE, trials=(one,)))
    (measured,) = store.load(SAMPLE.id).trials[0].measurements
    assert (measured.metric.name, measured.value) == (stored, 2.0)


def test_a_run_whose_id_is_no_text_is_damaged_and_is_removed_by_the_name_that_is_listed(path: Path) -> None:
    with Store(path) as store:
        store.put(SAMPLE)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE experiment SET id = ?", (b"abc",))
    with Store(path) as store:
        (listed,) = store.experiments()
        assert (listed.id, listed.state) == ("damaged-616263", "damaged")
        assert store.remove(listed.id) == listed.id and not store.experiments()


def test_it_survives_closing(path: Path) -> None:
    with Store(path) as first:
        first.put(SAMPLE)
    with Store(path) as second:
        assert second.load(with_raw=True) == SAMPLE


@pytest.mark.variations
def test_ten_thousand_measurements(store: Store) -> None:
    experiment = without_raw(large_experiment(10_000))
    store.put(experiment)
    assert store.load() == experiment


any_text = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)
values = st.just(0.0) | st.floats(1e-99, 1e99) | st.floats(-1e99, -1e-99)
trials = st.builds(
    Trial,
    round=st.integers(1, 99),
    position=st.integers(1, 99),
    treatment=st.sampled_from([treatment.name for treatment in SAMPLE.treatments]),
    workload=names,
    case=any_text,
    iteration=st.integers(1, 99),
    status=st.sampled_from(["ok", "failed", "refused"]),
    started=st.floats(0, 2**32),
    wall_seconds=st.floats(0, 1e9),
    measurements=st.lists(
        st.builds(
            Measurement,
            st.builds(Metric, names, st.sampled_from(get_args(Unit)), st.sampled_from(["higher", "lower"])),
            values,
        )
    ).map(tuple),
    warnings=st.lists(any_text).map(tuple),
    error=st.none() | any_text,
    raw=st.text(),  # tools print anything, and surrogates stand for bytes that were not UTF-8
)


free_names = names.filter(lambda name: name not in ("disk", "image"))  # facts of these names are objects


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    trials=st.lists(trials, max_size=4), note=any_text, command=any_text, facts=st.dictionaries(free_names, any_text)
)
def test_odd_text_and_numbers_come_back(
    store: Store, trials: list[Trial], note: str, command: str, facts: dict[str, str]
) -> None:
    id = store.new_id(command, CREATED)
    each_once = tuple(dataclasses.replace(trial, round=number) for number, trial in enumerate(trials, 1))
    experiment = unstarted(
        SAMPLE, id=id, command=command, trials=each_once, notes=(note,), facts={"host": facts}, state="complete"
    )
    store.put(experiment)
    assert store.load(id, with_raw=True) == experiment


def test_bytes_that_are_no_text_do_not_cost_the_trial(store: Store) -> None:
    store.begin(unstarted(SAMPLE))
    store.add_trials(SAMPLE.id, dataclasses.replace(TRIAL, error=b"caf\xe9".decode("utf-8", "surrogateescape")))
    assert store.load().trials[0].error == "caf\\udce9"


def test_tool_that_printed_nothing_has_no_file(store: Store, path: Path) -> None:
    store.begin(unstarted(SAMPLE))
    store.add_trials(SAMPLE.id, dataclasses.replace(TRIAL, raw=""))
    assert store.raw("last", 1) == ""
    assert not list(path.parent.rglob("*.gz"))


def test_path_in_a_case_stays_a_file_name(store: Store, path: Path) -> None:
    store.begin(unstarted(SAMPLE))
    store.add_trials(SAMPLE.id, dataclasses.replace(TRIAL, workload="../..", case="/etc/x"))
    assert [file.name for file in path.parent.rglob("*.gz")] == ["0001-.._..-_etc_x.gz"]
    assert store.raw("last", 1) == TRIAL.raw


def test_facts_of_a_path_are_replaced(store: Store) -> None:
    store.begin(unstarted(SAMPLE))
    store.add_facts(SAMPLE.id, "host", {"cpu": 1})
    store.add_facts(SAMPLE.id, "host", {"cpu": 2})
    assert store.load().facts == {"host": {"cpu": 2}}


# Refused


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 1e150])
def test_a_result_that_could_not_be_read_again_is_a_failed_trial(store: Store, value: float) -> None:
    store.begin(unstarted(SAMPLE))
    measured = Measurement(Metric("chess.nodes_per_second", "1/s", "higher"), value)
    unfit = dataclasses.replace(TRIAL, measurements=(TRIAL.measurements[0], measured))
    (kept,) = store.add_trials(SAMPLE.id, unfit)
    (late,) = store.add_trials(SAMPLE.id, dataclasses.replace(TRIAL, wall_seconds=value))
    loaded = store.load(with_raw=True)
    assert loaded.trials == (kept, late)
    assert kept.error is not None and "measurements.1.value" in kept.error
    assert kept == dataclasses.replace(
        TRIAL, status="failed", error=kept.error, measurements=(), latencies=(), disturbance=None, readings={}
    )
    assert late.status == "failed" and late.wall_seconds == 0


def test_texts_and_facts_are_cut_to_what_can_be_read_again(store: Store) -> None:
    store.begin(unstarted(SAMPLE))
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    long = "x" * (LONGEST_TEXT + 1)
    store.add_facts(
        SAMPLE.id, "host", {"cpu_model": long, "load": float("nan"), "deep": deep, "bytes": 2**64, "cpus": 4}
    )
    store.add_facts(SAMPLE.id, "host/vm", {"disk": "none"})
    store.add_facts(SAMPLE.id, "host/vm/vm", {"many": list(range(200_000))})
    store.add_note(SAMPLE.id, long)
    store.add_boot(SAMPLE.id, dataclasses.replace(SAMPLE.boots[0], warnings=(long,)))
    store.add_trials(
        SAMPLE.id, dataclasses.replace(TRIAL, error=long, warnings=(b"caf\xe9".decode("ascii", "surrogateescape"),))
    )
    found = store.load()
    assert found.facts["host"]["cpus"] == 4
    for text in (found.facts["host"]["cpu_model"], found.notes[0], found.boots[0].warnings[0], found.trials[0].error):
        assert text.startswith("xxx") and text.endswith("(cut here: it had 1048577 characters, 1048576 are the most)")
    assert set(found.facts["host/vm"]) == set(found.facts["host/vm/vm"]) == {"not_kept"}


def test_a_boot_or_a_run_that_could_not_be_read_again_is_refused(store: Store) -> None:
    store.begin(unstarted(SAMPLE))
    with pytest.raises(StoreError, match="kernel_seconds"):
        store.add_boot(SAMPLE.id, dataclasses.replace(SAMPLE.boots[0], kernel_seconds=float("nan")))
    with pytest.raises(StoreError, match="plan"):
        store.begin(dataclasses.replace(unstarted(SAMPLE), id="another", plan={}))
    assert store.load() == unstarted(SAMPLE)


def test_unknown_experiment_or_treatment(store: Store, path: Path) -> None:
    store.begin(unstarted(SAMPLE))
    for id, treatment in (("nobody", TRIAL.treatment), (SAMPLE.id, "moon")):
        with pytest.raises(StoreError, match=r"no run 'nobody'|no such configuration"):
            store.add_trials(id, dataclasses.replace(TRIAL, treatment=treatment))
    with pytest.raises(StoreError, match="no run 'nobody'; `vmtax runs` lists them all"):
        store.finish("nobody", "complete", CREATED)
    assert store.load().trials == ()
    assert not list(path.parent.rglob("*.gz"))


def test_begin_twice_or_late(store: Store) -> None:
    store.begin(unstarted(SAMPLE))
    with pytest.raises(StoreError, match="is already stored"):
        store.begin(unstarted(SAMPLE))
    with pytest.raises(ValueError, match="not a new"):
        store.begin(SAMPLE)


@pytest.mark.parametrize("id", ["", "../x", "a/b", ".hidden", "x" * 101])
def test_id_that_would_leave_the_directory(store: Store, id: str) -> None:
    with pytest.raises(StoreError, match="cannot be an experiment's id"):
        store.put(dataclasses.replace(SAMPLE, id=id))


# Finding


def test_prefix_last_and_nearest(store: Store) -> None:
    for when, id in ((1.0, "20261121-0412-quick-aaaa"), (3.0, "20261121-0412-quick-aabb"), (2.0, "20261122-full-0001")):
        store.begin(unstarted(SAMPLE, id=id, created=when))
    assert store.load().id == store.load("last").id == "20261122-full-0001", "by arrival"
    assert store.load("20261122").id == "20261122-full-0001"
    assert [summary.created for summary in store.experiments()] == [2.0, 3.0, 1.0]
    with pytest.raises(StoreError, match="several runs: 20261121-0412-quick-aabb, 20261121-0412-quick-aaaa"):
        store.load("20261121")
    with pytest.raises(StoreError, match="nearest: 20261121-0412-quick-aaaa"):
        store.load("20261121-0412-quack-aaaa")
    with pytest.raises(StoreError, match="no run '%'"):
        store.load("%")


def test_id_that_is_the_beginning_of_another(store: Store) -> None:
    store.begin(unstarted(SAMPLE, id="a-1"))
    store.begin(unstarted(SAMPLE, id="a-12"))
    assert store.load("a-1").id == "a-1"


def test_nothing_there_yet(store: Store) -> None:
    assert store.experiments() == []
    with pytest.raises(StoreError, match="no runs yet"):
        store.load()


def test_new_id_is_sortable_unique_and_safe(store: Store) -> None:
    ids = {store.new_id("Quick ../é", CREATED) for _ in range(20)}
    assert all(id.startswith("20261121-0412-quick-") and len(id) == 24 for id in ids)
    assert len(ids) > 1
    assert store.new_id("éé", CREATED).startswith("20261121-0412-run-")


@pytest.mark.parametrize(
    ("changes", "alike"),
    [
        ({}, True),
        ({"budget": 60.0, "precision": 0.05, "rounds": {"min": 9, "max": 9}, "seed": 3, "decide": None}, True),
        ({"combinations": [{"name": None, "levels": {"disk.cache": ["none"]}}]}, False),
        ({"design": "one-at-a-time"}, False),
        ({"only_primary": True}, False),
        ({"primary": ["chess.nodes_per_second"]}, False),
        ({"iterations": 3}, False),
        ({"a key of a later version": True}, False),
    ],
)
@pytest.mark.varied(3)
def test_the_pace_of_a_run_is_that_of_the_same_work_only(store: Store, changes: Json, alike: bool) -> None:
    store.put(SAMPLE)
    found = store.seconds_per_round({**SAMPLE.plan, **changes}, "local", emulated=True)
    assert (found is not None) == alike
    assert store.seconds_per_round({**SAMPLE.plan, **changes}, "local", emulated=False) is None


def test_the_pace_counts_guests_that_work_at_once_only_once(store: Store) -> None:
    """One of two works longer; the run took less than both together."""
    first = SAMPLE.trials[0]
    pair = [
        dataclasses.replace(first, machine=name, wall_seconds=s) for name, s in (("host/vm", 30.0), ("host/vm-2", 40.0))
    ]
    store.put(dataclasses.replace(SAMPLE, trials=tuple(pair), created=0.0, finished=50.0, seconds=None))
    assert store.seconds_per_round(SAMPLE.plan, "local", emulated=True) == pytest.approx(50.0 / first.round)
    store.remove("last")
    store.put(dataclasses.replace(SAMPLE, trials=tuple(pair), created=0.0, finished=500.0, seconds=None))
    found = store.seconds_per_round(SAMPLE.plan, "local", emulated=True)
    assert found == pytest.approx(3 * 40.0 / first.round), "a run that was paused took three times its work at most"


def test_summary_counts(store: Store) -> None:
    record(store, SAMPLE)
    (summary,) = store.experiments()
    assert (summary.treatments, summary.rounds) == (3, 2)
    assert (summary.ok, summary.failed) == (len(SAMPLE.trials) - 2, 2)
    assert (summary.state, summary.finished) == ("complete", SAMPLE.finished)


def test_raw_that_is_not_there(store: Store, path: Path) -> None:
    store.put(SAMPLE)
    with pytest.raises(StoreError, match="no trial number 99999"):
        store.raw("last", 99_999)
    (file,) = path.parent.rglob("0001-*.gz")
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(StoreError, match=f"{file}: the raw output cannot be read"):
        store.raw("last", 1)
    file.unlink()
    with pytest.raises(StoreError, match="No such file"):
        store.load(with_raw=True)
    assert store.load() == without_raw(SAMPLE)


def test_trials_are_read_in_parts_and_a_damaged_one_is_named_by_its_place(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(SAMPLE)
    for size in (1, 7, len(SAMPLE.trials), 1000):
        monkeypatch.setattr(model, "AT_ONCE", size)
        assert store.load(with_raw=True) == SAMPLE
        with sqlite3.connect(store.path) as connection:
            connection.execute("UPDATE trial SET wall_seconds = -1 WHERE number = 12")
        with pytest.raises(StoreError, match=r"trials\.11\.wall_seconds: "):
            store.load()
        with sqlite3.connect(store.path) as connection:
            connection.execute("UPDATE trial SET wall_seconds = ? WHERE number = 12", (SAMPLE.trials[11].wall_seconds,))
