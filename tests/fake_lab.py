"""A whole run on fake machines: what runs is the runner, the store and the statistics; what is measured is scripted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from vmtax import runner
from vmtax.event import Event
from vmtax.hypervisor import BootFailed
from vmtax.layer import Opened
from vmtax.machine import MachineLost
from vmtax.machine.fake import FakeMachine, Reply
from vmtax.meter import clock, pressure
from vmtax.plan import Plan, parse
from vmtax.result import Experiment, Json, Treatment
from vmtax.runner import Options
from vmtax.storage import FirstWrite
from vmtax.store import Store
from vmtax.workload import Site

PLAN = "name: fake\nseed: 5\nlayers: [host, vm]\nworkloads: [chess]\nprimary: [chess.nodes_per_second]\nbudget: none\n"
SEVEN = PLAN + "rounds: {min: 7, max: 7}\n"
BENCH = "Total time (ms) : 100\nNodes searched  : {nodes}\nNodes/second    : {rate}\n"


def bench(nodes: int = 1000, rate: int = 10_000) -> Reply:
    return Reply(stderr=BENCH.format(nodes=nodes, rate=rate))


_ANY: Any = SimpleNamespace()  # what the stand-ins do not look at


class Lab:
    """Stands for the host and its guests: what a treatment's command answers is a function of round and treatment."""

    def __init__(self, plan: str, answer: Callable[[int, str], Reply | Exception], path: Path) -> None:
        self.plan: Plan = parse(plan)
        self.answer = answer
        self.store = Store(path / "store.sqlite")
        self.events: list[Event] = []
        self.facts: Json = {"cpu_model": "Fake CPU", "boot_id": "first"}
        self.host_answers: Reply | Exception = Reply()  # when asked whether the host still is there
        self.uptime: Reply | list[str] = Reply(code=1)  # what a guest's clock says, asked before and after each trial
        self.first_writes: dict[str, FirstWrite] = {}
        self.opened_in_round: dict[str, int] = {}

    def environment(self, hosts: Any, plan: Plan, *_: Any) -> Any:
        return SimpleNamespace(
            workloads=plan.build_workloads(),
            notes=[],
            emulated=False,
            host=FakeMachine(answers={pressure.COMMAND: Reply(code=2), ("true",): self.host_answers}),
            image=SimpleNamespace(identity="i", kernel="k", manifest=lambda: ["busybox 1"]),
            cpus="0,1",
            qemu=None,
            accelerator=None,
            disk_directory=None,
            first_writes=self.first_writes,
            wants=lambda name: False,
            is_root=True,
            check_guards=lambda: None,
        )

    @contextlib.contextmanager
    def layer(self, environment: Any, treatment: Treatment) -> Iterator[Opened]:
        number = self.opened_in_round[treatment.name] = self.opened_in_round.get(treatment.name, 0) + 1
        answer = self.answer(number, treatment.name)
        if isinstance(answer, BootFailed | MachineLost):
            raise answer
        uptime = self.uptime if treatment.layer != "host" else Reply(code=1)
        machine = FakeMachine(
            f"host/{treatment.layer}",
            answers={lambda argv: "stockfish" in argv[0]: answer, ("true",): Reply(), clock.COMMAND: uptime},
        )
        yield Opened(Site(machine, treatment.layer, 2, ()), ())

    def run(self) -> Experiment:
        return self._carried_out(
            lambda store: runner.run(_ANY, self.plan, _ANY, store, Options("vmtax run"), self.emit)
        )

    def resume(self) -> Experiment:
        return self._carried_out(lambda store: runner.resume(_ANY, "last", _ANY, store, self.emit))

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def _carried_out(self, action: Callable[[Store], str]) -> Experiment:
        places = {"set_up": self.environment, "opened": self.layer, "read_facts": lambda machine: dict(self.facts)}
        with mock.patch.multiple(runner, **places), self.store as store:
            try:
                action(store)
            finally:
                self.experiment = store.load("last")
        return self.experiment
