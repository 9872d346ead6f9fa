"""Which treatments are compared, and what is said of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtax.analysis.comparisons import comparisons, contrasts, named_factors, overhead
from vmtax.core.layers import ABOVE
from vmtax.core.notices import Notice
from vmtax.core.records import Better, Boot, Comparison, Measurement, Metric, Status, Treatment, Trial
from vmtax.design.topology import unlike
from vmtax.plan.schema import load
from vmtax.plan.vary import varied

RATE = Metric("chess.nodes_per_second", "1/s", "higher")
TIME = Metric("build.seconds", "s", "lower")
LOST = Metric("net.udp-in.lost", "1", "lower")
NAMES = ("host", "vm", "nested")
PLAIN = tuple(Treatment(name, name) for name in NAMES)


def trial(
    treatment: str, number: int, *values: float, metric: Metric = RATE, status: Status = "ok", error: str | None = None
) -> Trial:
    return Trial(
        round=number,
        position=1,
        treatment=treatment,
        workload=metric.name.partition(".")[0],
        case="",
        iteration=1,
        status=status,
        started=0.0,
        wall_seconds=1.0,
        measurements=tuple(Measurement(metric, value) for value in values),
        error=error,
    )


def boot(treatment: str, number: int, emulated: bool = False, warnings: tuple[str, ...] = ()) -> Boot:
    return Boot(number, treatment, "host/vm", "tcg" if emulated else "kvm", emulated, (), 1.0, 0.5, warnings)


def run(treatment: str, values: Iterable[float], metric: Metric = RATE) -> list[Trial]:
    """One value a round; no two runs are the same to the last digit."""
    apart = 1e-9 if treatment == "vm" else 0.0
    return [
        trial(treatment, n, value * (1 + apart * n * (-1) ** n), metric=metric) for n, value in enumerate(values, 1)
    ]


def only(trials: Sequence[Trial], boots: Sequence[Boot] = (), alpha: float = 0.05) -> Comparison:
    """The one comparison, vm against host."""
    (found,) = comparisons(PLAIN[:2], trials, boots, alpha)
    assert (found.baseline, found.treatment) == ("host", "vm")
    return found


def test_what_a_host_is_held_at_is_compared_with_the_same_alone() -> None:
    governors = ("performance", "powersave")
    host, guest = (
        [Treatment(f"{layer} {level}", layer, {"cpu.governor": level}) for level in governors]
        for layer in ("host", "vm")
    )
    across = [pair for pair in contrasts([*host, *guest]) if pair[0].startswith("host") and pair[1].startswith("vm")]
    assert across == [("host performance", "vm performance"), ("host powersave", "vm powersave")]
    assert contrasts([host[0], guest[1]]) == ()


@pytest.mark.parametrize("layer", [each.name for each in ABOVE])
@pytest.mark.parametrize("plan", ["quick", "disk-cache"])
def test_every_layer_is_compared_with_its_host_as_plans_have_them(plan: str, layer: str) -> None:
    """A VM of the user's lacks factors of the host that the host's own layer has at their defaults."""
    made = load(plan).model_copy(update={"layers": ("host", layer)}).treatments()[0]
    assert ("host", next(each.name for each in made if each.layer == layer)) in contrasts(made)


def test_contrasts_pair_equal_levels_across_layers_and_first_levels_within() -> None:
    none, back = {"disk.cache": "none"}, {"disk.cache": "writeback"}
    treatments = (
        Treatment("host", "host"),
        Treatment("vm", "vm", none),
        Treatment("vm disk.cache=writeback", "vm", back),
        Treatment("nested", "nested", none),
    )
    assert contrasts(treatments) == (
        ("host", "vm"),
        ("host", "vm disk.cache=writeback"),
        ("vm", "nested"),
        ("host", "nested"),
        ("vm", "vm disk.cache=writeback"),
    )


def test_unlike_levels_are_not_compared_across_guests() -> None:
    treatments = (Treatment("vm", "vm", {"cpu": "host"}), Treatment("nested cpu=max", "nested", {"cpu": "max"}))
    assert contrasts(treatments) == ()


@pytest.mark.parametrize(
    ("better", "factor", "verdict"),
    [
        ("higher", 0.9, "worse"),
        ("higher", 1.1, "better"),
        ("lower", 0.9, "better"),
        ("lower", 1.1, "worse"),
        ("lower", 1.0, "no difference shown"),
    ],
)
def test_verdict_knows_which_direction_is_better(better: Better, factor: float, verdict: str) -> None:
    metric = Metric("m.value", "s", better)
    found = only(run("host", [10, 11, 12, 10, 8.5, 10], metric) + run("vm", [10 * factor] * 6, metric))
    wide = [10, 11, 12, 10, 9, 10]
    exact = only(run("host", wide, metric) + run("vm", [value * factor for value in wide], metric))
    assert found.verdict == "no difference shown"  # the same factor, drowned in noise
    assert (exact.verdict, exact.rounds, exact.warnings) == (verdict, 6, ())
    assert exact.ratio == pytest.approx(factor)
    assert exact.low == pytest.approx(factor) and exact.high == pytest.approx(factor)


def test_iterations_of_one_boot_are_one_value() -> None:
    trials = [trial("host", n, 100.0) for n in range(1, 7)]
    trials += [trial("vm", n, value) for n in range(1, 7) for value in (90.0, 90.0, 90.0, 90.0, 5.0)]
    found = only(trials)
    assert found.rounds == 6
    assert found.ratio == pytest.approx(0.9)


@pytest.mark.parametrize(("side", "warned"), [("ssh://b", True), ("/opt/qemu", False)])
def test_two_hosts_drift_each_by_itself_two_qemus_do_not(side: str, warned: bool) -> None:
    other = f"vm on {side}"
    treatments = (Treatment("vm", "vm"), Treatment(other, "vm", side=side))
    found = comparisons(treatments, run("vm", [1.0] * 7) + run(other, [2.0] * 7), ())
    assert ("two-hosts" in {notice.code for notice in found[0].notices}) == warned


@pytest.mark.parametrize(
    ("vary", "said"),
    [
        ("disk.volume=zvol,dataset", "disk.filesystem=as-is against none, too, which goes with disk.volume=dataset"),
        ("disk.volume=plain,dataset", ""),  # both have the same file system
        ("disk.format=raw,qcow2", ""),
    ],
)
def test_what_differs_with_a_level_is_said_beside_the_comparison(vary: str, said: str) -> None:
    plan = varied(load("disk-cache"), [vary, "disk.cache=none"])
    treatments = plan.treatments()[0]
    trials = [one for each in treatments for one in run(each.name, [1.0 + 0.1 * len(each.name)] * 7)]
    named = named_factors(plan.model_dump(mode="json"))
    (found,) = comparisons(treatments, trials, (), named=named)
    assert [notice.cause.partition("differs in ")[2] for notice in found.notices if notice.code == "two-factors"] == (
        [said] if said else []
    )
    assert "two-factors" not in {notice.code for notice in comparisons(treatments, trials, ())[0].notices}


def test_ratios_that_are_all_the_same_show_nothing() -> None:
    found = only([trial(name, n, value) for name, value in (("host", 2.0), ("vm", 1.0)) for n in range(1, 8)])
    assert (found.verdict, found.low, found.ratio) == ("no difference shown", None, 0.5)
    assert found.warnings[0].startswith("coarse: All 7 ratios are the same to the last digit")


def test_too_few_rounds_say_how_many_it_takes() -> None:
    found = only(run("host", [2.0] * 3) + run("vm", [1.0] * 3))
    assert (found.verdict, found.low, found.high) == ("too few rounds", None, None)
    assert found.ratio == pytest.approx(0.5)
    assert found.warnings == (
        "few-rounds: An interval needs 6 rounds or more, and 3 have a value on both sides. The figure has no interval"
        " and may be chance. Run more rounds, for example with --rounds 7.",
    )
    strict = only(run("host", [2.0] * 6) + run("vm", [1.0] * 6), alpha=0.01)
    assert strict.verdict == "too few rounds" and "needs 8 rounds or more, and 6 have" in strict.warnings[0]


def test_failed_and_refused_trials_do_not_count_and_are_named() -> None:
    trials = [t for t in run("host", [100.0] * 9) if t.round != 8] + [
        t for t in run("vm", [80.0] * 9) if t.round not in (2, 9)
    ]
    trials += [trial("vm", 2, 999.0, status="refused", error="faster than the device")]
    found = only(trials)
    assert (found.rounds, found.verdict) == (6, "worse")
    assert found.ratio == pytest.approx(0.8)
    # Round 9 is the last and nothing failed in it: it is still under way.
    assert found.notices == (
        Notice("missing-rounds", "host has no result in 1 round (8)", "", ("host",), (RATE.name,), (8,)),
        Notice("refused", "faster than the device", "", ("vm",), (RATE.name,), (2,)),
    )


def test_a_percentile_of_too_few_operations_is_no_failure() -> None:
    tail = Metric("disk.randread-4k-qd1.p99_seconds", "s", "lower")
    trials = [
        trial(name, number, value + number / (100 if name == "vm" else 90), metric=tail)
        for name, value in (("host", 1.0), ("vm", 2.0))
        for number in range(1, 9)
        if (name, number) != ("vm", 3)
    ]
    found = only(trials)
    assert found.rounds == 7
    (notice,) = found.notices
    assert (notice.code, notice.treatments, notice.metrics, notice.rounds) == (
        "few-operations",
        ("vm",),
        (tail.name,),
        (3,),
    )


def test_a_round_that_failed_on_both_sides_is_named_for_both() -> None:
    trials = [t for name in ("host", "vm") for t in run(name, [1.0] * 7) if t.round != 4]
    trials += [trial(name, 4, status="failed", error=f"{name} broke") for name in ("host", "vm")]
    said = [(notice.code, notice.cause, notice.treatments, notice.rounds) for notice in only(trials).notices]
    assert said == [("failed", "host broke", ("host",), (4,)), ("failed", "vm broke", ("vm",), (4,))]


def test_a_side_that_always_failed_is_shown_but_one_that_does_not_apply_is_not() -> None:
    failed = only([*run("host", [1.0] * 6), trial("vm", 1, status="failed", error="exit 137")])
    assert math.isnan(failed.ratio) and failed.rounds == 0 and failed.verdict == "too few rounds"
    assert any("exit 137" in warning for warning in failed.warnings)
    boot_time = Metric("boot.seconds", "s", "lower")
    both = run("vm", [1.0] * 6, boot_time) + run("nested", [2.0] * 6, boot_time) + run("host", [1.0] * 6)
    assert [(c.metric, c.baseline, c.treatment) for c in comparisons(PLAIN, both, ())] == [(boot_time, "vm", "nested")]


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_value_without_a_logarithm_is_left_out_with_a_warning(value: float) -> None:
    found = only(run("host", [1.0] * 7) + run("vm", [value, *[0.5] * 6]))
    assert (found.rounds, found.ratio) == (6, pytest.approx(0.5))
    (warning,) = found.warnings
    assert "vm has a value that is not above 0, and so no ratio, in 1 round (1)" in warning
    assert "larger or longer" in warning
    nothing = only(run("host", [value] * 7) + run("vm", [1.0] * 7))
    assert nothing.rounds == 0 and math.isnan(nothing.ratio)


@pytest.mark.parametrize("zeros", [7, 6, 1])
def test_a_loss_of_nothing_is_no_ratio_and_no_doubt(zeros: int) -> None:
    """Nor is the ratio of the other rounds, which were chosen by what they lost."""
    lost = [0.0] * zeros + [0.01] * (7 - zeros)
    both = run("host", lost, LOST) + run("vm", lost, LOST)
    assert comparisons(PLAIN[:2], [*both, *run("host", [1.0] * 7), *run("vm", [1.0] * 7)], ()) == (
        only(run("host", [1.0] * 7) + run("vm", [1.0] * 7)),
    )
    compared = only(run("host", [0.01] * 7, LOST) + run("vm", [0.02] * 7, LOST))
    assert (compared.verdict, compared.ratio) == ("worse", pytest.approx(2))


def test_emulation_and_second_attempts_are_said_beside_the_result() -> None:
    boots = [boot("vm", n, warnings=(f"booted at the second attempt: {n} s without an answer",)) for n in (1, 2)]
    boots += [boot("vm", n, emulated=n == 5) for n in range(3, 7)]
    found = only(run("host", [1.0] * 6) + run("vm", [1.0] * 6), boots)
    emulated, retried = found.warnings
    assert emulated.startswith("emulated: vm ran on an emulated CPU") and "/dev/kvm" in emulated
    assert retried.startswith("second-boot: vm booted at the second attempt in 2 of 6 rounds: 1 s without an answer.")


def test_overhead_is_lost_rate_or_added_time() -> None:
    """The published build: 436 s instead of 362 s is 17 % less throughput and 20.4 % more time."""
    as_time = only(run("host", [362.0] * 6, TIME) + run("vm", [436.0] * 6, TIME))
    as_rate = only(run("host", [1 / 362] * 6) + run("vm", [1 / 436] * 6))
    assert overhead(as_time) == pytest.approx((0.2044, 0.2044, 0.2044), abs=1e-4)
    assert overhead(as_rate) == pytest.approx((0.1697, 0.1697, 0.1697), abs=1e-4)
    assert overhead(only(run("host", [2.0]) + run("vm", [1.0]))) == (pytest.approx(0.5), None, None)


@given(
    st.lists(st.tuples(st.floats(0.01, 100), st.floats(0.01, 100)), min_size=6, max_size=12),
    st.sampled_from([RATE, TIME]),
)
def test_swapping_sides_inverts_the_comparison(rounds: list[tuple[float, float]], metric: Metric) -> None:
    first, second = ([pair[side] for pair in rounds] for side in (0, 1))
    there = only(run("host", first, metric) + run("vm", second, metric))
    back = only(run("host", second, metric) + run("vm", first, metric))
    assert there.low is not None and there.high is not None
    assert back.ratio == pytest.approx(1 / there.ratio)
    assert back.low == pytest.approx(1 / there.high)
    assert back.high == pytest.approx(1 / there.low)
    estimate, low, high = overhead(there)
    assert low is not None and high is not None and low <= estimate <= high
    scaled = only(run("host", [v * 1e6 for v in first], metric) + run("vm", [v * 1e6 for v in second], metric))
    assert scaled.ratio == pytest.approx(there.ratio)


def fastest(work: Callable[[], object]) -> float:
    """Seconds of CPU of the best of three: other programs on this machine must not decide."""
    best = math.inf
    for _ in range(3):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def test_ten_thousand_measurements_are_quick() -> None:
    metrics = [Metric(f"disk.case{n}.iops", "1/s", "higher") for n in range(40)]
    trials = [
        trial(name, number, 100.0 + number + iteration, metric=metric)
        for number in range(1, 21)
        for name in NAMES
        for metric in metrics
        for iteration in range(5)
    ]
    assert len(trials) > 10_000
    assert len(comparisons(PLAIN, trials, ())) == 3 * len(metrics)
    assert fastest(lambda: comparisons(PLAIN, trials, ())) < 0.5


def cached(name: str, host: float, vm: float, *, rounds: int = 7, memory: float | None = None) -> list[str]:
    """What is said of caches where host and vm have these figures."""
    metric = Metric(name, "B/s" if name.endswith("bytes_per_second") else "1/s", "higher")
    wobble = [1 + number / 100 for number in range(rounds)]
    trials = run("host", [host * w for w in wobble], metric) + run("vm", [vm * w for w in wobble], metric)
    if memory is not None:
        trials += run("host", [memory] * rounds, Metric("memory.stream.bytes_per_second", "B/s", "higher"))
    (found,) = comparisons(PLAIN[:2], trials, ())
    assert found.ratio == pytest.approx(vm / host), "no number is dropped"
    return [warning for warning in found.warnings if "cached: " in warning]


def test_a_disk_that_is_faster_through_one_more_layer_is_flagged_as_cached() -> None:
    assert cached("disk.read-1m.iops", 100.0, 90.0) == []
    assert cached("chess.nodes_per_second", 100.0, 200.0) == []
    (read,) = cached("disk.read-1m.iops", 100.0, 200.0)
    assert read.startswith("cached: vm is faster than host below it") and "disk.size" in read
    (write,) = cached("disk.write-1m.iops", 100.0, 200.0)
    assert write.startswith("cached: vm is faster") and "fsync shows durable writes" in write
    (flushed,) = cached("disk.randwrite-4k-fsync.iops", 100.0, 200.0)
    assert flushed.startswith("cached: vm is faster") and "disk.cache=unsafe" in flushed


def test_several_guests_are_never_compared_with_one_machine() -> None:
    """A published "32.04 %" set four nested guests against one VM; like for like it was 45.4 %."""
    one, four = {"guest.count": "1"}, {"guest.count": "4"}
    treatments = (
        Treatment("host", "host"),
        Treatment("vm", "vm", four),
        Treatment("vm guest.count=1", "vm", one),
        Treatment("nested", "nested"),
    )
    assert set(contrasts(treatments)) == {
        ("host", "vm guest.count=1"),
        ("vm guest.count=1", "nested"),
        ("host", "nested"),
    }
    assert "only configurations with the same number of guests" in (unlike(treatments) or "")
    assert unlike(treatments[2:]) is None and unlike(treatments[1:3]) is not None
    of_the_future = (Treatment("host", "host"), Treatment("vm", "vm", {"guest.count": "4096"}))
    assert contrasts(of_the_future) == ()


def test_too_few_rounds_make_a_faster_disk_perhaps_cached() -> None:
    (few,) = cached("disk.read-1m.iops", 100.0, 200.0, rounds=2)
    assert few.startswith("perhaps-cached: vm is faster than host below it, but no interval shows it")
    assert cached("disk.read-1m.iops", 100.0, 90.0, rounds=2) == []


def test_no_device_is_faster_than_memory() -> None:
    rate = "disk.read-1m.bytes_per_second"
    (vm,) = cached(rate, 30e9, 29e9, memory=20e9)
    assert vm.startswith(
        "cached: The disk of vm gives 29.9 GB/s, which is more than the host's memory moves (20.0 GB/s"
    )
    (host,) = cached(rate, 30e9, 1e9, memory=20e9)
    assert host.startswith("cached: The disk of host gives 30.9 GB/s")
    assert cached(rate, 19e9, 18e9, memory=20e9) == [] and cached(rate, 30e9, 29e9) == []
    (once,) = cached(rate, 30e9, 40e9, memory=20e9)
    assert "faster than host below it" in once, "one reason is enough"
