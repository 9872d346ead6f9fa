"""What an idle guest takes is the difference to its host, round by round, and no ratio."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.sample import sample_experiment
from vmtax.analysis import results
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.idle import idle_guests
from vmtax.core.records import Experiment, Measurement, Treatment, Trial
from vmtax.report.contents import document
from vmtax.report.document import Detail, Table
from vmtax.report.render.formats import FORMATS
from vmtax.workload.idle import CPU

TAKES = {"host": 0.011, "vm": 0.031, "vm guest.hpet=on": 0.066, "nested": 0.131, "existing": 0.5}
HPET = {"guest.hpet": "off"}


def idle_run(rounds: int = 7, *left_out: str) -> Experiment:
    """An invented run: the host takes TAKES of one CPU, and each time another 0 to 2 % of all that."""
    treatments = [
        Treatment("host", "host", {}),
        Treatment("vm", "vm", HPET),
        Treatment("vm guest.hpet=on", "vm", {"guest.hpet": "on"}),
        Treatment("nested", "nested", HPET),
        Treatment("existing", "existing", {}),
        Treatment("vm again", "vm", HPET, repeats="vm"),
    ]
    treatments = [each for each in treatments if each.layer not in left_out]
    drawn = random.Random(7)
    trials = [
        Trial(number, position, each.name, "idle", "", 1, "ok", 0.0, 10.0, measurements=(Measurement(CPU, takes),))
        for number in range(1, rounds + 1)
        for position, each in enumerate(treatments, 1)
        for takes in [TAKES[each.repeats or each.name] * (1 + drawn.uniform(0, 0.02))]
    ]
    return replace(sample_experiment(rounds=1), treatments=tuple(treatments), trials=tuple(trials), boots=())


def test_each_guest_is_without_what_carries_it() -> None:
    found = {each.treatment: each for each in Analysis(idle_run()).idle_guests}
    assert {name: each.baseline for name, each in found.items()} == {
        "vm": "host",
        "vm guest.hpet=on": "host",
        "nested": "vm",  # and not a VM of the user's, nor the A/A
    }
    for name, each in found.items():
        takes = TAKES[name] - TAKES[each.baseline]
        assert each.low is not None and each.high is not None and each.low < each.seconds < each.high
        assert each.seconds == pytest.approx(takes, rel=0.05) and each.high - each.low < 0.1 * takes


def test_without_a_layer_between_it_is_both_guests_and_without_a_host_nothing() -> None:
    run = idle_run(7, "vm")
    assert [(each.treatment, each.baseline) for each in Analysis(run).idle_guests] == [("nested", "host")]
    assert Analysis(idle_run(7, "host", "vm")).idle_guests == ()
    assert Analysis(sample_experiment(rounds=7)).idle_guests == ()


def test_few_rounds_have_no_interval_and_failures_no_figure() -> None:
    (first, *_) = Analysis(idle_run(5)).idle_guests
    assert (first.low, first.high, first.rounds) == (None, None, 5) and first.seconds > 0
    run = idle_run(3)
    lost = [replace(trial, status="failed") if trial.treatment == "vm" else trial for trial in run.trials]
    assert [each.treatment for each in idle_guests(run.treatments, lost, 0.05)] == ["vm guest.hpet=on"]


def test_a_host_that_takes_more_by_chance_is_shown_as_less_than_nothing() -> None:
    run = idle_run(6, "nested")
    less = [replace(t, measurements=(Measurement(CPU, 0.004),)) if t.treatment == "vm" else t for t in run.trials]
    (vm, _) = idle_guests(run.treatments, less, 0.05)
    assert vm.high is not None and vm.high < 0
    (table,) = [
        block
        for section in document(Analysis(replace(run, trials=tuple(less))), Detail.BRIEF).sections
        for block in section.blocks
        if section.id == "idle" and isinstance(block, Table)
    ]
    texts = [["".join(piece.text for piece in cell.pieces) for cell in row.cells] for row in table.rows]
    assert texts[0][1:] == ["−0.71 %", "−0.72 to −0.70 %", "6"] and texts[1][1] == "5.59 %"


@pytest.mark.parametrize("format", ["html", "markdown", "json"])
def test_every_report_has_it(format: str) -> None:
    text = FORMATS[format].render(Analysis(idle_run())).decode()
    assert ("idle_guests" if format == "json" else "An idle guest takes") in text


def test_it_is_kept_with_the_results_of_its_run_and_of_no_other() -> None:
    run = idle_run()
    text = results.written(Analysis(run).results)
    kept = results.read(text, run)
    assert kept is not None and kept.idle_guests == Analysis(run).idle_guests
    assert results.read(text.replace('"baseline":"vm"', '"baseline":"xy"'), run) is None
