"""Which latencies of which configurations are shown, and what they are medians of."""

from __future__ import annotations

import dataclasses
import statistics

import pytest

from tests.changed import changed
from tests.sample import LATENCIES, sample_experiment
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.latency import Curve, Distribution, distributions
from vmtax.core.records import Experiment, Trial


def of_case(experiment: Experiment, case: str = "randread-4k-qd1") -> Distribution:
    return next(one for one in distributions(Analysis(experiment)) if one.case == case)


def roles(found: Distribution, layer: str = "vm") -> dict[str, Curve]:
    return {curve.role: curve for curve in found.curves if curve.layer == layer}


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


@pytest.mark.parametrize(("treatments", "many"), [(5, False), (6, True)])
def test_of_three_configurations_of_a_layer_the_best_and_the_worst_are_shown(treatments: int, many: bool) -> None:
    """The sample has a host, then a VM and a nested VM in turn."""
    found = of_case(sample_experiment(rounds=2, treatments=treatments))
    assert {"best", "worst"}.issubset(roles(found)) == many
    assert many or list(roles(found)) == [""]
    assert [curve.role for curve in found.curves if curve.layer == "host"] == [""]


def slow_tails(trial: Trial) -> Trial:
    """The plain VM's trials have the shortest median and the longest tail."""
    if trial.treatment != "vm":
        return trial
    points = tuple((share, seconds * (0.01 if share < 0.99 else 100)) for share, seconds in trial.latencies)
    return dataclasses.replace(trial, latencies=points)


def test_best_and_worst_are_told_by_the_tail() -> None:
    found = roles(of_case(changed(sample_experiment(rounds=2, treatments=9), slow_tails)))
    assert found["worst"].treatment == "vm" != found["best"].treatment


def test_without_a_tail_that_all_report_they_are_told_by_less() -> None:
    run = changed(sample_experiment(rounds=2, treatments=9), slow_tails)
    without = changed(
        run,
        lambda t: dataclasses.replace(t, latencies=tuple(point for point in t.latencies if point[0] < 0.99)),
    )
    assert roles(of_case(without))["best"].treatment == "vm"


def test_hosts_are_the_yardstick_and_have_no_best_or_worst() -> None:
    run = sample_experiment(rounds=2)
    hosts = [dataclasses.replace(run.treatments[0], name=f"host {number}") for number in (2, 3)]
    more = [
        dataclasses.replace(trial, treatment=host.name)
        for host in hosts
        for trial in run.trials
        if trial.treatment == "host"
    ]
    found = of_case(dataclasses.replace(run, treatments=(*run.treatments, *hosts), trials=(*run.trials, *more)))
    assert list(roles(found, "host")) == [""] and found.others == 2
