"""Means, stalls and order stand beside the primary ratios in every report for people."""

from __future__ import annotations

import dataclasses
import re

import pytest

from tests.sample import sample_experiment, with_repeat
from tests.unit.test_report import printed
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.robustness import robustness
from vmtax.core.records import Experiment, Measurement, Metric, Trial
from vmtax.report.render.html import render_html
from vmtax.report.render.markdown import render_markdown
from vmtax.report.show import render

CHESS = "chess.nodes_per_second"


def stalling(experiment: Experiment) -> Experiment:
    """Every third round the VM searches a quarter as fast."""

    def changed(trial: Trial) -> Trial:
        if trial.treatment != "vm" or trial.round % 3:
            return trial
        slow = tuple(Measurement(m.metric, m.value / (4 if m.metric.name == CHESS else 1)) for m in trial.measurements)
        return dataclasses.replace(trial, measurements=slow)

    return dataclasses.replace(experiment, trials=tuple(map(changed, experiment.trials)))


@pytest.mark.variations
def test_stalls_show_in_the_mean_beside_the_median() -> None:
    experiment = stalling(sample_experiment(rounds=15, emulated=False))
    analysis = Analysis(experiment)
    found = {(one.comparison.metric.name, one.comparison.treatment): one for one in robustness(analysis)}
    assert {name for name, _ in found} == {CHESS, "disk.randread-4k-qd1.iops"}, "the primary ones"
    line = found[CHESS, "vm"]
    assert (line.comparison.baseline_stalls, line.comparison.treatment_stalls) == (0, pytest.approx(1 / 3))
    assert line.mean == pytest.approx(4 ** (1 / 3), rel=0.05) and line.mean != line.median
    assert line.p95 is None and line.has_stalls
    assert not found["disk.randread-4k-qd1.iops", "vm"].has_stalls
    terminal = printed(render(analysis, full=True))
    for text in (render_html(analysis), render_markdown(analysis), terminal):
        assert "0, 33 % (p 0.0" in " ".join(text.split()), text[:200]
    assert max(map(len, terminal.splitlines())) <= 80


def test_a_guest_against_itself_is_not_beside_the_figures_but_their_noise_floor() -> None:
    repeated = with_repeat(sample_experiment(rounds=8))
    assert {one.comparison.treatment for one in robustness(Analysis(repeated))} == {"vm", "nested"}


def test_what_lost_nothing_is_shown_and_nothing_is_made_of_it() -> None:
    lost = Measurement(Metric("net.tcp-in.lost", "1", "lower"), 0.0)
    experiment = sample_experiment(rounds=7, emulated=False)
    trials = tuple(
        dataclasses.replace(trial, measurements=(*trial.measurements, lost)) if trial.case == "tcp-in" else trial
        for trial in experiment.trials
    )
    analysis = Analysis(dataclasses.replace(experiment, trials=trials))
    assert analysis.comparisons == Analysis(experiment).comparisons and analysis.causes == Analysis(experiment).causes
    assert analysis.medians[lost.metric, "vm"] == 0
    for text in (render_html(analysis), render_markdown(analysis), printed(render(analysis, full=True))):
        assert re.search(r"loss 0 0 0 – –", " ".join(re.sub(r"<[^>]*>|\|", " ", text).split()))
