from __future__ import annotations

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from vmtax.result import LAYERS
from vmtax.treatment import FACTORS, moved_defaults, shuffled_rounds, treatments, why_illegal

FACTOR_LEVELS = st.fixed_dictionaries(
    {}, optional={f.name: st.lists(st.sampled_from(f.levels), min_size=1, unique=True) for f in FACTORS.values()}
)
LAYER_LISTS = st.lists(st.sampled_from(LAYERS), min_size=1, unique=True)


def names(*arguments: object) -> list[str]:
    return [treatment.name for treatment in treatments(*arguments)[0]]  # type: ignore[arg-type]


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


def test_levels_name_every_factor_of_a_guest_and_none_of_the_host() -> None:
    host, vm, off = treatments(["host", "vm"], {"cpu.mitigations": ["auto", "off"]})[0]
    defaults = {name: factor.default for name, factor in FACTORS.items()}
    assert host.levels == {}
    assert vm.levels == defaults
    assert off.levels == defaults | {"cpu.mitigations": "off"}


def test_a_factor_with_one_level_is_not_part_of_a_name() -> None:
    assert names(["vm"], {"disk.bus": ["nvme"]}) == ["vm"]


def test_an_illegal_combination_is_left_out_with_its_reason() -> None:
    kept, left_out = treatments(["vm"], {"disk.cache": ["none", "writeback"], "disk.aio": ["native", "threads"]})
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
    kept, left_out = treatments(["vm", "nested"], factors)
    assert (len(kept), left_out) == (4, [])
    assert {treatment.levels["disk.aio"] for treatment in kept} == {"threads"}
    assert moved_defaults(factors)[0].startswith("disk.aio=threads in every guest instead of the default native")
    assert moved_defaults({"disk.cache": ["none", "directsync"]}) == []


def test_exclude_leaves_out_what_matches_all_of_an_entry() -> None:
    factors = {"disk.cache": ["none", "writeback"]}
    kept, left_out = treatments(
        LAYERS, factors, [{"layers": ["host"]}, {"disk.cache": ["writeback"], "layers": ["nested"]}]
    )
    assert [treatment.name for treatment in kept] == ["vm", "vm disk.cache=writeback", "nested"]
    assert left_out == [
        "host: excluded by the plan's exclude[0]",
        "nested disk.cache=writeback: excluded by the plan's exclude[1]",
    ]


@given(LAYER_LISTS, FACTOR_LEVELS)
def test_treatments_are_legal_distinct_and_alike_in_what_is_not_named(
    layers: list[str], factors: dict[str, list[str]]
) -> None:
    kept, left_out = treatments(layers, factors)
    everything = sum(1 if layer == "host" else _product(factors) for layer in layers)
    assert len(kept) + len(left_out) == everything
    assert len({treatment.name for treatment in kept}) == len(kept)
    assert all(why_illegal(treatment.levels) is None for treatment in kept)
    for name in FACTORS.keys() - factors.keys():
        assert len({treatment.levels[name] for treatment in kept if treatment.layer != "host"}) <= 1


@given(st.integers(1, 12), st.integers(0, 2**63 - 1))
def test_a_round_is_a_permutation_and_a_seed_gives_one_sequence(size: int, seed: int) -> None:
    every = treatments(["host", "vm", "nested"], {"disk.cache": list(FACTORS["disk.cache"].levels)})[0][:size]
    rounds = list(islice(shuffled_rounds(every, seed), 5))
    assert all(sorted(t.name for t in order) == sorted(t.name for t in every) for order in rounds)
    assert rounds == list(islice(shuffled_rounds(every, seed), 5))


def test_the_order_differs_from_round_to_round_and_from_seed_to_seed() -> None:
    every, _ = treatments(LAYERS, {})
    orders = {tuple(t.name for t in order) for order in islice(shuffled_rounds(every, 1), 100)}
    assert len(orders) == 6
    one, two = ([[t.name for t in order] for order in islice(shuffled_rounds(every, seed), 20)] for seed in (1, 2))
    assert one != two


def _product(factors: dict[str, list[str]]) -> int:
    product = 1
    for levels in factors.values():
        product *= len(levels)
    return product
