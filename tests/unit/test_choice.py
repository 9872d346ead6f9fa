"""Which run each command takes when none, or no single one, is named."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.sample import sample_experiment
from vmtax.cli.app import app
from vmtax.core.errors import CannotDo
from vmtax.core.records import Experiment
from vmtax.experiment.resume import CannotResume
from vmtax.store import ExperimentSummary, Store
from vmtax.store.choice import IMPORTED, RESULTS, choose, has_result, was_stopped
from vmtax.store.failure import NoneFits
from vmtax.store.listing import listed
from vmtax.store.owner import RunLocks

DONE = sample_experiment(rounds=2)


def run(id: str, **changes: object) -> Experiment:
    return dataclasses.replace(DONE, id=f"20261126-{id}", **changes)  # type: ignore[arg-type]  # fields of the record


def failed(experiment: Experiment) -> Experiment:
    trials = (dataclasses.replace(t, status="failed", measurements=(), error="no") for t in experiment.trials)
    return dataclasses.replace(experiment, trials=tuple(trials))


GOOD = run("0900-good-aaaa", created=1000.0)
# A newer run -> words of the line that says why it is passed over
WRECKS = {
    "interrupted in round 1": (
        run("1000-wreck-bbbb", state="interrupted", trials=DONE.trials[:2]),
        "was interrupted in its first round",
    ),
    "interrupted before anything": (run("1000-wreck-bbbb", state="interrupted", trials=()), "in its first round"),
    "failed in round 1": (run("1000-wreck-bbbb", state="failed", trials=DONE.trials[:1]), "by a failure in its first"),
    "all trials failed": (failed(run("1000-wreck-bbbb")), "has no result: all "),
    "all trials failed, then stopped": (failed(run("1000-wreck-bbbb", state="interrupted")), "and all "),
    "complete without trials": (run("1000-wreck-bbbb", trials=()), "it has no trials"),
    "the clock went back": (run("0100-wreck-bbbb", state="interrupted", trials=(), created=5.0), "in its first round"),
    "of another plan": (run("1000-wreck-bbbb", name="storage", state="interrupted", trials=()), "interrupted"),
    "of another host": (run("1000-wreck-bbbb", host="ssh://x", state="interrupted", trials=()), "interrupted"),
    "with a label": (run("1000-wreck-bbbb", label="after", state="interrupted", trials=()), "interrupted"),
    "imported": (run("1000-wreck-bbbb", host=f"x{IMPORTED}", state="interrupted", trials=()), "interrupted"),
}


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def keep(*runs: Experiment) -> None:
    with Store() as store:
        for one in runs:
            store.put(one)


@dataclass(frozen=True)
class Said:
    """What a command did."""

    exit_code: int
    stdout: str
    stderr: str


def vmtax(*words: str) -> Said:
    done = CliRunner().invoke(app, words)
    if isinstance(done.exception, CannotDo | CannotResume):
        return Said(done.exception.exit_code, done.stdout, f"{done.stderr}{done.exception}\n")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return Said(done.exit_code, done.stdout, done.stderr)


def shown(*words: str) -> str:
    done = vmtax("show", *words, "--json")
    assert done.exit_code == 0, done
    return str(json.loads(done.stdout)["data"]["id"])


@pytest.mark.parametrize("name", WRECKS)
@pytest.mark.varied(2)
def test_last_is_the_newest_run_that_has_a_result(name: str) -> None:
    wreck, why = WRECKS[name]
    keep(GOOD, wreck)
    done = vmtax("show", "--json")
    assert json.loads(done.stdout)["data"]["id"] == GOOD.id
    assert done.stderr.count("\n") == 1 and why in done.stderr and wreck.id in done.stderr and GOOD.id in done.stderr
    with Store() as store:
        assert store.choose(wreck.id, RESULTS).run.id == wreck.id, "an id means its run, whatever it has"
        assert store.resolve("last") == wreck.id


def test_every_command_that_reads_results_takes_the_same_run() -> None:
    wreck, _ = WRECKS["interrupted in round 1"]
    keep(before := run("0800-before-aaaa", created=900.0), GOOD, wreck)
    for words in (("report",), ("export",), ("show", "last"), ("compare", before.id, "last")):
        done = vmtax(*words)
        assert f"run {wreck.id}" in done.stderr and done.exit_code == 0, (words, done)
    assert Path(f"vmtax-{GOOD.id}.html").exists() and Path(f"vmtax-{GOOD.id}.run.gz").exists()
    assert not list(Path().glob(f"vmtax-{wreck.id}*"))
    assert shown(wreck.id) == wreck.id, "an id means its run, whatever it has"
    removed = vmtax("runs", "rm", "last", "--yes")
    assert f"removed {wreck.id}" in removed.stdout, "what is removed is the newest, whatever it has"


def test_a_run_that_can_be_read_needs_no_line() -> None:
    for changes in ({}, {"state": "interrupted"}, {"state": "failed"}):
        keep(newer := run(f"1000-{len(changes)}{changes.get('state', '')}", **changes))
        done = vmtax("show", "--json")
        assert json.loads(done.stdout)["data"]["id"] == newer.id and done.stderr == ""


def test_a_run_in_progress_is_no_result_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    keep(GOOD)
    with Store() as store:
        store.put(now := run("1000-now-bbbb"))
        monkeypatch.setattr(
            RunLocks, "state", lambda locks, run, recorded, owner, taken=None: "running" if run == now.id else recorded
        )
        done = vmtax("show", "--json")
        assert json.loads(done.stdout)["data"]["id"] == GOOD.id
        assert f"run {now.id} is still measured; this is {GOOD.id}" in done.stderr


def test_two_wrecks_are_one_line() -> None:
    keep(GOOD, *(dataclasses.replace(WRECKS["all trials failed"][0], id=f"20261126-110{n}-x") for n in range(3)))
    done = vmtax("show", "--json")
    assert done.stderr.count("\n") == 1 and "20261126-1102-x" in done.stderr and "and so have 2 more" in done.stderr


def test_without_any_result_the_newest_of_which_something_is_known_is_shown() -> None:
    assert "no runs yet: `vmtax run` makes one" in vmtax("show").stderr
    for name in ("complete without trials", "all trials failed", "interrupted in round 1"):
        wreck, why = WRECKS[name]
        keep(dataclasses.replace(wreck, id=f"20261126-{name[:3]}"))
        done = vmtax("show", "--json")
        assert json.loads(done.stdout)["data"]["id"] == f"20261126-{name[:3]}"
        assert done.stderr.count("\n") == 1 and "no run has a result yet; " in done.stderr and why in done.stderr
    keep(WRECKS["all trials failed"][0])
    assert shown() == "20261126-int", "it has three trials that worked"


def test_a_label_or_a_beginning_that_several_runs_have_means_the_one_with_a_result() -> None:
    wreck = run("1000-wreck-bbbb", state="interrupted", trials=(), label="before")
    keep(dataclasses.replace(GOOD, label="before"), wreck)
    assert shown("before") == GOOD.id and f"run {wreck.id} has no result" in vmtax("show", "before").stderr
    assert shown("20261126") == GOOD.id
    keep(dataclasses.replace(GOOD, id="20261126-1100-good-cccc", label="before"))
    done = vmtax("show", "before")
    assert done.exit_code == 2 and "3 runs have the label 'before'" in done.stderr
    assert vmtax("runs", "rm", "before", "--yes").exit_code == 2, "what is removed is never guessed"


def test_newest_is_the_one_that_came_last_whatever_the_clocks_say() -> None:
    keep(GOOD, early := run("0100-early-bbbb", created=1.0), tie := run("0050-tie-cccc", created=1.0))
    assert shown() == tie.id
    with Store() as store:
        assert [entry.id for entry in store.experiments()] == [tie.id, early.id, GOOD.id]
        assert store.resolve("last") == tie.id
        assert [entry.id for entry in listed()] == [tie.id, early.id, GOOD.id], "as completion offers them"
        store.remove(tie.id)
        store.put(dataclasses.replace(tie, created=0.5))
        assert store.resolve("last") == tie.id


def summary(state: str, rounds: int = 0, ok: int = 0, host: str = "local") -> ExperimentSummary:
    return ExperimentSummary("x", "quick", host, 1.0, None, state, 2, rounds, ok, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "result", "stopped"),
    [
        (summary("complete", 5, 9), True, False),
        (summary("complete", 0, 9), True, False),  # one treatment never came up
        (summary("complete"), False, False),
        (summary("complete", 5), False, False),
        (summary("interrupted", 1, 3), True, True),
        (summary("interrupted", 0, 3), False, True),
        (summary("interrupted", 1, 0), False, True),
        (summary("failed", 2, 3), True, True),
        (summary("failed"), False, True),
        (summary("running", 4, 9), False, False),
        (summary("damaged", 4, 9), False, False),
        (summary("interrupted", 1, 3, f"x{IMPORTED}"), True, False),
    ],
)
def test_what_each_use_can_take(one: ExperimentSummary, result: bool, stopped: bool) -> None:
    assert (has_result(one), was_stopped(one)) == (result, stopped)
    for fits, does in ((has_result, result), (was_stopped, stopped)):
        if does:
            assert choose([one], (fits,)).run is one
        else:
            with pytest.raises(NoneFits):
                choose([one], (fits,))


def test_going_on_takes_the_newest_that_was_stopped_here() -> None:
    stopped = run("0800-stopped-bbbb", state="interrupted")
    keep(stopped, GOOD, run("1000-far-cccc", state="interrupted", host=f"x{IMPORTED}"))
    with Store() as store:
        for wanted in ("last", stopped.id):
            assert store.choose(wanted, (was_stopped,)).run.id == stopped.id
        assert store.choose("last", (was_stopped,), "another plan").run.id == stopped.id
    assert f"{stopped.id} asks for no reboot of the host" in vmtax("run", "--after-reboot").stderr


@pytest.mark.variations
def test_the_newest_of_many_runs_is_found_without_reading_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    summary = Store._summary_of

    def counted(self: Store, connection: Any, row: Any) -> ExperimentSummary:
        read.append(row.id)
        return summary(self, connection, row)

    with Store() as store:
        for number in range(20):
            store.put(run(f"{number:04}-good-aaaa"))
        monkeypatch.setattr(Store, "_summary_of", counted)
        assert store.choose("last", RESULTS).run.id == "20261126-0019-good-aaaa"
    assert read == ["20261126-0019-good-aaaa"]
