"""A whole run on fake machines: what runs is the runner, the store and the statistics; what is measured is scripted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from tests.fake_machine import FakeMachine, Reply
from vmtax.core.events import Event
from vmtax.core.records import Experiment, Json, Treatment
from vmtax.design.interleaved import is_host
from vmtax.experiment import runner
from vmtax.experiment.runner import Options
from vmtax.hypervisor import Accelerator, BootFailed, Qemu
from vmtax.machine import MachineLost
from vmtax.meter import clock, pressure
from vmtax.plan.schema import Plan, parse
from vmtax.storage import FirstWrite
from vmtax.store import Store
from vmtax.testbed import interleave
from vmtax.testbed.environment import Environment, EnvironmentOptions, Hosts
from vmtax.testbed.layers import Opened
from vmtax.workload import Site

PLAN = "name: fake\nseed: 5\nlayers: [host, vm]\nworkloads: [chess]\nprimary: [chess.nodes_per_second]\nbudget: none\n"
SEVEN = PLAN + "rounds: {min: 7, max: 7}\n"
BENCH = "Total time (ms) : 1\nNodes searched  : {nodes}\nNodes/second    : {rate}\n"


def bench(nodes: int = 1000, rate: int = 10_000) -> Reply:
    return Reply(stderr=BENCH.format(nodes=nodes, rate=rate))


def _threads(count: str) -> Callable[[tuple[str, ...]], bool]:
    return lambda argv: "stockfish" in argv[0] and argv[3] == count


_ANY: Any = SimpleNamespace()  # what the stand-ins do not look at
_IMAGE: Any = SimpleNamespace(identity="i", kernel="k", manifest=lambda: ["busybox 1"])


class Lab:
    """Stands for the host and its guests: what a treatment's command answers is a function of round and treatment."""

    def __init__(self, plan: str, answer: Callable[[int, str], Reply | Exception | list[Reply]], path: Path) -> None:
        self.plan: Plan = parse(plan)
        self.answer = answer
        self.store = Store(path / "store.sqlite")
        self.events: list[Event] = []
        self.facts: Json = {"cpu_model": "Fake CPU", "boot_id": "first"}
        self.host_answers: Reply | Exception = Reply()  # when asked whether the host still is there
        self.uptime: Reply | list[str] = Reply(code=1)  # what a guest's clock says, asked before and after each trial
        self.first_writes: dict[str, FirstWrite] = {}
        self.opened_in_round: dict[str, int] = {}
        self.interleave_with: str | None = None
        self.other_facts: Json = {}  # of the second host, where they differ
        self.root_on = {"host", "other"}  # roles of the hosts on which we are root
        self.emulating: set[str] = set()  # QEMU programs, or machine paths, whose guests are emulated
        self.impossible: dict[str, str] = {}  # treatments, found out when disks are made
        self.provisioned = 0  # how often anything was set up on a host
        self.watched: list[str] = []  # paths of the hosts, in the order in which treatments were opened

    def examine(
        self,
        local: Any,
        host: Any,
        plan: Plan,
        image: Any,
        emit: Any,
        options: EnvironmentOptions,
        credentials: Any = None,
    ) -> Any:
        environment = Environment(
            local=_ANY,
            host=host,
            plan=plan,
            workloads=plan.build_workloads(),
            image=_IMAGE,
            placed=_ANY,
            credentials=credentials or object(),
            cpus="0,1",
            is_root=("host" if host.path == "host" else "other") in self.root_on,
            host_emulated=self.facts_of(host.path).get("emulated_cpu") is True,
            first_writes=self.first_writes,
        )
        if self.interleave_with is not None:
            self.choose(environment, options.qemu, emit)
        return environment

    def choose(self, environment: Environment, program: str | None, emit: Any) -> None:
        name = program or "qemu-system-x86_64"
        tcg = {name, environment.host.path} & self.emulating
        environment.qemu = Qemu((name,), "10.0.0", f"QEMU of {name}")
        environment.accelerator = Accelerator("tcg" if tcg else "kvm", "no guest boots on it" if tcg else "tried")

    def provision(self, environment: Environment, emit: Any) -> None:
        self.provisioned += 1
        environment.impossible |= self.impossible

    def hosts(self) -> Hosts:
        other = self.interleave_with
        second = self.machine(other) if other and is_host(other) else None
        return Hosts(_ANY, self.machine("host"), second)

    def machine(self, path: str) -> FakeMachine:
        answers: dict[Any, Any] = {pressure.COMMAND: Reply(code=2), ("true",): self.host_answers}
        answers["cat", interleave.BOOT_ID] = f"boot of {self.facts_of(path)['cpu_model']}"
        answers[lambda argv: argv[: len(interleave.WHICH)] == interleave.WHICH] = Reply(code=1)
        return FakeMachine(path, answers)

    def facts_of(self, path: str) -> Json:
        second = self.interleave_with and path.startswith(self.interleave_with)
        return {**self.facts, **(self.other_facts if second else {})}

    @contextlib.contextmanager
    def layer(self, environment: Any, treatment: Treatment) -> Iterator[Opened]:
        number = self.opened_in_round[treatment.name] = self.opened_in_round.get(treatment.name, 0) + 1
        self.watched.append(environment.facts_path(environment.host.path))
        answer = self.answer(number, treatment.name)
        if isinstance(answer, BootFailed | MachineLost):
            raise answer
        # A list has an answer for each iteration: each of the two cases begins at its start.
        cases = {_threads("1"): answer, _threads("2"): answer}
        uptime = self.uptime if treatment.layer != "host" else Reply(code=1)
        answers = {**cases, ("true",): Reply(), clock.COMMAND: uptime}
        machine = FakeMachine(f"host/{treatment.layer}", answers)
        yield Opened(Site(machine, treatment.layer, 2, ()), ())

    def run(self) -> Experiment:
        return self._carried_out(
            lambda store: runner.run(self.hosts(), self.plan, _ANY, store, self.options(), self.emit)
        )

    def resume(self) -> Experiment:
        return self._carried_out(lambda store: runner.resume(self.hosts(), "last", _ANY, store, self.emit))

    def options(self) -> Options:
        return Options("vmtax run", EnvironmentOptions(interleave_with=self.interleave_with))

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def _carried_out(self, action: Callable[[Store], str]) -> Experiment:
        facts = {"read_facts": lambda machine: self.facts_of(machine.path)}
        here = {"opened": self.layer, **facts}
        there = {**facts, "examine": self.examine, "choose_hypervisor": self.choose, "provision": self.provision}
        with mock.patch.multiple(runner, **here), mock.patch.multiple(interleave, **there), self.store as store:
            try:
                action(store)
            finally:
                if store.experiments():  # none where it is refused beforehand
                    self.experiment = store.load("last")
        return self.experiment
