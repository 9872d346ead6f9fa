"""A guest against itself: the plan that is made of another one, and what is said of its run."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from pathlib import Path

import pytest

from tests.answers import as_read
from tests.fake_testbed import Lab, bench
from tests.unit.test_report import printed
from vmtax.analysis.calibration import Calibration, CannotCalibrate, calibration, plan_of
from vmtax.cli.app import app
from vmtax.core.records import Experiment
from vmtax.plan.schema import Plan, load, parse
from vmtax.report.answers.calibration import CALIBRATION
from vmtax.report.document import Detail
from vmtax.report.render.terminal import whole
from vmtax.report.sections.calibration import document
from vmtax.store import Store

FAKE = "name: fake\nseed: 5\nlayers: [host, vm]\nworkloads: [chess]\nprimary: [chess.nodes_per_second]\n"


def calibrated(path: Path, seed: int, rounds: int = 12, cv: float = 0.02) -> Experiment:
    """One session of a fake machine, some per cent faster or slower as a whole than the last one."""
    path.mkdir()
    source = random.Random(seed)
    level = 1e6 * math.exp(source.gauss(0, 0.01))
    plan = plan_of(parse(FAKE), 600.0)
    data = plan.model_dump(mode="json") | {"rounds": {"min": rounds, "max": rounds}, "budget": None}
    made = Lab(json.dumps(_as_text(data)), lambda *_: bench(rate=round(level * math.exp(source.gauss(0, cv)))), path)
    return dataclasses.replace(made.run(), id=f"20261121-0{seed}00-calibrate-{seed:04x}")


def _as_text(data: dict[str, object]) -> dict[str, object]:
    """As a person would write it: quantities with units."""
    return data | {"guest": {"vcpus": 2, "memory": "1GiB"}, "precision": "none", "same_within": "2%", "budget": "none"}


def test_the_plan_is_the_same_work_on_one_guest_alone() -> None:
    quick = load("quick")
    made = plan_of(quick, 1200.0)
    assert [(entry.name, entry.repeats) for entry in made.entries()] == [("vm", None), ("vm again", "vm")]
    assert (made.name, made.budget, made.precision, made.guest) == ("calibrate", 1200.0, None, quick.guest)
    theirs = {workload.name: workload.parameters for workload in quick.build_workloads()}
    assert all(theirs[workload.name] == workload.parameters for workload in made.build_workloads())
    disk = next(workload for workload in made.build_workloads() if workload.name == "disk")
    assert [list(made.cases(disk, entry)) for entry in made.entries()] == [["randread-4k-qd1"]] * 2
    assert set(made.primary) == set(quick.primary)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FAKE.replace("[host, vm]", "[host]"), "plan fake has no guest: a plan with layer vm or nested"),
        (FAKE.replace("[host, vm]", "[nested]"), None),
    ],
)
def test_a_plan_without_a_guest_cannot_be_calibrated_for(text: str, message: str | None) -> None:
    if message is None:
        assert isinstance(plan_of(parse(text), 60.0), Plan)
    else:
        with pytest.raises(CannotCalibrate, match=message):
            plan_of(parse(text), 60.0)


def test_what_it_says_of_a_machine(tmp_path: Path) -> None:
    found = calibration(calibrated(tmp_path / "a", 1, rounds=40), [])
    (reach,) = found.metrics
    assert reach.metric.name == "chess.nodes_per_second" and reach.rounds == 40
    assert reach.cv == pytest.approx(0.02, rel=0.35)
    targets = {target.half_width: target.rounds for target in reach.targets}
    assert 20 <= targets[0.01] <= 60 and targets[0.05] == 10, "never below the first look"
    assert all(t.seconds == pytest.approx(t.rounds * found.seconds_per_round) for t in reach.targets)
    assert (found.sessions, reach.between) == (1, None)


def test_several_calibrations_tell_how_it_changes_by_itself(tmp_path: Path) -> None:
    runs = [calibrated(tmp_path / str(seed), seed) for seed in range(1, 5)]
    found = calibration(runs[-1], runs)
    assert found.sessions == 4
    between = found.metrics[0].between
    assert between is not None and 0.002 < between.sd < 0.05
    text = told(found)
    assert "standard deviation from session to session, of 4 sessions" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80
    few = told(calibration(runs[-1], runs[-2:]))
    assert "This is session 2. `vmtax compare` needs 3" in few and "calibrate 1 more time," in " ".join(few.split())
    assert as_read(CALIBRATION.made(found))["metrics"][0]["between_sessions_sd"] == between.sd


def test_too_few_rounds_and_runs_without_a_repeat(tmp_path: Path) -> None:
    few = calibration(calibrated(tmp_path / "a", 1, rounds=3), [])
    assert (few.metrics[0].cv, few.metrics[0].targets) == (None, ())
    assert "too few rounds" in told(few)
    plain = Lab(FAKE.replace("[host, vm]", "[host]") + "rounds: {min: 1, max: 1}\n", lambda *_: bench(), tmp_path)
    with pytest.raises(CannotCalibrate, match="is no calibration, a guest against itself alone"):
        calibration(plain.run(), [])


def test_the_command_shows_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    run = calibrated(tmp_path / "a", 1)
    with Store() as store:
        store.put(run)
    app(["calibrate", "--show", "last"], standalone_mode=False)
    assert "12 rounds of a guest against itself" in capsys.readouterr().out
    app(["calibrate", "--show", run.id, "--json"], standalone_mode=False)
    answer = json.loads(capsys.readouterr().out)
    assert (answer["kind"], answer["data"]["run"]) == ("calibration", run.id)


def told(found: Calibration) -> str:
    return printed(whole(document(found), Detail.BRIEF))
