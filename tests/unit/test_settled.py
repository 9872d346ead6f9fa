"""What a plan leaves open is decided for the host, and what is too small is refused."""

from __future__ import annotations

import pytest

from vmtax.core.errors import BadInput
from vmtax.plan.estimate import settled
from vmtax.plan.schema import as_written, parse
from vmtax.testbed.host.needs import memory_bytes, refuse_small


def test_what_a_plan_leaves_to_the_machine_is_decided_and_its_metrics_follow() -> None:
    plan = parse("name: p\nlayers: [host, vm]\nworkloads: [chess, build]\n")
    assert plan.primary == ("chess.nodes_per_second", "build.tinyconfig.seconds")
    emulated, real = settled(plan, emulated=True), settled(plan, emulated=False)
    assert emulated.primary == ("chess.nodes_per_second", "build.objects.seconds")
    assert emulated.build_workloads()[1].cases() == ("objects",), "whoever reads the stored plan knows"
    assert real.primary == plan.primary and as_written(real)["workloads"][1]["build"]["target"] == "tinyconfig"
    assert settled(emulated, emulated=False) == emulated, "decided once"
    asked = parse("name: p\nlayers: [host, vm]\nworkloads: [build: {target: defconfig}]\n")
    assert settled(asked, emulated=True).primary == asked.primary == ("build.defconfig.seconds",)
    without = parse("name: p\nlayers: [host, vm]\nworkloads: [chess]\n")
    assert settled(without, emulated=True) is without


def test_a_guest_too_small_for_a_kernel_build_is_refused_with_the_arithmetic() -> None:
    text = "name: p\nlayers: [vm]\nguest: {{vcpus: {}, memory: 1GiB}}\nworkloads: [build: {{target: {}}}]\n"
    refuse_small(parse(text.format(2, "tinyconfig")))
    for vcpus, target, words in (
        (2, "defconfig", "build: target defconfig: 2048 MiB for what is written, 4 compilers with 192 MiB each"),
        (2, "defconfig", "take 4.5 GiB of memory, a guest has 1.0 GiB; set guest.memory to 5GiB"),
        (16, "objects", "32 compilers with 64 MiB each, 32 MiB of source and 256 MiB for the system take 2.3 GiB"),
    ):
        with pytest.raises(BadInput) as caught:
            refuse_small(parse(text.format(vcpus, target)))
        assert words in str(caught.value) and len(str(caught.value).splitlines()) == 1
    objects = text.format(2, "objects")
    assert memory_bytes(parse(objects.replace("vm", "host")), "host") == 608 * 2**20
    refuse_small(parse(objects.replace("1GiB", "608MiB")))
    with pytest.raises(BadInput):
        refuse_small(parse(objects.replace("1GiB", "607MiB")))
