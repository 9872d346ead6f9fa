"""The machines of a treatment: five topologies, each a whole run on a fake testbed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.command import HANGS
from tests.fake_machine import FakeMachine, Reply
from tests.fake_testbed import SEVEN, FakeTestbed, Lab, bench
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.comparisons import contrasts
from vmtax.core.events import Event, NoticeEvent, TrialFinished
from vmtax.core.layers import LAYERS
from vmtax.core.records import Experiment, Json, Measurement, Metric, Treatment, Trial
from vmtax.design.iterations import together
from vmtax.design.topology import Subject, Topology, topology
from vmtax.experiment.signatures import Signatures
from vmtax.experiment.trial import TrialKey, run_trials
from vmtax.machine import MachineLost
from vmtax.meter import METERS, clock
from vmtax.plan.estimate import seconds_per_round
from vmtax.plan.schema import load, parse
from vmtax.testbed.host import needs
from vmtax.testbed.session.base import RunningSubject, RunningTreatment
from vmtax.workload import Site
from vmtax.workload.chess import ALONE, Chess, ChessParameters

RATE = "chess.nodes_per_second"
ONE_GUEST = Topology((Subject("vm", "vm"),))
FOUR_GUESTS = Topology(tuple(Subject(f"vm-{number}", "vm", number) for number in (1, 2, 3, 4)))
TWO_BESIDE_TWO = Topology(
    tuple(
        Subject(f"vm-{number}", "vm", number, {"cpu.mitigations": "off" if number > 2 else "auto"})
        for number in (1, 2, 3, 4)
    )
)


class Shaped(FakeTestbed):
    """Its VMs have the topology of a test; the machine's path decides how fast it is."""

    def __init__(
        self, shape: Topology, rates: Mapping[str, int], lost: Collection[tuple[int, str]], lab: Lab, *rest: Any
    ) -> None:
        super().__init__(lab, *rest)
        self.shape, self.rates, self.lost = shape, rates, lost

    @contextlib.contextmanager
    def opened(self, treatment: Treatment) -> Iterator[RunningTreatment]:
        round = self.lab.opened_in_round[treatment.name] = self.lab.opened_in_round.get(treatment.name, 0) + 1
        shape = self.shape if treatment.layer == "vm" else topology(treatment)
        subjects = []
        for subject in shape.subjects:
            above = [subject.outer, subject.name] if subject.layer != "host" else []
            path = "/".join(filter(None, ["host", *above]))
            is_lost = (round, path) in self.lost
            answer = MachineLost(f"{path}: gone") if is_lost else bench(rate=self.rates.get(path, 1000) + round)
            here = MachineLost(f"{path}: gone") if is_lost else Reply()
            machine = FakeMachine(
                path, {lambda argv: "stockfish" in argv[0]: answer, ("true",): here, clock.COMMAND: Reply(code=1)}
            )
            subjects.append(RunningSubject(Site(machine, subject.layer, 2, ())))
        yield RunningTreatment(tuple(subjects), self.own.host)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Experiment]:
    def run(
        shape: Topology,
        rates: Mapping[str, int],
        lost: Collection[tuple[int, str]] = (),
        stops: Callable[[Event], bool] = lambda event: False,
    ) -> Experiment:
        """stops: the events after which the run is stopped, and resumed"""
        lab = Lab(SEVEN, lambda number, name: bench(), tmp_path)

        def set_up(check: Callable[[Mapping[str, Json]], None]) -> Shaped:
            return Shaped(shape, rates, lost, lab, lab.plan, lab.options().testbed, check)

        def emit(event: Event) -> None:
            if stops(event):
                raise KeyboardInterrupt

        lab.set_up, lab.emit = set_up, emit
        action = lab.run
        while True:
            try:
                return action()
            except KeyboardInterrupt:
                action = lab.resume

    return run


def machines(found: Experiment, treatment: str = "vm") -> set[str]:
    return {trial.machine for trial in found.trials if trial.treatment == treatment}


def cost(found: Experiment) -> float:
    """vm against host, as a ratio of rates."""
    (one,) = [
        c for c in Analysis(found).comparisons if (c.metric.name, c.baseline, c.treatment) == (RATE, "host", "vm")
    ]
    assert one.rounds == 7, "a round is one value, however many machines it has"
    return one.ratio


def test_one_guest(run: Callable[..., Experiment]) -> None:
    found = run(ONE_GUEST, {"host": 10_000, "host/vm": 9000})
    assert machines(found) == {"host/vm"} and machines(found, "host") == {"host"}
    assert cost(found) == pytest.approx(0.9, abs=1e-3)


def test_four_guests_at_once(run: Callable[..., Experiment]) -> None:
    rates = {"host": 10_000, "host/vm-1": 1000, "host/vm-2": 2000, "host/vm-3": 3000, "host/vm-4": 4000}
    found = run(FOUR_GUESTS, rates)
    assert machines(found) == set(rates) - {"host"}
    first = [trial for trial in found.trials if (trial.treatment, trial.round, trial.case) == ("vm", 1, "")]
    assert len(first) == 4, "one trial for each guest"
    assert cost(found) == pytest.approx(1.0, abs=2e-3), "their rates are added up, not averaged"


@pytest.mark.variations
def test_two_beside_two_of_another_kind(run: Callable[..., Experiment]) -> None:
    found = run(TWO_BESIDE_TWO, {"host": 10_000, "host/vm-3": 3000, "host/vm-4": 3000})
    by_machine = {
        trial.machine: trial.measurements[0].value
        for trial in found.trials
        if trial.round == 1 and trial.treatment == "vm" and trial.case == ""
    }
    assert by_machine == {"host/vm-1": 1001, "host/vm-2": 1001, "host/vm-3": 3001, "host/vm-4": 3001}
    assert [dict(subject.levels) for subject in TWO_BESIDE_TWO.subjects][1:3] == [
        {"cpu.mitigations": "auto"},
        {"cpu.mitigations": "off"},
    ]


def test_a_factor_asks_for_several_guests() -> None:
    three = topology(Treatment("vm guest.count=3", "vm", {"guest.count": "3"}))
    assert [(subject.name, subject.number) for subject in three.subjects] == [("vm", 1), ("vm-2", 2), ("vm-3", 3)]
    nested = topology(Treatment("nested guest.count=3", "nested", {"guest.count": "3"}))
    assert [subject.name for subject in nested.subjects] == ["vm", "vm-2", "vm-3"]
    assert {outer: len(carried) for outer, carried in nested.carried.items()} == {"vm": 3}
    host = topology(Treatment("host guest.count=2", "host", {"guest.count": "2"}))
    assert [subject.name for subject in host.subjects] == ["host", "host-2"] and not host.carried


def test_nested_guests_share_an_outer_vm_or_have_one_each(run: Callable[..., Experiment]) -> None:
    own = topology(Treatment("nested", "nested", {"guest.count": "3", "guest.outer": "own"}))
    assert {outer: [each.name for each in carried] for outer, carried in own.carried.items()} == {
        "vm": ["vm"],
        "vm-2": ["vm"],
        "vm-3": ["vm"],
    }
    assert machines(run(own, {})) == {"host/vm/vm", "host/vm-2/vm", "host/vm-3/vm"}


def test_a_factor_asks_for_outer_vms_only_of_several_nested_guests() -> None:
    plan = parse(
        SEVEN.replace("[host, vm]", "[vm, nested]")
        + "factors: {guest.count: ['1', '2'], guest.outer: [shared, own]}\nguest: {memory: 512MiB}\n"
    )
    kept, _ = plan.treatments()
    assert [treatment.name for treatment in kept] == [
        *("vm", "vm guest.count=2"),
        *("nested", "nested guest.count=2", "nested guest.count=2 guest.outer=own"),
    ]
    assert ("vm guest.count=2", "nested guest.count=2 guest.outer=own") in contrasts(kept)
    assert needs.memory_sum(plan, "nested") == (
        "2 guests x (512 MiB + 128 MiB for its QEMU) + 2 outer VMs x 1.0 GiB = 3.2 GiB"
    )


def test_each_guest_that_starts_counts_in_the_estimate() -> None:
    plan = load("quick")
    one, four = (seconds_per_round(plan, [Treatment("vm", "vm", {"guest.count": n})]) for n in ("1", "4"))
    assert four - one == pytest.approx(3 * LAYERS["vm"].start_seconds)


def test_what_several_guests_repeat_counts_in_the_estimate() -> None:
    """In a plan with several guests, a single one does the same as the several."""
    plan = SEVEN.replace("[chess]", "[{cpuid: {seconds: 100}}]").replace("primary: [chess.nodes_per_second]\n", "")
    one, several = (
        seconds_per_round(parse(text), [Treatment("vm", "vm")])
        for text in (plan, plan + "factors: {guest.count: ['1', '2']}\n")
    )
    assert several - one == pytest.approx(2 * 100)


class Meeting(FakeMachine):
    """Answers when all that are expected have been asked."""

    barrier = threading.Barrier(3)

    def try_run(self, *argv: str, **options: Any) -> Any:
        if "stockfish" in argv[0] and argv[-1] != "--version":  # which each of them is asked before
            self.barrier.wait(HANGS)
        return super().try_run(*argv, **options)


def running(*subjects: FakeMachine) -> RunningTreatment:
    host = FakeMachine("host", {meter.command: Reply(code=2) for meter in METERS})
    return RunningTreatment(tuple(RunningSubject(Site(machine, "vm", 1, ())) for machine in subjects), host)


def trials(at_once: RunningTreatment) -> Sequence[Trial]:
    return run_trials(TrialKey(1, 1, "vm"), at_once, Chess(ChessParameters()), "", Signatures(), iteration=1)


def test_all_subjects_work_at_the_same_time() -> None:
    answers: Any = {lambda argv: "stockfish" in argv[0]: bench(), clock.COMMAND: Reply(code=1)}
    found = trials(running(*(Meeting(f"host/vm-{number}", answers) for number in (1, 2, 3))))
    assert [trial.machine for trial in found] == ["host/vm-1", "host/vm-2", "host/vm-3"]
    assert {trial.status for trial in found} == {"ok"}, "each waited until all had begun"


def test_where_one_is_lost_none_has_a_result() -> None:
    works: Any = {lambda argv: "stockfish" in argv[0]: bench(), clock.COMMAND: Reply(code=1)}
    fails: Any = {lambda argv: "stockfish" in argv[0]: MachineLost("host/vm-2: gone"), clock.COMMAND: Reply(code=1)}
    found = trials(running(FakeMachine("host/vm", works), FakeMachine("host/vm-2", fails)))
    assert [(trial.machine, trial.status) for trial in found] == [("host/vm", "failed"), ("host/vm-2", "failed")]
    assert found[0].error == "it does not count, because host/vm-2 did not do the same at the same time"
    assert found[0].measurements == () and found[0].raw, "what it did is kept"
    (as_one,) = together(found)
    assert as_one.status == "failed" and "gone" in (as_one.error or ""), "the cause is that of the one that was lost"


def test_where_one_of_four_is_lost_all_are_booted_again_once(run: Callable[..., Experiment]) -> None:
    """In its second round one is gone when it is to work. The round has the result of the second boot."""
    found = run(FOUR_GUESTS, {}, lost={(2, "host/vm-3")})
    first, second = lost_in(found, 2)[:4], lost_in(found, 2)[4:]
    assert {trial.status for trial in first} == {"failed"} and not any(trial.measurements for trial in first)
    assert [trial.machine for trial in first if "gone" in (trial.error or "")] == ["host/vm-3"]
    assert {trial.machine: trial.measurements[0].value for trial in second} == {
        f"host/vm-{number}": 1003 for number in (1, 2, 3, 4)
    }
    assert cost(found), "no round is missing"
    assert [note for note in found.notes if "round 2: a guest was lost" in note]


def test_the_only_guest_of_a_treatment_costs_its_round_when_it_is_lost(run: Callable[..., Experiment]) -> None:
    """A workload that ends a guest would end the next one too."""
    found = run(ONE_GUEST, {}, lost={(2, "host/vm")})
    assert [trial.status for trial in lost_in(found, 2)] == ["failed"]
    assert not [trial for trial in found.trials if (trial.treatment, trial.round, trial.status) == ("vm", 2, "ok")]
    assert not [note for note in found.notes if "booted once more" in note]
    assert {trial.status for trial in lost_in(found, 3)} == {"ok"}


def test_where_one_is_lost_twice_its_round_is_void(run: Callable[..., Experiment]) -> None:
    found = run(FOUR_GUESTS, {}, lost={(2, "host/vm-3"), (3, "host/vm-2")})
    assert {trial.status for trial in lost_in(found, 2)} == {"failed"} and len(lost_in(found, 2)) == 8
    assert {trial.status for trial in lost_in(found, 3)} == {"ok"} and len(lost_in(found, 3)) == 4
    (one,) = [c for c in Analysis(found).comparisons if (c.metric.name, c.treatment) == (RATE, "vm")]
    assert one.rounds == 6


def is_failure(event: Event) -> bool:
    return isinstance(event, TrialFinished) and event.trial.status == "failed"


def is_said_of_a_lost_guest(event: Event) -> bool:
    return isinstance(event, NoticeEvent) and "a guest was lost" in event.text


@pytest.mark.parametrize("stops", [is_failure, is_said_of_a_lost_guest])
@pytest.mark.varied(1)
def test_a_run_that_is_stopped_before_the_second_boot_has_it_when_it_is_resumed(
    run: Callable[..., Experiment], stops: Callable[[Event], bool]
) -> None:
    found = run(FOUR_GUESTS, {}, lost={(2, "host/vm-3")}, stops=stops)
    assert [trial.status for trial in lost_in(found, 2)] == ["failed"] * 4 + ["ok"] * 4
    (one,) = [c for c in Analysis(found).comparisons if (c.metric.name, c.treatment) == (RATE, "vm")]
    assert one.rounds == 7, "no round is missing"


def test_a_run_that_is_stopped_before_and_after_the_second_boot_has_no_third(run: Callable[..., Experiment]) -> None:
    found = run(FOUR_GUESTS, {}, lost={(2, "host/vm-3"), (3, "host/vm-2")}, stops=is_failure)
    assert [trial.status for trial in lost_in(found, 2)] == ["failed"] * 8


def lost_in(found: Experiment, number: int) -> list[Trial]:
    """The trials of a round's first case, in which one was lost."""
    return [trial for trial in found.trials if (trial.treatment, trial.round, trial.case) == ("vm", number, ALONE)]


def test_what_several_machines_did_is_one_value() -> None:
    rate, delay = Metric("disk.x.iops", "1/s", "higher"), Metric("disk.x.mean_seconds", "s", "lower")
    one = Trial(1, 1, "vm", "disk", "x", 1, "ok", 0.0, 1.0)
    every = [
        replace(one, machine=f"host/vm-{value}", measurements=(Measurement(rate, value), Measurement(delay, value)))
        for value in (1.0, 2.0, 6.0)
    ]
    (found,) = together(every)
    assert found.measurements == (Measurement(rate, 9.0), Measurement(delay, 2.0)) and found.machine == ""
    assert together(every[:1]) == (every[0],)
