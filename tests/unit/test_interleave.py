"""Two hosts, or two QEMUs, in the same shuffled rounds: whole runs on fake machines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fake_lab import SEVEN, Lab, bench
from tests.unit.test_runner import identity
from vmtax import compare
from vmtax.environment import CannotMeasure, EnvironmentOptions
from vmtax.event import Notice
from vmtax.interleave import why_not
from vmtax.machine import MachineLost
from vmtax.machine.fake import Reply
from vmtax.plan import parse
from vmtax.result import Experiment, Treatment
from vmtax.resume import CannotResume
from vmtax.sides import both

B = "ssh://b"
QEMU = "/opt/qemu/bin/qemu-system-x86_64"
FACTORS = "factors: {disk.cache: [none, writeback]}\n"


@pytest.fixture
def lab(tmp_path: Path) -> Callable[..., Lab]:
    def made(other: str, plan: str = SEVEN, answer: Callable[[int, str], Reply] | None = None) -> Lab:
        lab = Lab(plan, answer or (lambda number, name: bench(rate=10_000 + number)), tmp_path)
        lab.interleave_with = other
        if other == B:
            lab.other_facts = {"cpu_model": "Another CPU", "boot_id": "other"}
        return lab

    return made


def pairs(found: Experiment) -> set[tuple[str, str]]:
    return {(entry.baseline, entry.treatment) for entry in compare.of(found)}


def slower_there(number: int, name: str) -> Reply:
    """The other side does nine tenths; every round differs from every other."""
    rate = 10_000 + 37 * number
    return bench(rate=rate * 9 // 10 if B in name or QEMU in name else rate)


def test_two_hosts_run_every_treatment_in_every_round_and_are_compared_directly(lab: Callable[..., Lab]) -> None:
    made = lab(B, answer=slower_there)
    found = made.run()
    names = {"host", "vm", f"host on {B}", f"vm on {B}"}
    for number in range(1, 8):
        assert {trial.treatment for trial in found.trials if trial.round == number} == names
    assert {treatment.side for treatment in found.treatments if B in treatment.name} == {B}
    assert pairs(found) == {
        ("host", f"host on {B}"),
        ("vm", f"vm on {B}"),
        ("host", "vm"),
        (f"host on {B}", f"vm on {B}"),
    }
    (side,) = [entry for entry in compare.of(found) if entry.treatment == f"vm on {B}" and entry.baseline == "vm"][:1]
    assert side.ratio == pytest.approx(0.9, abs=0.001) and side.verdict == "worse" and side.rounds == 7
    assert made.watched.count("host") == made.watched.count(B) == 14, "each half was opened on its own host"
    assert found.facts["host"]["cpu_model"] == "Fake CPU" and found.facts[B]["cpu_model"] == "Another CPU"
    (note,) = [note for note in found.notes if "cpu_model" in note]
    assert note == f"cpu_model differs between the sides: Fake CPU; on {B} Another CPU"
    assert Notice(note) in made.events, "it is told while it runs, too"


def test_two_qemus_share_the_host_layer(lab: Callable[..., Lab]) -> None:
    made = lab(QEMU, answer=slower_there)
    found = made.run()
    other = f"vm with {QEMU}"
    assert [treatment.name for treatment in found.treatments] == ["host", "vm", other]
    assert pairs(found) == {("vm", other), ("host", "vm"), ("host", other)}
    assert made.watched.count(f"host with {QEMU}") == 7
    assert found.facts["host"]["qemu"]["command"] == ["qemu-system-x86_64"]
    assert found.facts[f"host with {QEMU}"]["qemu"]["command"] == [QEMU]
    assert "cpu_model" not in found.facts[f"host with {QEMU}"]
    assert any("qemu.text differs between the sides" in note for note in found.notes)


def test_factors_are_compared_within_each_side_and_level_by_level_across(lab: Callable[..., Lab]) -> None:
    found = lab(QEMU, SEVEN + FACTORS).run()
    names = ("vm", "vm disk.cache=writeback")
    theirs = tuple(f"{name} with {QEMU}" for name in names)
    assert pairs(found) == {
        *zip(names, theirs, strict=True),
        names,
        theirs,
        *(("host", name) for name in (*names, *theirs)),
    }


def test_the_repeat_of_a_treatment_is_one_for_each_side() -> None:
    plain = (Treatment("vm", "vm"), Treatment("vm again", "vm", repeats="vm"))
    found = both(plain, B)
    assert [(t.name, t.repeats) for t in found[2:]] == [(f"vm on {B}", None), (f"vm again on {B}", f"vm on {B}")]
    assert compare.side_contrasts(found) == (("vm", f"vm on {B}"),)


@pytest.mark.parametrize("other", [B, QEMU])
def test_an_interleaved_run_is_finished_in_the_order_that_was_drawn(lab: Callable[..., Lab], other: str) -> None:
    whole = [identity(trial) for trial in lab(other, SEVEN.replace("fake", "whole")).run().trials]
    ended: list[int] = []

    def answer(number: int, name: str) -> Reply:
        if (number, name) == (4, "vm") and not ended:
            ended.append(number)
            raise KeyboardInterrupt
        return bench()

    made = lab(other, answer=answer)
    with pytest.raises(KeyboardInterrupt):
        made.run()
    assert [identity(trial) for trial in made.resume().trials] == whole


def test_another_second_host_is_no_place_to_go_on(lab: Callable[..., Lab]) -> None:
    def answer(number: int, name: str) -> Reply:
        if number == 3:
            raise KeyboardInterrupt
        return bench()

    made = lab(B, answer=answer)
    with pytest.raises(KeyboardInterrupt):
        made.run()
    made.other_facts["kernel_release"] = "7.0"
    with pytest.raises(CannotResume, match=rf"kernel_release was None, is 7\.0 \({B}\)"):
        made.resume()
    del made.other_facts["kernel_release"]
    made.other_facts["boot_id"] = "rebooted"
    made.answer = lambda number, name: bench()
    assert any("rebooted in between" in note for note in made.resume().notes)


def test_a_lost_second_host_ends_the_run(lab: Callable[..., Lab]) -> None:
    def answer(number: int, name: str) -> Reply:
        if (number, name) == (3, f"vm on {B}"):
            raise MachineLost(f"{B}: the connection is gone")
        return bench()

    made = lab(B, answer=answer)
    machine = made.machine

    def second_is_gone(path: str) -> object:
        made.host_answers = MachineLost("gone") if path == B else Reply()
        return machine(path)

    made.machine = second_is_gone  # type: ignore[assignment,method-assign]
    with pytest.raises(MachineLost):
        made.run()
    assert made.experiment.state == "failed"


@pytest.mark.parametrize(
    ("other", "emulating", "words"),
    [
        (B, B, f"local runs guests on KVM, {B} emulates them"),
        (B, "host", f"{B} runs guests on KVM, local emulates them"),
        (QEMU, QEMU, f"qemu-system-x86_64 runs guests on KVM, {QEMU} emulates them"),
    ],
)
def test_emulated_is_not_compared_with_not_emulated(
    lab: Callable[..., Lab], other: str, emulating: str, words: str
) -> None:
    made = lab(other)
    made.emulating = {emulating}
    with pytest.raises(CannotMeasure, match=words) as failure:
        made.run()
    assert "\n" not in str(failure.value)
    with made.store as store:
        assert store.experiments() == [], "nothing was begun"


def test_root_on_one_host_only_is_refused(lab: Callable[..., Lab]) -> None:
    made = lab(B)
    made.root_on = {"other"}
    with pytest.raises(CannotMeasure, match=f"root on {B} and a user on local: bridge and cold caches"):
        made.run()


def test_two_names_of_one_machine_are_refused(lab: Callable[..., Lab]) -> None:
    made = lab(B)
    made.other_facts = {}
    with pytest.raises(CannotMeasure, match=f"{B} is the machine that local is"):
        made.run()


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ("local", "is the plan's own host"),
        ("ssh://", "must be local or ssh://"),
        ("ssh:b", "must be local or ssh://"),
        ("lab", "not available yet"),
        ("qemu-system-x86_64", "is the QEMU that the plan is measured with"),
        ("", "must be local, ssh://"),
        ("--version", "must be local, ssh://"),
    ],
)
def test_what_cannot_be_interleaved_is_said_at_once(other: str, words: str) -> None:
    assert words in (why_not(parse(SEVEN), EnvironmentOptions(interleave_with=other)) or "")


def test_a_second_qemu_needs_guests() -> None:
    plan = parse("name: x\nlayers: [host]\nworkloads: [chess]")
    assert "no guests" in (why_not(plan, EnvironmentOptions(interleave_with=QEMU)) or "")
    assert why_not(plan, EnvironmentOptions(interleave_with=B)) is None
