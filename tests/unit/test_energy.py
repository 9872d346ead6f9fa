"""The energy that processors count: which zones are added, a counter that begins again, and what a report shows."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fake_machine import FakeMachine, Reply
from tests.fake_testbed import SEVEN, Lab, bench
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.energy import power
from vmtax.meter import MeteredCommand
from vmtax.meter.energy import ZONES, Energy, parse
from vmtax.report.sections import energy

WORK = MeteredCommand("fio", ok=True, seconds=10.0)
MOST = 262143328850  # of a real counter, in microjoules
KINDS = {"intel-rapl:0": "package-0", "intel-rapl:0:0": "core", "intel-rapl:1": "package-1", "intel-rapl:2": "psys"}


def look(seconds: float, most: int = MOST, **joules: float) -> str:
    """What is printed of these zones, written as z0 for intel-rapl:0, z0__0 for intel-rapl:0:0."""
    lines = []
    for key, value in joules.items():
        zone = f"intel-rapl:{key[1:].replace('__', ':')}"
        lines.append(f"{zone} {KINDS[zone]} {round(value * 1e6)} {most}\n")
    return "".join([*lines, f"up {seconds:.2f}\n"])


def read(before: str | Reply, after: str | Reply) -> dict[str, float]:
    machine, meter = FakeMachine("host", {Energy.command: [before, after]}), Energy()
    meter.before(machine)
    found = meter.after(machine, [WORK])
    assert found.warnings == () and not found.void, "what is not there is no news"
    return dict(found.rows)


def test_packages_are_added_and_what_is_part_of_them_or_more_than_them_is_not() -> None:
    before = look(100.0, z0=10.0, z0__0=5.0, z1=20.0, z2=90.0)
    after = look(110.0, z0=260.0, z0__0=205.0, z1=120.5, z2=900.0)
    assert read(before, after) == {"joules": pytest.approx(350.5), "seconds": pytest.approx(10.0)}


def test_a_counter_that_begins_again_counts_on() -> None:
    assert read(look(100.0, z0=MOST / 1e6 - 30), look(110.0, z0=70.0))["joules"] == pytest.approx(100.0)
    # At 600 W it comes round in 437 s
    assert read(look(100.0, z0=0.0), look(530.0, z0=70.0))["joules"] == pytest.approx(70.0)
    assert read(look(100.0, z0=0.0), look(540.0, z0=70.0)) == {}, "it may have come round more than once"


@pytest.mark.parametrize("other", [look(110.0), look(110.0, z0=1.0, z1=1.0), "", Reply(code=1), look(90.0, z0=2.0)])
def test_what_cannot_be_read_at_both_looks_is_not_there(other: str | Reply) -> None:
    assert read(look(100.0, z0=1.0), other) == {}
    assert read(look(100.0), look(110.0)) == {}, "as in most VMs"


def test_it_is_read_of_files_as_the_kernel_has_them(tmp_path: Path) -> None:
    for zone, name in KINDS.items():
        (tmp_path / zone).mkdir()
        for file, text in (("name", name), ("energy_uj", "5000000"), ("max_energy_range_uj", str(MOST))):
            (tmp_path / zone / file).write_text(f"{text}\n")
    (tmp_path / "intel-rapl:1/energy_uj").unlink()  # as for a user who is not root
    *shell, script = Energy.command
    done = subprocess.run([*shell, script.replace(ZONES, str(tmp_path))], capture_output=True, text=True, check=True)
    found = parse(done.stdout)
    assert done.stderr == "" and found.seconds
    assert {zone: (one.used, one.most) for zone, one in found.packages.items()} == {"intel-rapl:0": (5_000_000, MOST)}


@given(st.text())
def test_garbage_is_no_energy(text: str) -> None:
    assert parse(text).packages == {} or "package" in text


def test_a_report_has_the_watts_of_each_configuration(tmp_path: Path) -> None:
    made = Lab(SEVEN, lambda number, name: bench(), tmp_path)
    made.meters["energy"] = [look(100.0 + 2 * count, z0=30.0 * count) for count in range(500)]
    analysis = Analysis(made.run())
    found = power(analysis.experiment, analysis.trials)
    assert {one.treatment.name for one in found} == {"host", "vm"}
    assert all((one.watts, one.joules) == pytest.approx((15.0, 30.0)) for one in found)
    shown = energy.section(analysis)
    assert shown is not None and "15.0" in str(shown)


def test_without_counters_a_report_says_nothing_of_it(tmp_path: Path) -> None:
    assert energy.section(Analysis(Lab(SEVEN, lambda number, name: bench(), tmp_path).run())) is None
