"""What lies behind the findings: latencies, the course of the run, outliers and what the host did then."""

from __future__ import annotations

import dataclasses
import re

import pytest

from tests.changed import at, calm, changed, scaled
from tests.sample import sample_experiment
from tests.svg import dots, root, texts
from tests.unit.test_drift import course_of
from tests.unit.test_outliers import one
from tests.unit.test_report_html import Page, html
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.drift import thin
from vmtax.analysis.latency import distributions
from vmtax.analysis.outliers import GAUGES, outliers
from vmtax.core.records import Disturbance
from vmtax.core.units import format_percentile
from vmtax.report.figures import latency_pictures, order_picture
from vmtax.report.sections.latency import tabled
from vmtax.report.sections.outliers import TEXTS

CHESS = "chess.nodes_per_second"


# --- latencies


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


@pytest.mark.variations
def test_many_points_are_thinned_evenly_and_say_so() -> None:
    experiment = sample_experiment(rounds=25, treatments=16, emulated=False, failures=2)
    whole = course_of(experiment)
    thinned = thin(whole[0], 200)
    assert thinned.thinned == 2 and len(thinned.points) <= 202
    assert thinned.failed == whole[0].failed and thinned.rounds == whole[0].rounds
    picture = order_picture(whole)
    assert picture is not None and "one trial in 2 is drawn" in picture.caption


# --- outliers


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


def test_every_gauge_has_a_text() -> None:
    assert [gauge.name for gauge in GAUGES] == [*TEXTS]


def test_a_run_of_one_round_is_told_from_when_drift_shows() -> None:
    assert "Drift shows from two rounds on; this run has 1." in Page(html(sample_experiment(rounds=1))).prose()
