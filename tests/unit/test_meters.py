"""Meters together: what they read is kept with each trial, and read again."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.answers import experiment_data
from tests.fake_machine import FakeMachine, Reply
from tests.fake_testbed import SEVEN, Lab, bench
from vmtax.analysis.analysis import Analysis
from vmtax.experiment import archive
from vmtax.meter import METERS, MeteredCommand, Vmstat
from vmtax.meter.vmstat import COUNTERS, parse
from vmtax.report.render.formats import FORMATS
from vmtax.store import Store

# Linux 6.1 has many more, and here no NUMA.
BEFORE = "pgfault 4178234561\npgmajfault 1290\npgfault_x 7\nthp_fault_alloc 12\n"
AFTER = "pgfault 4178234661\npgmajfault 1290\npgfault_x 9\nthp_fault_alloc 15\n"
WORK = MeteredCommand("fio", ok=True, seconds=10.0)


def test_vmstat_says_by_how_much_each_counter_grew() -> None:
    machine, meter = FakeMachine("host", {Vmstat.command: [BEFORE, AFTER]}), Vmstat()
    meter.before(machine)
    found = meter.after(machine, [WORK])
    assert found.rows == {"pgfault": 100.0, "pgmajfault": 0.0, "thp_fault_alloc": 3.0} and found.warnings == ()


def test_a_machine_without_vmstat_has_no_readings() -> None:
    machine, meter = FakeMachine("host", {Vmstat.command: Reply(code=2)}), Vmstat()
    meter.before(machine)
    assert meter.after(machine, [WORK]).rows == {}


@given(st.text() | st.lists(st.sampled_from(COUNTERS)).map(lambda names: "".join(f"{name} 1\n" for name in names)))
def test_garbage_is_no_counter(text: str) -> None:
    assert set(parse(text)) <= set(COUNTERS)


def test_every_meter_has_a_name_of_its_own() -> None:
    assert len({meter.name for meter in METERS}) == len(METERS)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A run on a host with more page faults at each look than between the two before."""
    found = Lab(SEVEN, lambda number, name: bench(), tmp_path_factory.mktemp("lab"))
    found.meters["vmstat"] = [f"pgfault {count * count}\n" for count in range(500)]
    found.run()
    return found


def test_readings_are_kept_with_the_trial_and_shown_in_json_and_csv(lab: Lab) -> None:
    trials = lab.experiment.trials
    read = [trial.readings["host"]["vmstat.pgfault"] for trial in trials]
    assert read == [4.0 * number + 1 for number in range(len(trials))]
    measurements = experiment_data(Analysis(lab.experiment))["measurements"]
    assert {entry["readings"]["host"]["vmstat.pgfault"] for entry in measurements} == set(read)
    rows = csv.DictReader(io.StringIO(FORMATS["csv"].render(Analysis(lab.experiment)).decode()))
    assert {float(row["readings_host_vmstat_pgfault"]) for row in rows} == set(read)


def test_an_exported_run_keeps_its_readings(lab: Lab, tmp_path: Path) -> None:
    with Store(lab.store.path) as store:
        archive.export(store, "last", tmp_path / "run")
    with Store(tmp_path / "other.sqlite") as other:
        archive.import_(other, tmp_path / "run")
        assert [t.readings for t in other.load("last").trials] == [t.readings for t in lab.experiment.trials]
