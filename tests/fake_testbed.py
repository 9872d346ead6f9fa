"""A whole run on a fake testbed: the runner, the store and the statistics run; what is measured is scripted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.fake_machine import FakeMachine, Reply
from vmtax.core.events import Event
from vmtax.core.records import Experiment, Json, Treatment
from vmtax.design.interleaved import is_host
from vmtax.design.topology import topology
from vmtax.experiment import runner
from vmtax.experiment.runner import Options
from vmtax.hypervisor import Accelerator, BootFailed, Guest, Qemu
from vmtax.image.place import Placed
from vmtax.machine import MachineLost
from vmtax.meter import METERS, clock
from vmtax.plan.schema import Plan, parse
from vmtax.storage import FirstWrite, Target
from vmtax.store import Store
from vmtax.testbed.host.cpus import Cpu, CpuTopology
from vmtax.testbed.machines import interleave
from vmtax.testbed.machines.machines import Machines
from vmtax.testbed.session.base import RunningSubject, RunningTreatment
from vmtax.testbed.session.examine import Examined, Platform
from vmtax.testbed.session.session import Hosts, Session, TestbedOptions
from vmtax.testbed.subjects.provisioned import Provisioned
from vmtax.workload import Site

PLAN = "name: fake\nseed: 5\nlayers: [host, vm]\nworkloads: [chess]\nprimary: [chess.nodes_per_second]\nbudget: none\n"
SEVEN = PLAN + "rounds: {min: 7, max: 7}\n"
BENCH = "Total time (ms) : 1\nNodes searched  : {nodes}\nNodes/second    : {rate}\n"


def bench(nodes: int = 1000, rate: int = 10_000) -> Reply:
    return Reply(stderr=BENCH.format(nodes=nodes, rate=rate))


def _threads(count: str) -> Callable[[tuple[str, ...]], bool]:
    return lambda argv: "stockfish" in argv[0] and argv[3:4] == (count,)


def _touches(argv: tuple[str, ...]) -> bool:
    return len(argv) > 3 and "vmtax touch" in argv[-3]


VERSION = ("stockfish", "--version")  # asked of each of several machines before they work at once
_ANY: Any = SimpleNamespace()  # what the stand-ins do not look at
_IMAGE: Any = SimpleNamespace(identity="i", kernel="k", manifest=lambda: ["busybox 1"])


class FakeTestbed(Machines):
    """Machines that answer from a script. Hosts are set up in the true order; what is done on each is a stand-in."""

    def __init__(
        self, lab: Lab, plan: Plan, options: TestbedOptions, check: Callable[[Mapping[str, Json]], None]
    ) -> None:
        self.lab = lab
        steps = interleave.Steps(lab.examine, lab.choose_platform, lab.provision)
        session = Session(_ANY, _IMAGE, _ANY, lab.emit)
        self.sides = interleave.examine_all(lab.hosts(), session, plan, options, steps)
        check(self.host_facts())
        super().__init__(interleave.provision_all(self.sides, steps))

    def host_facts(self) -> dict[str, Json]:
        return {
            side.facts_path(side.host.path): _qemu_facts(side)
            | ({} if side.second_qemu else self.lab.facts_of(side.host.path))
            for side in self.sides
        }

    def guest_facts(self, running: RunningTreatment, guest: Guest) -> Json:
        return self.lab.facts_of(guest.path)

    @contextlib.contextmanager
    def opened(self, treatment: Treatment) -> Iterator[RunningTreatment]:
        side = self.side_of(treatment)
        self.lab.watched.append(side.facts_path(side.host.path))
        subjects = [RunningSubject(site) for site in self.lab.sites(treatment)]
        yield RunningTreatment(tuple(subjects), side.host, emulated=side.emulated)

    def check_host(self, treatment: Treatment) -> None:
        self.side_of(treatment).host.try_run("true")


def _qemu_facts(side: Examined) -> Json:
    if side.platform is None:
        return {}
    qemu = side.platform.qemu
    return {"qemu": {"command": list(qemu.identity), "version": qemu.version, "text": qemu.described}}


class Lab:
    """Scripts a testbed: what a treatment's command answers is a function of round and treatment."""

    def __init__(self, plan: str, answer: Callable[[int, str], Reply | Exception | list[Reply]], path: Path) -> None:
        self.plan: Plan = parse(plan)
        self.answer = answer
        self.store = Store(path / "store.sqlite")
        self.events: list[Event] = []
        self.facts: Json = {"cpu_model": "Fake CPU", "boot_id": "first"}
        self.host_answers: Reply | Exception = Reply()  # when asked whether the host still is there
        self.uptime: Reply | list[str] = Reply(code=1)  # what a guest's clock says, asked before and after each trial
        self.meters: dict[str, list[str]] = {}  # name of a meter -> what the host answers it, look by look
        self.first_writes: dict[str, FirstWrite] = {}
        self.opened_in_round: dict[str, int] = {}
        self.interleave_with: str | None = None
        self.other_facts: Json = {}  # of the second host, where they differ
        self.root_on = {"host", "other"}  # roles of the hosts on which we are root
        self.emulating: set[str] = set()  # QEMU programs, or machine paths, whose guests are emulated
        self.impossible: dict[str, str] = {}  # treatments, found out when disks are made
        self.provisioned = 0  # how often anything was set up on a host
        self.watched: list[str] = []  # paths of the hosts, in the order in which treatments were opened

    def examine(self, session: Session, host: Any, plan: Plan, options: TestbedOptions, side: str = "") -> Examined:
        has_guests = not set(plan.layers) <= {"host"}
        return Examined(
            session=session,
            host=host,
            plan=plan,
            workloads=plan.build_workloads(),
            placed=Placed("", "", ""),
            topology=CpuTopology((Cpu(0, 0), Cpu(1, 1))),
            unbound="",
            is_root=("host" if host.path == "host" else "other") in self.root_on,
            why_warm="",
            host_emulated=self.facts_of(host.path).get("emulated_cpu") is True,
            target=Target(),
            platform=self.choose_platform(session, host, plan, None, options.qemu) if has_guests else None,
            side=side,
        )

    def choose_platform(self, session: Session, host: Any, plan: Plan, placed: Any, program: str | None) -> Platform:
        name = program or "qemu-system-x86_64"
        tcg = {name, host.path} & self.emulating
        qemu = Qemu((name,), "10.0.0", f"QEMU of {name}")
        return Platform(qemu, Accelerator("tcg" if tcg else "kvm", "no guest boots on it" if tcg else "tried"))

    def provision(self, on: Examined) -> Provisioned:
        self.provisioned += 1
        return Provisioned(**vars(on), impossible=self.impossible, written=self.first_writes)

    def hosts(self) -> Hosts:
        other = self.interleave_with
        second = self.machine(other) if other and is_host(other) else None
        return Hosts(_ANY, self.machine("host"), second)

    def machine(self, path: str) -> FakeMachine:
        answers: dict[Any, Any] = {("true",): self.host_answers}
        answers |= {meter.command: self.meters.get(meter.name, Reply(code=2)) for meter in METERS}
        answers["cat", interleave.BOOT_ID] = f"boot of {self.facts_of(path)['cpu_model']}"
        answers[lambda argv: argv[: len(interleave.WHICH)] == interleave.WHICH] = Reply(code=1)
        return FakeMachine(path, answers)

    def facts_of(self, path: str) -> Json:
        second = self.interleave_with and path.startswith(self.interleave_with)
        return {**self.facts, **(self.other_facts if second else {})}

    def sites(self, treatment: Treatment) -> Iterator[Site]:
        """One for each subject of the treatment. Raises what the script says of this round's boot."""
        number = self.opened_in_round[treatment.name] = self.opened_in_round.get(treatment.name, 0) + 1
        for subject in topology(treatment).subjects:
            name = treatment.name if subject.number == 1 else f"{treatment.name} {subject.name}"
            answer = self.answer(number, name)
            if isinstance(answer, BootFailed | MachineLost):
                raise answer
            # A list has an answer for each iteration: each of the two cases begins at its start.
            cases = {_threads("1"): answer, _threads("2"): answer, _touches: answer}
            uptime = self.uptime if treatment.layer != "host" else Reply(code=1)
            path = "host" if treatment.layer == "host" else f"host/{subject.name}"
            machine = FakeMachine(path, {**cases, VERSION: "", ("true",): Reply(), clock.COMMAND: uptime})
            yield Site(machine, treatment.layer, 2, ())

    def set_up(self, check: Callable[[Mapping[str, Json]], None]) -> FakeTestbed:
        return FakeTestbed(self, self.plan, self.options().testbed, check)

    def run(self) -> Experiment:
        return self._carried_out(lambda store: runner.run(store, self.options(), self.emit, self.set_up))

    def resume(self) -> Experiment:
        return self._carried_out(lambda store: runner.resume("last", store, self.emit, self.set_up))

    def options(self) -> Options:
        return Options("vmtax run", TestbedOptions(interleave_with=self.interleave_with))

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def _carried_out(self, action: Callable[[Store], str]) -> Experiment:
        with self.store as store:
            try:
                action(store)
            finally:
                if store.experiments():  # none where it is refused beforehand
                    self.experiment = store.load("last")
        return self.experiment
