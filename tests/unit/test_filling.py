"""Levels of factors that a plan does not name: for many combinations at once, each is as well off as by itself."""

from __future__ import annotations

import itertools
import random

import pytest

from vmtax.design import asked, filling
from vmtax.design.asked import Unmeasured, sentence
from vmtax.design.factors import FACTORS, RULED, conflict_of, idle, kind_of
from vmtax.design.treatments import Combination, Space, _filling, movable_of


@pytest.mark.parametrize("name", RULED)
def test_levels_of_the_same_kind_are_alike_in_every_rule(name: str) -> None:
    """Whatever the other levels are."""
    source = random.Random(name)
    for one, other in itertools.combinations(FACTORS[name].levels, 2):
        for _ in range(40 if kind_of(name, one) == kind_of(name, other) else 0):
            few = source.sample(RULED, 6)
            levels = {each: source.choice(FACTORS[each].levels) for each in few}
            found = [({**levels, name: level}, level) for level in (one, other)]
            assert len({id(conflict_of(each)) for each, _ in found}) == 1, (one, other, levels)
            assert len({tuple(idle(each)) for each, _ in found}) == 1, (one, other, levels)


@pytest.mark.parametrize(
    "factors",
    [
        {
            "zfs.volblocksize": ("8KiB", "128KiB", "16KiB"),
            "disk.page_cache": ("bounded", "unbounded"),
            "zfs.primarycache": ("metadata", "none"),
            "disk.cache": ("writeback", "writethrough", "directsync"),
        },
        {
            "disk.share": ("virtiofs-never", "virtiofs", "none"),
            "disk.cluster_size": ("64KiB", "2MiB"),
            "migration.auto_converge": ("on", "off"),
            "disk.volume": ("zvol", "plain"),
        },
        {
            "guest.balloon": ("deflated", "half", "none"),
            "disk.volume": ("dataset", "raidz1-zvol", "plain"),
            "disk.discard": ("unmap", "ignore"),
            "migration.downtime_limit": ("30ms", "10ms"),
        },
    ],
    ids=lambda factors: " ".join(factors),
)
def test_each_combination_is_as_well_off_as_by_itself(factors: dict[str, tuple[str, ...]]) -> None:
    """In these, what suits one combination takes something from an earlier one."""
    space = Space(factors)
    movable = [name for name in movable_of(factors) if name in RULED]
    found = _filling(space)
    for point, rest in zip(found.points, found.rests, strict=True):
        least, _ = filling._best(point, movable, [*factors])
        assert point.faults(rest) <= least, point.named


@pytest.mark.parametrize(
    ("why", "end"),
    [("disk.lazy_refcounts=off needs disk.format=qcow2", ""), ("excluded by the plan's exclude[0]", ": excluded by ")],
)
def test_why_a_level_is_not_measured_is_said_once(why: str, end: str) -> None:
    one = Unmeasured("disk.lazy_refcounts", ("off",), {"disk.format": "qcow2"}, {}, "", why)
    said = sentence(one, Space({}), {})
    head = "disk.lazy_refcounts=off needs disk.format=qcow2, which does not go with the rest of the plan"
    assert said.startswith(head + end) and (end or said == head)


def test_what_would_help_is_not_looked_for_in_hundreds_of_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing does here: disk.volume=plain was asked for, too, and every change is tried beside all the others."""
    expansions: list[object] = []
    expand = asked.expand
    monkeypatch.setattr(asked, "expand", lambda *given: expansions.append(given) or expand(*given))
    factors = {
        "zfs.compression": ("lz4",),
        "zfs.volblocksize": ("16KiB", "32KiB", "64KiB"),
        "disk.volume": ("plain",),
        "zfs.sync": ("standard", "disabled", "always"),
        "guest.count": ("1", "16", "3"),
    }
    parts = [Combination({"disk.preallocation": ("falloc", "full")}, "n0"), Combination({"disk.bus": ("sata",)}, "n1")]
    one, *_ = asked.unmeasured(("host",), Space(factors, parts), (), factors)
    assert one.factor == "zfs.compression" and not one.cure and not one.rival
    assert len(expansions) < 4 * asked.MOST_TRIED
