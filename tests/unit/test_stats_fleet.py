"""Many hosts and many runs: the mean over hosts against statsmodels, odd hosts, groups, steps from run to run."""

from __future__ import annotations

import math
import statistics
import warnings

import numpy as np
import pytest
import scipy.stats

from vmtax import stats
from vmtax.stats import HostEstimate
from vmtax.stats.fleet import between_hosts


def fleet(
    hosts: int, between: float = 0.01, *, seed: int = 1, odd: int = 0, shift: float = 0.1, rounds: int = 10
) -> list[HostEstimate]:
    """Hosts with a deviation of 3 % a round; the first `odd` are shifted."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(0.04, between, hosts) + shift * (np.arange(hosts) < odd)
    drawn = rng.normal(centres[:, None], 0.03, (hosts, rounds))
    errors = drawn.std(axis=1, ddof=1) / math.sqrt(rounds)
    return [HostEstimate(float(m), float(e), rounds - 1) for m, e in zip(drawn.mean(axis=1), errors, strict=True)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("hosts", "between"), [(2, 0.02), (5, 0.0), (20, 0.01), (20, 0.05), (200, 0.02)])
@pytest.mark.varied(6)
def test_the_mean_over_hosts_is_that_of_statsmodels(hosts: int, between: float, seed: int) -> None:
    from statsmodels.stats.meta_analysis import combine_effects

    drawn = fleet(hosts, between, seed=seed)
    logs, variances = (np.array([getattr(one, name) for one in drawn]) for name in ("log", "error"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about degrees of freedom of single hosts
        theirs = combine_effects(logs, variances**2, method_re="iterated", use_t=True)
    found = stats.fleet_mean(drawn)
    assert found.hosts == hosts
    assert found.between**2 == pytest.approx(max(0.0, theirs.tau2), abs=1e-7)
    if found.between:
        assert found.mean == pytest.approx(theirs.mean_effect_re, rel=1e-4)
        error = theirs.sd_eff_w_re_hksj
        width = scipy.stats.t.ppf(0.975, hosts - 1) * error
        assert (found.high - found.low) / 2 == pytest.approx(width, rel=1e-3)


def wider(hosts: int, between: float, seed: int) -> float:
    """Width of the interval of the next host / that of the usual one, which takes the variance for known."""
    found = stats.fleet_mean(fleet(hosts, between, seed=seed))
    error = (found.high - found.low) / 2 / scipy.stats.t.ppf(0.975, hosts - 1)
    usual = scipy.stats.t.ppf(0.975, hosts - 2) * math.hypot(found.between, error)
    assert found.next_low is not None and found.next_high is not None
    assert found.next_low < found.low < found.high < found.next_high
    return (found.next_high - found.next_low) / 2 / usual


def test_the_next_host_may_lie_farther_away_if_little_is_known_of_how_far_apart_they_are() -> None:
    known = [wider(200, 0.05, seed) for seed in range(5)]
    assert min(known) > 0.97 and max(known) < 1.03
    assert statistics.median(wider(20, 0.005, seed) for seed in range(30)) > 1.05


def test_two_hosts_do_not_show_where_the_next_one_lies() -> None:
    found = stats.fleet_mean(fleet(2))
    assert (found.next_low, found.next_high) == (None, None)


@pytest.mark.parametrize(
    "hosts",
    [
        [HostEstimate(0.1, 0.0, 9), HostEstimate(0.2, 0.1, 9)],
        [HostEstimate(math.nan, 0.1, 9), HostEstimate(0.2, 0.1, 9)],
        [HostEstimate(0.1, 0.1, 0), HostEstimate(0.2, 0.1, 9)],
        [HostEstimate(0.1, 0.1, 9)],
        [],
    ],
)
def test_no_mean_of_impossible_hosts(hosts: list[HostEstimate]) -> None:
    with pytest.raises(ValueError, match="host"):
        stats.fleet_mean(hosts)


def test_equal_hosts_have_no_variance_of_their_own() -> None:
    assert between_hosts(np.array([0.1, 0.1, 0.1]), np.array([0.01, 0.02, 0.01])) == 0.0


@pytest.mark.parametrize("odd", [0, 1, 3, 5])
@pytest.mark.parametrize("seed", range(4))
def test_odd_hosts_do_not_hide_each_other(odd: int, seed: int) -> None:
    found = stats.odd_hosts(fleet(20, 0.002, seed=seed, odd=odd, shift=0.2))
    assert [one.is_odd for one in found] == [place < odd for place in range(20)]
    assert all(one.deviation > 0.1 for one in found[:odd])


@pytest.mark.parametrize(("hosts", "is_told"), [(5, False), (7, False), (8, True)])
def test_few_hosts_accuse_nobody(hosts: int, is_told: bool) -> None:
    found = stats.odd_hosts(fleet(hosts, 0.0, odd=1, shift=1.0))
    assert found[0].is_odd is is_told and not any(one.is_odd for one in found[1:])


def test_without_hosts_none_is_odd() -> None:
    assert stats.odd_hosts([]) == ()


def test_false_discoveries_are_limited_as_by_statsmodels() -> None:
    from statsmodels.stats.multitest import multipletests

    rng = np.random.default_rng(3)
    for _ in range(50):
        p_values = np.concatenate([rng.uniform(0, 1, 15), rng.uniform(0, 0.01, rng.integers(0, 6))])
        assert stats.discoveries(p_values, 0.05) == tuple(multipletests(p_values, 0.05, "fdr_bh")[0])
    assert stats.discoveries([], 0.05) == ()
    assert stats.discoveries([0.05, 0.05], 0.05) == (True, True)  # each alone is no discovery


def test_a_family_with_a_discovery_is_chosen_before_its_discoveries() -> None:
    clear, innocent = [1e-9] * 6, [0.02, *[0.5] * 5]
    pairs = stats.discoveries([*clear, *clear, *innocent * 2], 0.05)
    assert pairs[12], "an innocent one rides on the many claims about the others"
    claims = stats.family_discoveries([clear, clear, innocent, innocent], 0.05)
    assert claims == ((True,) * 6, (True,) * 6, (False,) * 6, (False,) * 6)
    p_values = [0.001, 0.2, 0.02, 0.9]
    assert stats.family_discoveries([[p] for p in p_values], 0.05) == tuple(
        (claim,) for claim in stats.discoveries(p_values, 0.05)
    )
    assert stats.family_discoveries([[], [1e-9]], 0.05) == ((), (True,)) and stats.family_discoveries([], 0.05) == ()


def test_hosts_that_differ_by_kernel_go_with_it() -> None:
    hosts = [*fleet(8, 0.002, seed=1), *fleet(8, 0.002, seed=2, odd=8)]
    kernels = ["6.1"] * 8 + ["6.12"] * 8
    found = stats.by_group(hosts, kernels)
    assert found is not None and found.p <= 0.001
    assert found.means["6.12"].mean - found.means["6.1"].mean == pytest.approx(0.1, abs=0.03)
    shuffled = stats.by_group(hosts, ["6.1", "6.12"] * 8)
    assert shuffled is not None and shuffled.p > 0.1


@pytest.mark.parametrize("labels", [["a"] * 6, ["a"] * 5 + ["b"], list("abcdef")])
def test_a_group_has_two_hosts_or_more(labels: list[str]) -> None:
    assert stats.by_group(fleet(6), labels) is None


def test_hosts_of_small_groups_are_left_out() -> None:
    found = stats.by_group(fleet(7), [*"aaabbb", "c"])
    assert found is not None and {name: mean.hosts for name, mean in found.means.items()} == {"a": 3, "b": 3}


# --- from run to run


def runs(*parts: tuple[int, float], seed: int = 1, sd: float = 0.005) -> np.ndarray:
    """Levels of runs: parts with a number of runs and a level."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(level, sd, count) for count, level in parts])


@pytest.mark.parametrize(
    ("parts", "places"),
    [
        (((12, 0.0),), []),
        (((6, 0.0), (6, 0.05)), [6]),
        (((6, 0.05), (6, 0.0)), [6]),
        (((10, 0.0), (10, 0.05), (10, 0.02)), [10, 20]),
        (((6, 0.0), (1, 0.1)), [6]),
        (((1, 0.1), (6, 0.0)), [1]),
        (((3, 0.0),), []),
        (((0, 0.0),), []),
    ],
)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.varied(6)
def test_steps_are_where_the_level_changes(parts: tuple[tuple[int, float], ...], places: list[int], seed: int) -> None:
    found = stats.steps(runs(*parts, seed=seed), alpha=0.01)
    assert [step.place for step in found] == places
    levels = [level for _, level in parts]
    for step, before, after in zip(found, levels, levels[1:], strict=False):
        assert step.shift == pytest.approx(after - before, abs=0.02) and step.p <= 0.01


def test_a_single_odd_run_is_no_step() -> None:
    assert stats.steps(runs((6, 0.0), (1, 0.1), (6, 0.0)), alpha=0.01) == ()


def test_the_largest_step_is_students_t_corrected_for_its_places() -> None:
    logs = runs((5, 0.0), (4, 0.008))
    found = stats.largest_step(logs)
    assert found is not None
    each = [scipy.stats.ttest_ind(logs[:place], logs[place:]).pvalue for place in range(1, len(logs))]
    assert found.place == 1 + int(np.argmin(each))
    assert found.p == pytest.approx(min(1.0, 8 * min(each)))


@pytest.mark.parametrize("logs", [[], [0.1], [0.1, 0.2, 0.3], [0.1] * 5])
def test_too_few_or_equal_runs_say_nothing(logs: list[float]) -> None:
    assert stats.largest_step(logs) is None and stats.most_change(logs) is None and stats.steps(logs) == ()


@pytest.mark.parametrize("logs", [[0.1, math.nan, 0.2, 0.3], [0.1, math.inf, 0.2, 0.3]])
def test_runs_without_a_level_are_refused(logs: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        stats.largest_step(logs)


def test_what_can_have_changed_is_more_than_what_did() -> None:
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(300):
        place, shift = int(rng.integers(1, 9)), float(rng.uniform(-0.01, 0.01))
        logs = rng.normal(0, 0.005, 9) + shift * (np.arange(9) >= place)
        most = stats.most_change(logs)
        assert most is not None
        covered += abs(shift) <= most
    assert covered >= 285


def test_a_trend_is_the_line_of_least_squares() -> None:
    times, logs = np.array([0.0, 7, 14, 21, 30]), np.array([0.0, 0.01, 0.012, 0.03, 0.028])
    theirs = scipy.stats.linregress(times, logs)
    found = stats.trend(times, logs)
    assert found is not None and found.slope == pytest.approx(theirs.slope)
    assert found.high - found.slope == pytest.approx(scipy.stats.t.ppf(0.975, 3) * theirs.stderr)
    assert stats.trend([1.0] * 5, logs) is None and stats.trend(times[:3], logs[:3]) is None
