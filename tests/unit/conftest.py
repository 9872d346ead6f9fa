"""Fixtures that several files share."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
import typer.testing

from tests.spin import Spin, Start
from vmtax import stats
from vmtax.analysis.analysis import Analysis
from vmtax.core.records import Experiment
from vmtax.plan import rules
from vmtax.stats.arrays import Floats
from vmtax.store import Store, schema


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a database that is not there yet."""
    return tmp_path / "data" / "vmtax.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store(path) as opened:
        yield opened


@pytest.fixture
def lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of guards: what each is to undo."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "vmtax" / "undo"


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def spin(monkeypatch: pytest.MonkeyPatch) -> None:
    """The only workloads are those of tests/spin.py."""
    monkeypatch.setattr(rules, "workload_types", lambda: {"spin": Spin, "start": Start})


@pytest.fixture(scope="session", autouse=True)
def _a_guest_that_is_lost_has_ended() -> Iterator[None]:
    """Guests of these tests are fakes: no QEMU of theirs may still be ending."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vmtax.experiment.trial.LOST_SECONDS", 0.0)
        yield


@pytest.fixture(scope="session", autouse=True)
def _the_command_line_is_built_once() -> Iterator[None]:
    """typer reads the signatures of all commands again for each command that a test gives."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", functools.cache(typer.testing._get_command))
        yield


@pytest.fixture(scope="session", autouse=True)
def _tables_are_described_once() -> Iterator[None]:
    """Thousands of stores are created, and SQLAlchemy writes the same SQL each time."""
    tables: list[str] = []

    def keep(table: Any, *_: object) -> None:
        tables.append(str(table.compile(dialect=written.dialect)))

    def create_all(connection: sa.Connection) -> None:
        for text in tables:
            connection.exec_driver_sql(text)

    written = sa.create_mock_engine("sqlite://", keep)
    schema.TABLES.create_all(written, checkfirst=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema.TABLES, "create_all", create_all)
        yield


# What an Analysis computes from nothing but its experiment.
OF_THE_EXPERIMENT = (
    *("trials", "boot_numbers", "primary_numbers", "medians", "comparisons", "derived_trials", "derived_comparisons"),
    *("rankings", "primary_rankings", "factor_effects", "gains", "disk_features"),
)
EXPERIMENTS = 16  # the newest ones, whose results are kept


@pytest.fixture(scope="session", autouse=True)
def _each_sample_is_analysed_once() -> Iterator[None]:
    """Records are frozen, so analyses of the same experiment, in whatever test, share what they compute from it."""
    kept: OrderedDict[int, tuple[Experiment, dict[str, Any]]] = OrderedDict()

    def shared(name: str, compute: Callable[[Analysis], Any]) -> Callable[[Analysis], Any]:
        def value(analysis: Analysis) -> Any:
            experiment = analysis.experiment
            _, values = kept.setdefault(id(experiment), (experiment, {}))
            kept.move_to_end(id(experiment))
            while len(kept) > EXPERIMENTS:
                kept.popitem(last=False)
            if name not in values:
                values[name] = compute(analysis)
            return values[name]

        return value

    with pytest.MonkeyPatch.context() as patch:
        for name in OF_THE_EXPERIMENT:
            attribute = vars(Analysis)[name]
            patch.setattr(attribute, "func", shared(name, attribute.func))
        yield


@pytest.fixture(scope="session", autouse=True)
def _each_ratio_is_computed_once() -> Iterator[None]:
    """Hundreds of tests analyse the same few samples, and comparing two rows of numbers takes most of that time."""
    computed = stats.paired_ratio
    kept: dict[object, stats.PairedRatio] = {}

    def ratio(before: Floats, after: Floats, *confidence: float, **options: Any) -> stats.PairedRatio:
        key = (*(np.asarray(row).tobytes() for row in (before, after)), confidence, str(sorted(options.items())))
        if key not in kept:
            kept[key] = computed(before, after, *confidence, **options)
        return kept[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stats, "paired_ratio", ratio)
        yield
