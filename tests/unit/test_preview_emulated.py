"""What is said before a run where its guests, or the host itself, are emulated."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests import rights
from tests.topologies import listed
from tests.unit.test_preview import FOUR, host, lines, said
from vmtax.core.errors import BadInput
from vmtax.experiment.preview import look, refuse_emulation
from vmtax.plan.estimate import Emulation, demonstration, foresee
from vmtax.plan.schema import from_data, load, parse
from vmtax.testbed.host.cpus import QUESTION
from vmtax.testbed.session.session import Hosts, TestbedOptions


def test_emulated_guests_may_have_more_cpus_than_the_host() -> None:
    without = {rights.asked: rights.answer(kvm=rights.NO_KVM)}
    machine = host(more={**without, QUESTION: listed("0-1")})
    assert said(parse(FOUR), machine)["needs"].startswith("8 CPUs (4 guests at once x 2), 2.5 GiB of memory")


@pytest.mark.parametrize(
    ("failed", "why"),
    [
        (rights.NO_KVM, "there is no /dev/kvm"),
        (("open", "EACCES", "Permission denied"), "/dev/kvm: opening it: Permission denied"),
    ],
)
def test_a_host_without_kvm_is_known_without_a_boot(failed: tuple[str, str, str], why: str) -> None:
    machine = host(
        more={
            rights.asked: rights.answer(kvm=failed),
        }
    )
    hosts = Hosts(cast(Any, machine), machine)
    (place,) = look(load("quick"), hosts, TestbedOptions())
    assert [(found.name, found.reason) for found in place.accelerators] == [("tcg", why)]
    (place,) = look(
        load("quick").model_copy(update={"layers": ("host",)}), Hosts(cast(Any, machine), machine), TestbedOptions()
    )
    assert not place.accelerators, "no guest is booted"


def test_emulation_is_refused_in_one_line_that_says_how_long_it_takes_and_what_it_cannot_say() -> None:
    with pytest.raises(BadInput) as raised:
        refuse_emulation(load("quick"), (1200.0, 2400.0), "there is no /dev/kvm")
    assert str(raised.value) == (
        "local: there is no /dev/kvm. Emulated, this run would take 20 to 40 minutes, and its "
        "figures would say nothing about what a VM costs; --emulate runs it all the same"
    )


def test_an_emulated_run_and_a_demonstration_say_so_first() -> None:
    found = lines(load("quick"), host(), TestbedOptions(emulate=True), emulated="there is no /dev/kvm")
    assert (found[0].what, found[0].text.partition(";")[0]) == ("emulated", "there is no /dev/kvm")
    options = TestbedOptions(emulate=True, demonstration=True)
    found = lines(demonstration(load("quick")), host(), options, emulated="there is no /dev/kvm")
    assert found[0].what == "a demo" and "3 rounds, each of 3 configurations" in found[2].text


def test_a_first_guess_knows_of_emulation_and_an_earlier_run_gives_a_figure() -> None:
    plan = load("quick").model_copy(update={"budget": None})
    emulation = Emulation(guests=True)
    kvm, tcg = (foresee(plan, plan.entries(), one).seconds for one in (Emulation(), emulation))
    assert tcg[0] > 1.4 * kvm[0] and kvm[0] < kvm[1]
    assert tcg[0] < 31 * 60 < tcg[1], "what seven rounds took where no guest boots with KVM"
    assert foresee(plan, plan.entries(), Emulation(host=True)).seconds[0] > tcg[0], "in a lab all of it is emulated"
    assert foresee(plan, plan.entries(), emulation, measured=100.0).seconds == (700.0, 700.0)


def test_a_demonstration_is_the_same_work_in_three_short_rounds_and_can_be_resumed() -> None:
    plan = demonstration(load("quick"))
    assert (plan.rounds.min, plan.rounds.max, plan.iterations, plan.only_primary) == (3, 3, 1, True)
    assert plan.primary == load("quick").primary and plan.name == "quick"
    assert from_data(plan.model_dump(mode="json"), source="store") == plan
    emulation = Emulation(guests=True)
    assert (
        foresee(plan, plan.entries(), emulation).seconds[1]
        < foresee(load("quick"), plan.entries(), emulation).seconds[0]
    )
