"""The screens in how-to pages are the first parts of what the program prints of made-up runs, on a host called example.

UPDATE_GOLDEN=1 writes the golden files anew; then put them into the pages.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sample_storage import storage_experiment
from tests.unit.test_report import check_golden, shown
from tests.unit.test_report_at_once import experiment as several_guests
from vmtax.core.records import Experiment

ROOT = Path(__file__).parents[2]
USUAL = {"disk.filesystem": "ext4", "disk.format": "raw", "disk.bus": "virtio"}
# Operations per second of one machine, and of four together.
RATES = {"host": (142e3, 318e3), "vm": (125e3, 296e3), "nested": (87.6e3, 171e3)}


def called(plan: str, run: Experiment) -> Experiment:
    named = {"id": f"20261121-0412-{plan}-0001", "name": plan, "command": f"vmtax run {plan}"}
    return replace(run, **named, plan={**run.plan, "name": plan})


def disk_cache() -> Experiment:
    """The cache modes of one disk, and nothing else of a storage run."""
    run = storage_experiment(emulated=False, host=False)
    kept = {one.name: one for one in run.treatments if all(one.levels.get(k) == v for k, v in USUAL.items())}
    return replace(
        run,
        treatments=tuple(kept.values()),
        trials=tuple(trial for trial in run.trials if trial.treatment in kept),
        boots=tuple(boot for boot in run.boots if boot.treatment in kept),
    )


@pytest.mark.parametrize(
    ("plan", "page", "run"),
    [
        ("disk-cache", "choose-a-disk.md", disk_cache),
        ("density", "how-many-guests.md", lambda: several_guests(7, rates=RATES, spread=0.03)),
    ],
)
def test_a_page_shows_what_its_plan_prints(plan: str, page: str, run: Callable[[], Experiment]) -> None:
    text = shown(called(plan, run()))
    check_golden(f"show-{plan}.txt", text)
    first = "An invented example, to show the form: no machine has measured it."
    found = re.search(rf"```\n{re.escape(first)}\n\n(.*?)```\n", (ROOT / "docs/how-to" / page).read_text(), re.DOTALL)
    assert found and found[1].count("\n") > 10
    assert text.startswith(f"{found[1]}\n"), "up to an empty line"
