"""What a plan needs of a guest's memory, known before anything boots."""

from __future__ import annotations

import contextlib

import pytest

from vmtax.core.errors import BadInput
from vmtax.plan.schema import builtin_plans, load, parse
from vmtax.testbed.host import needs


@pytest.mark.parametrize(
    ("memory", "workload", "why"),
    [
        (
            "256MiB",
            "memory",
            "memory: fills 192 MiB of memory, and a guest needs 128 MiB besides, but has 256 MiB; set guest.memory to"
            " 320MiB",
        ),
        ("320MiB", "memory", ""),
        ("256MiB", "memory: {cases: [faults]}", ""),
        ("1GiB", "memory: {stream_cache: 256m}", "memory: fills 3072 MiB of memory"),
        ("256MiB", "tlb", "tlb: fills 256 MiB of memory"),
        ("256MiB", "tlb: {cases: [shootdown, chase-16m]}", ""),
        ("256MiB", "chess", ""),
    ],
)
def test_a_guest_whose_memory_a_workload_would_fill_is_refused(memory: str, workload: str, why: str) -> None:
    plan = parse(f"{{name: x, layers: [vm], guest: {{memory: {memory}}}, workloads: [{{{workload}}}]}}", "x")
    with pytest.raises(BadInput) if why else contextlib.nullcontext() as refused:
        needs.refuse_small_for_arrays(plan)
    assert refused is None or str(refused.value).startswith(why)


def test_the_largest_is_named_and_the_host_alone_has_no_guest() -> None:
    text = "{name: x, layers: [LAYER], guest: {memory: 256MiB}, workloads: [memory, tlb]}"
    with pytest.raises(BadInput, match=r"^tlb: .*; set guest.memory to 384MiB$"):
        needs.refuse_small_for_arrays(parse(text.replace("LAYER", "vm"), "x"))
    needs.refuse_small_for_arrays(parse(text.replace("LAYER", "host"), "x"))


@pytest.mark.parametrize("name", builtin_plans())
def test_the_guests_of_each_built_in_plan_have_the_memory_that_they_fill(name: str) -> None:
    needs.refuse_small_for_arrays(load(name))
