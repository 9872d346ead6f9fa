"""Doubts about clocks: a machine's against this host's, a tool's own time against its command's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.clocks import Clocked, World
from tests.fake_machine import FakeMachine, Reply
from tests.fake_testbed import SEVEN, Lab, bench
from vmtax.machine import MachineLost
from vmtax.meter import MeteredCommand, Readings, clock
from vmtax.meter.clock import Clock, own_time
from vmtax.meter.ledger import HostLedger
from vmtax.meter.moment import TICK_RATES, Moment, wall_clock_set
from vmtax.meter.pressure import Pressure

WORK = MeteredCommand("fio", ok=True, seconds=10.0)
COUNTED = "reader 7\n/proc/stat:cpu  0 0 0 0 0 0 0 0 0 0\n/proc/stat:cpu0 0 0 0 0 0 0 0 0 0 0\n"

Change = Callable[[World], None]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    made.patch(monkeypatch)
    return made


def measured(world: World, meanwhile: Change, path: str = "host/vm") -> Readings:
    """What the meter says of a trial."""
    meter, machine = Clock(), Clocked(world, path=path, bare=True)
    meter.before(machine)
    meanwhile(world)
    return meter.after(machine, [WORK])


def going(seconds: float = 10.0, speed: float = 1.0) -> Change:
    return lambda world: world.pass_by(seconds, speed=speed)


def stepped(by: float) -> Change:
    def change(world: World) -> None:
        world.pass_by(4)
        world.wall += by
        world.pass_by(6)

    return change


def asleep(seconds: float) -> Change:
    def change(world: World) -> None:
        world.pass_by(10)
        world.suspend(seconds)

    return change


def ours_asleep(seconds: float) -> Change:
    def change(world: World) -> None:
        world.pass_by(10)
        world.suspend_us(seconds)

    return change


@pytest.mark.parametrize(
    "meanwhile, void",
    [
        (going(), ""),
        (going(0.3), ""),
        (going(3600.0), ""),
        (going(speed=1.009), ""),
        (going(speed=0.991), ""),
        (going(speed=0.96), "counted 9.6 s where 10.0 s went by on the machine that runs vmtax, so rates would be 4 %"),
        (
            going(speed=1.04),
            "counted 10.4 s where 10.0 s went by on the machine that runs vmtax, so rates would be 4 %",
        ),
        (going(speed=0.0), "counted 0.0 s where 10.0 s went by on the machine that runs vmtax, so rates would be far"),
        (going(speed=-30.0), "so rates would be far too high"),  # it was rebooted
        (stepped(0.5), "the wall clock of host/vm (CLOCK_REALTIME) was set ahead by 0.50 s"),
        (stepped(-0.5), "the wall clock of host/vm (CLOCK_REALTIME) was set back by 0.50 s"),
        (stepped(30.0), "was set ahead by 30.00 s"),
        (stepped(-30.0), "was set back by 30.00 s"),
        (stepped(0.2), "was set ahead by 0.20 s"),
        (stepped(0.06), ""),  # of ten seconds, which matters as little as the clocks of tools differ
        (stepped(3600.0), "was set ahead by 3600.00 s"),  # a time zone taken for UTC
        (stepped(-1.7e9), "was set back by"),  # to 1970
        (stepped(0.01), ""),  # less than reading both clocks can tell
        (ours_asleep(0.5), "the machine that runs vmtax was suspended for 0.5 s"),
        (ours_asleep(30.0), "the machine that runs vmtax was suspended for 30.0 s"),
        (ours_asleep(0.05), ""),
    ],
)
def test_what_a_seats_clocks_do_meanwhile_voids_its_trial(world: World, meanwhile: Change, void: str) -> None:
    found = measured(world, meanwhile)
    assert void in found.void if void else found.void == ""


@pytest.mark.parametrize("by", [0.5, -0.5, 30.0, -30.0, 1e6, -1e6])
def test_a_hosts_busy_time_does_not_move_with_its_wall_clock(world: World, by: float) -> None:
    """The clock of the ledger was that of `date`: half a second on eight CPUs were four core-seconds of work."""
    busy = {}
    for name, change in (("none", going()), ("set", stepped(by))):
        meter, machine = HostLedger(), Clocked(world, COUNTED, "host")
        meter.before(machine)
        change(world)
        found = meter.after(machine, [WORK])
        assert found.void == ""
        busy[name] = found.rows["busy"]
    assert busy["set"] == pytest.approx(busy["none"], abs=0.0201)


@pytest.mark.parametrize("meter", [HostLedger, Pressure])
@pytest.mark.parametrize("path", ["host", "host/vm"])
@pytest.mark.parametrize("change, seconds", [(asleep, 0.5), (asleep, 30.0), (ours_asleep, 3.0)])
def test_a_suspend_of_a_host_voids_the_trial(
    world: World, meter: type[HostLedger | Pressure], path: str, change: Callable[[float], Change], seconds: float
) -> None:
    one, machine = meter(), Clocked(world, COUNTED, path)
    one.before(machine)
    change(seconds)(world)
    found = one.after(machine, [WORK])
    who = path if change is asleep else "the machine that runs vmtax"
    assert f"{who} was suspended for {seconds:.1f} s meanwhile" in found.void


@pytest.mark.parametrize("rate", [100, 250, 300, 1000])
@pytest.mark.parametrize("before", [0.0, 7.0, 9_000.0])
@pytest.mark.parametrize("seconds", [0.0, 2.0, 6.0, 60.0])
@pytest.mark.varied(10)
def test_the_rate_of_ticks_is_found_also_on_a_host_that_slept_before(
    world: World, rate: int, before: float, seconds: float
) -> None:
    """Missed only on a host that slept for most of its time, and by one that leaves just another kernel's rate."""
    world.rate = rate
    world.suspend(before)
    meter, machine = HostLedger(), Clocked(world, COUNTED, "host")
    meter.before(machine)
    asleep(seconds)(world)
    if before > world.worked and round(rate * 10 / (10 + seconds)) in TICK_RATES:
        return
    assert bool(meter.after(machine, [WORK]).void) == bool(seconds)


def test_without_ticks_or_digits_of_the_wall_clock_the_rest_is_still_compared(world: World) -> None:
    """A kernel without schedstat, and a busybox whose date knows no nanoseconds: whole seconds remain."""
    world.has_ticks = world.has_wall = False
    assert measured(world, going()).void == "" and measured(world, stepped(0.5)).void == ""
    assert "set ahead by 30.00 s" in measured(world, stepped(30.0)).void
    assert "set back by 2.00 s" in measured(world, stepped(-2.0)).void
    assert "4 % too high" in measured(world, going(speed=0.96)).void


@pytest.mark.parametrize(
    ("later", "told"), [(0, ""), (1, ""), (-1, ""), (2, "ahead by 2.00 s"), (-2, "back by 2.00 s")]
)
def test_whole_seconds_may_have_been_rounded_either_way(later: int, told: str) -> None:
    said = wall_clock_set("host/vm", Moment(10.0, booted=1_000), Moment(20.0, booted=1_000 + later))
    assert told in said and bool(said) == bool(told)


def test_a_slow_way_and_a_busy_machine_widen_what_counts_as_agreement(world: World) -> None:
    assert measured(world, going(speed=0.986)).void != ""
    world.trip = 0.2
    assert measured(world, going(speed=0.986)).void == "", "read somewhere within 0.2 s, twice"
    world.trip, world.late = 2.0, 1.5  # under load, `date` and the reading after it are far apart
    assert measured(world, going()).void == "" and measured(world, stepped(0.5)).void == ""
    assert measured(world, stepped(30.0)).void != ""


def test_this_hosts_own_wall_clock_is_watched_too(world: World) -> None:
    assert "the wall clock of host" in measured(world, stepped(2.0), "host").void


def test_one_reading_between_two_trials(world: World) -> None:
    machine, meter = Clocked(world, bare=True), Clock()
    for ok, change, void in ((True, going(), ""), (True, going(speed=0.9), "counted 9.0 s"), (False, stepped(9), "")):
        meter.before(machine)
        change(world)
        assert void in meter.after(machine, [replace(WORK, ok=ok)]).void
    assert len(machine.calls) == 3
    meter.before(machine)
    assert meter.after(machine, [WORK]).void == "", "what happened in a trial that failed is not the next one's"


def test_what_a_guests_cpus_did_is_read_with_its_clock(world: World) -> None:
    """user nice system idle iowait irq softirq steal guest guest_nice, in hundredths of a second."""
    said = "cpu  {} 0 0\ncpu0 {} 0 0\n"
    counts = ("10 0 10 900 0 0 5 100", "110 20 60 1400 10 3 45 350")
    rows = {}
    for path in ("host/vm", "host"):
        meter, machine = Clock(), Clocked(world, said.format(counts[0], counts[0]), path, bare=True)
        meter.before(machine)
        world.pass_by(10.0 - world.trip)
        machine.text = said.format(counts[1], counts[1])
        rows[path] = dict(meter.after(machine, [WORK]).rows)
    tasks = 4.9 - 0.03 - 0.4 - 2.5
    entries = {"user": tasks * 12 / 17, "kernel": tasks * 5 / 17, "hard_irq": 0.03, "soft_irq": 0.4, "steal": 2.5}
    sums = {"busy": 4.9, "seconds": 10.0, "error": 0.18, "steal_seconds": 2.5}
    assert rows["host/vm"] == pytest.approx(entries | sums | {"remainder": 0.0}, abs=1e-4)
    assert rows["host"] == {"steal_seconds": 2.5}, "a host's ledger is read by itself"


@pytest.mark.parametrize("answer", [Reply(code=1), "nonsense", MachineLost("host/vm: gone")])
def test_a_machine_that_does_not_tell_is_not_doubted(answer: Reply | str | Exception) -> None:
    machine = FakeMachine("host/vm", answers={clock.COMMAND: answer})
    meter = Clock()
    meter.before(machine)
    assert meter.after(machine, [WORK]) == Readings()


def test_a_tool_cannot_have_worked_for_longer_than_its_command() -> None:
    def told(own: float | None, seconds: float, *, emulated: bool = False) -> str:
        return "".join(own_time(MeteredCommand("fio", True, seconds, own, emulated)))

    assert told(10.0, 10.4) == "" and told(None, 10.0) == ""
    assert told(10.0, 10.0) == "" and told(10.09, 10.0) == "", "rounded"
    assert "fio counted 10.40 s for itself where its whole command took 10.00 s, so rates are 4 % too low" in told(
        10.4, 10
    )
    assert "fio accounts for 10.0 s of the 20.0 s" in told(10.0, 20.0)
    assert told(10.0, 20.0, emulated=True) == "", "a start-up under emulation"
    assert "the rest is more than its start takes" in told(10.0, 60.0, emulated=True)


def test_a_guest_whose_clock_runs_wild_has_no_trial(tmp_path: Path) -> None:
    lab = Lab(SEVEN, lambda number, name: bench(), tmp_path)
    lab.uptime = ["0.00 0.0\n", "60.00 0.0\n", "120.00 0.0\n"]
    found = lab.run()
    void = [trial for trial in found.trials if "clock of host/vm (/proc/uptime) counted 60.0 s" in (trial.error or "")]
    guests = [trial for trial in found.trials if trial.treatment != "host"]
    assert void == guests and {trial.treatment for trial in guests} == {"vm", "vm again"}
    assert all(trial.status == "failed" and trial.measurements == () for trial in void)
