from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtax.core.layers import LAYERS, USUAL
from vmtax.design import filling
from vmtax.design.factors import FACTORS, LEGALITY, RULED, idle, why_illegal
from vmtax.design.filling import repairs
from vmtax.design.size import SIZES
from vmtax.design.treatments import (
    Combination,
    Design,
    Expansion,
    Space,
    backing,
    expand,
    host_levels,
    moved_defaults,
    shuffled_rounds,
    treatments,
)

LEVELS = {f.name: st.lists(st.sampled_from(f.levels), min_size=1, max_size=3, unique=True) for f in FACTORS.values()}
# Four at most: the treatments are their product.
FACTOR_LEVELS = st.lists(st.sampled_from(sorted(FACTORS)), max_size=4, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: LEVELS[name] for name in names})
)
OF_HOST = {"disk.format": "raw", "disk.preallocation": "falloc"}
AS_USUAL = {"host.kernel_arguments": "none", "cpu.governor": "as-set"}
PART_LISTS = st.lists(FACTOR_LEVELS.map(Combination), max_size=3)
ENTRIES = FACTOR_LEVELS.map(lambda factors: dict(list(factors.items())[:2])).filter(bool)
LAYER_LISTS = st.lists(st.sampled_from(list(LAYERS)), min_size=1, unique=True)


def names(layers: list[str], factors: dict[str, list[str]], **more: Any) -> list[str]:
    return [treatment.name for treatment in treatments(layers, Space(factors, **more))[0]]


def test_every_guest_layer_has_every_combination_and_the_first_levels_are_the_baseline() -> None:
    factors = {"disk.bus": ["ide", "virtio"], "cpu.mitigations": ["auto", "off"]}
    assert names(["host", "vm", "nested"], factors) == [
        "host",
        "vm",
        "vm cpu.mitigations=off",
        "vm disk.bus=virtio",
        "vm disk.bus=virtio cpu.mitigations=off",
        "nested",
        "nested cpu.mitigations=off",
        "nested disk.bus=virtio",
        "nested disk.bus=virtio cpu.mitigations=off",
    ]


def test_levels_name_every_factor_of_a_guest_and_of_the_host_those_of_its_disk_and_boot() -> None:
    host, vm, off = treatments(["host", "vm"], Space({"cpu.mitigations": ["auto", "off"]}))[0]
    usual = {name: factor.default for name, factor in FACTORS.items() if "vm" in factor.layers}
    defaults = {name: level for name, level in usual.items() if name not in SIZES}
    assert host.levels == {"disk.volume": "plain", "disk.filesystem": "as-is"} | OF_HOST | AS_USUAL
    assert vm.levels == defaults
    assert off.levels == defaults | {"cpu.mitigations": "off"}


def test_a_factor_with_one_level_is_not_part_of_a_name() -> None:
    assert names(["vm"], {"disk.bus": ["nvme"]}) == ["vm"]


def test_an_illegal_combination_is_left_out_with_its_reason() -> None:
    kept, left_out = treatments(["vm"], Space({"disk.cache": ["none", "writeback"], "disk.aio": ["native", "threads"]}))
    assert [treatment.name for treatment in kept] == [
        "vm",
        "vm disk.aio=threads",
        "vm disk.cache=writeback disk.aio=threads",
    ]
    assert left_out == [
        "vm disk.cache=writeback: disk.aio=native needs O_DIRECT, which disk.cache=writeback does not use"
    ]


def test_a_factor_that_is_not_named_neither_removes_treatments_nor_differs_between_them() -> None:
    factors = {"disk.cache": ["none", "writeback"]}
    kept, left_out = treatments(["vm", "nested"], Space(factors))
    assert (len(kept), left_out) == (4, [])
    assert {treatment.levels["disk.aio"] for treatment in kept} == {"threads"}
    assert moved_defaults(Space(factors))[0].startswith("disk.aio=threads in every guest instead of the default native")
    assert moved_defaults(Space({"disk.cache": ["none", "directsync"]})) == []


def test_exclude_leaves_out_what_matches_all_of_an_entry() -> None:
    factors = {"disk.cache": ["none", "writeback"]}
    kept, left_out = treatments(
        USUAL, Space(factors), [{"layers": ["host"]}, {"disk.cache": ["writeback"], "layers": ["nested"]}]
    )
    assert [treatment.name for treatment in kept] == ["vm", "vm disk.cache=writeback", "nested"]
    assert left_out == [
        "host: excluded by the plan's exclude[0]",
        "nested disk.cache=writeback: excluded by the plan's exclude[1]",
    ]


@given(LAYER_LISTS, FACTOR_LEVELS)
def test_treatments_are_legal_distinct_and_alike_in_what_is_not_named_where_that_is_possible(
    layers: list[str], factors: dict[str, list[str]]
) -> None:
    kept, _ = treatments(layers, Space(factors))
    assert len({treatment.name for treatment in kept}) == len(kept)
    assert len({(treatment.layer, *treatment.levels.items()) for treatment in kept}) == len(kept)
    assert all(why_illegal(treatment.levels) is None for treatment in kept)
    for treatment in kept:
        if treatment.boots and not LAYERS[treatment.layer].keeps:
            named = {f.name for f in FACTORS.values() if treatment.layer in f.layers}
            assert set(treatment.levels) == named - (set(SIZES) - factors.keys())
    for name in FACTORS.keys() - factors.keys():
        having = [t for t in kept if t.boots and name in t.levels]
        if len({t.levels[name] for t in having}) > 1:  # then none of its levels goes with all of the named ones
            assert name in RULED
            for level in FACTORS[name].levels:
                others = [{**t.levels, name: level} for t in having]
                assert any(
                    why_illegal(each) is not None or (idle(each).keys() - idle(t.levels).keys()) & factors.keys()
                    for t, each in zip(having, others, strict=True)
                )


@given(FACTOR_LEVELS)
def test_every_combination_is_kept_or_its_reason_reported(factors: dict[str, list[str]]) -> None:
    kept, left_out = treatments(["vm"], Space(factors))
    of_vm = _product({name: levels for name, levels in factors.items() if "vm" in FACTORS[name].layers})
    assert len(kept) <= of_vm
    assert (len(kept) < of_vm) == bool(left_out)


def test_one_at_a_time_changes_no_two_factors_at_once() -> None:
    factors = {
        "disk.cache": ["none", "writeback", "unsafe"],
        "disk.bus": ["virtio", "ide"],
        "cpu.mitigations": ["auto"],
    }
    assert names(["vm"], factors, design="one-at-a-time") == [
        "vm",
        "vm disk.bus=ide",
        "vm disk.cache=writeback",
        "vm disk.cache=unsafe",
    ]


def test_a_hand_made_list_has_just_its_combinations() -> None:
    parts = [
        Combination({"disk.volume": ["lvm"], "disk.filesystem": ["none"], "disk.cache": ["none", "writeback"]}, "lvm"),
        Combination({"disk.format": ["qcow2"], "disk.preallocation": ["full", "off"]}),
    ]
    kept, left_out = treatments(["host", "vm"], Space({"disk.bus": ["virtio", "ide"]}, parts))
    assert left_out == []
    qcow2 = "vm disk.volume=plain disk.filesystem=as-is disk.format=qcow2"
    assert [treatment.name for treatment in kept] == [
        "host",
        "host disk.volume=plain disk.filesystem=as-is",
        "vm lvm",
        "vm lvm disk.cache=writeback",
        "vm lvm disk.bus=ide",
        "vm lvm disk.cache=writeback disk.bus=ide",
        f"{qcow2} disk.preallocation=full",
        f"{qcow2} disk.preallocation=off",
        f"{qcow2} disk.preallocation=full disk.bus=ide",
        f"{qcow2} disk.preallocation=off disk.bus=ide",
    ]


def test_what_means_nothing_beside_another_level_makes_no_treatments() -> None:
    factors = {"disk.format": ["raw", "qcow2"], "disk.cluster_size": ["64KiB", "2MiB"]}
    kept, left_out = treatments(["host", "vm"], Space(factors))
    assert [treatment.name for treatment in kept] == [
        "host",
        "vm",
        "vm disk.format=qcow2",
        "vm disk.format=qcow2 disk.cluster_size=2MiB",
    ]
    assert left_out == ["vm disk.cluster_size=2MiB: disk.cluster_size=2MiB needs disk.format=qcow2"]


def test_a_page_cache_is_bounded_only_where_it_is_used_and_a_cgroup_has_it() -> None:
    factors = {"disk.cache": ["none", "writeback"], "disk.page_cache": ["unbounded", "bounded"]}
    kept, left_out = treatments(["vm"], Space(factors))
    assert [treatment.name for treatment in kept] == [
        "vm",
        "vm disk.cache=writeback",
        "vm disk.cache=writeback disk.page_cache=bounded",
    ]
    assert left_out == [
        "vm disk.page_cache=bounded: disk.page_cache=bounded needs disk.cache=writeback or writethrough or unsafe"
    ]
    kept, left_out = treatments(["vm"], Space({**factors, "disk.volume": ["zvol"], "disk.filesystem": ["none"]}))
    assert not any(treatment.levels["disk.page_cache"] == "bounded" for treatment in kept)
    assert "ZFS has a cache of its own (ARC)" in left_out[0]


def test_the_same_levels_under_two_names_are_reported() -> None:
    parts = [Combination({"disk.cache": ["none"]}, "a"), Combination({"disk.cache": ["none"]}, "b")]
    kept, left_out = treatments(["vm"], Space({}, parts))
    assert [treatment.name for treatment in kept] == ["vm a"]
    assert left_out == ["vm b: has the same levels as vm a"]


def test_a_layer_that_lacks_a_factor_is_measured_and_not_reported_as_left_out() -> None:
    kept, left_out = treatments(["vm", "nested"], Space({"guest.count": ["2"], "guest.outer": ["shared", "own"]}))
    assert [treatment.layer for treatment in kept] == ["vm", "nested", "nested"]
    assert not left_out


def test_guests_that_differ_in_attachment_share_a_backing_and_the_host_has_its_raw_one() -> None:
    factors = {"disk.format": ["qcow2"], "disk.filesystem": ["ext4"], "disk.cache": ["none", "writeback"]}
    (host, one, other), _ = treatments(["host", "vm"], Space(factors))
    assert backing(one.levels) == backing(other.levels)
    assert backing(one.levels)["disk.cluster_size"] == "64KiB" and "zfs.sync" not in backing(one.levels)
    assert (
        host_levels(one.levels)
        == host.levels
        == {"disk.volume": "plain", "disk.filesystem": "ext4", "disk.barriers": "on"} | OF_HOST | AS_USUAL
    )


@given(FACTOR_LEVELS, PART_LISTS, st.sampled_from(["full", "one-at-a-time"]))
def test_the_count_is_that_of_an_enumeration(
    factors: dict[str, list[str]], parts: list[Combination], design: Design
) -> None:
    space = Space(factors, parts, design)
    points = [tuple(levels.items()) for part in space.parts for levels in space.points(part)]
    assert space.count() == len(points)
    assert parts or len(set(points)) == len(points)


@given(FACTOR_LEVELS)
def test_one_at_a_time_is_what_changes_at_most_one_factor_of_all_combinations(factors: dict[str, list[str]]) -> None:
    full, few = Space(factors), Space(factors, design="one-at-a-time")
    first = {name: levels[0] for name, levels in factors.items()}
    wanted = [
        levels for levels in full.points(full.parts[0]) if sum(levels[name] != first[name] for name in levels) <= 1
    ]
    assert list(few.points(few.parts[0])) == wanted


@given(LAYER_LISTS, FACTOR_LEVELS, st.lists(ENTRIES, max_size=4))
def test_an_exclude_leaves_out_what_all_its_keys_match_and_is_idle_where_nothing_does(
    layers: list[str], factors: dict[str, list[str]], entries: list[dict[str, list[str]]]
) -> None:
    every = expand(layers, Space(factors)).kept
    found = expand(layers, Space(factors), entries)
    matching = [
        [treatment for treatment in every if all(treatment.levels.get(key) in entry[key] for key in entry)]
        for entry in entries
    ]
    assert found.kept == tuple(treatment for treatment in every if not any(treatment in some for some in matching))
    assert found.idle_excludes == tuple(number for number, some in enumerate(matching) if not some)


@given(st.fixed_dictionaries({f.name: st.sampled_from(f.levels) for f in FACTORS.values()}), st.data())
def test_nothing_else_decides_what_is_legal(levels: dict[str, str], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([name for name in FACTORS if name not in LEGALITY]))
    changed = {**levels, name: data.draw(st.sampled_from(FACTORS[name].levels))}
    assert why_illegal(changed) == why_illegal(levels)
    assert why_illegal({name: levels[name] for name in LEGALITY}) == why_illegal(levels)


@pytest.mark.variations
def test_the_time_to_plan_grows_with_the_combinations_and_not_with_the_excludes() -> None:
    """Compared within one test: a busy machine is slower in all of it."""
    names = ("disk.filesystem", "disk.format", "disk.preallocation", "disk.bus", "disk.cache", "disk.aio")

    def planned(count: int, excludes: int) -> tuple[Expansion, float]:
        factors = {name: list(FACTORS[name].levels) for name in names[:count]}
        started = time.process_time()
        found = expand(["vm"], Space(factors), [{"disk.bus": ["ide"], "disk.format": ["raw"]}] * excludes)
        return found, (time.process_time() - started) / Space(factors).count()

    few, each_of_few = planned(4, 1)
    many, each_of_many = planned(6, 1000)
    assert len(many.kept) > 500 > len(few.kept) and many.left_out and many.idle_excludes == ()
    assert each_of_many < 10 * each_of_few


def test_all_factors_with_all_levels_are_counted_and_one_at_a_time_they_are_planned() -> None:
    factors = {name: list(factor.levels) for name, factor in FACTORS.items()}
    assert Space(factors).count() == _product(factors) > 10**9
    space = Space(factors, design="one-at-a-time")
    assert space.count() == 1 + sum(len(levels) - 1 for levels in factors.values())
    assert len(expand(["host", "vm", "nested"], space).kept) > 40


@given(st.integers(1, 12), st.integers(0, 2**63 - 1))
def test_a_round_is_a_permutation_and_a_seed_gives_one_sequence(size: int, seed: int) -> None:
    every = treatments(["host", "vm", "nested"], Space({"disk.cache": list(FACTORS["disk.cache"].levels)}))[0][:size]
    rounds = list(islice(shuffled_rounds(every, seed), 5))
    assert all(sorted(t.name for t in order) == sorted(t.name for t in every) for order in rounds)
    assert rounds == list(islice(shuffled_rounds(every, seed), 5))


def test_the_order_differs_from_round_to_round_and_from_seed_to_seed() -> None:
    every, _ = treatments(USUAL, Space({}))
    orders = {tuple(t.name for t in order) for order in islice(shuffled_rounds(every, 1), 100)}
    assert len(orders) == 6
    one, two = ([[t.name for t in order] for order in islice(shuffled_rounds(every, seed), 20)] for seed in (1, 2))
    assert one != two


def _product(factors: dict[str, list[str]]) -> int:
    product = 1
    for levels in factors.values():
        product *= len(levels)
    return product


def test_what_an_entry_names_is_kept_where_its_combination_is_legal() -> None:
    levels = {name: factor.default for name, factor in FACTORS.items() if factor.scope == "disk"}
    levels |= {"zfs.volblocksize": "64KiB"}  # legal, and without meaning on a file
    movable, asked = levels.keys() - {"zfs.volblocksize"}, ["zfs.volblocksize"]
    assert next(repairs(levels, movable, asked))["disk.volume"] == "zvol"
    assert not [*repairs(levels, movable, asked, kept=["disk.volume"])]


MANY = (
    *("cpu.isolation", "cpu.model", "cpu.timer", "disk.detect_zeroes", "disk.extended_l2", "disk.lazy_refcounts"),
    *("disk.preallocation", "disk.share", "disk.volume", "guest.outer", "guest.vcpus"),
)


def test_levels_in_common_are_not_looked_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """With these factors, trying all that several combinations might share would take for ever."""
    looked_at, ways = itertools.count(1), filling._ways

    def counted(*of: Any) -> Iterator[dict[str, str]]:
        for changes in ways(*of):
            assert next(looked_at) < 2000
            yield changes

    monkeypatch.setattr(filling, "_ways", counted)
    monkeypatch.setattr(filling, "MOST_TRIED", 20)
    every = {name: dict.fromkeys((FACTORS[name].default, *FACTORS[name].levels)) for name in MANY}
    space = Space({name: [*levels] for name, levels in every.items()}, design="one-at-a-time")
    kept, _ = treatments(("vm", "nested"), space)
    assert {level for each in kept if (level := each.levels.get("disk.volume"))} == {*FACTORS["disk.volume"].levels}
