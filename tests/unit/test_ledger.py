"""The ledger: what its program prints, parsed; and entries that are never negative, add up, and count irq once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.answers import experiment_data
from tests.fake_machine import FakeMachine, Reply
from tests.sample import sample_experiment
from tests.svg import root, share
from tests.unit.test_exits import GOLDEN, FakeGuest
from vmtax.analysis.analysis import Analysis
from vmtax.core.records import Experiment
from vmtax.core.stopwatch import Instant
from vmtax.experiment.signatures import Signatures
from vmtax.experiment.trial import TrialKey, run_trials
from vmtax.meter import MeteredCommand
from vmtax.meter.ledger import (
    COMMAND,
    LOOSE,
    SPLIT,
    HostLedger,
    LedgerReading,
    parse,
    reckon,
    split_by_samples,
)
from vmtax.report.figures import ledger_picture
from vmtax.report.figures.ledger import MOST
from vmtax.report.render.markdown import render_markdown
from vmtax.report.sections import ledger as section
from vmtax.testbed.session.base import RunningSubject, RunningTreatment
from vmtax.workload import Site
from vmtax.workload.cpuid import Cpuid, CpuidParameters

# Two CPUs: a KVM guest with vhost in QEMU, vmtax (50) that waits for its commands, a process of a user (70), and a
# worker of the kernel. A line each, which `printed` turns into what the program prints:
# p PID PARENT STARTED USER SYSTEM CHILDREN'S-USER CHILDREN'S-SYSTEM NANOSECONDS KIND NAME
# t PID TID USER SYSTEM GUEST NANOSECONDS NAME
BEFORE = """\
p 1 0 5 10 10 0 0 200000000 - init
p 2 0 5 0 0 0 0 0 k kthreadd
p 9 2 5 0 30 0 0 305000000 k kworker/0:1-events
p 10 2 5 0 20 0 0 201000000 k ksoftirqd/0
p 11 2 5 0 20 0 0 201000000 k kvm-nx-lpage-recovery-60
p 50 1 900 100 10 40 10 1101000000 - vmtax
p 60 50 910 500 200 0 0 90000000 m qemu-system-x86
t 60 60 5 4 0 90000000 qemu-system-x86
t 60 61 400 100 300 5000000000 CPU 0/KVM
t 60 62 1 1 0 20000000 IO iothread0
t 60 63 0 50 0 500000000 vhost-60
p 70 1 920 50 0 0 0 500100000 - spin
p 80 50 930 1 1 0 0 20100000 - python3
clock 1000.0 100 0
cpus 2 80
cpu  10000 0 10000 70000 100 10 50 5 0 0
"""
AFTER = """\
p 1 0 5 10 10 0 0 200000000 - init
p 2 0 5 0 0 0 0 0 k kthreadd
p 9 2 5 0 50 0 0 505000000 k kworker/0:1-events
p 10 2 5 0 20 0 0 201000000 k ksoftirqd/0
p 11 2 5 0 20 0 0 201000000 k kvm-nx-lpage-recovery-60
p 50 1 900 110 10 90 21 1201000000 - vmtax
p 60 50 910 1200 400 0 0 290000000 m qemu-system-x86
t 60 60 15 14 0 290000000 qemu-system-x86
t 60 61 1000 200 800 12000000000 CPU 0/KVM
t 60 62 11 1 0 120000000 IO iothread0
t 60 63 0 250 0 2500000000 vhost-60
p 70 1 920 350 0 0 0 3500100000 - spin
p 81 50 1930 1 1 0 0 20100000 - python3
clock 1010.0 100 0
cpus 2 81
cpu  10000 0 10000 70600 150 20 100 5 0 0
"""


EPOCH = 1.7e9  # at which the machine was booted


def stat(pid: str, name: str, state: str, parent: str, started: str, times: list[str], guest: str = "0") -> str:
    """A line of /proc/PID/stat."""
    between = "1 1 0 -1 0 0 0 0 0"
    return f"{pid} ({name}) {state} {parent} {between} {' '.join(times)} 20 0 1 0 {started} {'0 ' * 20}{guest} 0"


def printed(text: str) -> str:
    """What the program prints of a machine as described above."""
    lines, last = [], []
    for line in text.splitlines():
        kind, *words = line.split(" ")
        if kind == "p":
            pid, parent, started, *times = words[:7]
            lines += [f"ours {pid}"] if words[8] == "m" else []
            state = "Z" if words[8] == "z" else "S"
            lines.append(f"/proc/{pid}/stat:{stat(pid, ' '.join(words[9:]), state, parent, started, times)}")
            lines.append(f"/proc/{pid}/schedstat:{words[7]} 0 1")
        elif kind == "t":
            pid, tid, user, system, guest, ran = words[:6]
            path = f"/proc/{pid}/task/{tid}"
            times = [user, system, "0", "0"]
            lines.append(f"{path}/stat:{stat(tid, ' '.join(words[6:]), 'S', '50', '910', times, guest)}")
            lines.append(f"{path}/schedstat:{ran} 0 1")
        elif kind == "clock":
            uptime = f"{float(words[0]):.2f}"
            lines += [f"since {uptime}", f"wall {float(words[0]) + EPOCH:.9f}"]
            last.append(f"/proc/uptime:{uptime} 1.00")
            last += ["/proc/pressure/irq:full avg10=0.00 total=0"] if words[2] == "1" else []
        elif kind == "cpus":
            lines.insert(0, f"reader {words[1]}")
            last += [f"/proc/stat:cpu{number} 0" for number in range(int(words[0]))]
        elif kind == "tasks":
            last += [f"/proc/schedstat:cpu{number} 0 0 1 2 3 4 {ran} 5 6" for number, ran in enumerate(words)]
        elif kind == "cpu":
            lines.append(f"/proc/stat:{line}")
    return "\n".join((*lines, *last)) + "\n"


def reading(text: str) -> LedgerReading:
    found = parse(printed(text))
    assert found
    return found


def rows_of(before: str = BEFORE, after: str = AFTER) -> dict[str, float]:
    return reckon(reading(before), reading(after))


def entries(rows: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in rows.items() if name not in ("busy", "seconds", "error")}


def test_each_thread_stands_in_its_entry() -> None:
    rows = rows_of(after=AFTER.replace("1010.0", "1012.0"))
    assert rows["busy"] == pytest.approx(2 * 12 - 6.5) and rows["seconds"] == pytest.approx(12)
    expected = {"guest": 5.0, "vcpu_kernel": 1.0, "vcpu_user": 1.0, "main_loop": 0.2, "iothreads": 0.1, "vhost": 2.0}
    expected |= {"other": 3.0, "kernel.kworker": 0.2, "workload": 0.61 - 0.0201, "vmtax": 0.1 + 0.0201}
    expected |= {"hard_irq": 0.1, "soft_irq": 0.5}
    assert {name: rows[name] for name in expected} == pytest.approx(expected)


def test_interrupts_without_accounting_of_their_own_are_taken_out_of_the_threads() -> None:
    """CPUs were busy for 13.5 s, threads ran for 13.21 s, interrupts for 0.6 s: 0.31 s were counted twice."""
    rows = rows_of()
    assert rows["soft_irq"] == pytest.approx(0.5) and rows["hard_irq"] == pytest.approx(0.1)
    assert rows["remainder"] == pytest.approx(0) and rows["other"] == pytest.approx(3.0 * (1 - 0.31 / 13.21))


@pytest.mark.parametrize(
    ("seconds", "tasks", "expected"),
    [
        (12, 15.0, 2.5),  # busy for 17.5 s, tasks ran for 15.0 s
        (12, 5.0, 17.5 - 13.81),  # a task that has not been switched since: no more than nothing else explains
        (12, 18.0, 0.0),
        (10, 5.0, 0.0),  # everything is explained
    ],
)
def test_what_is_neither_idle_nor_a_task_is_interrupts_of_idle_cpus(
    seconds: int, tasks: float, expected: float
) -> None:
    after = AFTER.replace("1010.0", f"{1000 + seconds}.0") + f"tasks 3000000000 {2e9 + tasks * 1e9:.0f}\n"
    rows = rows_of(BEFORE + "tasks 2000000000 3000000000\n", after)
    assert rows["idle_irq"] == pytest.approx(expected, abs=1e-9)
    apart = rows_of(
        BEFORE.replace("100 0\ncpus", "100 1\ncpus") + "tasks 0 0\n", after.replace("100 0\ncpus", "100 1\ncpus")
    )
    assert "idle_irq" not in apart, "hard_irq and soft_irq have them, and what is hidden stays in the remainder"
    without = rows_of(BEFORE, after)
    assert "idle_irq" not in without and rows["other"] == without["other"]
    assert rows["remainder"] == pytest.approx(without["remainder"] - expected, abs=1e-9)


def test_with_accounting_of_their_own_no_thread_is_touched() -> None:
    rows = rows_of(BEFORE.replace("100 0\ncpus", "100 1\ncpus"), AFTER.replace("100 0\ncpus", "100 1\ncpus"))
    assert rows["other"] == pytest.approx(3.0) and rows["soft_irq"] == pytest.approx(0.5)
    assert rows["remainder"] == pytest.approx(13.5 - 13.81)


def test_ksoftirqd_is_soft_irq_and_counted_once() -> None:
    rows = rows_of(after=AFTER.replace("0 20 0 0 201000000 k ksoft", "0 50 0 0 501000000 k ksoft"))
    assert rows["soft_irq"] == pytest.approx(0.5) and "ksoftirqd" not in rows


def test_under_emulation_there_is_an_emulator_and_no_guest() -> None:
    swap = ("800 12000000000 CPU 0/KVM", "0 12000000000 CPU 0/TCG")
    rows = rows_of(BEFORE.replace("300 5000000000 CPU 0/KVM", "0 5000000000 CPU 0/TCG"), AFTER.replace(*swap))
    assert "guest" not in rows and "vcpu_user" not in rows and rows["emulator"] > 5


def test_what_ended_is_in_its_parents_entry_without_what_it_had_used_before() -> None:
    shell = "p 90 1 940 0 0 100 0 1000 - sh\n"
    child = "p 91 90 950 300 0 0 0 3000000000 - make\n"
    after = shell.replace("100 0 1000", "500 0 1000") + AFTER
    rows = rows_of(shell + child + BEFORE, after.replace("1010.0", "1020.0"))
    assert rows["other"] == pytest.approx(3.0 + 4.0 - 3.0)


def test_a_new_process_of_an_old_number_is_another_one() -> None:
    after = AFTER.replace("p 70 1 920 350 0 0 0 3500100000", "p 70 1 1999 100 0 0 0 1000100000")
    assert rows_of(after=after.replace("1010.0", "1020.0"))["other"] == pytest.approx(1.0001)


NUMBER = st.integers(0, 10**6)


@st.composite
def later(draw: st.DrawFn) -> str:
    """AFTER with any numbers in the place of its own, growing or not."""
    lines = []
    for line in AFTER.splitlines():
        words = line.split(" ")
        if words[0] == "t":
            words[3:6] = [str(draw(NUMBER)) for _ in range(3)]
            words[6] = str(draw(NUMBER) * 10**4)
        elif words[0] == "p":
            words[4:8] = [str(draw(NUMBER)) for _ in range(4)]
            words[8] = str(draw(NUMBER) * 10**4)
        elif words[0] == "clock":
            words[1:] = [f"{1000 + draw(st.integers(1, 1000))}.0", "100", draw(st.sampled_from("01"))]
        elif words[0] == "cpu":
            words[2:10] = [str(draw(NUMBER)) for _ in range(8)]
        lines.append(" ".join(words))
    return "\n".join(lines) + "\n"


@given(later())
def test_entries_are_never_negative_and_add_up_whatever_was_read(text: str) -> None:
    rows = rows_of(after=text)
    remainder = rows["remainder"]
    assert all(value >= 0 for name, value in rows.items() if name != "remainder")
    assert sum(entries(rows).values()) == pytest.approx(rows["busy"], abs=1e-6 * (1 + abs(remainder) + rows["busy"]))


@given(later())
def test_without_accounting_of_their_own_interrupts_explain_what_was_counted_twice_and_no_more(text: str) -> None:
    both = [
        text.replace("100 0\ncpus", f"100 {apart}\ncpus").replace("100 1\ncpus", f"100 {apart}\ncpus") for apart in "10"
    ]
    apart, inside = (rows_of(after=one) for one in both)
    irq = inside["hard_irq"] + inside["soft_irq"]
    assume(sum(entries(inside).values()) - inside["remainder"] - sum(inside[name] for name in LOOSE) > 1e-3)
    expected = max(apart["remainder"], min(0.0, apart["remainder"] + irq))
    assert inside["remainder"] == pytest.approx(expected, abs=1e-6 * (1 + abs(expected) + inside["busy"]))


@given(st.text() | st.lists(st.sampled_from(printed(BEFORE + AFTER).splitlines())).map("\n".join))
def test_garbage_never_raises(text: str) -> None:
    found = parse(text)
    if found is not None:
        reckon(found, found)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    """It is read before and after ten seconds."""
    machine = FakeMachine("host", {COMMAND: [printed(BEFORE), printed(AFTER)]})

    def now() -> Instant:
        seconds = 10.0 * (len(machine.calls) // 2)
        return Instant(seconds, seconds)

    monkeypatch.setattr(Instant, "now", staticmethod(now))
    return machine


def test_the_meter_keeps_the_entries_and_the_operations(host: FakeMachine) -> None:
    meter = HostLedger()
    meter.before(host)
    work = MeteredCommand("fio", ok=True, seconds=1.0, operations=500.0)
    rows = meter.after(host, [work]).rows
    assert rows["operations"] == 500.0 and rows["vhost"] > 1.5


def test_a_host_without_a_shell_has_no_ledger() -> None:
    meter, host = HostLedger(), FakeMachine("host", {COMMAND: Reply(code=127)})
    meter.before(host)
    assert meter.after(host, []).rows == {}


def run(**rows: float) -> Experiment:
    sample = sample_experiment(rounds=2)
    read = {"host": {f"ledger.{name.replace('kernel_', 'kernel.')}": value for name, value in rows.items()}}
    return replace(sample, trials=tuple(replace(trial, readings=read if rows else {}) for trial in sample.trials))


def test_a_report_has_the_entries_in_cores_and_json_in_core_seconds_and_by_operation() -> None:
    rows = {"guest": 9.0, "vhost": 7.0, "soft_irq": 2.0, "kernel_kworker": 1.0, "remainder": 1.0}
    found = run(**rows, busy=20.0, seconds=10.0, error=0.1, operations=100.0)
    text = " ".join(render_markdown(Analysis(found)).split())
    assert "| 2.00 | guest code 0.90, vhost 0.70, soft irq 0.20, kernel's kworker 0.10 | 5.0 % |" in text
    first = experiment_data(Analysis(found))["ledger"][0]
    assert first["entries"] == {name.replace("kernel_", "kernel."): value for name, value in rows.items()}
    assert first["per_operation"]["guest"] == pytest.approx(0.09) and first["busy"] == 20.0


def test_a_page_has_a_bar_for_each_case_as_long_as_its_parts() -> None:
    found = Analysis(run(guest=9.0, vhost=7.0, remainder=4.0, busy=20.0, seconds=10.0, error=0.1)).ledger
    picture = ledger_picture(found, ())
    assert picture and [key.text for key in picture.legend] == ["guest code, or its emulator", "vhost"]
    bars = list(root(picture).iter("rect"))
    assert len(bars) == 2 * MOST == 2 * (len(found) - 1)
    assert [(share(bar.attrib["x"]), share(bar.attrib["width"])) for bar in bars[:2]] == [(0, 0.45), (0.45, 0.35)]
    assert ledger_picture((), ()) is None


@pytest.mark.parametrize("is_sampled", [True, False])
def test_samples_of_all_guests_divide_what_the_host_s_vcpus_used(is_sampled: bool, host: FakeMachine) -> None:
    raw = (GOLDEN / "workload" / "cpuid.txt").read_text()
    workload = Cpuid(CpuidParameters())
    before = {"exits": 1.0, "samples.guest": 5.0, "samples.kernel": 5.0, "samples.user": 0.0}
    after = {"exits": 9.0, "samples.guest": 305.0, "samples.kernel": 105.0, "samples.user": 0.0}
    looks = [(before, after), (before, after) if is_sampled else ({"exits": 1.0}, {"exits": 9.0})]
    guests: list[Any] = [FakeGuest(f"host/vm-{number}", *look) for number, look in enumerate(looks, start=1)]
    answers = {lambda argv: argv[0] == "stress-ng": raw}
    subjects = [RunningSubject(Site(FakeMachine(guest.path, answers), "vm", 1, ()), guest) for guest in guests]
    running = RunningTreatment(tuple(subjects), host, (), meters=(HostLedger(),))
    trials = run_trials(TrialKey(1, 1, "vm"), running, workload, "", Signatures(), iteration=1)
    (rows, again) = [trial.readings["host"] for trial in trials]
    assert rows == again
    vcpus = [rows[f"ledger.{entry}"] for entry in SPLIT]
    plain = rows_of()
    assert sum(vcpus) == pytest.approx(sum(plain[entry] for entry in SPLIT))
    if is_sampled:
        assert rows["ledger.samples"] == 800 and vcpus[0] / sum(vcpus) == pytest.approx(0.75) and vcpus[2] == 0
    else:
        assert "ledger.samples" not in rows and vcpus == pytest.approx([plain[entry] for entry in SPLIT])


@given(
    st.dictionaries(st.sampled_from(["guest", "kernel", "user"]), st.integers(0, 10**7).map(float)),
    st.lists(st.floats(0, 1e6), min_size=3, max_size=3),
)
def test_samples_divide_the_time_of_vcpus_and_change_no_sum(samples: dict[str, float], seconds: list[float]) -> None:
    rows = {**dict(zip(SPLIT, seconds, strict=True)), "vhost": 7.0, "busy": 20.0}
    found = split_by_samples(rows, samples)
    assert sum(found[entry] for entry in SPLIT) == pytest.approx(sum(seconds))
    assert {name: found[name] for name in ("vhost", "busy")} == {"vhost": 7.0, "busy": 20.0}
    total = sum(samples.values())
    if not total:
        assert found == rows
    else:
        assert found["samples"] == total
        assert found["guest"] == pytest.approx(sum(seconds) * samples.get("guest", 0.0) / total)


def test_a_report_says_what_splits_the_time_of_vcpus() -> None:
    rows = {"guest": 9.0, "vcpu_kernel": 1.0, "remainder": 0.0, "busy": 10.0, "seconds": 10.0, "error": 0.1}
    by_ticks, sampled = run(**rows), run(**rows, samples=24.0)
    place, first = next((n, trial) for n, trial in enumerate(sampled.trials) if trial.workload == "net")
    partly = replace(sampled, trials=(*sampled.trials[:place], by_ticks.trials[place], *sampled.trials[place + 1 :]))
    assert section.BY_TICKS in " ".join(render_markdown(Analysis(by_ticks)).split())
    assert section.SAMPLED in " ".join(render_markdown(Analysis(sampled)).split())
    said = " ".join(render_markdown(Analysis(partly)).split())
    assert f"{section.SAMPLED} In some trials the kernel's ticks did, which are less exact: {first.treatment}, " in said
    (row,) = [one for one in Analysis(partly).ledger if one.sampled_trials < one.trials]
    assert (row.treatment.name, row.workload, row.case) == (first.treatment, first.workload, first.case)
    assert row.sampled_trials == row.trials - 1 and row.samples == 24.0 * row.sampled_trials
    (answer, *_) = experiment_data(Analysis(sampled))["ledger"]
    assert answer["sampled_trials"] == answer["trials"] and "samples" not in answer["entries"]
    without = {name: value for name, value in rows.items() if name not in ("guest", "vcpu_kernel")}
    text = render_markdown(Analysis(run(**without, emulator=10.0)))
    assert "On KVM" not in text, "nothing is said of guests that are not there"


def test_runs_of_earlier_versions_have_none() -> None:
    analysis = Analysis(run())
    assert analysis.ledger == () and section.section(analysis) is None
    assert experiment_data(analysis)["ledger"] == []
