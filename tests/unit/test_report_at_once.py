"""What a report shows of several guests at once, and published figures beside it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.sample import sample_experiment
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.at_once import at_once, last_ready
from vmtax.claims.schema import load
from vmtax.core.records import Boot, Disturbance, Experiment, Measurement, Metric, Treatment, Trial
from vmtax.report.figures.scaling import scaling_pictures
from vmtax.report.render.markdown import render_markdown

RATE = Metric("disk.randwrite-4k-qd32.iops", "1/s", "higher")
TAIL = Metric("disk.randwrite-4k-qd32.p99_seconds", "s", "lower")
BUSY = Disturbance(10.0, 25.0, 0.0, None, None, None, None, None)
MIB = 2**20
# The published rates: of one and of four, together.
RATES = {"host": (465_536 / 4, 465_536), "vm": (139_634, 373_178), "nested": (76_259, 94_897)}


def machines(layer: str, count: int) -> list[str]:
    start = {"host": "host", "vm": "host/vm", "nested": "host/vm/vm"}[layer]
    return [start if number == 1 else f"{start}-{number}" for number in range(1, count + 1)]


def experiment(
    rounds: int = 3, *, rated: bool = False, rates: Mapping[str, tuple[float, float]] = RATES, spread: float = 0.0
) -> Experiment:
    """Rounds of one and of four machines on each layer; the guests of four lack a tenth of a CPU each.

    rates: of one machine and of four together; spread: by which share a rate differs from round to round
    """
    source = random.Random(1)
    treatments, trials, boots = [], [], []
    for layer, together in rates.items():
        for count, rate in zip((1, 4), together, strict=True):
            levels = {"guest.count": str(count)} if layer != "host" or count > 1 else {}
            treatment = Treatment(layer if count == 1 else f"{layer} guest.count={count}", layer, levels)
            treatments.append(treatment)
            for number in range(1, rounds + 1):
                for place, machine in enumerate(machines(layer, count), 1):
                    own = rate / count * (1 + source.uniform(-spread, spread))
                    figures = (
                        Measurement(RATE, own),
                        Measurement(TAIL, 1e-3 * place * (1 + source.uniform(-spread, spread))),
                    )
                    readings = {"clock.steal_seconds": 1.0, "clock.soft_irq": 2.0, "memory.beyond_bytes": 50.0 * MIB}
                    one = Trial(number, 1, treatment.name, "disk", RATE.case, 1, "ok", 0.0, 10.0)
                    measured = figures[1:] if rated else figures
                    known = {machine: readings} if layer != "host" else {}
                    trials.append(
                        replace(one, measurements=measured, machine=machine, disturbance=BUSY, readings=known)
                    )
                    if layer != "host":
                        boots.append(
                            Boot(number, treatment.name, machine, "kvm", False, ("qemu",), 2.0 + place + count, 0.5)
                        )
    sample = sample_experiment(emulated=False)
    return replace(sample, treatments=tuple(treatments), trials=tuple(trials), boots=tuple(boots))


def rows(text: str, start: str) -> list[list[str]]:
    lines = (line for line in text.splitlines() if line.startswith(f"| {start}"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_has_a_row_for_each_number_of_guests() -> None:
    text = render_markdown(Analysis(experiment()))
    assert [
        *("vm guest.count=4", "373 k/s", "67 %", "+25 %", "100 %", "93.3 k/s to 93.3 k/s", "100 %", "2.50")
    ] in rows(text, "vm")
    assert "host guest.count=4" in text and "nested guest.count=4" in text


def test_a_configuration_whose_name_has_no_number_of_guests_is_shown_with_it() -> None:
    run = experiment()
    four = next(one for one in run.treatments if one.name == "vm guest.count=4")
    trials = [replace(one, treatment="vm") for one in run.trials if one.treatment == four.name]
    alone = replace(run, treatments=(replace(four, name="vm"),), trials=tuple(trials), boots=())
    assert rows(render_markdown(Analysis(alone)), "vm, 4 at once")[0][1:3] == ["373 k/s", "–"]


def test_each_guest_has_its_tail_its_steal_and_its_memory() -> None:
    text = render_markdown(Analysis(experiment()))
    assert ["host/vm-3", "93.3 k/s", "3.00 ms", "0.10", "0.20", "50 MiB"] in rows(text, "host/vm-3")
    assert ["all together", "373 k/s", "4.00 ms", "0.40", "0.80", "200 MiB"] in rows(text, "all together")


def test_nested_guests_that_emulated_kvm_boots_in_turn_have_no_last_one() -> None:
    run = experiment()
    emulated = replace(run, boots=tuple(replace(boot, emulated=True) for boot in run.boots))
    assert {one.treatment.layer for one in last_ready(run)} == {"vm", "nested"}
    assert {one.treatment.layer for one in last_ready(emulated)} == {"vm"}


def test_guests_whose_packets_go_different_ways_are_shown_with_their_path() -> None:
    run = experiment()
    mixed = {"guest.count": "4", "net.path": "sriov+vhost"}
    treatments = tuple(replace(t, levels=mixed) if t.name == "vm guest.count=4" else t for t in run.treatments)
    text = render_markdown(Analysis(replace(run, treatments=treatments)))
    named = {line[0] for line in rows(text, "host/vm")}
    assert {"host/vm, sriov", "host/vm-2, vhost", "host/vm-3, sriov", "host/vm-4, vhost"} <= named


def test_the_last_of_four_that_is_ready_is_set_against_one_alone() -> None:
    found = {one.treatment.name: one for one in last_ready(experiment())}
    four = found["vm guest.count=4"]
    assert (four.count, four.first, four.last, four.alone) == (4, 7.0, 10.0, 4.0)
    text = render_markdown(Analysis(experiment()))
    assert ["vm guest.count=4", "10 s", "40 %", "–", "–", "7.0 s to 10 s", "–", "–"] in rows(text, "vm guest.count=4")


def test_below_full_load_the_worst_latency_stands_for_all() -> None:
    run = experiment(rated=True)
    four = next(one for one in at_once(run, {}) if one.treatment.name == "vm guest.count=4")
    assert (four.metric, four.together, four.alone, four.fairness) == (TAIL, 4e-3, 1e-3, None)
    assert four.share_of_ideal == pytest.approx(0.25)
    assert scaling_pictures(at_once(run, {}), ()) == ()


def test_the_scaling_picture_draws_each_layer_and_the_ideal() -> None:
    (picture,) = scaling_pictures(at_once(experiment(), {}), {"vm", "vm guest.count=4"})
    assert "vm: 1 reach 1 times, 4 reach 2.67 times" in picture.alternative and "partly emulated" in picture.drawing
    assert [key.text for key in picture.legend] == [
        *("host", "vm, emulated", "nested"),
        "ideal: none costs another anything",
    ]
    assert picture.drawing.count("<polyline") == 4


def test_published_figures_stand_beside_those_of_the_same_configurations() -> None:
    text = render_markdown(Analysis(experiment()))
    assert rows(text, "four") == [
        ["four VMs, of host", "373 k/s", "80.2 %", "78.62 %", "373 k/s", "80.2 %"],
        ["four nested VMs, of one VM", "94.9 k/s", "68.0 %", "67.96 %", "94.9 k/s", "68.0 %"],  # what it compared
        ["four nested VMs, of four VMs", "94.9 k/s", "25.4 %", "–", "94.9 k/s", "25.4 %"],  # like for like
    ]
    assert rows(text, "one VM") == [["one VM, of host", "140 k/s", "30.0 %", "–", "140 k/s", "120.0 %"]]
    assert rows(text, "one nested") == [["one nested VM, of one VM", "76.3 k/s", "54.6 %", "–", "76.3 k/s", "54.6 %"]]
    assert "362 s of" not in text, "the plan builds no kernel"


def test_the_remarks_on_published_figures_are_their_own_arithmetic() -> None:
    (build,), storage = load("build-2020").tables, load("nesting-2016").tables[-1]
    slow = build.recomputed("4 KiB pages, no mitigations", "bare metal", "share").stated.value
    assert f"{slow:.1f} %" == "76.4 %" and "76.4 %" in str(build.remark)
    pairs = {
        "32.04": ("four nested VMs", "one VM"),
        "45.4": ("one nested VM", "one VM"),
        "74.6": ("four nested VMs", "four VMs"),
        "19.8": ("four VMs", "host"),
        "70.0": ("one VM", "host"),
    }
    for figure, (of, base) in pairs.items():
        exact = storage.recomputed(of, base, "loss").stated.value
        assert f"{exact:.{len(figure.partition('.')[2])}f}" == figure and f"{figure} %" in str(storage.remark)


def test_no_published_figure_stands_beside_other_work() -> None:
    one_at_a_time = [t for t in experiment().treatments if "guest.count=4" not in t.name]
    alone = replace(experiment(), treatments=tuple(t for t in one_at_a_time if t.layer == "host"))
    assert "Published" not in render_markdown(Analysis(alone))
