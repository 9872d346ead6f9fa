"""A command that several machines repeat: one repetition counts, and all machines work while it does."""

from __future__ import annotations

import re
import time
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fake_machine import FakeMachine, Reply
from tests.fake_testbed import BENCH
from vmtax.core.records import Trial
from vmtax.experiment.at_once import Job, run_at_once
from vmtax.experiment.signatures import Signatures
from vmtax.experiment.trial import TrialKey, run_trials
from vmtax.machine import MachineError, MachineLost, Outcome
from vmtax.meter import METERS
from vmtax.meter.base import MeteredCommand
from vmtax.meter.clock import COMMAND, own_time
from vmtax.testbed.session.base import RunningSubject, RunningTreatment
from vmtax.workload import Site
from vmtax.workload.chess import Chess, ChessParameters
from vmtax.workload.cpuid import Cpuid, CpuidParameters
from vmtax.workload.memory import Memory, MemoryParameters
from vmtax.workload.repeated import COUNTS, Repetitions
from vmtax.workload.wakeup import Wakeup, WakeupParameters

GOLDEN = Path(__file__).parent.parent / "golden/workload"
lines = st.text(st.characters(blacklist_categories=["Cs"]))


class Slow(FakeMachine):
    """Sleeps, or waits for an event, in each command; then it answers with the number of its commands so far."""

    def __init__(self, path: str, seconds: float, *ends: Outcome | MachineLost) -> None:
        super().__init__(path, {})
        self.seconds, self.ends = seconds, list(ends)
        self.asked = 0

    def wait(self) -> None:
        time.sleep(self.seconds)

    def try_run(self, *argv: str, **options: Any) -> Any:
        if argv == COMMAND:
            return Outcome(self.path, argv, 1, "", "", 0.0)  # its clock is not read
        self.asked += 1
        self.wait()
        end = self.ends.pop(0) if self.ends else Outcome(self.path, argv, 0, f"{self.asked}", "", self.seconds)
        if isinstance(end, MachineLost):
            raise end
        return end


class Slower(Slow):
    """Ends each command only after another machine has ended several more."""

    def __init__(self, other: Slow, times: int) -> None:
        super().__init__("host/vm-2", 0.0)
        self.other, self.times = other, times

    def wait(self) -> None:
        limit = time.monotonic() + 30
        while self.other.asked <= self.asked * self.times:
            assert time.monotonic() < limit, "the other machine has ended too early"
            time.sleep(0.001)


def jobs(*machines: Slow) -> list[Job]:
    return [Job(machine, ("search",), 10.0, repeats=True) for machine in machines]


@pytest.mark.parametrize("times", [1, 2, 4])
def test_a_faster_machine_works_until_the_slowest_has_finished_what_counts(times: int) -> None:
    fast = Slow("host/vm", 0.01)
    slow = Slower(fast, times)
    done = run_at_once(jobs(fast, slow))
    assert [Repetitions.of(one.raw).counting for one in done] == ["2\n", "2\n"]
    assert fast.asked > 2 * times


def test_a_single_machine_does_the_same_twice() -> None:
    alone = Slow("host/vm", 0.0)
    (done,) = run_at_once(jobs(alone))
    assert alone.asked == 2 and Repetitions.of(done.raw).counting == "2\n"
    other = Slow("host/vm", 0.0)
    (once,) = run_at_once([Job(other, ("build",), 10.0)])
    assert other.asked == 1 and once.raw == "1\n"


@pytest.mark.parametrize(
    "end", [MachineLost("host/vm: gone"), Outcome("host/vm", ("search",), 3, "", "no memory", 0.1)]
)
@pytest.mark.varied(1)
def test_no_machine_goes_on_when_one_has_failed(end: Outcome | MachineLost) -> None:
    fails, works = Slow("host/vm", 0.0, end), Slow("host/vm-2", 0.5)
    first, second = run_at_once(jobs(fails, works))
    assert (fails.asked, works.asked) == (1, 1) and second.raw == "1\n"
    assert first.lost is end or (first.failed is end and first.raw == "\nno memory")


def test_what_goes_wrong_in_one_thread_ends_all() -> None:
    class Broken(Slow):
        def try_run(self, *argv: str, **options: Any) -> Any:
            raise MachineError("host/vm-2: ssh: too many open files")

    works = Slow("host/vm", 0.5)
    with pytest.raises(MachineError, match="too many open files"):
        run_at_once(jobs(works, Broken("host/vm-2", 0.0)))
    assert works.asked == 1


@given(st.lists(lines, min_size=COUNTS + 1, max_size=5), st.floats(1e9, 4e9))
def test_what_is_stored_can_be_read_again(outputs: list[str], began: float) -> None:
    times = tuple(round(began + number, 3) for number in range(len(outputs) + 1))
    found = Repetitions(tuple(outputs), times)
    assert Repetitions.of(found.text) == found


@given(lines)
def test_other_output_is_one_repetition(output: str) -> None:
    assert Repetitions.of(output).outputs == (output,) and Repetitions.of(output).counting == output


def bench(nodes: int = 1000, rate: int = 500, seconds: int = 2) -> str:
    return re.sub(r"(Total time .ms. : )\d+", rf"\g<1>{seconds}000", BENCH.format(nodes=nodes, rate=rate))


def test_the_time_that_counts_and_the_work_around_it() -> None:
    """Each search takes 2 s at the end of a repetition of 3 s, so a program starts for 1 s."""
    counted = Repetitions((bench(),) * 3, (10.0, 13.0, 16.0, 19.0)).counted(Chess(ChessParameters()), "")
    assert counted is not None
    # It counts from 14 to 16; the machine works from 11 to 19.
    assert astuple(counted) == pytest.approx((2.0, 3.0, 3.0, 0.0))


def trials(workload: Any, case: str, lead: int, *outputs: str, known: Signatures | None = None) -> Trial:
    """The trial of one guest that prints these, one after the other."""
    guest = Slow("host/vm", 0.0, *(Outcome("host/vm", (), 0, text, "", 1.0) for text in outputs))
    host = FakeMachine("host", {meter.command: Reply(code=2) for meter in METERS})
    running = RunningTreatment((RunningSubject(Site(guest, "vm", 1, (), lead=lead)),), host)
    (found,) = run_trials(TrialKey(1, 1, "vm"), running, workload, case, known or Signatures(), iteration=1)
    return found


def test_the_second_search_is_the_result_and_both_are_kept() -> None:
    found = trials(Chess(ChessParameters()), "", 1, bench(rate=111), bench(rate=222))
    assert found.status == "ok" and [one.value for one in found.measurements] == [222]
    known = Signatures.of([Chess(ChessParameters())], [replace(found, case="one-thread")])
    assert known.first == {("chess", "one-thread"): ("vm", "1000 nodes")}
    once = trials(Chess(ChessParameters()), "", 0, bench(rate=111), bench(rate=222))
    assert [one.value for one in once.measurements] == [111], "nothing is repeated without several guests in the plan"


def test_each_repetition_must_have_done_the_same_work() -> None:
    found = trials(Chess(ChessParameters()), "one-thread", 1, bench(nodes=999), bench(nodes=1000))
    assert found.status == "refused" and "not the same work" in (found.error or "")


@pytest.mark.parametrize(
    "workload", [Wakeup(WakeupParameters()), Cpuid(CpuidParameters()), Chess(ChessParameters())], ids=lambda w: w.name
)
def test_what_counts_must_be_reported(workload: Any) -> None:
    found = trials(workload, workload.cases()[0], 1, "nothing of use", "nothing of use")
    assert found.status == "failed" and found.measurements == () and found.raw.count("repetition began") == 2


def test_the_first_repetition_may_be_too_short_to_report() -> None:
    """It starts slowly, because its program is read from the disk."""
    workload = Memory(MemoryParameters(cases=("faults",)))
    report = (GOLDEN / "faults.txt").read_text()
    found = trials(workload, "faults", 1, "stress-ng: fault: run duration too short", report)
    assert found.status == "ok" and found.measurements == workload.parse("faults", report)


def test_a_program_that_starts_often_may_take_longer_to_start() -> None:
    assert own_time(MeteredCommand("stockfish", True, 30.0, 12.0))
    assert not own_time(MeteredCommand("stockfish", True, 26.0, 12.0, starts=3))
