"""What lies behind the findings: latencies, the course of the run, outliers and what the host did then."""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Callable

import numpy as np
import pytest

from tests.sample import LATENCIES, sample_experiment
from tests.svg import dots, root, texts
from tests.unit.test_report import compared
from tests.unit.test_report_html import Page, html
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.drift import Course, courses, thin
from vmtax.analysis.latency import distributions
from vmtax.analysis.outliers import GAUGES, Outlier, fences, outliers
from vmtax.core.records import Disturbance, Experiment, Measurement, Trial
from vmtax.core.units import format_percentile
from vmtax.report.figures import latency_pictures, order_picture
from vmtax.report.sections.latency import tabled
from vmtax.report.sections.outliers import TEXTS

CHESS = "chess.nodes_per_second"


def changed(experiment: Experiment, change: Callable[[Trial], Trial]) -> Experiment:
    return dataclasses.replace(experiment, trials=tuple(map(change, experiment.trials)))


def course_of(experiment: Experiment) -> tuple[Course, ...]:
    analysis = Analysis(experiment)
    return courses(analysis, tuple(analysis.headline_metrics.values()))


def scaled(trial: Trial, factor: float) -> Trial:
    values = tuple(Measurement(m.metric, m.value * factor) for m in trial.measurements)
    return dataclasses.replace(trial, measurements=values)


def calm(experiment: Experiment) -> Experiment:
    """The same with values that differ by their round alone, and a host on which nothing happens."""
    quiet = Disturbance(5.0, 5.5, 0.0, 0.02, 0.05, 0.0, 2.4e9, 0)
    return changed(
        experiment,
        lambda t: dataclasses.replace(
            t,
            measurements=tuple(Measurement(m.metric, 100.0 + t.round) for m in t.measurements),
            disturbance=quiet,
        ),
    )


def at(trial: Trial, round: int) -> bool:
    return (trial.round, trial.treatment, trial.workload, trial.case) == (round, "vm", "chess", "")


# --- latencies


def test_a_latency_is_the_median_over_rounds() -> None:
    experiment = sample_experiment(treatments=4)
    found = {(d.case, c.treatment): c for d in distributions(Analysis(experiment)) for c in d.curves}
    assert {treatment for _, treatment in found} == {"host", "vm", "nested"}  # the first of each layer
    mine = [dict(t.latencies) for t in experiment.trials if (t.case, t.treatment) == ("randread-4k-qd1", "vm")]
    curve = found["randread-4k-qd1", "vm"]
    assert [share for share, _ in curve.points] == [share for share, _ in LATENCIES]
    assert dict(curve.points)[0.99] == statistics.median(latencies[0.99] for latencies in mine)
    assert (curve.rounds, curve.emulated) == (7, True)
    assert "randwrite-4k-fsync" not in {case for case, _ in found}


def test_a_share_that_not_every_round_reports_is_left_out() -> None:
    experiment = changed(
        sample_experiment(),
        lambda t: dataclasses.replace(t, latencies=t.latencies[:-1]) if t.round == 3 and t.treatment == "vm" else t,
    )
    curves = {c.treatment: c for c in distributions(Analysis(experiment))[0].curves}
    assert curves["vm"].at(0.999) is None and curves["vm"].at(0.99) is not None
    assert curves["host"].at(0.999) is not None
    assert tabled(distributions(Analysis(experiment))) == (0.5, 0.9, 0.99, 0.999)


def test_latency_pictures_tell_layers_apart_in_three_ways() -> None:
    pictures = latency_pictures(distributions(Analysis(sample_experiment())))
    assert len(pictures) == 5
    for picture in pictures:
        drawn = root(picture).findall(".//polyline")
        assert [key.dash for key in picture.legend] == [line.get("stroke-dasharray", "") for line in drawn]
        styles = [(key.style, key.dash, key.text) for key in picture.legend]
        assert all(len({*column}) == len(drawn) == 3 for column in zip(*styles, strict=True))
        places = [float(pair.split(",")[0]) for pair in drawn[0].attrib["points"].split()]
        assert places == sorted(places)
        assert "nested" in picture.alternative and "p99.9" in picture.alternative
    assert [text for text in texts(pictures[0]) if "%" in text] == ["50 %", "90 %", "99 %", "99.9 %"]


def test_percentiles_are_called_as_people_do() -> None:
    assert [format_percentile(share) for share in (0.5, 0.99, 0.999, 0.9999)] == ["p50", "p99", "p99.9", "p99.99"]


def test_every_emulated_latency_says_so() -> None:
    table = re.search(r'<table class="latencies">.*?</table>', html(sample_experiment()), re.DOTALL)
    names = re.findall(r'<tr><th scope="row">(.*?)</th>', table[0] if table else "", re.DOTALL)
    assert len(names) == 15
    assert all(name.endswith("emulated</span>") == (name != "host") for name in names)


# --- the course of the run


def test_the_course_holds_every_trial_in_run_order() -> None:
    experiment = sample_experiment(rounds=10, failures=1)
    chess, *_ = course_of(experiment)
    assert chess.name == "CPU: chess, all CPUs"
    places = [point.place for point in chess.points]
    assert places == sorted(places) and len(places) == 30
    assert statistics.median(p.relative or 0 for p in chess.points if p.treatment == "vm") == pytest.approx(1)


def test_drift_is_seen() -> None:
    experiment = changed(calm(sample_experiment(rounds=9)), lambda t: scaled(t, 0.9) if t.round > 6 else t)
    for course in course_of(experiment):
        assert course.shift == pytest.approx(0.9 * 108 / 102)
        assert course.farthest == pytest.approx(107 * 0.9 / 102)
    assert course_of(sample_experiment(rounds=5))[0].shift is None
    assert course_of(sample_experiment(rounds=1)) == ()
    assert "Drift shows from two rounds on; this run has 1." in Page(html(sample_experiment(rounds=1))).prose()


def test_failures_are_marked_where_the_value_is_missing() -> None:
    failed = changed(
        sample_experiment(),
        lambda t: dataclasses.replace(t, status="failed", error="no <b>end</b>", measurements=()) if at(t, 4) else t,
    )
    by_name = {course.name: course for course in course_of(failed)}
    assert by_name["CPU: chess, all CPUs"].failed == 1
    assert sum(course.failed for course in by_name.values()) == 1
    picture = order_picture([*by_name.values()])
    assert picture is not None
    (cross,) = [dot for dot in dots(picture) if dot.kind == "cross"]
    assert "failed: no <b>end" in cross.tip and "&lt;b&gt;end" in picture.drawing
    assert [key.text for key in picture.legend if key.mark == "cross"] == ["failed"]
    others = {dot.kind for dot in dots(picture)} - {"cross"}
    assert all(kind.endswith("-open") for kind in others), "a single trial has no interval"


def test_a_lost_guest_is_marked_in_every_panel() -> None:
    lost = changed(
        sample_experiment(),
        lambda t: (
            dataclasses.replace(t, workload="boot", case="", status="failed", error="lost", measurements=())
            if (t.round, t.treatment) == (4, "vm")
            else t
        ),
    )
    assert all(course.failed for course in course_of(lost))


def test_many_points_are_thinned_evenly_and_say_so() -> None:
    experiment = sample_experiment(rounds=25, treatments=16, emulated=False, failures=2)
    whole = course_of(experiment)
    thinned = thin(whole[0], 200)
    assert thinned.thinned == 2 and len(thinned.points) <= 202
    assert thinned.failed == whole[0].failed and thinned.rounds == whole[0].rounds
    picture = order_picture(whole)
    assert picture is not None and "one trial in 2 is drawn" in picture.caption


# --- outliers


def one(experiment: Experiment) -> Outlier:
    (found,) = outliers(Analysis(experiment)).found
    return found


def test_an_outlier_is_reported_with_what_the_host_did_then() -> None:
    noisy = Disturbance(5.0, 12.0, 1.5, 2.0, 0.05, 0.0, 1.8e9, 3)
    experiment = changed(
        calm(sample_experiment(rounds=8)),
        lambda t: dataclasses.replace(scaled(t, 0.6), disturbance=noisy) if at(t, 4) else t,
    )
    found = one(experiment)
    assert (found.trial.round, found.trial.treatment, found.emulated) == (4, "vm", True)
    assert found.values[0].value == pytest.approx(0.6 * 104)
    assert found.causes == ("steal", "CPU pressure", "busy CPUs", "frequency", "throttles")
    steal = found.readings[0]
    assert (steal.gauge, steal.value, steal.typical) == ("steal", pytest.approx(0.3), 0.0)
    assert outliers(Analysis(experiment)).explained == 1
    prose = Page(html(experiment)).prose()
    assert "1 trial has a value far from the others of its configuration" in prose and "1.80 GHz" in prose


def test_an_outlier_without_a_cause_says_nothing_stands_out() -> None:
    found = one(changed(calm(sample_experiment(rounds=8)), lambda t: scaled(t, 0.6) if at(t, 4) else t))
    assert found.causes == () and len(found.readings) == len(GAUGES)


def test_a_host_that_does_not_tell() -> None:
    experiment = changed(calm(sample_experiment(rounds=8)), lambda t: scaled(t, 0.6) if at(t, 4) else t)
    mute = changed(experiment, lambda t: dataclasses.replace(t, disturbance=None))
    assert not outliers(Analysis(mute)).host_tells and one(mute).readings == ()
    assert "The host was not read during these trials" in Page(html(mute)).prose()
    partly = changed(
        experiment,
        lambda t: dataclasses.replace(
            t, disturbance=dataclasses.replace(t.disturbance, throttles=None) if t.disturbance else None
        ),
    )
    assert outliers(Analysis(partly)).unreported == ("throttles",)
    assert "This host does not report: throttles." in Page(html(partly)).prose()


def test_no_outlier_is_said_plainly() -> None:
    experiment = calm(sample_experiment(rounds=7))
    values = sum(len(trial.measurements) for trial in experiment.trials)
    assert f"None: none of {values} values lies far" in Page(html(experiment)).prose()
    assert "Too few values to look for outliers" in Page(html(sample_experiment(rounds=5))).prose()


def test_outliers_stay_in_every_figure() -> None:
    quiet = calm(sample_experiment(rounds=8))
    stalled = changed(quiet, lambda t: scaled(t, 0.6) if at(t, 4) else t)
    assert [c.rounds for c in compared(stalled)] == [c.rounds for c in compared(quiet)]


def test_a_reading_stands_out_if_it_is_unusual_and_the_difference_is_large_enough_to_mean_anything() -> None:
    def standing_out(usual: Disturbance, then: Disturbance) -> tuple[str, ...]:
        run = changed(
            calm(sample_experiment(rounds=8)),
            lambda t: dataclasses.replace(scaled(t, 0.6), disturbance=then) if at(t, 4) else t,
        )
        others = changed(run, lambda t: t if at(t, 4) else dataclasses.replace(t, disturbance=usual))
        return one(others).causes

    quiet = Disturbance(5.0, 5.5, 0.0, 0.02, 0.05, 0.0, 2.4e9, 0)
    assert standing_out(quiet, quiet) == ()
    for gauge, little, much in (
        ("steal", {"steal_seconds": 0.09}, {"steal_seconds": 0.11}),
        ("busy CPUs", {"busy_seconds": 5.9}, {"busy_seconds": 6.1}),
        ("frequency", {"mean_frequency_hz": 2.39e9}, {"mean_frequency_hz": 2.3e9}),
        ("throttles", {"throttles": 0}, {"throttles": 1}),
    ):
        assert standing_out(quiet, dataclasses.replace(quiet, **little)) == (), gauge
        assert standing_out(quiet, dataclasses.replace(quiet, **much)) == (gauge,)
    assert standing_out(quiet, dataclasses.replace(quiet, mean_frequency_hz=3e9)) == ("frequency",), "either way"
    busy = dataclasses.replace(quiet, busy_seconds=20.0)
    assert standing_out(busy, quiet) == (), "less than usual explains nothing"


def test_every_gauge_has_a_text() -> None:
    assert [gauge.name for gauge in GAUGES] == [*TEXTS]


def test_how_often_mere_scatter_lies_beyond_the_fences() -> None:
    """The figures that the report's note names."""
    rng = np.random.default_rng(1)
    for size, share in ((10, 0.04), (60, 0.01)):
        beyond = 0
        for _ in range(2000):
            values = rng.standard_normal(size)
            low, high = fences(values.tolist())
            beyond += int(((values < low) | (values > high)).sum())
        assert beyond / (2000 * size) == pytest.approx(share, abs=0.005)
