"""What queue depth gains a disk, and that one disk gains what another does not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.test_scores import Values, measured
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.gains import Gain
from vmtax.core.records import Experiment
from vmtax.report.sections.gains import lines, tables

SHALLOW, DEEP = "disk.randwrite-4k-qd1.iops", "disk.randwrite-4k-qd32.iops"
FIRST, AGAIN = "disk.first-write-64k.iops", "disk.first-write-64k.rewrite_iops"


def disk(gain: float, rounds: int, seed: int, first: float | None = None) -> Values:
    """A disk whose speed differs from boot to boot by a half, its gain by 2 %."""
    random = np.random.default_rng(seed)
    level = 1000 * np.exp(random.normal(0, 0.5, rounds))
    values = {SHALLOW: level, DEEP: level * gain * np.exp(random.normal(0, 0.02, rounds))}
    if first is not None:
        values |= {FIRST: level * first * np.exp(random.normal(0, 0.02, rounds)), AGAIN: level}
    return {name: found.tolist() for name, found in values.items()}


def run(rounds: int) -> Experiment:
    table = {
        "vm virtio": disk(3.0, rounds, 1),
        "vm ide": disk(1.0, rounds, 2),
        "vm sparse": disk(3.0, rounds, 3, first=0.6),
    }
    return measured(table)


def by_treatment(found: tuple[Gain, ...]) -> dict[tuple[str, str], Gain]:
    return {(one.pair.upper, one.treatment): one for one in found}


def test_an_interaction_with_queue_depth_is_distinguished_from_none() -> None:
    found = by_treatment(Analysis(run(8)).gains)
    virtio, ide, sparse = (found[DEEP, f"vm {name}"] for name in ("virtio", "ide", "sparse"))
    for one, gain in ((virtio, 3.0), (ide, 1.0), (sparse, 3.0)):
        assert one.ratio == pytest.approx(gain, rel=0.03) and one.rounds == 8
        assert one.low is not None and one.high is not None and one.high / one.low < 1.1, "boots cancel"
    assert virtio.less is None and virtio.first is None
    assert ide.less is not None and ide.less[0] == pytest.approx(2 / 3, abs=0.03)
    assert ide.less[1] is not None and ide.less[1] > 0.6, "the interval excludes no difference"
    assert sparse.less is not None and sparse.less[1] is not None and sparse.less[2] is not None
    assert sparse.less[1] < 0 < sparse.less[2], "nothing where there is nothing"
    only = found[FIRST, "vm sparse"]
    assert only.high is not None and only.high < 0.7 and only.first is None


def test_it_is_given_in_words() -> None:
    analysis = Analysis(run(8))
    gains, first = tables(analysis)
    assert [line.what for line in gains.lines][-1] == "vm ide" and gains.lines[-1].remark == "no difference is shown"
    assert [line.amount for line in gains.lines if line.what == "vm virtio"] == ["the first"]
    assert first.lines[0].remark == "less"
    told = list(lines(analysis))
    assert "2 of 3 are shown to differ from ×1; 1 of 2 to differ from vm virtio" in told[0]


def test_too_few_rounds_are_said() -> None:
    analysis = Analysis(run(3))
    found = analysis.gains
    assert found and all(one.low is None and one.high is None for one in found)
    assert all(line.endswith("too few rounds for an interval") for line in lines(analysis))
    assert Analysis(measured({"vm a": disk(2, 6, 1), "vm b": disk(2, 6, 2)})).gains == (), "two are no field"
