"""Fixtures that several files share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spin import Spin, Start
from vmtax.plan import rules
from vmtax.store import Store


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
