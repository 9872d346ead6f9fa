"""What of a plan lasts on an emulated host."""

from __future__ import annotations

import pytest

from vmtax.plan.estimate import lasting
from vmtax.plan.schema import parse

PLAN = "name: p\nlayers: [host, vm{nested}]\nguest: {{vcpus: {vcpus}}}\nworkloads: [chess]\n"


@pytest.mark.parametrize(
    ("nested", "vcpus", "emulated", "wanted"),
    [(", nested", 2, True, 1), (", nested", 2, False, 2), ("", 2, True, 2), (", nested", 1, True, 1)],
)
def test_a_nested_guest_on_an_emulated_host_has_one_cpu(nested: str, vcpus: int, emulated: bool, wanted: int) -> None:
    plan = parse(PLAN.format(nested=nested, vcpus=vcpus))
    found = lasting(plan, emulated=emulated)
    assert found.guest.vcpus == wanted
    assert found.guest.memory == plan.guest.memory and found.layers == plan.layers
