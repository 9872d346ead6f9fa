"""The experiment loop on fake machines: order, what is recorded, what a failure costs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vmtax import runner
from vmtax.event import Event, RoundFinished, TrialFinished
from vmtax.hypervisor import BootFailed
from vmtax.layer import Opened
from vmtax.machine.fake import FakeMachine, Reply
from vmtax.meter import pressure
from vmtax.plan import Plan, parse
from vmtax.result import Experiment, Treatment
from vmtax.runner import Options
from vmtax.store import Store
from vmtax.workload import Site

PLAN = "name: fake\nseed: 5\nlayers: [host, vm]\nworkloads: [chess]\nprimary: [chess.nodes_per_second]\nbudget: none\n"
SEVEN = PLAN + "rounds: {min: 7, max: 7}\n"
BENCH = "Total time (ms) : 100\nNodes searched  : {nodes}\nNodes/second    : {rate}\n"


def bench(nodes: int = 1000, rate: int = 10_000) -> Reply:
    return Reply(stderr=BENCH.format(nodes=nodes, rate=rate))


class Lab:
    """Stands for the host and its guests: what a treatment's command answers is a function of round and treatment."""

    def __init__(self, plan: str, answer: Callable[[int, str], Reply | Exception], path: Path) -> None:
        self.plan: Plan = parse(plan)
        self.answer = answer
        self.store = Store(path / "store.sqlite")
        self.events: list[Event] = []
        self.opened_in_round: dict[str, int] = {}

    @contextlib.contextmanager
    def environment(self, plan: Plan, *_: Any, **__: Any) -> Iterator[Any]:
        yield SimpleNamespace(
            workloads=plan.build_workloads(),
            notes=[],
            emulated=False,
            host=FakeMachine(answers={pressure.COMMAND: Reply(code=2)}),
            image=SimpleNamespace(identity="i", kernel="k", manifest=lambda: ["busybox 1"]),
            cpus="0,1",
            qemu=None,
            accelerator=None,
            disk_directory=None,
            wants=lambda name: False,
        )

    @contextlib.contextmanager
    def layer(self, environment: Any, treatment: Treatment) -> Iterator[Opened]:
        number = self.opened_in_round[treatment.name] = self.opened_in_round.get(treatment.name, 0) + 1
        answer = self.answer(number, treatment.name)
        if isinstance(answer, BootFailed):
            raise answer
        machine = FakeMachine(answers={lambda argv: "stockfish" in argv[0]: answer, ("true",): Reply()})
        yield Opened(Site(machine, treatment.layer, 2, ()), ())

    def run(self) -> Experiment:
        with self.store as store:
            try:
                runner.run(self.plan, SimpleNamespace(), store, Options("vmtax run"), self.events.append)  # type: ignore[arg-type]
            finally:
                self.experiment = store.load("last")
        return self.experiment


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Lab]:
    def make(plan: str, answer: Callable[[int, str], Reply | Exception]) -> Lab:
        made = Lab(plan, answer, tmp_path)
        monkeypatch.setattr(runner, "open_environment", made.environment)
        monkeypatch.setattr(runner, "opened", made.layer)
        monkeypatch.setattr(runner, "read_facts", lambda machine: {})
        return made

    return make


def test_every_treatment_once_in_every_round_and_all_of_it_stored(lab: Callable[..., Lab]) -> None:
    made = lab(SEVEN, lambda number, name: bench(rate=10_000 + number))
    found = made.run()
    assert found.state == "complete"
    assert len(found.trials) == 7 * 2 * 2
    for number in range(1, 8):
        order = {(trial.treatment, trial.position) for trial in found.trials if trial.round == number}
        assert {name for name, _ in order} == {"host", "vm"} and {place for _, place in order} == {1, 2}
    firsts = {trial.treatment for trial in found.trials if trial.position == 1}
    assert firsts == {"host", "vm"}, "the order is drawn anew"
    assert sum(isinstance(event, TrialFinished) for event in made.events) == 28


def test_a_failing_workload_is_recorded_and_the_run_goes_on(lab: Callable[..., Lab]) -> None:
    def answer(number: int, name: str) -> Reply:
        if name == "vm" and number == 3:
            return Reply(stdout="half of it", stderr="Illegal instruction", code=132)
        return Reply(stdout="garbage") if name == "vm" and number == 4 else bench()

    found = lab(SEVEN, answer).run()
    failed = [trial for trial in found.trials if trial.status == "failed"]
    assert {trial.round for trial in failed} == {3, 4} and len(failed) == 4
    assert any("exit code 132: Illegal instruction" in (trial.error or "") for trial in failed)
    assert any("no line 'Nodes" in (trial.error or "") for trial in failed)
    assert found.state == "complete" and max(trial.round for trial in found.trials) == 7


def test_other_work_is_refused(lab: Callable[..., Lab]) -> None:
    found = lab(SEVEN, lambda number, name: bench(nodes=1000 if name == "host" else 1001)).run()
    refused = [trial for trial in found.trials if trial.status == "refused"]
    assert len(refused) == 7 and len({trial.treatment for trial in refused}) == 1
    assert all("not the same work" in (trial.error or "") and trial.measurements == () for trial in refused)
    assert not [trial for trial in found.trials if trial.treatment == refused[0].treatment and trial.case == ""]


def test_ctrl_c_keeps_what_was_measured(lab: Callable[..., Lab]) -> None:
    def answer(number: int, name: str) -> Reply:
        if number == 3:
            raise KeyboardInterrupt
        return bench()

    made = lab(SEVEN, answer)
    with pytest.raises(KeyboardInterrupt):
        made.run()
    assert made.experiment.state == "interrupted" and len(made.experiment.trials) == 8


def test_a_guest_that_does_not_boot_stops_only_the_first_round(lab: Callable[..., Lab]) -> None:
    later = lab(SEVEN, lambda number, name: BootFailed("no answer") if (number, name) == (5, "vm") else bench())
    found = later.run()
    (failed,) = [trial for trial in found.trials if trial.status == "failed"]
    assert (failed.round, failed.workload, failed.error) == (5, "boot", "no answer")
    at_once = lab(SEVEN, lambda number, name: BootFailed("no answer") if name == "vm" else bench())
    with pytest.raises(BootFailed, match="no answer"):
        at_once.run()
    assert at_once.experiment.state == "failed"


def test_a_precise_run_stops_at_its_first_look(lab: Callable[..., Lab]) -> None:
    made = lab(PLAN + "rounds: {min: 7, max: 60}\n", lambda number, name: bench(rate=10_000 + number % 3))
    made.run()
    rounds = [event for event in made.events if isinstance(event, RoundFinished)]
    assert len(rounds) == 10 and rounds[-1].seconds_left == 0
