"""Rankings and effects: of numbers, and of an experiment's records. Their error rates shows `make prove`."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from tests.sample import sample_experiment
from tests.sample_storage import storage_experiment
from tests.unit.test_report import printed
from vmtax import stats
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.rankings import Ranking
from vmtax.report.render.formats import FORMATS
from vmtax.report.show import render


def logs(rounds: int, *means: float, sd: float = 0.01, seed: int = 5) -> np.ndarray:
    source = np.random.default_rng(seed)
    return source.normal(0, sd, (rounds, len(means))) + source.normal(0, 0.2, (rounds, 1)) + np.array(means)


@pytest.mark.parametrize("rounds", [6, 12, 40])
def test_the_slow_one_is_beaten_by_all_others(rounds: int) -> None:
    times = logs(rounds, 0.0, 0.2, 0.0, 0.0)
    found = stats.rank(times)
    assert (found.rounds, found.order[-1]) == (rounds, 1)
    assert sorted(found.top) == [0, 2, 3]
    assert found.beaten[:, 1].tolist() == [True, False, True, True] and found.beaten.sum() == 3
    assert found.relative[1] == pytest.approx(math.exp(0.2), abs=0.03)
    rates = stats.rank(-times, "higher")
    assert (rates.order, rates.top) == (found.order, found.top)
    assert rates.relative[1] == pytest.approx(math.exp(-0.2), abs=0.03)


def test_step_down_finds_more_than_one_step() -> None:
    """The slowest is so far away that the rest is told apart only once its claims are settled."""
    times = logs(8, 0.0, 0.03, 0.03, 0.9)
    found = stats.rank(times)
    assert found.beaten[:3, 3].all() and found.beaten[0].all() == found.beaten[0, 0]
    assert found.beaten[0, 1:].all() and not found.beaten[3].any() and not found.beaten[1, 2]


def test_a_stall_does_not_hide_the_slow_one() -> None:
    times = logs(12, 0.0, 0.0, 0.1, 0.0)
    times[3, 0] += 1.0
    times[7, 2] += 1.0
    found = stats.rank(times)
    assert found.beaten[:, 2].tolist() == [True, True, False, True] and found.beaten.sum() == 3


def test_below_the_fewest_rounds_nothing_is_claimed() -> None:
    assert not stats.rank(logs(5, 0.0, 5.0, 0.0)).beaten.any()
    assert stats.rank(logs(6, 0.0, 5.0, 0.0)).beaten.sum() == 2
    assert not stats.rank(logs(12, 0.0, 5.0, 0.0), alpha=1e-4).beaten.any(), "finer than the arrangements are many"


def test_equal_columns_and_one_round_claim_nothing() -> None:
    assert not stats.rank(np.zeros((8, 4))).beaten.any()
    assert not stats.rank(np.zeros((20, 4))).beaten.any()
    one = stats.rank(logs(1, 0.0, 5.0))
    assert one.top == (0, 1) and not one.beaten.any()


def test_a_missing_value_costs_the_others_nothing() -> None:
    times = logs(6, 0.0, 0.3, 0.0)
    times[2, 2] = np.nan
    found = stats.rank(times)
    assert found.rounds == 6 and found.beaten[0, 1] and not found.beaten[2, 1], "five rounds show nothing"
    with pytest.raises(ValueError, match="treatment 0 has no value in a round in which another has one"):
        stats.rank(np.array([[1.0, np.nan], [np.nan, 1.0]]))


def test_a_slow_round_without_one_treatment_does_not_move_its_place() -> None:
    times = logs(8, 0.0, 0.1, 0.2)
    times[3] += 5.0
    times[3, 0] = np.nan
    assert stats.rank(times).relative == pytest.approx(np.exp([0.0, 0.1, 0.2]), rel=0.03)


def test_missing_values_make_no_false_claims() -> None:
    random = np.random.default_rng(7)
    claims = 0
    for _ in range(300):
        times = random.normal(0, [0.01, 0.01, 0.05, 0.01, 0.01, 0.01], (8, 6))
        times[random.random(times.shape) < 0.15] = np.nan
        claims += stats.rank(times, flips=199).beaten.any()
    assert claims / 300 < 0.08, "nominally 5 %"
    with pytest.raises(ValueError, match="two treatments or more"):
        stats.rank(np.zeros((4, 1)))
    with pytest.raises(ValueError, match="alpha lies between 0 and 1"):
        stats.rank(times, alpha=2.0)
    with pytest.raises(ValueError, match="better is higher or lower, not 'high'"):
        stats.rank(times, "high")
    with pytest.raises(ValueError, match="finite logs"):
        stats.rank(np.array([[1.0, np.inf]]))


LEVELS = [
    {"cache": c, "fs": f, "bus": "virtio"} for c in ("none", "writeback", "writethrough") for f in ("ext4", "xfs")
]


def test_effects_of_factors_and_of_two_together() -> None:
    together = [0.1 if entry["cache"] == "writeback" and entry["fs"] == "xfs" else 0.0 for entry in LEVELS]
    alone = [{"none": 0.0, "writeback": 0.3, "writethrough": -0.5}[entry["cache"]] for entry in LEVELS]
    found = stats.factor_effects(LEVELS, logs(10, *(a + b for a, b in zip(alone, together, strict=True))))
    told = {(effect.factors, effect.levels): effect for effect in found}
    assert len(told) == 5, "two of cache, one of fs, two of both; bus has one level"
    through = told[("cache",), ("writethrough",)]
    assert through.low < math.exp(-0.5) < through.high and through.high - through.low < 0.02
    assert told[("cache",), ("writeback",)].ratio == pytest.approx(math.exp(0.35), abs=0.02), "over both file systems"
    both = told[("cache", "fs"), ("writeback", "xfs")]
    assert both.low < math.exp(0.1) < both.high and both.p < 0.001
    assert told[("cache", "fs"), ("writethrough", "xfs")].p > 0.01
    assert through.share > 0.9 > 0.05 > both.share > 0


STORAGE = [
    {"fs": fs, "format": f, "cache": c} for fs in "123" for f in "12" for c in "1234"
]  # as the plan of that name


@pytest.mark.variations
def test_of_nothing_at_all_a_table_of_effects_shows_something_in_one_of_twenty() -> None:
    tables = [stats.factor_effects(STORAGE, logs(7, *[0.0] * 24, seed=seed)) for seed in range(60)]
    by_level = sum(any(not effect.low <= 1 <= effect.high for effect in found) for found in tables)
    by_term = sum(any(effect.term_p <= stats.ALPHA for effect in found) for found in tables)
    assert by_level > 20 and by_term <= 6, "at 5 % more than 6 of 60 come of chance in 3 %; at 22 % nearly always"


def test_a_strong_effect_is_shown_among_many_factors() -> None:
    means = [0.03 if entry["cache"] == "4" else 0.0 for entry in STORAGE]
    for seed in range(10):
        found = stats.factor_effects(STORAGE, logs(7, *means, seed=seed))
        terms = {effect.factors: effect.term_p for effect in found}
        assert len(terms) == 6 and terms["cache",] < 0.001
        assert all(0 <= p <= 1 for p in terms.values())
        assert all(effect.term_p == terms[effect.factors] for effect in found), "all levels of a term at once"


def test_iterations_of_a_boot_are_one_cluster() -> None:
    """Pooled as if independent they would seem three times as sure."""
    source = np.random.default_rng(8)
    boots = source.normal(0, 0.02, (8, 6, 1)) + source.normal(0, 0.001, (8, 6, 20))
    clustered, reduced = (
        next(effect for effect in stats.factor_effects(LEVELS, values) if effect.factors == ("fs",))
        for values in (boots, boots.mean(axis=2))
    )
    assert clustered.high - clustered.low == pytest.approx(reduced.high - reduced.low, rel=0.15)


def test_of_effects_that_cannot_be_distinguished_one_stands_for_both() -> None:
    aliased = [{"a": "1", "b": "1"}, {"a": "2", "b": "2"}, {"a": "1", "b": "1"}]
    (found,) = stats.factor_effects(aliased, logs(5, 0.0, 0.1, 0.0))
    assert found.factors == ("a",) and found.low < math.exp(0.1) < found.high
    with pytest.raises(ValueError, match="to separate the effects of 1 levels"):
        stats.factor_effects(aliased[:2], logs(1, 0.0, 0.1))
    with pytest.raises(ValueError, match=r"shape \(rounds, 3, iterations\)"):
        stats.factor_effects(aliased, logs(5, 0.0))


def test_an_experiment_is_ranked_layer_by_layer() -> None:
    experiment = sample_experiment(rounds=8, treatments=12)
    found = Analysis(experiment).rankings
    assert {ranking.layer for ranking in found} == {"vm", "nested"}, "a single host is no ranking"
    assert found[0].metric.name == experiment.plan["primary"][0]
    for ranking in found:
        members = [treatment.name for treatment in experiment.treatments if treatment.layer == ranking.layer]
        assert sorted(standing.treatment for standing in ranking.standings) == sorted(members)
        first = ranking.standings[0]
        assert (first.overhead, first.top, first.tie, first.beaten_by) == (0.0, True, True, ())
        for standing in ranking.standings:
            assert standing.top == (not standing.beaten_by)
            if standing.tie and standing is not first:
                assert standing.low is not None and standing.high is not None
                assert -0.02 <= standing.low <= standing.high <= 0.02
    assert Analysis(experiment).factor_effects, "two factors differ"


def test_without_a_round_with_the_best_there_is_a_place_and_no_overhead() -> None:
    """As where most guests are lost: it reaches every report, and costs none of them."""
    experiment = sample_experiment(rounds=6, treatments=8)

    def first() -> Ranking:
        return next(ranking for ranking in Analysis(experiment).rankings if ranking.layer == "vm")

    best, other = (first().standings[place].treatment for place in (0, 3))
    halves = {best: (1, 2, 3), other: (4, 5, 6)}
    kept = tuple(t for t in experiment.trials if t.round in halves.get(t.treatment, (t.round,)))
    experiment = dataclasses.replace(experiment, trials=kept)
    assert first().standings[0].treatment == best
    lone = next(standing for standing in first().standings if standing.treatment == other)
    assert (lone.overhead, lone.low, lone.high, lone.tie, lone.top) == (None, None, None, False, True)
    for name, format in ((name, format) for name, format in FORMATS.items() if format.ranks):
        text = format.render(Analysis(experiment))
        told = b"no round with the best" in text.replace("\N{NO-BREAK SPACE}".encode(), b" ")
        assert told or name not in ("html", "markdown"), name
    assert "no round with the best" in printed(render(Analysis(experiment), full=True), 300)


def test_a_repeat_and_a_missing_round_stay_out_of_the_ranking() -> None:
    experiment = sample_experiment(rounds=8, treatments=8)
    last = experiment.treatments[-1]
    repeated = dataclasses.replace(last, repeats=experiment.treatments[1].name)
    with_repeat = dataclasses.replace(experiment, treatments=(*experiment.treatments[:-1], repeated))
    assert all(s.treatment != last.name for ranking in Analysis(with_repeat).rankings for s in ranking.standings)
    kept = tuple(trial for trial in experiment.trials if (trial.round, trial.treatment) != (3, last.name))
    found = [r for r in Analysis(dataclasses.replace(experiment, trials=kept)).rankings if r.layer == last.layer]
    assert {(ranking.rounds, ranking.incomplete) for ranking in found} == {(8, 1)}
    kept = tuple(trial for trial in experiment.trials if trial.treatment != last.name or trial.round == 3)
    found = [r for r in Analysis(dataclasses.replace(experiment, trials=kept)).rankings if r.layer == last.layer]
    assert {ranking.unranked for ranking in found} == {(last.name,)}
    assert all(s.treatment != last.name for ranking in found for s in ranking.standings)


@pytest.mark.parametrize("counts", [("1", "4"), ("1", "1", "1", "1", "1", "4", "4", "4", "4", "4", "4", "2")])
def test_rankings_are_among_configurations_with_the_same_number_of_guests(counts: tuple[str, ...]) -> None:
    """A sum over four guests is never set against one guest."""
    sample = storage_experiment(few=True)
    guests = [one for one in sample.treatments if one.layer == "vm" and one.repeats is None]
    counts = counts * (len(guests) // len(counts))
    levels = {one.name: {**one.levels, "guest.count": count} for one, count in zip(guests, counts, strict=True)}
    treatments = tuple(dataclasses.replace(one, levels=levels.get(one.name, one.levels)) for one in sample.treatments)
    rankings = Analysis(dataclasses.replace(sample, treatments=treatments)).rankings
    found = [one for one in rankings if one.layer == "vm"]
    expected = {count: {name for name in levels if levels[name]["guest.count"] == count} for count in counts}
    ranked = {(str(one.count), frozenset(standing.treatment for standing in one.standings)) for one in found}
    assert ranked == {(count, frozenset(names)) for count, names in expected.items() if len(names) >= 3}
