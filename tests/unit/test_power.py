"""A command of the user's that cuts the power of the host under test: what is refused, and what tells that it did."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from tests.command import HANGS
from tests.fake_machine import Reply
from tests.fake_testbed import SEVEN, FakeTestbed, Lab, bench
from vmtax.core.events import Event
from vmtax.core.machines import MachineLost
from vmtax.core.records import Json
from vmtax.core.stopwatch import Instant, Stopwatch
from vmtax.experiment.real_cut import PowerWasCut, session_of
from vmtax.experiment.runner import Options
from vmtax.plan.schema import Plan, parse
from vmtax.storage import Target
from vmtax.testbed.session import power
from vmtax.testbed.session.power import Cutting, NotCut, Power, PowerCut, not_there_again, one_state, why_not
from vmtax.testbed.session.session import TestbedOptions

PLAN = """\
name: cuts
host: ssh://server
layers: [vm]
workloads: [durability]
precision: none
rounds: {min: 2, max: 2}
"""
BEFORE, AFTER = "8d9a4c3c-28b5-4b6e-9d0a-3f0f2f3c8f51", "1b3f2a90-6c1d-4f0e-8a77-90b1c2d3e4f5"
DONE = '{"code": 0, "words": ""}\n'


def plan(**changes: str) -> Plan:
    text = PLAN
    for old, new in changes.items():
        text = text.replace(f"{old}: {PLAN.partition(f'{old}: ')[2].partition(chr(10))[0]}", f"{old}: {new}")
    return parse(text)


# What the command line says.


def test_a_command_is_words_and_its_program_is_there() -> None:
    order = PowerCut.parse("true --outlet 'number 3'", 60.0)
    assert Path(order.command[0]).is_absolute() and order.command[1:] == ("--outlet", "number 3")
    assert TestbedOptions.from_json(TestbedOptions(power_cut=order).to_json()).power_cut == order


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("", "is empty"),
        ("no-such-fence off", "no-such-fence: no such program"),
        ("true 'x", "no closing quotation"),
        ("/etc/passwd", "cannot be executed"),
    ],
)
def test_a_command_that_cannot_be_started_is_refused(command: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        PowerCut.parse(command, 60.0)


@pytest.mark.parametrize(
    ("changed", "target", "other", "why"),
    [
        (plan(host="local"), Target(), None, "which would end with it"),
        (plan(workloads="[chess]"), Target(), None, "has no workload durability"),
        (plan(workloads="[durability, disk]"), Target(), None, "nothing is compared with disk"),
        (plan(), Target(), "ssh://other", "--interleave-with"),
        (plan(), Target(devices=("/dev/sdb",)), None, "--disk-device"),
        (plan(), Target(group="vg"), None, "--disk-group"),
    ],
)
def test_what_no_power_can_be_cut_for_is_refused(changed: Plan, target: Target, other: str | None, why: str) -> None:
    assert why in (why_not(changed, target, other) or "")


def test_each_cut_is_one_state() -> None:
    assert why_not(plan(), Target(), None) is None
    (workload,) = one_state(plan()).build_workloads()
    assert workload.parameters.states == 1
    assert workload.shortfall(6).endswith(
        "6 states of each at most, and 300 are needed to show that one is durable: raise rounds"
    )


def test_a_disk_that_the_run_would_have_to_put_together_again_is_left_out() -> None:
    text = (
        PLAN.replace("[vm]", "[vm, nested]") + "combinations: [{disk.volume: [plain, lvm], disk.filesystem: [as-is]}]\n"
    )
    treatments = parse(text.replace("filesystem: [as-is]", "filesystem: [as-is, xfs]")).treatments()[0]
    found = not_there_again(treatments)
    assert [one.name for one in treatments if one.name not in found] == ["vm"]
    assert any("nested" in why for why in found.values()) and any("directory" in why for why in found.values())


# Whether the power was gone.


class Host:
    """One that is logged in to; `up`: seconds."""

    path = "host"

    def __init__(self, boot_id: str, up: object, *, has_disk: bool = True) -> None:
        self.boot_id, self.up, self.has_disk, self.is_closed = boot_id, up, has_disk, False

    def read_text(self, path: str) -> str:
        assert path == "/proc/uptime"
        return f"{self.up} 1.0\n"

    def try_run(self, *argv: str) -> Any:
        assert argv[0] == "cat"
        return SimpleNamespace(stdout=self.boot_id + "\n")

    def succeeds(self, *argv: str) -> bool:
        assert argv == ("test", "-e", "/var/tmp/disk")
        return self.has_disk

    def close(self) -> None:
        self.is_closed = True


def cutting(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    answers: list[Host | Exception],
    answer: str = DONE,
    within: float = 9.0,
) -> Cutting:
    """A command that has run, and a host that answers so, the last answer for ever."""
    ended = tmp_path / "answer"
    ended.write_text(answer)
    process = SimpleNamespace(poll=lambda: 0)
    now = iter(range(10**6))
    monkeypatch.setattr(power.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(power.time, "monotonic", lambda: float(next(now)))
    monkeypatch.setattr(Instant, "now", staticmethod(lambda: Instant(*[float(next(now))] * 2)))
    left = list(answers)

    def logged_in(self: Cutting) -> Any:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(Cutting, "_logged_in", logged_in)
    order = PowerCut(("fence", "server"), within)
    return Cutting(Power("ssh://server", order), SimpleNamespace(), process, ended, Stopwatch())  # type: ignore[arg-type]  # a stand-in


def waited(one: Cutting) -> Any:
    events: list[Event] = []
    return one.wait(BEFORE, PurePosixPath("/var/tmp/disk"), events.append)


def test_a_host_that_is_back_in_another_boot_is_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    off, back = MachineLost("no route"), Host(AFTER, 3.0)
    early = Host(AFTER, 2.0, has_disk=False)
    assert waited(cutting(monkeypatch, tmp_path, [Host(BEFORE, 900.0), off, early, back], within=99.0)) is back
    assert early.is_closed and not back.is_closed


def test_a_command_that_does_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(NotCut, match="same boot as before, for 1 h 30 m: its power was not cut within 1 m 00 s"):
        waited(cutting(monkeypatch, tmp_path, [Host(BEFORE, 5400.0)], within=900.0))


def test_another_machine_that_answers_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(NotCut, match="another machine"):
        waited(cutting(monkeypatch, tmp_path, [Host(AFTER, 5400.0)]))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ('{"code": 1, "words": "off\\nno outlet 3\\n"}\n', "fence server ended with exit code 1: no outlet 3; nothing"),
        ('{"code": -9, "words": ""}\n', r"killed by signal 9 \(SIGKILL\) and said nothing; nothing counts"),
        ('{"error": "Exec format error"}\n', "fence server: Exec format error; no power was cut"),
        ("", "fence server: what watches over it was killed; nothing counts"),
        ('{"code": 0', "fence server: what watches over it was killed; nothing counts"),
    ],
)
def test_a_command_that_fails_says_so_in_its_own_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: str, why: str
) -> None:
    with pytest.raises(NotCut, match=why):
        waited(cutting(monkeypatch, tmp_path, [Host(BEFORE, 5.0)], answer))


@pytest.mark.parametrize("up", ["nan", "-5", "inf", "1e400", "", "x", "1_0", "0x5", "9" * 5000, "5,1", "\x1b[2J", "[]"])
def test_an_odd_uptime_is_no_proof_of_a_cut(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, up: str) -> None:
    with pytest.raises(NotCut, match=r"was not back .*: host: /proc/uptime: a number from 0 to .* must stand there"):
        waited(cutting(monkeypatch, tmp_path, [Host(AFTER, up)]))


@pytest.mark.parametrize("boot", ["", "x", "boot-2", "null", "0" * 36, f"{AFTER} {AFTER}", AFTER.upper(), "\x1b[2J"])
def test_an_odd_boot_id_is_no_proof_of_a_cut(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, boot: str) -> None:
    with pytest.raises(NotCut, match=r"was not back .*: host: /proc/sys/kernel/random/boot_id: the id of a boot"):
        waited(cutting(monkeypatch, tmp_path, [Host(boot, 3.0)]))


def test_a_host_that_does_not_come_back_ends_the_wait(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(NotCut, match=r"ssh://server was not back in another boot within 9\.0 s: no route"):
        waited(cutting(monkeypatch, tmp_path, [MachineLost("no route")]))


# The session that ends with it.


def test_a_session_goes_on_where_no_power_was_cut() -> None:
    one = Power("ssh://server", PowerCut(("fence",)))
    with session_of(one, "run"):
        pass
    with pytest.raises(MachineLost), session_of(one, "run"):
        raise MachineLost("the guest is gone")


def test_a_session_ends_with_the_cut_and_not_with_what_follows_from_it() -> None:
    one = Power("ssh://server", PowerCut(("fence",)))
    with pytest.raises(PowerWasCut, match="vmtax run --resume run"), session_of(one, "run"), one.ends_session():
        raise MachineLost("the host is gone")
    with pytest.raises(NotCut, match="did nothing"), session_of(one, "run"), one.ends_session():
        raise NotCut("it did nothing")


@contextlib.contextmanager
def started(script: str, tmp_path: Path, seconds: float = HANGS) -> Iterator[Cutting]:
    order = PowerCut((sys.executable, "-c", script), seconds)
    with Power("ssh://server", order).cutting(SimpleNamespace(scratch=tmp_path)) as under_way:  # type: ignore[arg-type]  # a stand-in
        try:
            yield under_way
        finally:
            under_way.process.kill()
            under_way.process.wait()


def test_how_the_command_ended_is_kept(tmp_path: Path) -> None:
    with started("print(3)", tmp_path) as under_way:
        assert under_way.process.wait(HANGS) == 0 and not under_way.is_late
        assert under_way.ended is not None


def test_a_command_that_cannot_be_started_cut_nothing(tmp_path: Path) -> None:
    program = tmp_path / "fence"
    program.write_bytes(b"\0")
    program.chmod(0o755)
    with Power("x", PowerCut((str(program),))).cutting(SimpleNamespace(scratch=tmp_path)) as one:  # type: ignore[arg-type]  # a stand-in
        one.process.wait(HANGS)
        with pytest.raises(NotCut, match="Exec format error; no power was cut"):
            assert one.is_late


def test_of_a_flood_only_the_end_is_kept_and_it_ends_in_time(tmp_path: Path) -> None:
    with started("while True: print('no outlet 3')", tmp_path, 0.5) as under_way:
        under_way.process.wait(HANGS)
        assert under_way.answer.stat().st_size < 3000
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 3000
        with pytest.raises(NotCut, match=r"killed by signal 15 \(SIGTERM\): .*; nothing counts"):
            assert under_way.is_late


CHILD = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(3600)"
words = [sys.executable, "-c", child]
each = [subprocess.Popen(words, start_new_session=new, stdout=subprocess.PIPE) for new in (False, True)]
for one in each: one.stdout.readline()
open("{pids}", "w").write(" ".join(str(one.pid) for one in each))
{end}
"""


def test_all_that_it_started_ends_with_its_time(tmp_path: Path) -> None:
    """Whether the command has ended before its children or waits for them, in a session of their own or not."""
    ends = {"ended": "os._exit(0)", "waits": "signal.pause()"}
    with contextlib.ExitStack() as stack:
        every = []
        for name, end in ends.items():
            (own := tmp_path / name).mkdir()
            every.append(stack.enter_context(started(CHILD.format(pids=own / "pids", end=end), own, 4.0)))
        for one in every:
            one.process.wait(HANGS)
        children = [int(pid) for name in ends for pid in (tmp_path / name / "pids").read_text().split()]
        assert len(children) == 4 and not [pid for pid in children if Path(f"/proc/{pid}").exists()]


class CutLab(Lab):
    """A fake host that loses its power in each boot of a guest."""

    order = PowerCut(("/sbin/fence",))

    def options(self) -> Options:
        return Options("vmtax run", TestbedOptions(power_cut=self.order))

    def set_up(self, check: Callable[[Mapping[str, Json]], None]) -> FakeTestbed:
        testbed = super().set_up(check)
        self.power = Power("ssh://server", self.order)
        testbed.sides = [replace(one, session=replace(one.session, power=self.power)) for one in testbed.sides]
        self.facts = {**self.facts, "boot_id": f"boot-{self.provisioned}"}
        return testbed


def test_a_run_goes_on_in_a_session_for_each_cut_and_repeats_nothing(tmp_path: Path) -> None:
    def answer(number: int, name: str) -> Reply:
        if name != "host":
            lab.power.is_over = True
        return bench()

    lab = CutLab(SEVEN, answer, tmp_path)
    with pytest.raises(PowerWasCut):
        lab.run()
    for _ in range(13):
        assert lab.experiment.state == "running", "this process goes on with it"
        with pytest.raises(PowerWasCut):
            lab.resume()
    found = lab.resume()
    assert found.state == "complete" and lab.provisioned == 15
    assert len(found.trials) == 7 * (2 * 2 + 1), "as where no power is cut"
    assert not [note for note in found.notes if "stopped" in note]


def test_what_keeps_the_power_from_being_cut_stops_the_run_and_is_done_again(tmp_path: Path) -> None:
    def answer(number: int, name: str) -> Reply:
        if name == "vm" and lab.provisioned == 1:
            lab.power.is_over, lab.power.problem = True, NotCut("the fence did nothing")
            return Reply("", code=1)
        return bench()

    lab = CutLab(SEVEN, answer, tmp_path)
    with pytest.raises(NotCut, match="the fence did nothing"):
        lab.run()
    assert lab.experiment.state == "failed" and lab.experiment.trials[-1].status == "failed"
    assert TestbedOptions.from_json(lab.experiment.options).power_cut == lab.order
    newest = lab.experiment.trials[-1]
    found = lab.resume()
    again = [one for one in found.trials if (one.round, one.treatment, one.case) == (newest.round, "vm", newest.case)]
    assert found.state == "complete" and [one.status for one in again] == ["failed", "ok"]
