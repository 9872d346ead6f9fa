"""The report's table of what the guests' memory lay in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sample import sample_experiment
from vmtax.analysis.analysis import Analysis
from vmtax.core.records import Boot, Experiment, Treatment
from vmtax.report.render.markdown import render_markdown

MIB = 2**20


def boot(number: int, treatment: str, **obtained: float) -> Boot:
    readings = {f"memory.{name}": value for name, value in obtained.items()}
    return Boot(number, treatment, "host/vm", "kvm", False, ("qemu",), 1.0, 0.5, obtained=readings)


def run(second: str = "2MiB") -> Experiment:
    """Two configurations, of which the second has pages of a pool; one boot of the first has fewer huge pages."""
    sample = sample_experiment(rounds=2, emulated=False)
    names = ("vm", f"vm memory.backing={second}")
    treatments = [
        Treatment(name, "vm", {"memory.backing": level}) for name, level in zip(names, ("thp", second), strict=True)
    ]
    boots = [
        boot(1, names[0], page_bytes=4096, resident_bytes=200 * MIB, huge_bytes=200 * MIB),
        boot(2, names[0], page_bytes=4096, resident_bytes=200 * MIB, huge_bytes=90 * MIB),
        boot(1, names[1], page_bytes=2 * MIB, resident_bytes=0, huge_bytes=0, hugetlb_bytes=1024 * MIB),
    ]
    vm = [replace(trial, treatment=name) for trial in sample.trials if trial.treatment == "vm" for name in names]
    return replace(sample, treatments=tuple(treatments), boots=tuple(boots), trials=tuple(vm))


def shown(experiment: Experiment) -> str:
    return render_markdown(Analysis(experiment))


def test_each_backing_shows_its_pages_over_all_boots() -> None:
    assert "The guests' memory" in shown(run())
    rows = [line for line in shown(run()).splitlines() if " KiB |" in line or " MiB |" in line]
    assert [[cell.strip() for cell in row.strip("|").split("|")][1:] for row in rows] == [
        ["thp", "4 KiB", "0.2 GiB", "90 MiB to 0.2 GiB", "2"],
        ["2MiB", "2 MiB", "1.0 GiB", "none", "1"],
    ]


@pytest.mark.parametrize("nothing", [replace(run(), boots=()), run(second="thp")], ids=["not read", "not varied"])
def test_there_is_no_table_where_nothing_was_varied_or_read(nothing: Experiment) -> None:
    assert "The guests' memory" not in shown(nothing)
