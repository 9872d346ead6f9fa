"""CPU cycles in guest code and outside of it: the program that counts, what it answers, and where it cannot count.

No machine of the tests has a PMU. So the program counts the kernel's own clock of tasks, an event of the same kind.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.answers import experiment_data
from tests.fake_machine import FakeMachine
from tests.unit.test_exits import run, shown
from vmtax.analysis.analysis import Analysis
from vmtax.core.errors import CannotDo
from vmtax.core.records import Treatment
from vmtax.hypervisor.qemu.cycles import CYCLES, ITSELF, NAMES, PROGRAM, Cycles, why_no_cycles
from vmtax.machine.answer import counts_of
from vmtax.machine.local import ISOLATED, PYTHON, LocalMachine
from vmtax.plan.schema import parse
from vmtax.testbed.parts import Request
from vmtax.testbed.parts.counting import Counting

TASK_CLOCK, NO_EVENT = "1:1", "1:999"  # software events: nanoseconds of a thread, and none
ASK = (PYTHON, *ISOLATED, PROGRAM, CYCLES, ITSELF)
ON = Treatment("vm guest.cycles=on", "vm", {"guest.cycles": "on"})
NESTED = Treatment("nested guest.cycles=on", "nested", {"guest.cycles": "on"})
TRACED = Treatment("vm guest.exit_trace=on", "vm", {"guest.exit_trace": "on"})


@pytest.fixture
def local() -> Iterator[LocalMachine]:
    with contextlib.closing(LocalMachine()) as machine:
        yield machine


def spin() -> None:
    began = time.thread_time()
    while time.thread_time() < began + 0.2:
        pass


def test_the_program_counts_what_a_thread_does_and_what_it_starts(local: LocalMachine) -> None:
    cycles = Cycles(local, [threading.get_native_id()], TASK_CLOCK)
    before = cycles.read()
    worker = threading.Thread(target=spin)
    worker.start()
    worker.join()
    assert cycles.read()["host"] - before["host"] >= 0.2e9
    local.run("kill", "-KILL", str(cycles._process.pid))
    cycles._process.wait(10)
    assert cycles.read() == {} == cycles.read()
    cycles.end()


def test_an_answer_that_comes_too_late_is_not_taken_for_the_next_one(
    local: LocalMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cycles = Cycles(local, [threading.get_native_id()], TASK_CLOCK)
    with monkeypatch.context() as patch:
        patch.setattr("vmtax.hypervisor.qemu.cycles.READ_SECONDS", 0.0)
        assert cycles.read() == {}
    assert cycles.read() == {}, "nothing is counted any more"
    with pytest.raises(CannotDo, match="the threads of the guest's QEMU cannot be read"):
        Cycles(local, [], TASK_CLOCK)


def test_what_cannot_be_counted_is_said_in_one_line(local: LocalMachine) -> None:
    with pytest.raises(
        CannotDo, match=r"^host cannot count CPU cycles: a PMU, and the right to use it .*: No such file"
    ):
        Cycles(local, [os.getpid()], NO_EVENT)


def lacking(
    machine: FakeMachine, *treatments: Treatment, accelerator: Literal["kvm", "tcg"] = "kvm"
) -> Mapping[str, str]:
    return Counting().lacking(Request(machine, parse("{name: x, workloads: [chess]}"), treatments, None, accelerator))


def test_a_host_without_a_pmu_is_known_before_anything_is_booted() -> None:
    without, having = FakeMachine("host", {ASK: "No such file or directory\n"}), FakeMachine("host", {ASK: "ready\n"})
    assert why_no_cycles(having) is None and lacking(having, ON) == {}
    assert lacking(without, ON, NESTED).keys() == {ON.name, NESTED.name}
    (why,) = lacking(without, ON).values()
    assert why.startswith("guest.cycles=on: a PMU, and the right to use it") and why.endswith(
        "No such file or directory"
    )
    assert lacking(FakeMachine("host", {}), replace(ON, levels={}), TRACED) == {}, "nothing is asked"


def test_where_guests_are_emulated_nothing_is_counted() -> None:
    assert lacking(FakeMachine("host", {}), ON, NESTED, TRACED, Treatment("vm", "vm"), accelerator="tcg") == {
        ON.name: "guest.cycles=on needs KVM, and the guests here are emulated",
        NESTED.name: "guest.cycles=on needs KVM, and the guests here are emulated",
        TRACED.name: "guest.exit_trace=on needs KVM, and the guests here are emulated",
    }


def test_a_report_says_which_share_of_the_cycles_was_the_host_s() -> None:
    counted = run("kvm", exits=2000.0, seconds=4.0, cycles_guest=3e9, cycles_host=1e9)
    text = " ".join(shown(counted).split())
    assert "cycles in the host" in text and "| 25.0 % |" in text and "Cycles in the host:" in text
    (first, *_) = experiment_data(Analysis(counted))["exits"]
    assert first["host_cycles"] == 0.25
    assert "cycles in the host" not in shown(run("kvm", exits=2000.0, seconds=4.0))


@given(st.text() | st.lists(st.integers()).map(lambda numbers: " ".join(map(str, numbers))))
def test_garbage_is_no_count(text: str) -> None:
    found = counts_of(text, NAMES)
    assert found == {} or (set(found) == {"guest", "host"} and min(found.values()) >= 0)
