"""Where a store is, as users name it; a password is never shown."""

from __future__ import annotations

import builtins
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from vmtax.cli.app import app
from vmtax.cli.store_address import pin_store, typed_address
from vmtax.core.errors import BAD_INPUT
from vmtax.store import Store, StoreError, default_path
from vmtax.store.address import STORE, BadAddress, ServerAddress, address_of, default_address
from vmtax.store.listing import listed


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("postgresql://db/vmtax", "postgresql://db/vmtax"),
        ("postgres://db/vmtax", "postgresql://db/vmtax"),
        ("PostgreSQL://db/vmtax", "postgresql://db/vmtax"),
        ("postgresql://me@db:5433/vmtax", "postgresql://me@db:5433/vmtax"),
        ("postgresql://me:secret@db/vmtax", "postgresql://me@db/vmtax"),
        ("postgresql://me:sec%40ret@[::1]:1/vmtax", "postgresql://me@[::1]:1/vmtax"),
        ("postgresql://me:se@cret@db/vmtax", "postgresql://me@db/vmtax"),
        ("postgresql://me:secret?x#y@db/vmtax", "postgresql://me@db/vmtax"),
        ("postgresql://me:sec?secret@db:5433/vmtax?sslmode=require", "postgresql://me@db:5433/vmtax"),
        ("postgresql://db:5432/vmtax?user=me@site", "postgresql://db:5432/vmtax"),
        ("postgresql://me@one:1,two:2/vmtax", "postgresql://me@one:1,two:2/vmtax"),
        ("postgresql://?service=vmtax", "postgresql://?service=vmtax"),
        ("postgresql:///vmtax?host=/run/postgresql", "postgresql:///vmtax?host=/run/postgresql"),
        ("postgresql://db/vmtax?password=secret&sslmode=require", "postgresql://db/vmtax"),
        ("postgresql://db/?dbname=vmtax&sslpassword=secret", "postgresql://db/?dbname=vmtax"),
    ],
)
def test_an_address_is_shown_without_its_password(given: str, shown: str) -> None:
    address = address_of(given)
    assert isinstance(address, ServerAddress)
    assert str(address) == shown and "secret" not in repr(str(address))
    if "secret" in given or "sec%40ret" in given or "se@cret" in given:
        with pytest.raises(BadAddress, match=r"on the command line, .* ~/\.pgpass, or .* VMTAX_STORE") as caught:
            typed_address(given)
        assert "cret" not in str(caught.value)
    else:
        assert typed_address(given) == address


@pytest.mark.parametrize("given", ["runs.sqlite", "/var/lib/vmtax/runs", "./postgresql", "a b"])
def test_anything_else_is_a_file(given: str) -> None:
    assert address_of(given) == Path(given)


@pytest.mark.parametrize(
    "given",
    [
        "mysql://u:secret@db/vmtax",
        "postgresql+psycopg://u:secret@db/vmtax",
        "postgresql:secret",
        "sqlite:///secret/x",
        "postgresql://u:secret@db",
        "postgresql://u:secret@db/",
        "postgresql://u:secret@[db/vmtax",
        "postgresql://u:secret/x@db/vmtax",
        "postgresql://u:12secret/x@db/vmtax",
        "postgresql://u:secret#x/vmtax",
        "postgresql://u:secret?x/vmtax",
    ],
)
def test_what_is_no_address_is_refused_in_one_line_without_a_password(given: str) -> None:
    with pytest.raises(BadAddress, match="right is a file, or postgresql://USER@HOST/DATABASE") as caught:
        address_of(given)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value).replace("sqlite:///secret", "")


def test_the_environment_names_the_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(STORE, str(tmp_path / "x"))
    assert default_address() == default_path() == Store().path == tmp_path / "x"
    monkeypatch.setenv(STORE, "postgresql://me:secret@127.0.0.1:9/vmtax")
    with pytest.raises(StoreError, match=r"postgresql://me@127\.0\.0\.1:9/vmtax is no file"):
        default_path()
    assert listed() == [], "a server is not asked at each press of Tab"


@pytest.mark.parametrize(
    "words", [("--store", "x.sqlite", "runs"), ("runs", "--store", "x.sqlite"), ("runs", "--store=x.sqlite")]
)
def test_the_option_may_stand_before_and_after_the_command(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(STORE, "nowhere")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.sqlite").write_text("no database " * 100)
    done = CliRunner().invoke(app, words)
    assert str(done.exception).startswith(f"{tmp_path}/x.sqlite: is damaged, or not a database")


def test_an_empty_address_is_none() -> None:
    done = CliRunner().invoke(app, ["--store", "", "runs"])
    assert "--store is empty" in str(done.exception)


def test_processes_that_are_started_elsewhere_have_the_same_store(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for given, pinned in (
        ("x.sqlite", f"{tmp_path}/x.sqlite"),
        ("postgresql://me:secret@db/vmtax", "postgresql://me:secret@db/vmtax"),
    ):
        monkeypatch.setenv(STORE, given)
        pin_store()
        assert os.environ[STORE] == pinned


def test_without_psycopg_one_line_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name == "psycopg":
            raise ImportError(name)
        return imported(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(StoreError, match=r"needs psycopg: type `pip install 'vmtax\[postgresql\]'`"):
        Store(ServerAddress("postgresql://db/vmtax"))


def test_a_store_that_is_not_there_is_not_copied(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["store", "copy", str(tmp_path / "absent"), str(tmp_path / "new")])
    assert getattr(done.exception, "exit_code", None) == BAD_INPUT
    assert str(done.exception) == f"{tmp_path}/absent: there is no such store"
    assert not [*tmp_path.iterdir()]
