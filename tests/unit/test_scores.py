"""Scores of a whole disk: the article's by hand, and what must hold of any numbers; mixes, and how firm a winner is."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sample import sample_experiment
from vmtax import stats
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.scores import READ, WRITE, Score, Scores
from vmtax.analysis.weight_profiles import OWN, PROFILES, BadWeights, Weight, WeightProfile, asked
from vmtax.core.records import Experiment, Measurement, Metric, Treatment, Trial
from vmtax.workload.fio import PATTERNS

UNITS = {
    "iops": ("1/s", "higher"),
    "rewrite_iops": ("1/s", "higher"),
    "bytes_per_second": ("B/s", "higher"),
    "p99_seconds": ("s", "lower"),
}
Values = Mapping[str, Sequence[float | None]]  # metric -> a value for each round


def measured(table: Mapping[str, Values], **more: Any) -> Experiment:
    """Treatment name -> its values; the layer is the name's first word, None a trial that failed."""
    trials = []
    for treatment, metrics in table.items():
        for case in dict.fromkeys(name.split(".")[1] for name in metrics):
            own = {name: values for name, values in metrics.items() if name.split(".")[1] == case}
            for number, row in enumerate(zip_longest(*own.values()), start=1):
                found = tuple(
                    Measurement(Metric(name, *UNITS[name.rpartition(".")[2]]), value)
                    for name, value in zip(own, row, strict=True)
                    if value is not None
                )
                status = "ok" if found else "failed"
                trials.append(Trial(number, 1, treatment, "disk", case, 1, status, 0.0, 1.0, found))
    treatments = tuple(Treatment(name, name.split()[0], {}) for name in table)
    return dataclasses.replace(
        sample_experiment(rounds=1), treatments=treatments, trials=tuple(trials), boots=(), **more
    )


def disk(small_read: Any, read: Any, small_write: Any, write: Any, rounds: int = 6) -> Values:
    """The article's four figures, the same in every round where they are single numbers."""
    figures = zip((*READ, *WRITE), (small_read, read, small_write, write), strict=True)
    return {metric: value if isinstance(value, list) else [value] * rounds for metric, value in figures}


def scores(experiment: Experiment, profile: WeightProfile | None = None) -> Scores:
    return Analysis(experiment, profile).scores


def found(experiment: Experiment, profile: WeightProfile | None = None) -> dict[str, Score]:
    """Of the one layer that can be ranked."""
    return {score.metric.name: score for score in scores(experiment, profile).found}


HAND = {  # reads: the host's factor is 50; writes: 20
    "host": disk(10, 500, 20, 400),
    "vm a": disk(6, 400, 10, 300),
    "vm b": disk(9, 300, 18, 100),
    "vm c": disk(4, 480, 5, 350),
}


def test_the_articles_score_by_hand() -> None:
    made = found(measured(HAND))
    by_hand = {  # (random * factor + sequential) / 2
        "score.read": {"host": 500, "vm a": 350, "vm b": 375, "vm c": 340},
        "score.write": {"host": 400, "vm a": 250, "vm b": 230, "vm c": 225},
        "score.both": {"host": 450, "vm a": 300, "vm b": 302.5, "vm c": 282.5},
        "score.read.geometric": {"host": 500, "vm a": math.sqrt(300 * 400), "vm b": math.sqrt(450 * 300)},
        "score.both.geometric": {"vm a": (300 * 400 * 200 * 300) ** 0.25, "vm b": (450 * 300 * 360 * 100) ** 0.25},
    }
    for name, values in by_hand.items():
        assert {key: made[name].values[key] for key in values} == pytest.approx(values), name
    assert len(made) == 6 and {score.metric.unit for score in made.values()} == {"B/s"}
    orders = {name: [s.treatment for s in score.ranking.standings] for name, score in made.items()}
    assert orders["score.both"] == ["vm b", "vm a", "vm c"]
    assert orders["score.both.geometric"] == ["vm a", "vm b", "vm c"], "the poor writes of b weigh more there"
    last = made["score.both"].ranking.standings[-1]
    assert last.overhead == pytest.approx(1 - 282.5 / 302.5) and last.beaten_by == ("vm b", "vm a")
    assert [name for name, score in made.items() if score.leads] == ["score.both"]
    assert all(score.is_article and score.outside == {"host"} for score in made.values())


def test_the_winner_by_other_weights_by_hand() -> None:
    firm = found(measured(HAND))["score.both"].stability
    assert firm is not None and (firm.winner, firm.corners, firm.draws) == ("vm b", 16, 500)
    scaled = {"vm a": (300, 400, 200, 300), "vm b": (450, 300, 360, 100), "vm c": (200, 480, 100, 350)}
    winners = [
        max(scaled, key=lambda name: sum(weight * value for weight, value in zip(weights, scaled[name], strict=True)))
        for weights in itertools.product((1, 4), repeat=4)
    ]
    assert set(winners) == {*scaled} and firm.corners_won == winners.count("vm b") / 16
    assert 0.3 < firm.draws_won < 0.8 and firm.draws_near >= firm.draws_won
    assert {name for name, _ in firm.others} == {"vm a", "vm c"}
    assert firm.draws_won + sum(share for _, share in firm.others) == pytest.approx(1)
    assert 0 < firm.behind < 1
    assert found(measured(HAND))["score.read"].stability is None


def test_a_winner_in_everything_wins_by_all_weights() -> None:
    firm = found(measured({**HAND, "vm b": disk(9, 490, 19, 390)}))["score.both"].stability
    assert firm is not None
    assert (firm.corners_won, firm.draws_won, firm.draws_near, firm.behind, firm.others) == (1.0, 1.0, 1.0, 0.0, ())


amounts = st.floats(1.0, 1e9)
figures = st.tuples(amounts, amounts, amounts, amounts)
tables = st.lists(st.tuples(figures, figures), min_size=4, max_size=5).map(
    lambda rows: {
        name: disk(*(list(pair) for pair in zip(*row, strict=True)), rounds=2)
        for name, row in zip(["host", "vm a", "vm b", "vm c", "vm d"], rows, strict=False)
    }
)


def values(experiment: Experiment) -> dict[tuple[str, str], float]:
    return {(name, treatment): value for name, s in found(experiment).items() for treatment, value in s.values.items()}


@given(tables)
def test_the_hosts_score_is_its_sequential_figure(table: dict[str, Values]) -> None:
    made = values(measured(table))
    for name, pair in (("read", READ), ("write", WRITE)):
        sequential = np.median(np.array(table["host"][pair[1]]))
        for suffix in ("", ".geometric"):
            # With two rounds the median is their mean, which is exact.
            assert made[f"score.{name}{suffix}", "host"] == pytest.approx(sequential, rel=1e-9)


@given(tables, st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_a_machine_that_wanders_leaves_the_shares_as_they_are(
    table: dict[str, Values], small: float, large: float
) -> None:
    """Of everybody's random figures by one factor, of the sequential ones by another: as in the same round."""

    def wandered(metric: str, column: Sequence[float | None]) -> list[float]:
        factor = small if metric in (READ[0], WRITE[0]) else large
        return [factor * value for value in column if value is not None]

    moved = {name: {m: wandered(m, column) for m, column in row.items()} for name, row in table.items()}
    before, after = values(measured(table)), values(measured(moved))
    assert after == pytest.approx({key: large * value for key, value in before.items()}, rel=1e-9)


@given(tables, st.randoms(use_true_random=False))
def test_the_order_of_treatments_changes_nothing(table: dict[str, Values], source: random.Random) -> None:
    names = list(table)
    source.shuffle(names)
    assert values(measured({name: table[name] for name in names})) == pytest.approx(values(measured(table)))


def test_the_yardstick_of_another_round_is_said() -> None:
    gaps = [500, None, 500, 500, None, 500]
    score = found(measured({**HAND, "host": disk(10, gaps, 20, 400)}))["score.both"]
    assert [part.yardstick and dataclasses.astuple(part.yardstick) for part in score.parts] == [
        ("host", True, 4, 2),
        None,
        ("host", True, 6, 0),
        None,
    ]
    assert score.values["vm a"] == pytest.approx(300) and score.ranking.rounds == 6


def test_without_a_host_the_first_treatment_is_the_yardstick() -> None:
    table = {name: row for name, row in HAND.items() if name != "host"}
    made = found(measured(table))
    part = made["score.read"].parts[0]
    assert part.yardstick is not None and (part.yardstick.treatment, part.yardstick.host) == ("vm a", False)
    assert made["score.read"].values["vm a"] == pytest.approx(400), "its own sequential figure"
    order = [standing.treatment for standing in made["score.both.geometric"].ranking.standings]
    assert order == ["vm a", "vm b", "vm c"], "of the geometric mean no yardstick changes the order"


def test_each_side_has_its_own_yardstick() -> None:
    """Of two hosts the own one, of two QEMUs the one host that both have."""
    twice = {name: {m: [2 * v for v in column if v] for m, column in row.items()} for name, row in HAND.items()}
    other = {f"{name} on ssh://b": row for name, row in twice.items()}
    both = measured({**HAND, **other})
    for hosts in (2, 1):
        treatments = tuple(
            dataclasses.replace(t, side="ssh://b" if "ssh" in t.name else "")
            for t in both.treatments
            if hosts == 2 or t.name != "host on ssh://b"
        )
        found = scores(dataclasses.replace(both, treatments=treatments)).found
        made = {score.ranking.side: score for score in found if score.metric.name == "score.both"}
        yards = {side: score.parts[0].yardstick for side, score in made.items()}
        assert {side: yard and (yard.treatment, yard.host) for side, yard in yards.items()} == {
            "": ("host", True),
            "ssh://b": ("host on ssh://b" if hosts == 2 else "host", True),
        }
        assert made["ssh://b"].values["vm a on ssh://b"] == pytest.approx(600), "the factor has no unit"


def test_what_is_not_there_is_said() -> None:
    reads = {name: {m: row[m] for m in READ} for name, row in HAND.items()}
    made = scores(measured({**reads, "vm d": {READ[0]: [5.0] * 6}}))
    assert [score.metric.name for score in made.found] == ["score.read", "score.read.geometric"]
    assert {score.unranked for score in made.found} == {("vm d",)}
    assert made.missing == (f"no score.write of vm: {WRITE[0]} and {WRITE[1]} not measured there",)
    assert scores(sample_experiment(rounds=2)) == scores(measured({})), "two layers of one treatment each: nothing"
    few = scores(measured({**HAND, "vm b": {}, "vm c": {}}), PROFILES["desktop"])
    assert not few.found and any(
        "needs 3 configurations that have all of it, each in a round with another" in text for text in few.missing
    )


def test_one_that_failed_nearly_always_takes_no_rounds_from_the_others() -> None:
    failed = [9, None, None, None, None, None]
    score = found(measured({**HAND, "vm d": disk(failed, failed, failed, failed)}))["score.both"]
    assert score.unranked == ("vm d",) and score.ranking.rounds == 6


def gaps(*rounds: int) -> Any:
    """The article's four figures in these of six rounds."""

    def row(*figures: float) -> Values:
        return disk(*([float(figure) if n in rounds else None for n in range(1, 7)] for figure in figures))

    return row


def test_without_a_round_that_all_have_nothing_is_said_of_other_weights() -> None:
    table = {
        "host": HAND["host"],
        "vm a": gaps(1, 2, 3)(6, 400, 10, 300),
        "vm b": gaps(3, 4, 5)(9, 300, 18, 100),
        "vm c": gaps(5, 6, 1)(4, 480, 5, 350),
    }
    weights = WeightProfile(OWN, "", (Weight(READ[0], 3), Weight(WRITE[0], 1)))
    made = scores(measured(table), weights)
    assert len(made.found) == 7 and all(score.stability is None for score in made.found)
    assert made.missing == (
        "no score.both of vm by other weights: no round has all of its configurations",
        "no score.weights of vm by other weights: no round has all of its configurations",
    )


# --- mixes


def test_the_built_in_mixes_are_measurable_and_reasoned() -> None:
    assert list(PROFILES) == ["database", "fileserver", "desktop", "build", "windows-guest"]
    for name, profile in PROFILES.items():
        assert profile.name == name and profile.describe
        metrics = [weight.metric for weight in profile.weights]
        assert len(set(metrics)) == len(metrics) > 3
        for weight in profile.weights:
            assert weight.weight > 0 and len(weight.reason) > 20, weight
            workload, _, measure = weight.metric.split(".")
            assert workload == "disk" and measure in UNITS, weight
        basic = sum(w.weight for w in profile.weights if w.metric.split(".")[1] in PATTERNS)
        assert basic > sum(w.weight for w in profile.weights) / 2, "with the main patterns alone it says something"


def test_a_mix_by_hand() -> None:
    name = "disk.x.p99_seconds"
    table = {
        "host": {READ[0]: [100.0] * 6, name: [0.010] * 6},
        "vm a": {READ[0]: [50.0] * 6, name: [0.005] * 6},  # half the rate, half the time
        "vm b": {READ[0]: [80.0] * 6, name: [0.020] * 6},
        "vm c": {READ[0]: [20.0] * 6, name: [0.020] * 6},
    }
    profile = WeightProfile(OWN, "", (Weight(READ[0], 3), Weight(name, 1), Weight("disk.y.iops", 4)))
    score = found(measured(table), profile)["score.weights"]
    expected = {"vm a": (0.5**3 * 2) ** 0.25, "vm b": (0.8**3 / 2) ** 0.25, "vm c": (0.2**3 / 2) ** 0.25}
    assert score.values == pytest.approx({**expected, "host": 1.0})
    assert [s.treatment for s in score.ranking.standings] == ["vm b", "vm a", "vm c"]
    assert (score.left_out, score.measured, score.mean) == (("disk.y.iops",), 0.5, "geometric")
    assert (score.kind, score.is_article, score.leads) == ("weights", False, True)
    firm = score.stability
    assert firm is not None and (firm.corners, firm.corners_won) == (4, 0.75), "a wins where 1.5 stands against 2"


def test_a_percentile_that_slow_boots_cannot_tell_is_left_out() -> None:
    """It would take the slow from the ranking, or rank them by their faster boots."""
    case = "disk.randread-4k-qd1"
    table = {
        name: {
            f"{case}.iops": [rate] * 6,
            f"{case}.p99_seconds": [p99] * 6,
            "disk.read-1m.bytes_per_second": [rate] * 6,
        }
        for name, rate, p99 in (("host", 9.0, 1.0), ("vm a", 6.0, 2.0), ("vm b", 5.0, 2.0), ("vm c", 1.0, 9.0))
    }
    table["vm d"] = table["vm a"]
    whole = found(measured(table), PROFILES["desktop"])["score.desktop"]
    assert whole.untold == () and whole.measured == 6 / 9 and len(whole.parts) == 3
    table["vm c"][f"{case}.p99_seconds"] = [9.0, None, 9.0, None, None, None]
    gaps = measured(table)
    told = dataclasses.replace(gaps, trials=tuple(t for t in gaps.trials if t.status == "ok"))
    score = found(told, PROFILES["desktop"])["score.desktop"]
    assert score.untold == (f"{case}.p99_seconds",) and score.measured == 5 / 9
    assert score.unranked == () and score.ranking.rounds == 6
    given = asked(told, "", f"{case}.p99_seconds=1,{case}.iops=1")
    assert found(told, given)["score.weights"].unranked == ("vm c",), "whoever asks for just this gets it"


def test_weights_that_were_given() -> None:
    experiment = measured(HAND)
    profile = asked(experiment, "", f" {READ[1]} = 3 , {WRITE[0]}=0.5,{READ[0]}=0,")
    assert profile is not None and [(w.metric, w.weight) for w in profile.weights] == [(READ[1], 3.0), (WRITE[0], 0.5)]
    assert asked(experiment, "", "") is None
    assert asked(experiment, "fileserver", "") is PROFILES["fileserver"]


@pytest.mark.parametrize(
    ("name", "weights", "words"),
    [
        ("databse", "", "--for: unknown mix 'databse'; did you mean database? legal: database, fileserver"),
        ("build", "disk.read-1m.bytes_per_second=1", "two answers to one question"),
        ("", "disk.read-1m.bytes_per_second", "is no METRIC=NUMBER"),
        ("", "=3", "is no METRIC=NUMBER"),
        ("", ",", "every weight is 0"),
        ("", "disk.read-1m.bytes_per_second=0", "every weight is 0, so nothing would count"),
        ("", "disk.read-1m.bytes_per_second=-1", "='-1' is no weight: a number from 0 to 1,000,000"),
        ("", "disk.read-1m.bytes_per_second=nan", "='nan' is no weight"),
        ("", "disk.read-1m.bytes_per_second=much", "='much' is no weight"),
        ("", "disk.read-1m.bytes_per_second=1e300", "is no weight"),
        ("", "disk.read-1m.bytes_per_second=1,disk.read-1m.bytes_per_second=2", "is given twice"),
        ("", "disk.read-1m.bytes_per_secnd=1", "unknown metric 'disk.read-1m.bytes_per_secnd'; did you mean disk.read"),
        ("", "zzz=1", "unknown metric 'zzz'; this run has disk.randread-4k-qd1.bytes_per_second, "),
        ("", "disk.read-1m.iops=1", "disk.read-1m.iops was not measured in run 2026"),
        ("", "boot.ready_seconds=1", "boot.ready_seconds was not measured in run 2026"),
        ("", "\x1b[2J=1", "unknown metric '\\x1b[2J'"),
    ],
)
def test_bad_weights_get_one_clear_line(name: str, weights: str, words: str) -> None:
    with pytest.raises(BadWeights) as caught:
        asked(measured(HAND), name, weights)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_mix_of_which_nothing_was_measured_is_refused() -> None:
    with pytest.raises(BadWeights, match=r"--for database: run 2026.* measured nothing of it; it weighs disk.rand"):
        asked(measured({"vm": {"disk.z.iops": [1.0]}}), "database", "")


# --- the numbers underneath


def test_sets_of_weights() -> None:
    weights = np.array([4.0, 1.0])
    assert stats.weight_corners(weights).tolist() == [[2, 0.5], [2, 2], [8, 0.5], [8, 2]]
    many = stats.weight_corners(np.ones(40))
    assert many.shape == (256, 40) and set(np.unique(many)) == {0.5, 2.0}
    drawn = stats.drawn_weights(weights, 4000)
    assert drawn.sum(axis=1) == pytest.approx(1) and drawn.mean(axis=0) == pytest.approx([0.8, 0.2], abs=0.01)
    assert (drawn == stats.drawn_weights(weights, 4000)).all(), "a fixed seed"


def test_places_are_those_of_the_ranking() -> None:
    parts = np.random.default_rng(3).normal(0, 1, (9, 5, 3))
    weights = np.array([[1.0, 2.0, 3.0], [3.0, 0.0, 0.0]])
    found = stats.weighted_places(parts, weights, "geometric")
    for row, share in zip(found, weights / weights.sum(axis=1, keepdims=True), strict=True):
        ranked = stats.rank(parts @ share, "higher")
        assert np.argsort(-row).tolist() == list(ranked.order)
        assert np.exp(row - row.max()) == pytest.approx(ranked.relative)
    assert stats.weighted(np.log([[[1.0, 3.0]]]), np.array([[0.5, 0.5]]), "arithmetic") == pytest.approx(math.log(2))
    assert stats.weighted(np.array([[[800.0, 800.0]]]), np.array([[0.5, 0.5]]), "arithmetic") == pytest.approx(800)
    assert stats.weighted_places(np.zeros((500, 3, 2)), weights[:, :2], "arithmetic").tolist() == [[0, 0, 0]] * 2
