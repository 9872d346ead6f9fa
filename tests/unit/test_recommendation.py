"""What is recommended, out of runs whose truth is planted."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sample import sample_experiment
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.requirements import Requirements
from vmtax.core.records import Boot, Experiment, Json, Measurement, Metric, Treatment, Trial
from vmtax.design.features import FEATURES, Feature
from vmtax.recommend import Advice, BadNeeds, parse_needs
from vmtax.recommend import advise as advise_on
from vmtax.recommend.pareto import Scale, pareto_set, scale

IOPS = Metric("disk.randwrite-4k-qd1.iops", "1/s", "higher")
CPU = Metric("disk.randwrite-4k-qd1.host_cpu_seconds", "s", "lower")
RAW = {"durable": "yes", "file": "yes", "thin": "no", "savevm": "no", "snapshots": "no"}
QCOW2 = {**RAW, "thin": "yes", "savevm": "yes", "snapshots": "yes"}


def advise(experiment: Experiment, needs: Sequence[str] = (), accept_loss: bool = False, **more: Any) -> Advice:
    return advise_on(Analysis(experiment, requirements=Requirements(tuple(needs), accept_loss)), **more)


def run(
    rates: Mapping[str, float],
    *,
    cpu: Mapping[str, float] | None = None,
    features: Mapping[str, Mapping[str, str]] | None = None,
    rounds: int = 12,
    noise: float = 0.002,
    emulated: bool = False,
) -> Experiment:
    """A run of guests that are called after their levels, "disk.cache=none disk.bus=virtio"."""
    source = random.Random(1)
    treatments = tuple(
        Treatment(name, "vm", dict(level.split("=") for level in name.split() if "=" in level)) for name in rates
    )
    trials: list[Trial] = []
    for number, (position, treatment) in product(range(1, rounds + 1), enumerate(treatments, 1)):
        values = [Measurement(IOPS, rates[treatment.name] * math.exp(source.gauss(0, noise)))]
        if cpu and treatment.name in cpu:
            values.append(Measurement(CPU, cpu[treatment.name] * math.exp(source.gauss(0, noise))))
        trials.append(
            Trial(number, position, treatment.name, "disk", "randwrite-4k-qd1", 1, "ok", 0.0, 1.0, tuple(values))
        )
    boots = tuple(
        Boot(1, name, "host/vm", "tcg" if emulated else "kvm", emulated, ("qemu",), 1.0, 1.0) for name in rates
    )
    facts: Json = {
        "host": {
            "disk": {
                "features": {
                    name: [Feature(feature, state, "tried", "so it said").to_json() for feature, state in found.items()]
                    for name, found in (features or {}).items()
                }
            }
        }
    }
    plan = {"primary": [IOPS.name], "same_within": 0.02, "rounds": {"min": 7, "max": 60}, "precision": 0.02}
    return replace(
        sample_experiment(rounds=1), plan=plan, facts=facts, treatments=treatments, boots=boots, trials=tuple(trials)
    )


FAST, SLOW, UNSAFE = "disk.format=raw", "disk.format=qcow2", "disk.cache=unsafe"
IDE = "disk.bus=ide"


def test_the_fastest_is_chosen_and_the_second_has_its_distance_and_what_speaks_for_it() -> None:
    found = advise(run({FAST: 10_000, SLOW: 9_600}, features={FAST: RAW, SLOW: QCOW2}))
    assert found.choice and found.choice.treatment == FAST
    assert found.runner_up and found.runner_up.treatment == SLOW
    assert found.runner_up_words.startswith("+4.19 % (3.") and "savevm" in found.runner_up_words
    assert [option.in_pareto_set for option in found.options] == [True, True], "one is faster, one can do more"
    assert "It is the fastest of 2 choices" in " ".join(found.reasons)
    assert found.export and any("--virtio0" in words for words in found.export.proxmox)
    assert found.reasons[-2:] == ("It gives up: savevm, snapshots, thin.", "Not tried: pause-on-full, migration.")


def test_what_is_needed_comes_before_speed() -> None:
    experiment = run({FAST: 10_000, SLOW: 5_000}, features={FAST: RAW, SLOW: QCOW2})
    found = advise(experiment, ["savevm", "durable"])
    assert found.choice and found.choice.treatment == SLOW and found.runner_up is None
    assert found.refused == ((FAST, "savevm: no (so it said)"),)
    assert "It meets what is needed: savevm, durable." in found.reasons
    nothing = advise(experiment, ["migration"])
    assert nothing.choice is None and nothing.refused[0] == (FAST, "migration: this run did not find out")
    assert any("ask for less with --needs" in note for note in nothing.notes)


AUTO, OFF = "cpu.mitigations=auto", "cpu.mitigations=off"
FREE, BOUND = "disk.page_cache=unbounded", "disk.page_cache=bounded"


def under(rates: Mapping[str, float], **factors: list[str]) -> Experiment:
    """A run of a plan that names these factors, of the CPU or else of the disk."""
    made = run(rates)
    named = {f"{'cpu' if name == 'mitigations' else 'disk'}.{name}": levels for name, levels in factors.items()}
    return replace(made, plan={**made.plan, "factors": named})


def test_a_guest_without_mitigations_is_not_chosen_however_fast() -> None:
    rates = {
        f"{FAST} {AUTO}": 10_000.0,
        f"{SLOW} {AUTO}": 9_000.0,
        f"{FAST} {OFF}": 20_000.0,
        f"{SLOW} {OFF}": 19_000.0,
    }
    found = advise(under(rates, mitigations=["auto", "off"]))
    assert found.choice and found.choice.treatment == f"{FAST} {AUTO}"
    assert found.runner_up and found.runner_up.treatment == f"{SLOW} {AUTO}"
    assert [option.treatment for option in found.options] == [f"{FAST} {AUTO}", f"{SLOW} {AUTO}"]
    assert found.reasons[0] == found.why == "It is the fastest of 2 choices, by disk.randwrite-4k-qd1.iops."
    assert found.refusals() == (
        ("measured under another condition than cpu.mitigations=auto", (f"{FAST} {OFF}", f"{SLOW} {OFF}")),
    )
    (note,) = [note for note in found.notes if "mitigations" in note]
    assert note.startswith(f"Only guests with {AUTO} were considered, not the 2 at other levels: that is a condition")


def test_several_conditions_are_one_note_and_the_cause_of_one_refusal() -> None:
    rates = {
        f"{disk} {cpu} {cache}": 10_000.0 + 5_000 * (cpu == OFF) + 1_000 * (cache == BOUND) + 500 * (disk == FAST)
        for disk, cpu, cache in product((FAST, SLOW), (AUTO, OFF), (FREE, BOUND))
    }
    found = advise(under(rates, mitigations=["auto", "off"], page_cache=["unbounded", "bounded"]))
    assert found.choice and found.choice.treatment == f"{FAST} {AUTO} {FREE}" and len(found.options) == 2
    ((why, names),) = found.refusals()
    assert why.endswith(f"than {AUTO} and {FREE}") and len(names) == 6
    assert found.notes[0].startswith(f"Only guests with {AUTO} and {FREE} were considered, not the 6 at other levels")


@pytest.mark.parametrize(
    ("first", "levels", "told"),
    [
        ("off", ["off", "auto"], f"{OFF} (the default is auto) were considered, not the 2 at other levels:"),
        ("auto", [], f"{AUTO} were considered, not the 2 at other levels:"),
    ],
)
def test_the_plans_first_level_is_the_condition_or_else_the_default(first: str, levels: list[str], told: str) -> None:
    """Only entries of a hand-made list name it where the plan's factors do not: none of them is the baseline."""
    other = "auto" if first == "off" else "off"
    rates = {f"{disk} cpu.mitigations={level}": 9_000.0 for level in (other, first) for disk in (FAST, SLOW)}
    found = advise(under(rates, **({"mitigations": levels} if levels else {})))
    assert found.choice and found.choice.treatment.endswith(f"cpu.mitigations={first}")
    assert told in found.notes[0]


def test_where_no_guest_has_all_baselines_the_first_says_the_condition() -> None:
    found = advise(run({f"{FAST} {AUTO} {BOUND}": 9_000, f"{SLOW} {OFF} {FREE}": 10_000}))
    assert found.choice and found.choice.treatment == f"{FAST} {AUTO} {BOUND}"
    assert f"{BOUND} (the default is unbounded)" in found.notes[0]
    assert found.choice.unusual == (), "a condition is no setting that somebody must make"


def test_a_condition_that_all_share_is_reported_where_it_is_not_the_default_only() -> None:
    found = advise(under({f"{FAST} {OFF}": 10_000, f"{SLOW} {OFF}": 9_000}, mitigations=["off"]))
    assert found.refused == () and found.notes[0].startswith(f"Only guests with {OFF} (the default is auto) were con")
    usual = advise(run({f"{FAST} {AUTO}": 10_000, f"{SLOW} {AUTO}": 9_000}))
    assert usual.refused == () and "condition" not in " ".join(usual.notes)
    assert usual.notes == advise(run({FAST: 10_000, SLOW: 9_000})).notes
    entries = under({f"{FAST} {OFF}": 10_000, f"{SLOW} {OFF}": 9_000})
    entries.plan["combinations"] = [{"name": None, "levels": {"cpu.mitigations": ["off"]}}]
    assert advise(entries).notes[0].startswith(f"Only guests with {OFF} (the default is auto)")
    tap = advise(run({f"{FAST} net.path=tap": 10_000, f"{SLOW} net.path=tap": 9_000}))
    assert tap.notes == usual.notes, "nobody asked for that card, and a disk has none"


def test_a_feature_that_was_not_tried_does_not_count_as_there() -> None:
    experiment = run({FAST: 10_000, SLOW: 9_000}, features={FAST: {**RAW, "savevm": "not tried"}, SLOW: QCOW2})
    assert advise(experiment, ["savevm"]).refused == ((FAST, "savevm: not tried (so it said)"),)


@pytest.mark.parametrize("name", ["disk.cache=unsafe", "disk.volume=zvol zfs.sync=disabled"])
def test_what_loses_data_is_never_recommended_unless_that_is_accepted(name: str) -> None:
    experiment = run({name: 30_000, SLOW: 9_000})
    found = advise(experiment)
    assert found.choice and found.choice.treatment == SLOW
    assert found.refused[0][0] == name and "lost with the host's power" in found.refused[0][1]
    accepted = advise(experiment, accept_loss=True)
    assert accepted.choice and accepted.choice.treatment == name
    assert any("--accept-loss" in note for note in accepted.notes)
    assert advise(experiment, ["durable"], accept_loss=True).choice == found.choice


@pytest.mark.parametrize("name", ["disk.cache=mmap", "disk.bus=floppy", "disk.queues=many"])
def test_a_disk_of_another_version_is_refused_and_the_others_are_compared(name: str) -> None:
    found = advise(run({name: 30_000, FAST: 10_000, SLOW: 9_000}))
    assert found.choice and found.choice.treatment == FAST
    assert found.refused[0][0] == name and found.refused[0][1].startswith(f"{name} is none of its levels: ")
    assert [reason for _, reason in advise(run({name: 1}), ["durable"]).refused] == [
        f"{found.refused[0][1]}; durable: not tried ({found.refused[0][1]})"
    ]


def test_options_of_zfs_mean_nothing_where_there_is_none() -> None:
    found = advise(run({"disk.volume=plain zfs.sync=disabled": 30_000, SLOW: 9_000}))
    assert found.choice and found.choice.treatment == "disk.volume=plain zfs.sync=disabled"


def test_a_disk_that_the_host_keeps_in_memory_is_not_recommended_either() -> None:
    found = advise(run({FAST: 30_000, SLOW: 9_000}, features={FAST: {**RAW, "durable": "no"}, SLOW: QCOW2}))
    assert found.choice and found.choice.treatment == SLOW


def test_among_ties_features_decide_then_simplicity_and_it_is_said() -> None:
    raw, qcow2 = f"{FAST} {IDE}", f"{SLOW} {IDE}"
    found = advise(run({raw: 10_000, qcow2: 9_950}, features={raw: RAW, qcow2: QCOW2}))
    assert found.choice and found.choice.treatment == qcow2
    assert any(f"ties with the fastest, {raw}: within 2 %" in reason for reason in found.reasons)
    assert any(reason.startswith("Of these it has the most features") for reason in found.reasons)
    plain, odd = "disk.cache=writeback disk.bus=virtio", "disk.cache=writeback disk.bus=nvme"
    found = advise(run({odd: 10_000, plain: 9_950}))
    assert found.choice and found.choice.treatment == plain and found.choice.unusual == ("disk.cache=writeback",)
    assert any("the simplest" in reason for reason in found.reasons)


def test_the_default_is_chosen_unless_another_choice_is_shown_to_be_better() -> None:
    features = {FAST: RAW, SLOW: QCOW2}
    alike = advise(run({FAST: 9_950, SLOW: 10_000}, features=features))
    assert alike.choice and alike.choice.treatment == FAST and alike.choice.unusual == ()
    by = "by disk.randwrite-4k-qd1.iops"
    assert alike.why == f"It is the default: {by}, none of 2 choices is shown to be more than 2 % better."
    few = advise(run({FAST: 5_000, SLOW: 10_000}, features=features, rounds=3))
    assert few.choice and few.choice.treatment == FAST, "no interval after three rounds, so nothing is shown"
    better = advise(run({FAST: 5_000, SLOW: 10_000}, features=features, rounds=12))
    assert better.choice and better.choice.treatment == SLOW and "the fastest of 2 choices" in better.why
    cheaper = advise(run({FAST: 9_950, SLOW: 10_000}, cpu={FAST: 2e-5, SLOW: 1e-5}, features=features))
    assert cheaper.choice and cheaper.choice.treatment == SLOW, "it costs less of the host's CPU"


@pytest.mark.parametrize(
    ("rounds", "noise", "why"),
    [(3, 0.002, "for so few rounds there is no interval"), (12, 0.05, "its interval does not")],
)
def test_an_estimate_is_no_tie(rounds: int, noise: float, why: str) -> None:
    """What is chosen of those that are not distinguishable is as of ties; what is said of it is less."""
    first, second, third = f"{FAST} {IDE}", f"{SLOW} {IDE}", "disk.format=raw disk.bus=nvme"
    experiment = run(
        {first: 10_000, second: 10_000, third: 10_000},
        features={first: RAW, second: QCOW2, third: RAW},
        rounds=rounds,
        noise=noise,
    )
    plan = {**experiment.plan, "same_within": 0.04}
    found = advise(replace(experiment, plan=plan))
    fastest, *others = found.options
    assert fastest.tie and not any(option.tie for option in others)
    assert found.choice and found.choice.treatment == second and found.choice is not fastest
    text = " ".join(found.reasons)
    assert f"not distinguishable from the fastest, {fastest.treatment}: its estimate lies within 4 %, {why}." in text
    assert "the fastest is not distinguishable from" in text and "ties" not in text and "tied" not in text


@pytest.mark.parametrize(("rate", "chosen"), [(9_870, SLOW), (9_850, FAST), (9_830, FAST)])
def test_what_is_shown_to_be_worse_and_may_be_so_by_more_than_the_same_is_not_as_good(rate: int, chosen: str) -> None:
    """All are estimated at less than 2 % below the fastest, and have more features; the first interval is within."""
    raw, qcow2 = f"{FAST} {IDE}", f"{SLOW} {IDE}"
    found = advise(run({raw: 10_000, qcow2: rate}, features={raw: RAW, qcow2: QCOW2}, noise=0.008))
    slower = found.options[1].best
    assert slower.slower is not None and slower.slower < 0.02 and slower.slower_low and slower.slower_low > 0
    assert found.choice and found.choice.treatment == f"{chosen} {IDE}"
    assert found.options[1].tie == (chosen == SLOW)


def test_a_tie_that_costs_more_host_cpu_and_offers_nothing_for_it_is_not_chosen() -> None:
    plain, odd = "disk.cache=none disk.bus=virtio", "disk.cache=none disk.bus=nvme"
    found = advise(run({odd: 10_000, plain: 9_950}, cpu={odd: 1e-5, plain: 2e-5}))
    assert found.choice and found.choice.treatment == odd
    assert [option.treatment for option in found.options if option.in_pareto_set] == [odd]
    assert any(
        reason.startswith("Of these, some cost the host more CPU") and plain in reason for reason in found.reasons
    )
    slower = advise(run({plain: 10_000, odd: 9_950}, cpu={odd: 1e-5, plain: 2e-5}))
    assert slower.choice and slower.choice.treatment == odd, "also where it measured a little slower"
    assert found.runner_up_words.startswith("+0.54 % (") and "2.00× (1.99–2.00) host CPU" in found.runner_up_words


PLAIN, ODD = "disk.cache=none disk.bus=virtio", "disk.cache=none disk.bus=nvme"


@pytest.mark.parametrize(("dearer", "chosen"), [(1.01, PLAIN), (1.03, ODD)])
def test_host_cpu_decides_between_ties_only_by_more_than_counts_as_the_same(dearer: float, chosen: str) -> None:
    """Both differences are shown: 2 % count as the same, and then the simplest is chosen."""
    found = advise(run({ODD: 10_000, PLAIN: 9_990}, cpu={ODD: 1e-5, PLAIN: dearer * 1e-5}))
    other = next(option for option in found.options if option.treatment == PLAIN)
    assert other.best.dearer_low is not None and other.best.dearer_low > 0
    assert found.choice and found.choice.treatment == chosen


@pytest.mark.parametrize(
    ("of_odd", "chosen"),
    [
        ({**RAW, "savevm": "yes"}, ODD),
        ({**RAW, "savevm": "yes", "snapshots": "yes"}, ODD),
        ({**RAW, "snapshots": "yes"}, PLAIN),
        (RAW, PLAIN),
    ],
    ids=["the same", "all and more", "as many others", "fewer"],
)
def test_a_tie_that_costs_more_host_cpu_is_dropped_only_for_one_with_all_its_features(
    of_odd: Mapping[str, str], chosen: str
) -> None:
    features = {PLAIN: {**RAW, "savevm": "yes"}, ODD: of_odd}
    found = advise(run({ODD: 10_000, PLAIN: 9_990}, cpu={ODD: 1e-5, PLAIN: 2e-5}, features=features))
    assert found.choice and found.choice.treatment == chosen


def test_few_rounds_claim_nothing_and_say_so() -> None:
    found = advise(run({FAST: 10_000, SLOW: 9_000}, rounds=3))
    assert found.choice and found.choice.treatment == FAST
    assert any("add rounds" in note for note in found.notes)
    assert any("Not shown to be slower" in reason for reason in found.reasons)
    assert found.runner_up_words.startswith("+11 % time") and "(" not in found.runner_up_words


def test_an_emulated_run_shows_the_working_of_the_tool_only() -> None:
    experiment = run({FAST: 10_000, SLOW: 9_000}, emulated=True)
    assert any("shows how the recommendation works, not what to choose" in note for note in advise(experiment).notes)
    mixed = replace(experiment, boots=(experiment.boots[0], replace(experiment.boots[1], emulated=False)))
    assert any(note.startswith("Some of the choices ran emulated") for note in advise(mixed).notes)


def test_what_is_missing_is_said() -> None:
    experiment = run({FAST: 10_000, SLOW: 9_000, "disk.bus=ide": 8_000})
    found = advise(experiment)
    assert any("only durability is known" in note for note in found.notes)
    assert any("Host CPU per operation was not measured" in note for note in found.notes)
    lost = replace(experiment, trials=tuple(t for t in experiment.trials if t.treatment != SLOW))
    assert (SLOW, "complete results in only 0 of 12 rounds") in advise(lost).refused
    none = advise(replace(experiment, trials=()))
    assert none.choice is None and "was not measured in this run" in none.notes[0]
    host = replace(experiment, treatments=tuple(replace(t, layer="host") for t in experiment.treatments))
    assert "there is no guest" in advise(host).notes[0]
    apart = replace(experiment, trials=tuple(t for t in experiment.trials if (t.treatment == SLOW) == (t.round > 6)))
    (refused,) = advise(apart).refused
    assert refused == (SLOW, "no round has a result both of it and of any of the others")
    once = replace(experiment, trials=tuple(t for t in experiment.trials if t.treatment != SLOW or t.round == 2))
    assert advise(once).refused == ((SLOW, "complete results in only 1 of 12 rounds"),)
    assert not any("add rounds" in note for note in advise(once).notes), "the others are judged by all of theirs"


def test_what_shares_rounds_with_some_is_compared_with_those() -> None:
    """The fastest and the slowest met only the third, and no round has all."""
    steady = "disk.bus=ide"
    experiment = run({FAST: 10_000, SLOW: 9_000, steady: 9_500}, cpu={FAST: 1e-5, SLOW: 1e-5, steady: 1e-5})
    rounds = {FAST: range(1, 7), SLOW: range(7, 13), steady: range(1, 13)}
    gaps = replace(experiment, trials=tuple(t for t in experiment.trials if t.round in rounds[t.treatment]))
    found = advise(gaps)
    assert found.refused == () and [option.treatment for option in found.options] == [FAST, steady, SLOW]
    assert found.choice == found.options[0] and found.options[1].best.slower == pytest.approx(0.05, abs=0.005)
    assert found.options[2].best.slower is None, "no round has both"
    apart = {FAST: range(1, 7), SLOW: range(7, 13), steady: range(7, 13)}
    two = advise(replace(experiment, trials=tuple(t for t in experiment.trials if t.round in apart[t.treatment])))
    assert [name for name, _ in two.refused] == [FAST], "of what is apart the larger part stays"


def test_speed_may_be_a_score_that_no_trial_reported() -> None:
    score = Metric("score.both", "1", "higher")
    numbers = {(score, FAST): dict.fromkeys(range(1, 9), 1.0), (score, SLOW): dict.fromkeys(range(1, 9), 3.0)}
    experiment = run({FAST: 10_000, SLOW: 9_000}, cpu={FAST: 1e-5, SLOW: 2e-5})
    found = advise(experiment, numbers=numbers, metric="score.both")
    assert found.choice and found.options[1].best.dearer, "host CPU is the trials' own"
    assert found.choice and found.choice.treatment == SLOW and found.by == "score.both"
    assert advise(run({FAST: 1.0}), metric="score.nothing").choice is None


def test_a_run_of_the_sample_is_advised() -> None:
    for treatments in (3, 12):
        experiment = sample_experiment(treatments=treatments, emulated=True)
        found = advise(experiment)
        assert found.choice and found.layer == "vm"


def test_needs_are_named_or_refused_with_what_was_meant() -> None:
    assert parse_needs(" durable, savevm,durable ,") == ("durable", "savevm")
    with pytest.raises(BadNeeds, match=r"unknown need 'durabel'; did you mean durable\? legal: durable, savevm"):
        parse_needs("durabel")


rows = st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1), st.sets(st.sampled_from(list(FEATURES)))), min_size=1)


@given(rows)
def test_somebody_is_always_in_the_pareto_set_and_everybody_else_is_matched(
    choices: list[tuple[float, float, set[str]]],
) -> None:
    names = [str(number) for number in range(len(choices))]

    def exact(values: list[float]) -> Scale:
        order = sorted(range(len(values)), key=values.__getitem__)
        beaten = {(names[i], names[j]) for i in order for j in order if values[i] < values[j]}
        place = dict(zip(names, values, strict=True))
        return Scale({}, tuple(names[i] for i in order), place, frozenset(beaten), 9, 0.05)

    scales = [exact([choice[0] for choice in choices]), exact([choice[1] for choice in choices])]
    features = {name: frozenset(choice[2]) for name, choice in zip(names, choices, strict=True)}
    kept = pareto_set(scales, features, names, 0.0)
    assert kept
    for name in set(names) - set(kept):
        assert any(
            all(s.place[other] <= s.place[name] for s in scales) and features[other] >= features[name] for other in kept
        )


def test_a_measured_difference_that_is_not_shown_excludes_no_choice() -> None:
    costs = {"a": {1: 0.0, 2: 0.2, 3: 0.1}, "b": {1: 0.1, 2: 0.1, 3: 0.15}}
    found = scale(costs, 0.05)
    assert found and pareto_set([found], {"a": frozenset(), "b": frozenset()}, "ab", 0.02) == ("a", "b")
    features = {"a": frozenset({"file"}), "b": frozenset[str]()}
    assert pareto_set([found], features, "ab", 0.02) == ("a",), "but more features for the same figures do"
    assert scale({}, 0.05) is None and scale({"a": {1: 0.0}, "b": {2: 0.0}}, 0.05) is None
