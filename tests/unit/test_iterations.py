"""Several iterations of a workload in a boot: what runs, what counts, what a resumed run does, what is reported."""

from __future__ import annotations

import json
import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter
from rich.console import Console

from tests.answers import experiment_data
from tests.fake_machine import Reply
from tests.fake_testbed import PLAN, Lab, bench
from vmtax.analysis.analysis import Analysis
from vmtax.core.events import Event, NoticeEvent, TrialFinished, WorkloadStarted
from vmtax.core.records import Boot, Experiment, Measurement, Metric, Trial
from vmtax.design import iterations as schedule
from vmtax.design.iterations import PILOT_ITERATIONS, PILOT_ROUNDS
from vmtax.experiment.eta import Pace
from vmtax.experiment.progress import State
from vmtax.plan.estimate import check, fit_rounds, pilot_seconds, seconds_per_round
from vmtax.plan.schema import PlanError, load, parse
from vmtax.report.answers.schema import KINDS
from vmtax.report.render.formats import find
from vmtax.report.sections import iterations
from vmtax.report.show import render

RATE = Metric("chess.nodes_per_second", "1/s", "higher")
THREE = PLAN + "iterations: 3\nrounds: {min: 7, max: 7}\n"
SHORT = PLAN + "iterations: auto\nrounds: {min: 4, max: 4}\n"
AUTO = PLAN + "iterations: auto\nrounds: {min: 7, max: 7}\n"


@pytest.fixture
def lab(tmp_path: Path) -> Callable[..., Lab]:
    return lambda plan, answer: Lab(plan, answer, tmp_path)


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """After a whole run whose pilot settles."""
    made = Lab(AUTO, settling, tmp_path_factory.mktemp("settled"))
    made.run()
    return made


def settling(number: int, name: str) -> list[Reply]:
    """A boot of 1 % of its own and 1 % of noise, whose first two iterations are 20 % slow; each takes half a second."""
    noise = random.Random(f"{number} {name}")
    level = 10_000 * math.exp(noise.gauss(0, 0.01))
    rates = [level * math.exp(noise.gauss(0, 0.01)) * (0.8 if iteration < 2 else 1.0) for iteration in range(40)]
    return [replace(bench(rate=round(rate)), seconds=0.5) for rate in rates]


def cooling(number: int, name: str) -> list[Reply]:
    """Every iteration is 3 % slower than the one before it."""
    noise = random.Random(f"{number} {name}")
    return [bench(rate=round(10_000 * math.exp(noise.gauss(0, 0.005) - 0.03 * i))) for i in range(40)]


def runs(found: Experiment) -> Counter[tuple[int, str, str]]:
    return Counter((trial.round, trial.treatment, trial.case) for trial in found.trials)


def identity(trial: Trial) -> tuple[int, str, str, int]:
    return trial.round, trial.treatment, trial.case, trial.iteration


def stop_when(lab: Lab, over: Callable[[int, Trial], bool]) -> None:
    """Ctrl-C once, when the so-manieth trial, which is finished, is the one."""
    keep, seen = lab.emit, []

    def emit(event: Event) -> None:
        keep(event)
        if isinstance(event, TrialFinished):
            seen.append(event)
            if over(len(seen), event.trial):
                lab.emit = keep
                raise KeyboardInterrupt

    lab.emit = emit


def test_a_fixed_number_of_iterations_is_one_value_for_each_boot(lab: Callable[..., Lab]) -> None:
    made = lab(THREE, lambda number, name: [bench(rate=rate * (1 + number)) for rate in (100, 200, 300)])
    found = made.run()
    assert set(runs(found).values()) == {3} and len(found.trials) == 7 * (2 + 2 + 1) * 3
    assert all(comparison.rounds == 7 and comparison.ratio == 1 for comparison in Analysis(found).comparisons)
    started = [event for event in made.events if isinstance(event, WorkloadStarted)]
    assert [(event.iteration, event.iterations) for event in started[:4]] == [(1, 3), (2, 3), (3, 3), (1, 3)]
    state = State()
    state.take(started[1])
    assert list(state.doing.values()) == ["chess one-thread, 2 of 3"]


def test_the_pilot_plans_the_rest_and_warm_up_counts_nowhere(settled: Lab) -> None:
    found = settled.experiment
    planned = schedule.of(found)
    assert {entry.warm_up for entry in planned.values()} == {2} and all(entry.steady for entry in planned.values())
    for (number, _, case), count in runs(found).items():
        assert count == (PILOT_ITERATIONS if number <= PILOT_ROUNDS else planned["chess", case].runs)
    assert all(1 <= entry.iterations <= 20 for entry in planned.values())
    (told,) = [event.text for event in settled.events if isinstance(event, NoticeEvent) and "pilot" in event.text]
    assert "chess one-thread" in told and "after 2 of warm-up" in told
    assert all(comparison.rounds == 7 for comparison in Analysis(found).comparisons), "the pilot's boots stay in"
    mine = [t for t in found.trials if (t.treatment, t.case) == ("vm", "") and t.iteration > 2]
    by_round = [[t.measurements[0].value for t in mine if t.round == number] for number in range(1, 8)]
    assert Analysis(found).medians[RATE, "vm"] == statistics.median(map(statistics.median, by_round))


def test_a_pilot_that_never_settles_is_reported_and_like_is_compared_with_like(lab: Callable[..., Lab]) -> None:
    found = lab(SHORT, cooling).run()
    planned = schedule.of(found)["chess", ""]
    assert not planned.steady and planned.warm_up == 0
    kept = schedule.counted(found.trials, {("chess", ""): planned})
    assert {t.iteration for t in kept if t.case == ""} == set(range(1, planned.iterations + 1)), "in the pilot too"
    assert any("no steady state, so none is left out as warm-up" in line for line in iterations.lines(Analysis(found)))


@pytest.mark.parametrize(("plan", "stop"), [(THREE, 20), (SHORT, 30), (SHORT, 3 * 5 * PILOT_ITERATIONS + 2)])
@pytest.mark.varied(1)
def test_a_run_stopped_in_mid_boot_goes_on_with_the_next_iteration(
    lab: Callable[..., Lab], plan: str, stop: int
) -> None:
    def answer(number: int, name: str) -> list[Reply]:
        return [bench(rate=10_000 + 7 * i) for i in range(40)]  # the same in whatever boot

    whole = [identity(trial) for trial in lab(plan.replace("fake", "whole"), answer).run().trials]
    made = lab(plan, answer)
    stop_when(made, lambda number, trial: number == stop)
    with pytest.raises(KeyboardInterrupt):
        made.run()
    assert len(made.experiment.trials) == stop
    found = made.resume()
    assert [identity(trial) for trial in found.trials] == whole and found.state == "complete"


def test_a_raw_output_that_is_gone_does_not_keep_a_run_from_going_on(lab: Callable[..., Lab]) -> None:
    made = lab(THREE, lambda number, name: [bench()] * 3)
    stop_when(made, lambda number, trial: number == 4)
    with pytest.raises(KeyboardInterrupt):
        made.run()
    next((made.store.path.parent / "raw").rglob("0002-*.gz")).unlink()
    assert made.resume().state == "complete"


def test_an_iteration_that_fails_ends_its_case_also_after_a_resume(lab: Callable[..., Lab]) -> None:
    garbage = Reply(stdout="garbage")
    made = lab(
        THREE, lambda number, name: [bench(), garbage, bench()] if (number, name) == (2, "vm") else [bench()] * 3
    )
    stop_when(made, lambda number, trial: trial.status == "failed")
    with pytest.raises(KeyboardInterrupt):
        made.run()
    made.answer = lambda number, name: [bench()] * 3
    found = made.resume()
    failed = [trial for trial in found.trials if trial.status == "failed"]
    assert [(t.round, t.iteration, t.treatment, t.case) for t in failed] == [(2, 2, "vm", "one-thread")]
    assert runs(found)[2, "vm", "one-thread"] == 2, "the third was not tried"
    assert all(comparison.rounds == 7 for comparison in Analysis(found).comparisons), "the boot has its first iteration"


# --- what the pilot says, without a run


def pilot(
    values: Sequence[Sequence[float]], *, treatment: str = "vm", seconds: float = 1.0, metric: Metric = RATE
) -> list[Trial]:
    """Round by round the iterations of one treatment."""
    return [
        Trial(number, 1, treatment, "chess", "", i, "ok", 0.0, seconds, (Measurement(metric, value),))
        for number, boot in enumerate(values, start=1)
        for i, value in enumerate(boot, start=1)
    ]


def booted(seconds: float) -> list[Boot]:
    return [Boot(number, "vm", "host/vm", "kvm", False, (), seconds, 1.0) for number in (1, 2, 3)]


def boots(between: float, within: float) -> list[list[float]]:
    """Three boots of exactly these standard deviations of the logarithm."""
    noise = np.random.default_rng(4).normal(size=(3, PILOT_ITERATIONS))
    noise -= noise.mean(axis=1, keepdims=True)
    noise *= within / noise.std(axis=1, ddof=1, keepdims=True)
    level = np.array([-1.0, 0.0, 1.0]) * math.sqrt(between**2 + within**2 / PILOT_ITERATIONS)
    rows: list[list[float]] = np.exp(noise + level[:, None]).tolist()
    return rows


def test_iterations_follow_from_variance_and_cost() -> None:
    """A boot costs 7 + 2 s, an iteration 1 s: r (r + 1) of at least 9 * 4 / 1, so 6."""
    planned = schedule.schedules(pilot(boots(0.01, 0.02)), booted(7.0), ())["chess", ""]
    assert (planned.warm_up, planned.iterations) == (0, 6)
    assert planned.components["vm"].between == pytest.approx(1e-4)
    assert planned.components["vm"].within == pytest.approx(4e-4)
    dearer = schedule.schedules(pilot(boots(0.01, 0.02), seconds=9.0), booted(7.0), ())["chess", ""]
    assert dearer.iterations == 2


def test_later_rounds_change_nothing_and_primary_metrics_come_first() -> None:
    other = Metric("chess.other", "1/s", "higher")
    both = [
        replace(trial, measurements=(Measurement(other, 1.0), *trial.measurements))
        for trial in pilot(boots(0.01, 0.02))
    ]
    first = schedule.schedules(both, booted(7.0), ("chess.nodes_per_second",))
    assert first["chess", ""].metric == RATE
    assert schedule.schedules(both, booted(7.0), ())["chess", ""].metric == other
    later = [replace(trial, round=number) for trial in both for number in (4, 5)]
    assert schedule.schedules([*both, *later], booted(7.0), ("chess.nodes_per_second",)) == first


def test_rounds_after_the_pilot_are_foreseen_as_shorter() -> None:
    trials = pilot(boots(0.01, 0.02))
    excess = schedule.pilot_excess(trials, schedule.schedules(trials, booted(7.0), ()))
    assert excess == pytest.approx(6.0), "6 of 12 iterations of 1 s are left"
    pace = Pace(setup_seconds=2.0, rounds=[20.0, 18.0, 18.0])
    pace.shorten(excess)
    assert pace.seconds_per_round == pytest.approx(12.0) and pace.setup_seconds == pytest.approx(20.0)
    resumed = Pace(rounds=[1.0])  # most of that round had been run before
    resumed.shorten(excess)
    assert 0 < resumed.seconds_per_round < 1.0


@pytest.mark.parametrize("values", [[[1.0] * 12], [[5.0], [6.0], [7.0]], [[0.0] * 12] * 3])
def test_a_pilot_without_a_result_plans_one_iteration(values: list[list[float]]) -> None:
    planned = schedule.schedules(pilot(values), (), ())
    assert planned["chess", ""].iterations == 1 and planned["chess", ""].warm_up == 0
    assert schedule.runs("auto", planned, ("chess", ""), 4) == schedule.runs("auto", {}, ("disk", "x"), 4) == 1
    assert schedule.runs("auto", planned, ("chess", ""), 3) == PILOT_ITERATIONS


# --- what is reported


def test_reports_tell_where_the_variance_is(settled: Lab) -> None:
    found = settled.experiment
    analysis = Analysis(found)
    lines = iterations.lines(Analysis(found))
    assert any("2 before them left out as warm-up (steady after 2 in 9 boots of 12 iterations)" in x for x in lines)
    assert sum("% of the variance is between boots" in line for line in lines) == 2, "primary, on host and vm"
    for name in ("html", "markdown"):
        text = find(name).render(analysis).decode()
        assert "of the variance is between boots" in text and "Boots and iterations" in text
    assert "variance is between boots" in printed(render(analysis, full=True))
    assert "variance is between boots" not in printed(render(analysis))
    data = json.loads(json.dumps(experiment_data(analysis)))
    TypeAdapter(KINDS["experiment"]).validate_python(data)
    assert [entry["warm_up"] for entry in data["schedules"]] == [2, 2]
    assert {entry["treatment"] for entry in data["variance"]} == {"host", "vm"}


@pytest.mark.parametrize(
    ("between", "within", "words"),
    [
        (0.02, 0.01, "vm: 80 % of the variance is between boots: more iterations would not help"),
        (
            0.005,
            0.03,
            "vm: 3 % of the variance is between boots; of a boot’s mean over 12 iterations, they cause 75 %",
        ),
        (0.02, 0.034, "vm: 26 % of the variance is between boots: more iterations would not help"),
        (0.02, 0.035, "boot’s mean over 12 iterations, they cause 20 %: more would help"),
        (0.0, 0.0, "vm: 0 % of the variance is between boots: more iterations would not help"),
    ],
)
@pytest.mark.varied(1)
def test_whether_more_iterations_would_help(lab: Callable[..., Lab], between: float, within: float, words: str) -> None:
    found = lab(THREE, lambda number, name: [bench()] * 3).run()
    values = boots(between, within) if within else [[5.0] * 12] * 3
    found = replace(found, trials=tuple(pilot(values)))
    assert any(words in line for line in iterations.lines(Analysis(found)))


def test_who_does_not_iterate_reads_nothing_of_it(lab: Callable[..., Lab]) -> None:
    found = lab(PLAN + "rounds: {min: 7, max: 7}\n", lambda number, name: bench()).run()
    assert iterations.lines(Analysis(found)) == ()
    assert "Boots and iterations" not in find("html").render(Analysis(found)).decode()


# --- what a plan may say


@pytest.mark.parametrize("value", ["0", "1001", "2.5", "true", "many", "[1]", "null", "-3"])
def test_other_numbers_of_iterations_are_refused(value: str) -> None:
    with pytest.raises(PlanError, match="iterations: must be a whole number from 1 to 1000, or auto, not"):
        parse(PLAN + f"iterations: {value}\n")


def test_the_time_of_iterations_is_estimated() -> None:
    once, thrice, auto = (parse(PLAN + f"iterations: {n}\n") for n in (1, 3, "auto"))
    assert parse(PLAN).iterations == 1 and load("quick").iterations == 1
    cases = (seconds_per_round(thrice) - seconds_per_round(once)) / 2
    assert cases > 0 and pilot_seconds(once) == pilot_seconds(thrice) == 0
    assert pilot_seconds(auto) + PILOT_ROUNDS * seconds_per_round(auto) == pytest.approx(
        PILOT_ROUNDS * (seconds_per_round(once) + (PILOT_ITERATIONS - 1) * cases)
    )
    assert any("after a pilot of 3 longer ones" in line for line in check(auto))
    tight = parse(PLAN.replace("none", "5m") + "iterations: auto\n")
    assert fit_rounds(tight, 10.0, pilot_seconds(tight))[0] < fit_rounds(tight, 10.0)[0]


def printed(renderable: Any) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()
