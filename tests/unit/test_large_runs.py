"""Runs of 100,000 trials are read in little memory: what each further trial takes is bounded."""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter

from tests.sample import sample_experiment, without_raw
from tests.sample_durability import durability_experiment
from tests.sample_storage import storage_experiment
from vmtax.analysis.analysis import Analysis
from vmtax.core.compact import Packer, unpacked
from vmtax.core.records import Experiment, Trial
from vmtax.report.render import csv
from vmtax.report.render.formats import FORMATS
from vmtax.stats import ratio
from vmtax.store import Store, model

FEW, MANY = 6, 18  # rounds


def growth(taken: Callable[[int], int]) -> float:
    """Bytes for each further trial; `taken`: bytes with a given number of rounds."""
    few, many = (taken(rounds) for rounds in (FEW, MANY))
    return (many - few) / (len(sample_experiment(rounds=MANY).trials) - len(sample_experiment(rounds=FEW).trials))


def stored(directory: Path, rounds: int) -> Store:
    path = directory / f"{rounds}" / "vmtax.sqlite"
    with Store(path) as store:
        store.put(without_raw(sample_experiment(rounds=rounds)))
    return Store(path, reads=True)


@pytest.mark.variations
def test_a_stored_run_takes_little_memory(tmp_path: Path) -> None:
    def taken(rounds: int) -> int:
        with stored(tmp_path, rounds) as store:
            store.load()  # what is created once
            gc.collect()
            tracemalloc.start()
            try:
                run = store.load()
                gc.collect()
                return tracemalloc.get_traced_memory()[0] if run.trials else 0
            finally:
                tracemalloc.stop()

    assert growth(taken) < 2000  # as dictionaries and tuples: 3,300


@pytest.mark.parametrize(("name", "most"), [("csv", 400), ("json", 400)])
@pytest.mark.variations
def test_what_is_written_is_not_in_memory_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, most: float
) -> None:
    monkeypatch.setattr(csv, "AT_ONCE", 50)

    def taken(rounds: int) -> int:
        with stored(tmp_path, rounds) as store:
            analysis = Analysis(store.load())
        next(FORMATS[name].pieces(analysis))  # what is computed and created once
        gc.collect()
        tracemalloc.start()
        try:
            for _ in FORMATS[name].pieces(analysis):
                pass
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert growth(taken) < most


RUNS = {
    "layers": sample_experiment(rounds=2),
    "failures": sample_experiment(rounds=3, failures=4),
    "storage": storage_experiment(rounds=1, failed=1),
    "durability": durability_experiment(),
    "no trials": dataclasses.replace(sample_experiment(rounds=1), trials=(), boots=()),
}


@pytest.mark.parametrize("name", RUNS)
def test_packed_trials_are_equal_to_what_they_were(name: str) -> None:
    packer = Packer()
    for trial in RUNS[name].trials:
        packed = packer.packed(trial)
        assert packed == trial and trial == packed
        assert len(packed.readings) == len(trial.readings) and len(packed.latencies) == len(trial.latencies)
        assert list(packed.readings) == list(trial.readings)
        assert packed.latencies[:1] == trial.latencies[:1]
        plain = unpacked(packed)
        assert dataclasses.asdict(plain) == dataclasses.asdict(trial)
        assert type(plain.latencies) is tuple and {type(rows) for rows in plain.readings.values()} <= {dict}


def test_a_packed_trial_differs_from_another() -> None:
    trial = next(trial for trial in RUNS["layers"].trials if trial.readings and trial.latencies)
    path, rows = next(iter(trial.readings.items()))
    name = next(iter(rows))
    others: tuple[Trial, ...] = (
        dataclasses.replace(trial, readings={**trial.readings, path: {**rows, name: rows[name] + 1}}),
        dataclasses.replace(trial, readings={**trial.readings, path: {**rows, "another": 1.0}}),
        dataclasses.replace(trial, latencies=trial.latencies[1:]),
        dataclasses.replace(trial, latencies=(*trial.latencies[:-1], (1.0, 9.0))),
    )
    packer = Packer()
    for other in others:
        assert packer.packed(trial) != packer.packed(other) and packer.packed(trial) != other


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("at_once", [1, 7, 10_000])
def test_the_digest_is_that_of_the_whole_text(name: str, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "AT_ONCE", at_once)
    run = RUNS[name]
    whole = TypeAdapter(Experiment).dump_json(run, exclude={"trials": {"__all__": {"raw"}}})
    packed = dataclasses.replace(run, trials=tuple(map(Packer().packed, run.trials)))
    assert model.fingerprint(packed) == hashlib.blake2b(whole, digest_size=32).hexdigest()


@pytest.mark.parametrize("rounds", [2, 7, 255, 256, ratio.FEW, ratio.FEW + 1])
def test_orders_in_small_numbers_are_those_that_were_always_drawn(rounds: int) -> None:
    drawn = np.random.default_rng(rounds).permuted(np.tile(np.arange(rounds), (ratio.PERMUTATIONS, 1)), axis=1)
    assert (ratio._orders(rounds) == drawn).all()
    assert ratio._orders(rounds).nbytes <= 2 * rounds * ratio.PERMUTATIONS
