"""Live migration: what the peer saw, what QEMU is asked, and what a failure leaves."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fake_machine import FakeMachine
from tests.unit.test_workload import GOLDEN
from vmtax.core.records import Moved
from vmtax.design.migration import MigrationSettings, Mode
from vmtax.experiment import migrate as activity
from vmtax.experiment.trial import TrialKey
from vmtax.hypervisor import AWAITED, BootFailed, GuestSpec, Move, MoveFailed, Qemu
from vmtax.hypervisor.qemu import migrate as by_qemu
from vmtax.hypervisor.qemu.guest import QemuGuest
from vmtax.hypervisor.qemu.migrate import migrate
from vmtax.hypervisor.qemu.qmp import QmpError
from vmtax.meter import Readings
from vmtax.testbed.session.base import Handover, Route, RunningSubject, RunningTreatment
from vmtax.workload import BadOutput, Site
from vmtax.workload.migration import METRICS, Migration, MigrationParameters, Seen

OUTPUT = (GOLDEN / "migration.txt").read_text()
BY_QEMU = Moved(0.607, 0.050, 87235356.0)
POSTCOPY = MigrationSettings(mode=Mode.POSTCOPY)
MOVE = Move(MigrationSettings(), 60.0)
SETTINGS = ("migrate-set-capabilities", "migrate-set-parameters")
COMPLETED = {"status": "completed", "total-time": 607, "downtime": 50, "ram": {"transferred": 87235356}}


def figures(output: str, rate: int = 200) -> dict[str, float]:
    workload = Migration(MigrationParameters(rate=rate))
    return {one.metric.measure: one.value for one in workload.measured(BY_QEMU, output)}


def seen(*rows: tuple[int, int | str], name: str = "stop") -> str:
    """Rows in ms: when a packet was sent, and how long its answer took."""
    marks = ["mark begin 15000", f"mark {name} 99000"]
    return "\n".join(
        [*marks, *(f"{i} {at}000 {took if took == '-' else f'{took}000'}" for i, (at, took) in enumerate(rows))]
    )


def test_the_peer_saw_the_gap_and_counted_what_was_lost_by_its_number() -> None:
    have = figures(OUTPUT)
    assert have["downtime_seconds"] == pytest.approx(0.076745)
    assert have["lost_packets"] == 12 == OUTPUT.count(" -\n")
    assert (have["total_seconds"], have["qemu_downtime_seconds"], have["sent_bytes"]) == (0.607, 0.05, 87235356)
    assert have["before_p50_seconds"] == pytest.approx(394e-6) and have["during_p50_seconds"] == pytest.approx(349e-6)
    assert not [name for name in have if "p99" in name], "400 round trips have too few beyond it"


def test_windows_gap_and_loss_of_a_move_that_is_known() -> None:
    found = Seen.of(seen((0, 1), (10, 2), (20, "-"), (30, "-"), (40, 3), (50, 4)), 0.030)
    assert found.longest_gap == pytest.approx(0.043 - 0.012) and found.lost == 2
    assert [found.answered(window) for window in ("before", "during", "after")] == [
        pytest.approx([0.001, 0.002]),
        pytest.approx([0.003]),
        pytest.approx([0.004]),
    ]
    lost_before = Seen.of(seen((0, "-"), (10, 2), (20, 1), (30, 1), (40, 3), (50, 4)), 0.030)
    assert lost_before.lost == 0, "what was lost before the move is not its fault"


@pytest.mark.parametrize(
    ("output", "complaint"),
    [
        ("", "no beginning and end"),
        (seen((0, 1), (50, 1), name="begin"), "no beginning and end"),
        (seen((0, "-"), (900, 1)), "answered no packet before the migration"),
        (seen((0, 1), (900, "-")), "answered no packet after the migration"),
        (OUTPUT.replace("\n3 ", "\n4 ", 1), "no beginning and end"),
    ],
)
def test_what_the_peer_did_not_see_is_no_figure(output: str, complaint: str) -> None:
    with pytest.raises(BadOutput, match=complaint):
        figures(output)


def test_a_peer_that_is_too_slow_and_a_guest_that_writes_too_little_are_no_figure() -> None:
    with pytest.raises(BadOutput, match=r"sent 200 packets in a second of the 1000"):
        figures(OUTPUT, rate=1000)
    workload = Migration(MigrationParameters(load=100))
    workload.check_load("99.500")
    for report in ("80.000", "", "nan"):
        with pytest.raises(BadOutput, match=r"of the 100 that were asked for; lower workloads\.migration\.load"):
            workload.check_load(report)
    assert Migration(MigrationParameters()).loading() is None


@given(st.text() | st.integers(0, len(OUTPUT)).map(lambda end: OUTPUT[:end]))
def test_damaged_output_is_refused_or_read(output: str) -> None:
    with contextlib.suppress(BadOutput):
        assert figures(output).keys() <= METRICS.keys()


class Scripted:
    """A QEMU that answers from a script, and what it was asked. The last answer of a list is given again and again."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {"query_status": {"status": "running"}, **answers}
        self.asked: list[str] = []
        self.arguments: dict[str, Any] = {}

    def execute(self, command: str, timeout: float = 10.0, **arguments: Any) -> Any:
        self.asked.append(command)
        self.arguments[command] = arguments
        answer = self.answers.get(command.replace("-", "_"), {})
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def moved(source: Scripted, destination: Scripted, how: Move = MOVE) -> Moved:
    ends: Any = (source, destination)
    return migrate(*ends, how)


def test_a_migration_by_qmp_waits_until_the_guest_runs_at_its_destination() -> None:
    source = Scripted(query_migrate=[{"status": "active", "ram": {}}, COMPLETED])
    there = Scripted(query_status=[{"status": "inmigrate"}, {"status": "running"}])
    assert moved(source, there) == BY_QEMU
    assert source.asked == [*SETTINGS, SETTINGS[1], "migrate", "query-migrate", "query-migrate"]
    assert there.asked == [*SETTINGS, "migrate-incoming", "query-status", "query-status"]


@pytest.mark.parametrize(
    ("mode", "wanted"), [(Mode.PRECOPY, set()), (Mode.MULTIFD, {"multifd"}), (Mode.POSTCOPY, {"postcopy-ram"})]
)
def test_both_ends_have_what_the_mode_takes_and_nothing_of_an_earlier_attempt(mode: Mode, wanted: set[str]) -> None:
    source, there = Scripted(query_migrate=COMPLETED), Scripted()
    moved(source, there, Move(MigrationSettings(mode=mode), 60.0, 2**20))
    for end in (source, there):
        states = {each["capability"]: each["state"] for each in end.arguments[SETTINGS[0]]["capabilities"]}
        assert {name for name, state in states.items() if state} == wanted and len(states) == 3
    assert source.arguments[SETTINGS[1]]["max_bandwidth"] == 2**20


def asked(**levels: str) -> tuple[dict[str, Any], dict[str, bool]]:
    """Parameters of the source, and capabilities of both ends, of a migration with these levels."""
    source, there = Scripted(query_migrate=COMPLETED), Scripted()
    chosen = {f"migration.{name}": level for name, level in levels.items()}
    moved(source, there, Move(MigrationSettings.of(chosen), 60.0))
    assert there.arguments[SETTINGS[1]] == {"multifd_compression": levels.get("compression", "none")}
    states = [
        {x["capability"]: x["state"] for x in end.arguments[SETTINGS[0]]["capabilities"]} for end in (source, there)
    ]
    assert states[0] == states[1], "QEMU refuses ends that differ"
    return source.arguments[SETTINGS[1]], states[0]


@pytest.mark.parametrize(
    ("level", "milliseconds"),
    [("300ms", 300), ("10ms", 10), ("1s", 1000), ("45ms", 45), ("1ms", 1), ("2000s", 2_000_000)],
)
def test_the_longest_last_pass_is_asked_for_in_milliseconds(level: str, milliseconds: int) -> None:
    assert asked(downtime_limit=level)[0]["downtime_limit"] == milliseconds


def test_what_compresses_and_what_slows_the_guest_down_is_set_at_both_ends() -> None:
    assert asked()[1] == {"multifd": False, "postcopy-ram": False, "auto-converge": False}
    assert asked(auto_converge="on")[1] == {"multifd": False, "postcopy-ram": False, "auto-converge": True}
    assert asked(mode="multifd", compression="zstd")[1]["multifd"]


@pytest.mark.parametrize(
    ("level", "load"), [("as-set", 7), ("idle", 0), ("20MiB", 20), ("1GiB", 1024), ("77MiB", 77), ("100000MiB", 10**5)]
)
def test_a_level_of_the_load_takes_the_place_of_the_parameter(level: str, load: int) -> None:
    workload = Migration(MigrationParameters(load=7), emulated=True)
    loaded = workload.loaded(MigrationSettings.of({"migration.load": level}).load)
    assert loaded.parameters.load == load and loaded.emulated
    assert (loaded.loading() is None) == (load == 0)


@pytest.mark.parametrize("level", ["0MiB", "100001MiB", "5", "-1MiB", "5KiB"])
def test_loads_that_no_guest_has_are_no_levels(level: str) -> None:
    assert not MigrationSettings.factors()["load"].takes(level)


@pytest.mark.parametrize("level", ["0ms", "2001s", "5", "300us"])
def test_limits_that_qemu_does_not_take_are_no_levels(level: str) -> None:
    assert not MigrationSettings.factors()["downtime_limit"].takes(level)


def test_postcopy_begins_after_one_pass_and_once() -> None:
    passes = [{"status": "active", "ram": {"dirty-sync-count": count}} for count in (1, 2, 2)]
    source = Scripted(query_migrate=[*passes, COMPLETED])
    moved(source, Scripted(), Move(POSTCOPY, 60.0))
    assert source.asked.count("migrate-start-postcopy") == 1
    assert source.asked.index("migrate-start-postcopy") == source.asked.index("query-migrate") + 2


def test_a_guest_falls_back_once_when_it_has_given_up_its_function() -> None:
    states = [{"status": status} for status in ("setup", "wait-unplug", "wait-unplug", "active", "active")]
    asked: list[int] = []
    source = Scripted(query_migrate=[*states, COMPLETED])
    moved(source, Scripted(), replace(MOVE, fell_back=lambda: asked.append(source.asked.count("query-migrate"))))
    assert asked == [4]
    moved(Scripted(query_migrate=COMPLETED), Scripted(), replace(MOVE, fell_back=lambda: asked.append(0)))
    assert asked == [4, 0], "it was too quick to be seen"
    failed = {"status": "failed", "error-desc": "refused"}
    with pytest.raises(QmpError, match="refused"):
        moved(Scripted(query_migrate=[states[1], failed]), Scripted(), replace(MOVE, fell_back=lambda: asked.append(1)))
    assert asked == [4, 0]


def test_a_guest_that_does_not_give_up_its_function_is_the_reason() -> None:
    source = Scripted(query_migrate=[{"status": "wait-unplug"}, {"status": "cancelled"}])
    with pytest.raises(QmpError, match="the guest did not give up its virtual function within 0 s"):
        moved(source, Scripted(), Move(MigrationSettings(), 0.0))


def test_qemus_own_reason_is_the_reason() -> None:
    broken = {"status": "failed", "error-desc": "Unable to write to socket: Broken pipe"}
    for state, reason in ((broken, "Broken pipe"), ({"status": "failed"}, "QEMU gives no reason")):
        with pytest.raises(QmpError, match=reason):
            moved(Scripted(query_migrate=state), Scripted())
    refused = Scripted(migrate_set_capabilities=QmpError("Postcopy is not supported"))
    with pytest.raises(QmpError, match="Postcopy is not supported"):
        moved(Scripted(), refused, Move(POSTCOPY, 60.0))


def test_a_migration_without_an_end_is_given_up() -> None:
    busy = {"status": "active", "ram": {"remaining": 3 * 10**8, "dirty-pages-rate": 50_000, "page-size": 4096}}
    source = Scripted(query_migrate=[busy, {"status": "cancelled"}])
    with pytest.raises(QmpError, match=r"no end within 0 s; 300 MB were left to send.* wrote to 205 MB/s of memory"):
        moved(source, Scripted(), Move(MigrationSettings(), 0.0))
    assert source.asked.count("migrate_cancel") == 1
    in_time = Scripted(query_migrate=[busy, COMPLETED])
    assert moved(in_time, Scripted(), Move(MigrationSettings(), 0.0)) == BY_QEMU, "it ended while it was given up"


SPEC = GuestSpec("vm", 1, 2**29, "tcg", Qemu(("qemu",), "10.0", ""), "k", "i", "r", incoming=AWAITED)


@dataclass
class Ended:
    """A QEMU's process, which has said something."""

    said: str = ""
    stopped: bool = False

    def wait(self, timeout: float) -> int:
        return 1

    def stop(self) -> None:
        self.stopped = True

    def stderr_tail(self) -> str:
        return self.said


def failed_move(answers: Mapping[str, Any], there: GuestSpec = SPEC, how: Move | None = None) -> tuple[str, Scripted]:
    """What is said of a move by a source that answers so, and the source."""
    broken = {"status": "failed", "error-desc": "Broken pipe"}
    source = Scripted(**{"query_migrate": broken, **answers})
    ended = Ended("warning: slow\nSize mismatch\nload failed\n")
    fakes: Any = [(Ended(), source), (ended, Scripted())]
    guests = [
        QemuGuest("host/vm", spec, (), process, qmp, cast("Any", None), {}, cast("Any", None), contextlib.ExitStack())
        for spec, (process, qmp) in zip((SPEC, there), fakes, strict=True)
    ]
    with pytest.raises(MoveFailed) as found:
        guests[0].move_to(guests[1], how or MOVE)
    assert ended.stopped and guests[0].qmp is fakes[0][1]
    return str(found.value), source


def test_a_guest_that_did_not_move_goes_on_where_it_was() -> None:
    said, source = failed_move({})
    assert said == (
        "host/vm was not migrated: Broken pipe; its destination says: Size mismatch; the guest runs on at the source"
    )
    assert "cont" not in source.asked
    said, source = failed_move({"query_status": {"status": "postmigrate"}})
    assert said.endswith("; the guest goes on at the source") and source.asked[-1] == "cont"


def test_a_guest_that_is_lost_in_a_postcopy_is_not_continued_at_the_source() -> None:
    said, source = failed_move({"query_migrate": {"status": "postcopy-paused"}})
    assert "the connection to its destination broke" in said
    assert "the guest is lost: during a postcopy" in said and "cont" not in source.asked


def test_a_guest_that_has_moved_by_postcopy_and_does_not_run_there_is_lost() -> None:
    moved = {"query_migrate": {"status": "completed"}}
    said, source = failed_move(moved, how=Move(POSTCOPY, 60.0))
    assert said.endswith("the guest is lost: during a postcopy its newest memory is at the destination")
    assert "cont" not in source.asked
    said, source = failed_move({**moved, "query_status": {"status": "postmigrate"}})
    assert said.endswith("the guest goes on at the source") and source.asked[-1] == "cont"


def test_a_postcopy_that_takes_too_long_is_not_cancelled_once_the_guest_is_on_both_sides() -> None:
    said, source = failed_move(
        {"query_migrate": {"status": "active", "ram": {"dirty-sync-count": 2}}}, how=Move(POSTCOPY, 0.1)
    )
    assert "no end within 0 s" in said and "the guest is lost: during a postcopy" in said
    assert "migrate_cancel" not in source.asked and "cont" not in source.asked


def test_a_destination_that_differs_in_what_qemu_does_not_notice_is_refused() -> None:
    said, source = failed_move({}, replace(SPEC, vcpus=2, settings=replace(SPEC.settings, model="Nehalem")))
    assert "its destination has another number of CPUs: 2, not 1, another CPU model: Nehalem, not host; the" in said
    assert source.asked == []


def test_a_figure_that_qemu_does_not_give_is_an_error() -> None:
    for missing in ("total-time", "downtime", "ram"):
        with pytest.raises(QmpError, match=f"query-migrate has no '{missing}'"):
            by_qemu.parse({key: value for key, value in COMPLETED.items() if key != missing})


@dataclass
class Ends:
    """A guest and its peer: all that an activity asks of them."""

    failure: Exception | None = None
    path: str = "host/vm"
    machine: FakeMachine = field(default_factory=lambda: FakeMachine("host/vm", {}))
    stdin: BytesIO = field(default_factory=BytesIO)
    stopped: bool = False

    @property
    def console(self) -> Any:
        class Console:
            @staticmethod
            def text() -> str:
                return "login:"

        return Console

    def move_to(self, destination: object, how: Move, arrived: Callable[[], None]) -> Moved:
        if self.failure:
            raise self.failure
        arrived()
        return BY_QEMU

    def stop(self) -> None:
        self.stopped = True


class Counting:
    """A meter that says how often it looked."""

    name, at, command = "counting", "host", ()
    looks = 0

    def before(self, machine: object) -> None:
        self.looks += 1

    def after(self, machine: object, works: Sequence[object]) -> Readings:
        return Readings({"looks": self.looks + len(works)})


class Told(Handover):
    """What becomes of an address, as it is called."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def arrived(self, destination: object) -> None:
        self.calls.append("arrived")

    def regain(self, guest: object) -> None:
        self.calls.append("regain")

    def stayed(self, guest: object) -> None:
        self.calls.append("stayed")
        raise BootFailed("no function came back")


def performed(ends: Ends, monkeypatch: pytest.MonkeyPatch, handover: Handover | None = None) -> Sequence[Any]:
    monkeypatch.setattr(activity.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(activity, "_heard", lambda peer: OUTPUT)
    guest: Any = ends
    route = Route(MigrationSettings(), "10.77.0.3", lambda: guest, lambda argv: guest, handover or Handover())
    subject = RunningSubject(Site(ends.machine, "vm", 1, ()), guest, (route,))
    running = RunningTreatment((subject,), ends.machine, meters=(Counting(),))
    workload = Migration(MigrationParameters(rate=200))
    nothing = activity.Migrate().perform(TrialKey(1, 1, "vm"), running, None, print)
    assert nothing == (), "a plan without it keeps no trial"
    return activity.Migrate().perform(TrialKey(1, 1, "vm"), running, workload, print)


def test_a_move_is_a_trial_and_the_peer_hears_its_beginning_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = Ends()
    told = Told()
    (trial,) = performed(ends, monkeypatch, told)
    assert told.calls == ["arrived", "regain"]
    assert (trial.workload, trial.case, trial.status, trial.machine) == ("migration", "", "ok", "host/vm")
    assert ends.stdin.getvalue() == b"begin\nstop\n" and ends.stopped
    assert trial.raw.startswith("query-migrate: {'total_seconds': 0.607") and OUTPUT in trial.raw
    assert trial.readings == {"host/vm": {"counting.looks": 2}}


def test_a_move_that_failed_is_a_failed_trial_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = Ends(MoveFailed("host/vm was not migrated: Broken pipe; the guest runs on at the source"))
    told = Told()
    (trial,) = performed(ends, monkeypatch, told)
    assert told.calls == ["stayed"]
    assert (trial.status, trial.measurements) == ("failed", ())
    assert trial.error == "host/vm was not migrated: Broken pipe; the guest runs on at the source"
    assert ends.stdin.getvalue() == b"begin\n" and ends.stopped
