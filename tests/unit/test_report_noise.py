"""The A/A: told as the noise floor in every report, and part of nothing else."""

from __future__ import annotations

import re

import pytest

from tests.answers import experiment_data
from tests.sample import sample_experiment, with_repeat
from tests.unit.test_report import printed
from vmtax.analysis import comparisons as compare
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.by_workload import view
from vmtax.analysis.noise import noise_floor
from vmtax.core.records import Experiment
from vmtax.report.render.formats import FORMATS
from vmtax.report.render.html import render_html
from vmtax.report.render.markdown import render_markdown
from vmtax.report.sections.summary import findings, headline
from vmtax.report.show import render

PLAIN = sample_experiment(rounds=8, treatments=5)
REPEATED = with_repeat(PLAIN)


def on_terminal(experiment: Experiment) -> str:
    return printed(render(Analysis(experiment), full=True))


def test_a_guest_is_set_against_itself_once() -> None:
    pairs = compare.contrasts(REPEATED.treatments)
    assert pairs == (*compare.contrasts(PLAIN.treatments), ("vm", "vm again"))


def test_the_floor_is_reported_for_every_primary_metric() -> None:
    analysis = Analysis(REPEATED)
    floors = noise_floor(analysis)
    assert [floor.metric.name for floor in floors] == REPEATED.plan["primary"]
    assert all(floor.effect.unclear and floor.effect.emulated for floor in floors), "nothing was planted"
    texts = (render_html(analysis), render_markdown(analysis), on_terminal(REPEATED))
    for text in texts:
        assert "oise floor" in text and "against itself" in text
        assert "CPU chess, all CPUs, vm" in text
    told = experiment_data(analysis)["noise_floor"]
    assert [(entry["metric"], entry["treatment"]) for entry in told] == [
        (name, "vm again") for name in REPEATED.plan["primary"]
    ]
    assert noise_floor(Analysis(PLAIN)) == ()


def test_the_repeat_is_no_treatment_of_its_own_elsewhere() -> None:
    before, after = Analysis(PLAIN), Analysis(REPEATED)
    assert headline(after) == headline(before)
    assert [f.sentence for f in findings(after)] == [f.sentence for f in findings(before)]
    assert view(after).workloads == view(before).workloads
    assert not re.search(r"vm again\b", on_terminal(REPEATED).split("Warnings")[0])


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_takes_it(name: str) -> None:
    assert FORMATS[name].render(Analysis(REPEATED))
