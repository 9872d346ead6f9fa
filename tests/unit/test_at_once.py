"""Several guests at once: what they reach together, how evenly, and whether they worked at the same time."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sample import sample_experiment
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.at_once import AtOnce, Each, against_host, at_once, fairness, last_ready, scaling
from vmtax.core.records import Boot, Disturbance, Measurement, Metric, Treatment, Trial
from vmtax.design.topology import Worked, overlap
from vmtax.experiment.trial import _apart, _with_cpu
from vmtax.workload import BadOutput
from vmtax.workload.base import Counted
from vmtax.workload.idle import IdleParameters, IdleWorkload

RATE = Metric("disk.randwrite-4k-qd1.iops", "1/s", "higher")
DELAY = Metric("disk.randwrite-4k-qd1.mean_seconds", "s", "lower")
ONE = Treatment("vm guest.count=1", "vm", {"guest.count": "1", "disk.cache": "none"})
FOUR = Treatment("vm", "vm", {"guest.count": "4", "disk.cache": "none"})
rates = st.lists(st.floats(0, 1e9), min_size=1, max_size=8)


def trial(treatment: str, number: int, machine: str, rate: float, started: float = 0.0) -> Trial:
    measured = (Measurement(RATE, rate), Measurement(DELAY, 1 / rate))
    return Trial(number, 1, treatment, "disk", "randwrite-4k-qd1", 1, "ok", started, 10.0, measured, machine=machine)


@given(rates)
def test_fairness_is_between_one_machine_that_has_all_and_all_alike(values: list[float]) -> None:
    assert 1 / len(values) - 1e-9 <= fairness(values) <= 1 + 1e-9


@given(rates)
def test_fairness_does_not_depend_on_the_unit(values: list[float]) -> None:
    assert fairness([1000 * value for value in values]) == pytest.approx(fairness(values))


def test_fairness_of_known_shares() -> None:
    assert fairness([5.0, 5.0, 5.0, 5.0]) == 1
    assert fairness([1.0, 0.0, 0.0, 0.0]) == 0.25
    assert fairness([1.0, 3.0]) == pytest.approx(0.8)


def at_times(*times: tuple[float, float]) -> float:
    """The overlap of commands that count from their start to their end."""
    return overlap(Worked(start, start, end, end) for start, end in times)


def test_overlap_is_the_share_in_which_all_work() -> None:
    assert at_times((0, 10), (0, 10)) == 1
    assert at_times((0, 10), (1, 11)) == pytest.approx(9 / 10)
    assert at_times((0, 10), (20, 30)) == 0


def test_guests_need_not_be_idle_at_the_same_time() -> None:
    idle = asdict(IdleWorkload(IdleParameters()).counted("", "7.10 1.00\n17.11 9.00\n"))
    readings = {"host/vm": {"counted." + key: value for key, value in idle.items()}}
    slept = [replace(trial(FOUR.name, 1, "host/vm", 1.0), started=at, readings=readings) for at in (0.0, 2.0)]
    assert overlap(map(Worked.of, slept)) == 1


def test_only_what_counts_must_overlap() -> None:
    """Ten seconds count, after a start of 3 or 4 s; a second of the same work stands before and after them."""
    early, late = (
        replace(
            trial(FOUR.name, 1, name, 1.0),
            wall_seconds=seconds,
            readings={name: {"counted." + key: value for key, value in asdict(Counted(10.0, 1.0, 1.0, 0.5)).items()}},
        )
        for name, seconds in (("host/vm", 15.5), ("host/vm-2", 16.4))
    )
    assert Worked.of(early) == Worked(3.0, 4.0, 14.0, 15.0)
    assert overlap([Worked.of(early), Worked.of(late)]) == 1, "both leads cover 0.9 s"
    much_later = replace(late, wall_seconds=17.5)
    assert overlap([Worked.of(early), Worked.of(much_later)]) == pytest.approx(0.9)
    assert _apart([early, replace(late, wall_seconds=16.95)]) == ()
    (told,) = _apart([early, replace(late, wall_seconds=17.1)])
    assert told == "apart: 2 machines worked at the same time for 94 % of the time"
    assert _apart([early, replace(much_later, status="failed")]) == (), "it does not count anyway"


def test_four_guests_beside_one_of_their_kind() -> None:
    guests = [f"host/vm-{number}" for number in (1, 2, 3, 4)]
    trials = [
        trial(FOUR.name, number, guest, rate * (1 + number / 1000), started=0.1 * place)
        for number in (1, 2, 3)
        for place, (guest, rate) in enumerate(zip(guests, (10.0, 20.0, 30.0, 20.0), strict=True))
    ]
    trials += [trial(ONE.name, number, "host/vm", 40.0) for number in (1, 2, 3)]
    run = replace(sample_experiment(), treatments=(Treatment("host", "host"), FOUR, ONE), trials=tuple(trials))
    (figure,) = at_once(run, {})
    assert (figure.metric, figure.treatment) == (RATE, FOUR), "delays are not added up"
    assert figure.together == pytest.approx(80 * 1.002) and figure.alone == 40
    assert figure.share_of_ideal == pytest.approx(80 * 1.002 / 160)
    assert figure.each["host/vm-3"].value == pytest.approx(30 * 1.002)
    assert figure.fairness == pytest.approx(80**2 / (4 * 1800))
    assert figure.overlap == pytest.approx(9.7 / 10)


def test_guests_that_are_measured_again_for_the_noise_floor_are_no_figure_of_their_own() -> None:
    again = Treatment("vm again", "vm", FOUR.levels, repeats=FOUR.name)
    guests = [f"host/vm-{number}" for number in (1, 2, 3, 4)]
    trials = tuple(trial(one.name, 1, guest, 10.0) for one in (FOUR, again) for guest in guests)
    boots = tuple(
        Boot(1, one.name, guest, "kvm", False, ("qemu",), 2.0, 1.0) for one in (FOUR, again) for guest in guests
    )
    run = replace(sample_experiment(), treatments=(FOUR, again), trials=trials, boots=boots)
    assert [figure.treatment for figure in at_once(run, {})] == [FOUR]
    assert [one.treatment for one in last_ready(run)] == [FOUR]


def test_a_round_in_which_one_failed_does_not_count() -> None:
    """Three of four guests reach more each: their round is no round of four."""
    guests = [f"host/vm-{number}" for number in (1, 2, 3, 4)]
    trials = [trial(FOUR.name, 1, guest, 10.0) for guest in guests]
    trials += [trial(FOUR.name, 2, guest, 99.0) for guest in guests[:3]]
    trials.append(replace(trial(FOUR.name, 2, guests[3], 1.0), status="failed", measurements=()))
    (figure,) = at_once(replace(sample_experiment(), treatments=(FOUR,), trials=tuple(trials)), {})
    assert figure.together == 40 and figure.alone is None and figure.share_of_ideal is None


def test_the_total_of_all_has_the_worst_tail_and_what_is_known_of_each() -> None:
    each = {"host/vm": Each(10.0, 2e-3, 0.0, 0.5, None), "host/vm-2": Each(20.0, 5e-3, 0.25, None, None)}
    figure = AtOnce(FOUR, RATE, each, 31.0, None, None, 1.0, None)
    assert figure.total(False) == Each(31.0, 5e-3, 0.25, 0.5, None)
    assert [one.lacking(False) for one in each.values()] == [0.0, 0.25]
    assert [one.lacking(True) for one in each.values()] == [None, 0.25], "TCG has no clock for it"
    silent = replace(figure, each={"host/vm": each["host/vm"]})
    assert (silent.total(False).steal, silent.total(True).steal) == (0.0, None)


def test_an_idle_machine_costs_what_the_host_works_meanwhile() -> None:
    """Four guests sleep for ten seconds, while the host works for two: 0.05 s a second and guest."""
    idle = IdleWorkload(IdleParameters(seconds=10))
    busy = Disturbance(10.5, 2.1, 0.0, None, None, None, None, None)
    slept = Trial(1, 1, "vm", "idle", "", 1, "ok", 0.0, 10.5, raw="7.10 1.00\n17.11 9.00\n", disturbance=busy)
    (figure,) = {trial.measurements for trial in _with_cpu([slept] * 4, idle, "host", is_alone=False)}
    assert figure == (Measurement(idle.metrics()[0], pytest.approx(2.1 * 10.01 / 10.5 / 40.04)),)


@pytest.mark.parametrize(("used", "figure"), [(0.05, [0.05 / 10.5]), (0.0, [0.0]), (None, [])])
def test_a_watched_vm_may_take_less_than_a_tick_and_its_host_counts_nothing(
    used: float | None, figure: list[float]
) -> None:
    """Rounds with 0 count, or what is seldom more would seem to be so always; without a ledger, there is no figure."""
    busy = Disturbance(10.5, 2.1, 0.0, None, None, None, None, None)
    ledger = {} if used is None else {"host": {"ledger.guest": used, "ledger.other": 2.0, "ledger.seconds": 10.5}}
    slept = Trial(1, 1, "existing", "idle", "", 1, "ok", 0.0, 10.5, raw="7.10 1.00\n17.11 9.00\n", disturbance=busy)
    (trial,) = _with_cpu(
        [replace(slept, readings=ledger)], IdleWorkload(IdleParameters(seconds=10)), "host", is_alone=True
    )
    assert [each.value for each in trial.measurements] == pytest.approx(figure)


def test_the_cpu_time_of_a_byte_is_that_of_each_guest() -> None:
    """Half a CPU for 8 Gbit/s: four guests that do so at once pay as much for a byte as one."""
    rate, busy = Metric("net.tcp-in.bits_per_second", "bit/s", "higher"), Metric("net.tcp-in.local_cpu", "1", "lower")
    measured = (Measurement(rate, 8e9), Measurement(busy, 0.5))
    one = Trial(1, 1, FOUR.name, "net", "tcp-in", 1, "ok", 0.0, 5.0, measured)
    four = tuple(replace(one, machine=f"host/vm-{number}") for number in (1, 2, 3, 4))
    for trials in (four[:1], four):
        (derived,) = Analysis(replace(sample_experiment(), treatments=(FOUR,), trials=trials)).derived_trials
        assert [measurement.value for measurement in derived.measurements] == [pytest.approx(5e-10)]


def test_a_sleep_that_was_cut_short_is_no_result() -> None:
    idle = IdleWorkload(IdleParameters(seconds=10))
    assert idle.parse("", "7.10 1.00\n17.09 9.00\n\n") == ()
    for wrong in ("7.10 1.00\n9.10 1.50\n", "7.10 1.00\n", "7.10 1.00\n17.10 9.00\nTerminated\n"):
        with pytest.raises(BadOutput, match="two lines of /proc/uptime 10 s apart"):
            idle.parse("", wrong)


def test_a_run_with_one_guest_has_none() -> None:
    assert at_once(sample_experiment(), {}) == ()


def test_only_what_has_rounds_with_the_host_is_set_against_it() -> None:
    run = sample_experiment(rounds=2)
    compared = Analysis(run).comparisons
    found = against_host(compared, run.treatments)
    assert {(one.baseline, one.treatment) for one in found.values()} == {("host", "vm"), ("host", "nested")}
    assert against_host([replace(one, rounds=0) for one in compared], run.treatments) == {}


def test_only_configurations_that_differ_in_their_number_are_on_one_line() -> None:
    def of(treatment: Treatment, together: float) -> AtOnce:
        each = {
            f"host/vm-{number}": Each(1.0, None, None, None, None)
            for number in range(int(treatment.levels["guest.count"]))
        }
        return AtOnce(treatment, RATE, each, together, 10.0, 1.0, 1.0, None)

    two, four, other = (
        Treatment(f"vm {number}", "vm", {"guest.count": count, "disk.cache": cache})
        for number, (count, cache) in enumerate((("2", "none"), ("4", "none"), ("8", "unsafe")))
    )
    (line,) = scaling([of(four, 30.0), of(two, 18.0), of(other, 80.0)], {two.name})
    assert (line.layer, line.times, line.emulated) == ("vm", {1: 1.0, 2: 1.8, 4: 3.0}, True)
    assert scaling([replace(of(two, 18.0), alone=None)], ()) == [], "not known as multiples"
