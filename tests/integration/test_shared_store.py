"""The store in a real PostgreSQL: what it keeps in a file it keeps here, whoever dies, and whoever else writes."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.command import vmtax
from tests.fake_testbed import SEVEN, Lab, bench
from tests.postgresql import USER, PostgresqlServer
from tests.sample import sample_experiment, unstarted, without_raw
from tests.sample_many import a_run

# The store's own tests, on the other database: those that look at no files.
from tests.unit.test_owner import (
    test_a_trial_has_one_result_and_may_fail_before_it,  # noqa: F401
    test_of_an_imported_trial_with_two_results_the_first_counts,  # noqa: F401
)
from tests.unit.test_store import (  # noqa: F401
    record,
    test_a_boot_or_a_run_that_could_not_be_read_again_is_refused,
    test_a_result_that_could_not_be_read_again_is_a_failed_trial,
    test_begin_twice_or_late,
    test_bytes_that_are_no_text_do_not_cost_the_trial,
    test_facts_of_a_path_are_replaced,
    test_id_that_is_the_beginning_of_another,
    test_id_that_would_leave_the_directory,
    test_new_id_is_sortable_unique_and_safe,
    test_nothing_there_yet,
    test_odd_text_and_numbers_come_back,
    test_prefix_last_and_nearest,
    test_summary_counts,
    test_ten_thousand_measurements,
    test_texts_and_facts_are_cut_to_what_can_be_read_again,
    test_the_pace_counts_guests_that_work_at_once_only_once,
    test_the_pace_of_a_run_is_that_of_the_same_work_only,
    test_what_is_recorded_step_by_step_is_what_is_loaded,
)
from tests.unit.test_store_faults import test_threads_share_a_store  # noqa: F401
from vmtax.cli import many
from vmtax.core.errors import BAD_INPUT
from vmtax.core.records import Measurement, Metric
from vmtax.store import Store, StoreError
from vmtax.store.address import ServerAddress
from vmtax.store.copying import CopiedRun, copy_runs
from vmtax.store.dialect import postgresql, postgresql_locks

pytestmark = pytest.mark.machines
ROOT = Path(__file__).parents[2]
SAMPLE = sample_experiment(rounds=1)
TRIAL = next(trial for trial in SAMPLE.trials if trial.status == "ok")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresqlServer]:
    with PostgresqlServer() as started:
        yield started


@pytest.fixture
def address(server: PostgresqlServer) -> ServerAddress:
    return server.database()


@pytest.fixture
def store(address: ServerAddress) -> Iterator[Store]:
    with Store(address) as opened:
        yield opened


@pytest.fixture
def own_server() -> Iterator[PostgresqlServer]:
    """One that a test may stop."""
    with PostgresqlServer() as started:
        yield started


BEGINS = """
import dataclasses, sys
from tests.sample import sample_experiment, unstarted
from vmtax.core.errors import BAD_INPUT
from vmtax.core.records import Measurement, Metric
from vmtax.store import Store
from vmtax.store.address import ServerAddress
sample = sample_experiment(rounds=1)
trial = next(trial for trial in sample.trials if trial.status == "ok")
with Store(ServerAddress(sys.argv[1])) as store:
    store.begin(unstarted(sample, id=sys.argv[2]))
    print("begun", store.take_host(sys.argv[2]), flush=True)
    for number in range(1, int(sys.argv[3]) + 1):
        measured = Measurement(Metric(f"chess.{sys.argv[4]}_{number % 7}", "1/s", "higher"), float(number))
        new = dataclasses.replace(trial, iteration=number, measurements=(measured,), raw=f"output {number} " * 50)
        store.add_trials(sys.argv[2], new)
    print("written", flush=True)
    sys.stdin.read()
"""


@contextmanager
def begun_elsewhere(
    address: ServerAddress, id: str, trials: int = 0, name: str = "x"
) -> Iterator[subprocess.Popen[str]]:
    """Another process that runs an experiment, named as its host, of this store."""
    argv = [sys.executable, "-c", BEGINS, address.url, id, str(trials), name]
    with subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "begun True\n"
        try:
            yield process
        finally:
            process.kill()


# One owner, and one measurement on a host


def test_a_run_of_another_process_is_neither_removed_nor_resumed_until_that_ends(address: ServerAddress) -> None:
    with begun_elsewhere(address, "theirs") as process, Store(address) as store:
        assert [entry.state for entry in store.experiments()] == ["running"]
        with pytest.raises(StoreError, match="theirs is running: end it first"):
            store.remove("theirs")
        with pytest.raises(StoreError, match="theirs is running and cannot be resumed"):
            store.resume("theirs")
        with pytest.raises(StoreError, match="theirs is no longer run by this process"):
            store.add_trials("theirs", TRIAL)
        assert not store.take_host("theirs") and store.take_host("another")
        process.kill()
        process.wait()
        wait_until(lambda: store.load("theirs").state == "interrupted")
        store.resume("theirs")
        assert store.load("theirs").state == "running" and store.take_host("theirs")
        store.add_trials("theirs", TRIAL)
    with Store(address) as store:
        assert [entry.state for entry in store.experiments()] == ["running"], "this process lives"
        assert store.take_host("theirs"), "what a store took ends with it"


def test_a_store_that_is_at_rest_has_one_connection_besides_that_of_its_locks(
    server: PostgresqlServer, address: ServerAddress
) -> None:
    """Threads that ask at the same moment have one each, for that moment: a server has a hundred for all."""
    connected = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with Store(address) as store:
        store.begin(unstarted(SAMPLE, id="mine"))
        at_once = threading.Barrier(4)

        def asks() -> None:
            with store._database.begun(writes=False):
                at_once.wait(60)

        threads = [threading.Thread(target=asks) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not at_once.broken
        wait_until(lambda: server.sql(address, connected) == "2")


def wait_until(holds: Callable[[], bool]) -> None:
    """The server sees the end of a process when it reads from its socket: milliseconds later."""
    deadline = threading.Event()
    for _ in range(500):
        if holds():
            return
        deadline.wait(0.01)
    raise AssertionError("it never happened")


def test_many_writers_lose_nothing_and_share_their_metrics(address: ServerAddress) -> None:
    """All make the tables, and all insert the same new metrics."""
    runs = [f"run-{number}" for number in range(5)]
    argv = [sys.executable, "-c", BEGINS, address.url]
    pipe = subprocess.PIPE
    writers = [
        subprocess.Popen([*argv, run, "30", "same"], cwd=ROOT, stdin=pipe, stdout=pipe, text=True) for run in runs
    ]
    for writer in writers:
        output, _ = writer.communicate()
        assert (output, writer.returncode) == ("begun True\nwritten\n", 0)
    with Store(address) as store:
        for run in runs:
            loaded = store.load(run, with_raw=True)
            assert [trial.iteration for trial in loaded.trials] == list(range(1, 31))
            assert all(trial.raw == f"output {trial.iteration} " * 50 for trial in loaded.trials)
            assert loaded.trials[6].measurements == (Measurement(Metric("chess.same_0", "1/s", "higher"), 7.0),)


# The server goes away


def restarted_in_round(round: int, action: Callable[[], None]) -> Callable[[int, str], object]:
    seen: list[int] = []

    def answer(number: int, treatment: str) -> object:
        if number == round and not seen:
            seen.append(number)
            action()
        return bench(rate=10_000 + number)

    return answer


@pytest.mark.parametrize("how", ["fast", "immediate", "kill"])
def test_a_run_goes_on_over_a_restart_of_the_server_with_each_trial_once(
    how: str, own_server: PostgresqlServer, tmp_path: Path
) -> None:
    address = own_server.database()

    def restart() -> None:
        own_server.kill() if how == "kill" else own_server.stop(how)
        threading.Timer(1.0, own_server.start).start()  # so that the run meets a server that is away

    lab = Lab(SEVEN, restarted_in_round(4, restart), tmp_path)  # type: ignore[arg-type]
    lab.store = Store(address)
    run = lab.run()
    assert run.state == "complete"
    keys = [(trial.round, trial.treatment, trial.workload, trial.case, trial.iteration) for trial in run.trials]
    assert len(keys) == len(set(keys)) and {trial.round for trial in run.trials} == set(range(1, 8))


def test_a_run_that_another_process_took_while_the_server_was_away_stops(
    own_server: PostgresqlServer, tmp_path: Path
) -> None:
    address = own_server.database()
    before: list[int] = []
    theirs = Store(address)

    def taken_over() -> None:
        own_server.stop("immediate")
        own_server.start()
        theirs.__enter__()
        before.append(len(theirs.load("last").trials))
        assert theirs._locks.take(theirs.load("last").id)

    lab = Lab(SEVEN, restarted_in_round(4, taken_over), tmp_path)  # type: ignore[arg-type]
    lab.store = Store(address)
    try:
        with pytest.raises(StoreError, match="no longer run by this process, but by another one: nothing recorded"):
            lab.run()
        assert len(lab.experiment.trials) == before[0] > 0
    finally:
        theirs.__exit__()


def test_a_server_that_does_not_return_ends_a_run_with_one_line(
    own_server: PostgresqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "RETURN_SECONDS", 0.1)
    monkeypatch.setattr(postgresql_locks, "RETAKE_SECONDS", 0.1)
    address = own_server.database()
    with Store(address) as store:
        store.begin(unstarted(SAMPLE, id="a"))
        own_server.stop("immediate")
        with pytest.raises(StoreError, match=r"^postgresql://[^ ]+: cannot be reached .*: `psql` with") as caught:
            store.add_trials("a", TRIAL)
        assert "\n" not in str(caught.value)
        own_server.start()
        store.add_trials("a", TRIAL)
        assert len(store.load("a").trials) == 1
    with pytest.raises(StoreError, match="cannot be reached"):
        own_server.stop()
        with Store(address):
            pass


# Bad databases


def name_of(address: ServerAddress) -> str:
    return address.url.split("/")[3].partition("?")[0]


def as_reader(server: PostgresqlServer, address: ServerAddress) -> ServerAddress:
    server.sql(address, "CREATE ROLE reader LOGIN")
    server.sql(address, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
    return server.address(name_of(address), "reader")


def changed(statement: str) -> Callable[[PostgresqlServer, ServerAddress], ServerAddress]:
    def change(server: PostgresqlServer, address: ServerAddress) -> ServerAddress:
        server.sql(address, statement)
        return address

    return change


CASES: dict[str, tuple[Callable[[PostgresqlServer, ServerAddress], ServerAddress], str]] = {
    "newer": (changed("UPDATE meta SET value = '99'"), "schema 99, this vmtax knows 8 only: use the vmtax that wrote"),
    "older": (changed("UPDATE meta SET value = '7'"), "schema 7, this vmtax knows 8 only"),
    "no version": (changed("DELETE FROM meta"), "schema None, this vmtax knows 8 only"),
    "another program's": (changed("DROP TABLE meta"), "this is another program's database: name another database"),
    "a table is missing": (changed("DROP TABLE note"), "a table is missing .*: restore a backup"),
    "only to be read": (
        lambda server, address: changed(f"ALTER DATABASE {name_of(address)} SET default_transaction_read_only = on")(
            server, address
        ),
        "can only be read: name the primary server",
    ),
    "may not write": (as_reader, r"this user may not do that \(permission denied for table .*let its owner GRANT it"),
    "no database": (lambda server, _: server.address("absent"), 'cannot be reached .*"absent" does not exist'),
    "no user": (lambda server, _: server.address("postgres", "nobody"), 'cannot be reached .*"nobody" does not exist'),
    "no server": (
        lambda *_: ServerAddress("postgresql://u:secret@127.0.0.1:9/d"),
        "u@127.0.0.1:9/d: cannot be reached",
    ),
    "no name": (lambda *_: ServerAddress("postgresql://u:secret@nowhere.invalid/d"), "cannot be reached|connection"),
    "no such option": (
        lambda *_: ServerAddress("postgresql://u:secret@/d?host=/tmp&colour=red"),
        "invalid URI query parameter",
    ),
    "no such port": (lambda *_: ServerAddress("postgresql://u:secret@127.0.0.1:99999/d"), "invalid port number"),
    "no address": (lambda *_: ServerAddress("postgresql://u:secret@h/d%zz"), "invalid percent-encoded"),
    "its encoding": (
        lambda server, _: server.database("--encoding=SQL_ASCII", "--template=template0", "--locale=C"),
        "its encoding is SQL_ASCII, and must be UTF8",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_database_of_no_use_costs_one_line_without_a_password(case: str, server: PostgresqlServer) -> None:
    address = server.database()
    with Store(address) as store:
        store.put(SAMPLE)
    change, words = CASES[case]
    bad = change(server, address)
    with pytest.raises(StoreError, match=words) as caught, Store(bad) as store:
        store.refuse_unwritable()
        store.put(dataclasses.replace(SAMPLE, id="b"))
    assert "\n" not in str(caught.value) and "secret" not in str(caught.value)
    if case in ("only to be read", "may not write"):
        with Store(bad, reads=True) as store:
            assert store.load() == without_raw(SAMPLE)


def test_a_full_disk_of_the_server_costs_the_trial_and_nothing_before_it(own_server: PostgresqlServer) -> None:
    server = own_server
    small = server.place / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=14m,mode=777", "tmpfs", str(small)], check=True)
    try:
        (place := small / "space").mkdir()
        (spare := small / "spare").write_bytes(bytes(2**20))
        subprocess.run(["chown", USER, str(place)], check=True)
        server.sql(server.address("postgres"), f"CREATE TABLESPACE small LOCATION '{place}'")
        address = server.database("--tablespace=small")
        with Store(address) as store:
            store.begin(unstarted(SAMPLE, id="a"))
            written = 0
            with pytest.raises(StoreError, match=r"its disk is full .*: free some space on the server"):
                for written in range(500):
                    incompressible = "".join(map(chr, range(0x4E00, 0x9000))) * 20
                    store.add_trials("a", dataclasses.replace(TRIAL, iteration=written + 1, raw=incompressible))
            spare.unlink()
            assert written and len(store.load("a").trials) == written
    finally:
        subprocess.run(["umount", "--lazy", str(small)], check=True)


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_a_pooler_is_refused_by_who_writes(mode: str, server: PostgresqlServer, address: ServerAddress) -> None:
    name = name_of(address)
    with Store(address) as store:
        store.put(SAMPLE)
    place = server.place / f"pooler-{mode}"
    place.mkdir()
    subprocess.run(["chown", USER, str(place)], check=True)
    (place / "users").write_text('"vmtax" ""\n')
    (place / "ini").write_text(
        f"[databases]\n* = host={server.place}\n[pgbouncer]\nlisten_port = 6432\nunix_socket_dir = {place}\n"
        f"auth_type = trust\nauth_file = {place}/users\npool_mode = {mode}\npidfile = {place}/pid\n"
    )
    argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "pgbouncer", str(place / "ini")]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as pooler:
        try:
            assert pooler.stderr and any("process up" in line for line in pooler.stderr)
            through = ServerAddress(f"postgresql://vmtax@/{name}?host={place}&port=6432")
            with (
                pytest.raises(StoreError, match="answers through a connection pooler, such as PgBouncer"),
                Store(through),
            ):
                pass
            with Store(through, reads=True) as store:
                assert store.load() == without_raw(SAMPLE)
        finally:
            pooler.kill()


# The command line

COMMANDS = (
    *("runs", "runs --json", "show", "show --full", "show --json", "report -o r.html", "report --format csv -o r.csv"),
    *("export last -o r.gz", "compare one two", "runs rm one --yes", "import r.gz", "clean --yes", "fleet status two"),
    *("fleet stop two", "fleet stop two --undo", "fleet show", "fleet show --format html -o f.html", "history"),
)


def test_every_command_takes_a_shared_store_and_prints_no_password(address: ServerAddress, tmp_path: Path) -> None:
    secret = ServerAddress(address.url.replace("vmtax@", "vmtax:Xq7secret@", 1))
    with Store(secret) as store:
        for number, label in ((1, "one"), (2, "two")):
            run = sample_experiment(rounds=7)
            store.put(dataclasses.replace(run, id=f"20261121-0412-quick-000{number}", label=label))
    environment = {**os.environ, "VMTAX_STORE": secret.url, "HOME": str(tmp_path), "VMTAX_DEBUG": "1"}
    environment |= {f"XDG_{kind}_HOME": str(tmp_path / kind) for kind in ("DATA", "STATE", "CACHE")}
    for words in COMMANDS:
        done = vmtax(*words.split(), cwd=tmp_path, environment=environment)
        expected = BAD_INPUT if words.startswith("import") else 0  # it is there already
        assert done.returncode == expected, f"{words}: {done.stdout}{done.stderr}"
        assert "Xq7secret" not in done.stdout + done.stderr
    assert not (tmp_path / "DATA").exists(), "nothing is stored here besides"
    assert b"Xq7secret" not in (tmp_path / "r.html").read_bytes()


# Text, and copies


def test_what_postgresql_refuses_in_text_is_escaped_on_both(store: Store, tmp_path: Path) -> None:
    with Store(tmp_path / "store.sqlite") as file:
        for each in (store, file):
            each.begin(unstarted(SAMPLE, id="a"))
            each.add_facts("a", "host", {"cpu_model": "a\0b"})
            each.add_note("a", "one\0two")
            each.add_trials("a", dataclasses.replace(TRIAL, error="\0", raw="\0raw"))
            run = each.load("a", with_raw=True)
            assert (run.notes, run.trials[0].error) == (("one\\x00two",), "\\x00")
            assert (run.facts["host"], run.trials[0].raw) == ({"cpu_model": "a\0b"}, "\0raw")


def test_a_store_is_copied_both_ways_and_compared(address: ServerAddress, tmp_path: Path) -> None:
    runs = [dataclasses.replace(SAMPLE, id=f"run-{number}", label=f"l{number}") for number in (3, 1, 2)]
    told: list[CopiedRun] = []
    with Store(tmp_path / "a.sqlite") as first, Store(address) as shared, Store(tmp_path / "b.sqlite") as last:
        for run in runs:
            record(first, run)
        first.keep_results(first.load("run-1"), "some results")
        first.keep_headline("run-1", "3 % slower")
        with first._database.writing() as connection:  # as an earlier version stored it
            connection.exec_driver_sql("UPDATE note SET text = 'one' || char(0) || 'two' WHERE experiment = 'run-2'")
        assert copy_runs(first, shared, told.append) == {"copied": 3}
        assert copy_runs(shared, last, told.append) == {"copied": 3}
        assert copy_runs(first, last, told.append) == {"there already": 3}
        assert [run.id for run in told[:3]] == ["run-3", "run-1", "run-2"]
        assert {run.trials for run in told} == {len(SAMPLE.trials)}
        assert [entry.id for entry in last.experiments()] == ["run-2", "run-1", "run-3"], "the order of arrival"
        assert last.load("run-1", with_raw=True) == first.load("run-1", with_raw=True)
        assert last.results(last.load("run-1")) == "some results"
        assert last.experiments()[1].result == "3 % slower"
        shared.add_note("run-1", "another")
        shared.begin(unstarted(SAMPLE, id="now"))
        told.clear()
        assert copy_runs(shared, last, told.append) == {"there already": 2, "different": 1, "running": 1}
        assert [run.why for run in told if run.outcome == "different"] == ["the records there are not those here"]
        last.remove("run-2")
        raw = next((tmp_path / "raw/run-3").glob("0001-*"))
        raw.write_bytes(raw.read_bytes()[:10])
    with Store(tmp_path / "a.sqlite", reads=True) as first, Store(tmp_path / "c.sqlite") as other:
        told.clear()
        copy_runs(first, other, told.append)
        assert "raw output cannot be read" in next(run.why for run in told if run.outcome == "different")


# Answers over many runs


def answered(words: str, store: str, cache: Path) -> dict[str, Any]:
    environment = {**os.environ, "VMTAX_STORE": store, "XDG_CACHE_HOME": str(cache)}
    done = vmtax(*words.split(), cwd=cache, environment=environment)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    data: dict[str, Any] = json.loads(done.stdout)["data"]
    return data


def test_answers_over_many_runs_are_those_of_a_file(address: ServerAddress, tmp_path: Path) -> None:
    """A fleet before and after a change, and the history of its hosts; read twice: computed, and as they are kept."""
    runs = [
        a_run(10 * side + n, 7.0 * side, 0.03 * side, host=f"ssh://h{n}", label=label, machine_id=f"{n:032x}")
        for side, label in enumerate(("before", "after"))
        for n in range(3)
    ]
    (file := tmp_path / "file").mkdir()
    with Store(address) as shared, Store(file / "vmtax.sqlite") as alone:
        for run in runs:
            shared.put(run)
            alone.put(run)
    for words in ("fleet show quick --json", "history --host ssh://h1 --json", "fleet compare before after --json"):
        expected = answered(words, str(file / "vmtax.sqlite"), file)
        assert expected["lines"]
        for _ in range(2):
            (cache := tmp_path / "shared").mkdir(exist_ok=True)
            assert answered(words, address.url, cache) == expected
    three = " ".join(run.id for run in runs[:3])
    assert len(answered(f"compare {three} --json", address.url, cache)["hosts"]) == 3


def test_costs_that_one_controller_kept_are_not_computed_by_another(
    address: ServerAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(1)
    with Store(address) as store:
        store.put(run)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "theirs"))
        many.keep_costs(store, run)
        expected = many.costs_of(store, store.experiments())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "ours"))
    monkeypatch.setattr(many, "computed", None)  # it would be called
    with Store(address, reads=True) as store:
        assert many.costs_of(store, store.experiments()) == expected
        assert (tmp_path / "ours").exists(), "kept here from now on"
    with Store(address) as store:
        store.keep_costs(run.id, "another state\n{}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "new"))
    computed: list[str] = []
    monkeypatch.setattr(many, "computed", lambda experiment, entry: computed.append(entry.id))
    with Store(address, reads=True) as store:
        many.costs_of(store, store.experiments())
    assert computed == [run.id], "of another state of the run"
