"""One host of a fleet is measured once, however often the command is repeated."""

from __future__ import annotations

import dataclasses
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.sample import sample_experiment, unstarted
from vmtax.cli import fleet_task
from vmtax.cli.app import app
from vmtax.cli.work import RunWork
from vmtax.core.errors import BAD_INPUT, BUSY, FAILED
from vmtax.core.records import Experiment
from vmtax.experiment.resume import refuse_other_host
from vmtax.plan.estimate import settled
from vmtax.plan.schema import load
from vmtax.store import Store

HOST = "ssh://root@a"
PLAN = settled(load("quick").model_copy(update={"host": HOST}), emulated=False).model_dump(mode="json")
SAMPLE = sample_experiment(rounds=1)
RUN = dataclasses.replace(SAMPLE, host=HOST, label="web", name="quick", plan=PLAN, options={})


class Measured(Exception):
    """Instead of measuring."""


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[RunWork]]:
    """What was to be measured."""
    monkeypatch.setenv("VMTAX_STORE", str(tmp_path / "store.sqlite"))
    monkeypatch.chdir(tmp_path)
    works: list[RunWork] = []

    def measured(store: Store, work: RunWork, asked: Any) -> None:
        works.append(work)
        raise Measured

    monkeypatch.setattr(fleet_task, "measured", measured)
    yield works


def task(*more: str, plan: str = "quick", fleet: str = "web") -> Result:
    return CliRunner().invoke(app, ["run", plan, "--host", HOST, "--fleet", fleet, "--yes", *more])


def code_of(done: Result) -> object:
    return getattr(done.exception, "exit_code", getattr(done.exception, "code", done.exit_code))


def stored(run: Experiment) -> None:
    with Store() as store:
        store.put(run)


def test_a_host_that_nobody_measured_yet_is_measured_under_the_fleet_s_name(begun: list[RunWork]) -> None:
    assert isinstance(task().exception, Measured)
    [work] = begun
    assert (work.options.label, work.plan.host, work.resumed) == ("web", HOST, None)


def test_a_finished_one_is_done_at_once(begun: list[RunWork]) -> None:
    stored(RUN)
    done = task()
    assert (done.exit_code, done.output.strip()) == (0, f"done already: run {RUN.id}")
    assert not begun


@pytest.mark.parametrize(
    "other",
    [
        dataclasses.replace(RUN, label="db"),
        dataclasses.replace(RUN, host="ssh://root@b"),
        dataclasses.replace(RUN, name="guest"),
        dataclasses.replace(RUN, host=f"{HOST}, imported"),
    ],
    ids=["of another fleet", "of another host", "of another plan", "imported"],
)
def test_another_run_is_not_this_one(begun: list[RunWork], other: Experiment) -> None:
    stored(other)
    assert isinstance(task().exception, Measured) and begun[0].resumed is None


class Shared(Store):
    """As if it were in a database server."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = None


def local(monkeypatch: pytest.MonkeyPatch, *more: str) -> Result:
    """The same on this machine, with a store that others share."""
    monkeypatch.setattr(fleet_task, "Store", Shared)
    return CliRunner().invoke(app, ["run", "quick", "--fleet", "web", "--yes", *more])


@pytest.mark.parametrize("known", ["another", None, "this"])
def test_what_is_local_elsewhere_is_another_host(
    begun: list[RunWork], monkeypatch: pytest.MonkeyPatch, known: str | None
) -> None:
    monkeypatch.setattr(fleet_task, "machine_id", lambda text: "this")
    plan = settled(load("quick"), emulated=False).model_dump(mode="json")
    facts = {**RUN.facts, "host": {**RUN.facts["host"], "machine_id": known}}
    stored(dataclasses.replace(RUN, host="local", plan=plan, facts=facts))
    done = local(monkeypatch)
    if known == "this":
        assert "done already" in done.output and not begun
    else:
        assert isinstance(done.exception, Measured) and begun[0].resumed is None


def test_a_lab_is_no_host_of_a_fleet_that_others_share(begun: list[RunWork], monkeypatch: pytest.MonkeyPatch) -> None:
    done = local(monkeypatch, "--host", "lab")
    assert code_of(done) == BAD_INPUT and "others who share this store" in str(done.exception) and not begun


@pytest.mark.parametrize("state", ["interrupted", "failed"])
def test_a_stopped_one_goes_on(begun: list[RunWork], state: Any) -> None:
    stored(dataclasses.replace(RUN, state=state, finished=None))
    assert isinstance(task().exception, Measured)
    assert begun[0].resumed is not None and begun[0].resumed.id == RUN.id


def test_a_host_that_came_back_with_another_kernel_says_how_to_begin_anew(
    begun: list[RunWork], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(dataclasses.replace(RUN, state="interrupted", finished=None))

    def refused(store: Store, work: RunWork, asked: Any) -> None:
        assert work.resumed is not None
        facts = {**work.resumed.facts["host"], "kernel_release": "7.0"}
        refuse_other_host(work.resumed, {"host": facts})

    monkeypatch.setattr(fleet_task, "measured", refused)
    done = task()
    assert code_of(done) == BAD_INPUT and "kernel_release was " in str(done.exception)
    assert str(done.exception).endswith(f": `vmtax runs rm {RUN.id}` lets the fleet measure it anew")


def test_a_controller_whose_clock_is_behind_does_not_hide_its_run(begun: list[RunWork]) -> None:
    """The run that arrived last counts, whatever the clocks said."""
    stored(RUN)
    late = dataclasses.replace(RUN, id="late", created=RUN.created - 1e8, state="interrupted", finished=None)
    stored(late)
    assert isinstance(task().exception, Measured)
    assert begun[0].resumed is not None and begun[0].resumed.id == "late"


def test_one_in_progress_is_busy(begun: list[RunWork]) -> None:
    with Store() as store:
        store.begin(unstarted(RUN, id="now"))
        done = task()
        assert code_of(done) == BUSY and "run now measures ssh://root@a just now" in str(done.exception)
    assert not begun


def test_one_that_another_process_just_prepares_is_busy(begun: list[RunWork]) -> None:
    with Store() as theirs:
        assert theirs.take_task(f"web quick {HOST}")
        done = task()
        assert code_of(done) == BUSY and "another process measures ssh://root@a for fleet web" in str(done.exception)
        assert isinstance(task(fleet="db").exception, Measured)
    assert isinstance(task().exception, Measured)


def test_a_plan_that_was_changed_under_its_name_is_refused(begun: list[RunWork]) -> None:
    stored(RUN)
    done = task("--vcpus", "3")
    assert code_of(done) == BAD_INPUT and "by another plan of the name quick: name another fleet" in str(done.exception)
    assert task("--rounds", "9").exit_code == 0, "how long it takes is no difference"


def test_a_run_without_any_result_is_not_repeated_for_ever(begun: list[RunWork]) -> None:
    failed = tuple(dataclasses.replace(t, status="failed", measurements=(), error="no") for t in RUN.trials)
    stored(dataclasses.replace(RUN, trials=failed))
    done = task()
    assert code_of(done) == FAILED and "done already, and nothing could be measured" in done.output
    assert not begun


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--label", "x"), "leave out --label"),
        (("--resume",), "leave out --resume"),
        (("--fleet", "last"), "always means the newest run"),
        (("--fleet", "a,b"), "must neither hold a comma"),
    ],
)
def test_what_makes_no_sense_with_it(begun: list[RunWork], words: tuple[str, ...], message: str) -> None:
    done = task(*words)
    assert code_of(done) == BAD_INPUT and message in str(done.exception)


def test_a_fleet_that_was_stopped_begins_nothing_until_that_is_undone(begun: list[RunWork]) -> None:
    with Store() as store:
        store.stops.stop("web", "me on here")
        store.stops.stop("web", "another")
    done = task()
    assert code_of(done) == FAILED
    assert "fleet web was stopped by me on here: `vmtax fleet stop web --undo`" in done.output
    assert isinstance(task(fleet="db").exception, Measured)
    with Store() as store:
        store.stops.allow("web")
    assert isinstance(task().exception, Measured)


def test_a_fleet_that_is_stopped_ends_a_run_in_progress(begun: list[RunWork], monkeypatch: pytest.MonkeyPatch) -> None:
    sent = threading.Event()
    monkeypatch.setattr(fleet_task, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr("os.kill", lambda pid, number: sent.set() if number == signal.SIGINT else None)
    with Store() as store, fleet_task.FleetWatch(store, "web"):
        with Store() as other:
            other.stops.stop("web", "me")
        assert sent.wait(60)
