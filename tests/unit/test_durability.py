"""What survives a power cut: counts, what they show, and that nothing else takes them for figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sample_durability import (
    NONE,
    QCOW2,
    UNSAFE,
    durability_experiment,
    experiment,
    found,
    treatment,
    trial,
    with_trials,
)
from tests.sample_storage import storage_experiment
from tests.unit.test_report import printed
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.durability import NEEDED_STATES, Evidence, basis
from vmtax.analysis.losses import Count, percent
from vmtax.analysis.requirements import Requirements
from vmtax.analysis.summary import summary
from vmtax.core.errors import BadInput
from vmtax.core.records import Experiment, Measurement, Treatment, Trial
from vmtax.design import iterations
from vmtax.design.features import BY_TRIAL, DOCUMENTED, Feature
from vmtax.recommend import DISK, Advice, advise
from vmtax.report.render.markdown import render_markdown
from vmtax.report.show import render
from vmtax.workload.durability import (
    HOST_CUT,
    KILLED,
    LOST,
    POWER_CUT,
    REAL_CUT,
    STACK_CUT,
    STATES,
    WITHOUT_DISK,
    WITHOUT_DISK_LOST,
    Counts,
    Durability,
    DurabilityParameters,
    metric,
)

UNSYNCED = treatment(volume="zvol", filesystem="none", cache="none", sync="disabled")


def one(*trials: Trial, treatments: tuple[Treatment, ...] | None = None) -> Evidence:
    (evidence,) = found(*trials, treatments=treatments).evidence
    return evidence


# What the counts show.


def test_enough_states_without_a_loss_show_that_a_configuration_is_durable() -> None:
    shown = one(trial(NONE.name, 1, states=1000), trial(NONE.name, 2, states=1143))
    assert (shown.state, shown.feature.how) == ("yes", BY_TRIAL)
    assert shown.reason == "0 of 2,143 states of a power cut lost anything: at most 0.14 % at 95 %"
    assert shown.disagreement == ""


@pytest.mark.parametrize(("states", "state"), [(NEEDED_STATES - 1, "not shown"), (NEEDED_STATES, "yes")])
def test_it_takes_three_hundred_states(states: int, state: str) -> None:
    shown = one(trial(NONE.name, 1, states=states, control=9))
    assert shown.state == state
    assert ("300 states or more are needed" in shown.reason) == (state != "yes")


@pytest.mark.parametrize("end", [KILLED, HOST_CUT])
def test_one_loss_in_any_end_shows_that_it_is_not(end: str) -> None:
    """Of a killed guest too: what does not outlive its QEMU does not outlive the host's power."""
    shown = one(trial(NONE.name, 1), trial(NONE.name, 1, end, states=20, lost=1, losses={"sqlite-wal": (1, 0)}))
    assert shown.state == "no"
    assert "1 of 20" in shown.reason and "sqlite-wal" in shown.reason
    assert "documented as durable" in shown.disagreement


def test_a_liar_is_a_control_too() -> None:
    liar = "lying-append-fsync-4k"
    honest = trial(NONE.name, 1)
    more = tuple(Measurement(metric(POWER_CUT, measure, liar), 400) for measure in (STATES, LOST))
    shown = one(replace(honest, measurements=(*honest.measurements, *more)))
    assert shown.state == "yes" and "lying" not in shown.reason


def test_where_a_trial_failed_nothing_is_shown() -> None:
    failed = replace(trial(NONE.name, 2), status="failed", measurements=(), error="a state could not be looked at")
    shown = one(trial(NONE.name, 1), failed)
    assert shown.state == "not shown" and "1 trial of it failed" in shown.reason


def test_damage_is_a_loss_and_named() -> None:
    shown = one(trial(QCOW2.name, 1, lost=3, damaged=2, image=1))
    assert shown.state == "no"
    assert "2 file systems and 1 image damaged" in shown.reason


@pytest.mark.parametrize(
    "changes",
    [
        {"damaged": 1},
        {"image": 1},
        {"lost": 1},
        {"losses": {"sqlite-wal": (1, 0)}},
        {"losses": {"sqlite-wal": (0, 1)}},  # torn
    ],
)
def test_each_kind_of_loss_is_one_by_itself(changes: dict[str, Any]) -> None:
    shown = one(trial(NONE.name, 1, **changes))
    assert shown.state == "no" and shown.ends[0].count.lost == 1
    named = "of sqlite-wal" in shown.reason
    assert named == ("losses" in changes), "a writer that tore data is named like one that lost some"


@pytest.mark.parametrize("control", [0, None])
def test_without_a_control_that_lost_nothing_is_shown(control: int | None) -> None:
    survival = found(trial(NONE.name, 1, control=control))
    (shown,) = survival.evidence
    assert shown.state == "not shown" and "no loss would have been noticed" in shown.reason
    assert survival.blind == (shown,)
    lossy = found(trial(NONE.name, 1, lost=1, control=control))
    assert lossy.evidence[0].state == "no" and not lossy.blind, "a loss is a loss"


def test_a_killed_guest_alone_shows_nothing_of_power() -> None:
    shown = one(trial(NONE.name, 1, KILLED, states=2000))
    assert shown.state == "not shown" and shown.reason.startswith("no power cut was tried")


def test_rounds_are_added_up_and_what_failed_or_was_done_again_is_not() -> None:
    again = Treatment("vm again", "vm", NONE.levels, repeats=NONE.name)
    failed = replace(trial(NONE.name, 2), status="failed", measurements=(), error="the witness was lost")
    shown = one(
        trial(NONE.name, 1, states=100, lost=100),  # its machine was lost: the next is in its place
        trial(NONE.name, 1, states=200),
        failed,
        trial(again.name, 1, states=300),
        treatments=(NONE, again),
    )
    end = shown.modelled
    assert end is not None and (end.count, shown.failed) == (Count(500, 0), 1)
    assert {writer.states for writer in end.writers} == {180 + 270}


def test_a_run_without_a_result_of_a_trial_has_nothing_to_show() -> None:
    failed = replace(trial(NONE.name, 1), status="failed", measurements=(), error="no log")
    for run in (experiment(failed), storage_experiment(1, few=True)):
        assert Analysis(run).survival is None
    assert "No trial has a result. The first: no log." in printed(render(Analysis(experiment(failed))))


# Against documentation.


def test_what_documentation_calls_not_durable_must_lose_or_the_run_says_so() -> None:
    assert "none had to lose" in found(trial(NONE.name, 1)).proof
    lossy = found(trial(NONE.name, 1), trial(UNSAFE.name, 1, lost=9))
    assert lossy.shows_losses and lossy.proof.startswith("As documentation says, vm disk.cache=unsafe lost data")
    kept = found(trial(NONE.name, 1), trial(UNSAFE.name, 1))
    assert not kept.shows_losses and "had to lose data" in kept.proof


@pytest.mark.parametrize(("states", "doubted"), [(NEEDED_STATES - 1, False), (NEEDED_STATES, True)])
def test_what_had_to_lose_and_lost_nothing_in_enough_states_casts_doubt_on_the_others(
    states: int, doubted: bool
) -> None:
    durable, _ = found(trial(NONE.name, 1), trial(UNSAFE.name, 1, states=states)).evidence
    assert durable.state == ("not shown" if doubted else "yes")
    why = "; but vm disk.cache=unsafe lost nothing either, which had to lose data"
    assert durable.reason.endswith(why) is doubted


def test_a_trial_without_loss_does_not_outweigh_that_documentation_says_it_loses() -> None:
    shown = one(trial(UNSAFE.name, 1, states=5000))
    assert shown.state == "not shown" and (shown.feature.state, shown.feature.how) == ("no", DOCUMENTED)
    assert shown.disagreement.startswith("vm disk.cache=unsafe is documented as not durable")
    assert one(trial(UNSAFE.name, 1, states=200)).disagreement == "", "too few states to contradict anything"


def test_what_is_lost_below_the_image_does_not_show_in_a_modelled_power_cut() -> None:
    kept = found(trial(UNSYNCED.name, 1, states=5000), treatments=(UNSYNCED,))
    (shown,) = kept.evidence
    assert (shown.state, shown.disagreement) == ("not shown", "") and "below the image" in shown.reason
    assert "below the image" in kept.proof
    cut = one(trial(UNSYNCED.name, 1, HOST_CUT, states=3, lost=2), treatments=(UNSYNCED,))
    assert cut.state == "no" and cut.disagreement == ""


def test_what_is_lost_below_the_image_shows_in_states_of_the_hosts_disk() -> None:
    lost = found(trial(UNSYNCED.name, 1, STACK_CUT, states=40, lost=31), treatments=(UNSYNCED,))
    assert lost.evidence[0].state == "no" and "31 of 40 states of the host's disks lost data" in lost.evidence[0].reason
    assert lost.shows_losses and "As documentation says" in lost.proof
    kept = found(trial(UNSYNCED.name, 1, STACK_CUT, states=5000), treatments=(UNSYNCED,))
    assert kept.evidence[0].state == "not shown" and kept.disagreements, "these states would have shown the loss"
    assert "below the image" not in kept.proof


def test_states_of_the_hosts_disk_show_that_a_configuration_is_durable() -> None:
    shown = one(trial(NONE.name, 1, STACK_CUT, states=NEEDED_STATES), trial(NONE.name, 1, KILLED, states=1, control=1))
    assert shown.state == "yes" and shown.reason.startswith("0 of 300 states of the host's disks lost anything")
    blind = one(trial(NONE.name, 1, STACK_CUT, states=5000, control=0))
    assert blind.state == "not shown" and blind.proves_nothing


def test_real_power_cuts_show_every_loss_and_take_as_many_states_as_others_to_show_none() -> None:
    kept = one(trial(NONE.name, 1, REAL_CUT, states=6, control=6))
    assert (kept.state, kept.is_short) == ("not shown", True)
    assert kept.reason == "0 of 6 real power cuts lost anything: at most 40 % at 95 %; 300 states or more are needed"
    lost = found(trial(UNSYNCED.name, 1, REAL_CUT, states=6, lost=5), treatments=(UNSYNCED,))
    assert lost.evidence[0].state == "no" and lost.shows_losses
    assert one(trial(NONE.name, 1, REAL_CUT, states=NEEDED_STATES, control=9)).state == "yes"
    assert one(trial(NONE.name, 1, REAL_CUT, states=6, control=0)).proves_nothing
    unseen = found(trial(UNSYNCED.name, 1, REAL_CUT, states=6), treatments=(UNSYNCED,))
    assert "below the image" not in unseen.proof


def test_the_report_says_that_nothing_of_a_real_power_cut_is_modelled() -> None:
    run = experiment(
        trial(NONE.name, 1, REAL_CUT, states=6, control=6), trial(UNSAFE.name, 1, REAL_CUT, states=6, lost=5)
    )
    text = " ".join(render_markdown(Analysis(run)).split())
    assert "Nothing is modelled" in text and "States of a disk are rebuilt" not in text
    assert "0 of 6 ≤ 40 %" in text and "5 of 6" in text


def without_disk(one: Trial, states: int, lost: int) -> Trial:
    """The same, where one of several disks was gone in so many of its states."""
    end = one.case
    more = {metric(end, WITHOUT_DISK): states, metric(end, WITHOUT_DISK_LOST): lost}
    measured = tuple(Measurement(each, float(value)) for each, value in more.items())
    return replace(one, measurements=(*one.measurements, *measured))


def test_states_without_a_disk_are_among_the_others_and_counted_beside_them() -> None:
    kept = one(*(without_disk(trial(NONE.name, number, STACK_CUT, states=200), 100, 0) for number in (1, 2)))
    words = "0 of 400 states of the host's disks, 200 of which had one of the disks gone, lost anything: at most 0.75 %"
    assert kept.state == "yes" and kept.reason.startswith(words)
    run = experiment(without_disk(trial(NONE.name, 1, STACK_CUT, states=40, lost=31), 20, 18))
    lost = one(*run.trials)
    assert "31 of 40 states of the host's disks lost data (at least 64 % at 95 %, in 18 of 20 of those" in lost.reason
    (end,) = lost.ends
    assert end.without_disk == Count(20, 18)
    assert "RAIDZ1 is on several disks" in " ".join(render_markdown(Analysis(run)).split())


def test_states_without_a_disk_are_counted_where_they_are_found() -> None:
    counts, fine = Counts(), {"writers": {"append-fsync-4k": {"lost": 0, "torn": 0}}}
    counts.add(fine, {"append-fsync-4k": 3}, "")
    assert counts.states_without_disk is None, "of one disk none is gone"
    counts.add(fine, {"append-fsync-4k": 3}, "", without_disk=True)
    counts.add({"file_system": "ZFS: no pool"}, {"append-fsync-4k": 3}, "", without_disk=True)
    counts.add(fine, {}, "", without_disk=True)
    assert (counts.states, counts.lost) == (3, 1), "nothing had been acknowledged in the last"
    assert (counts.states_without_disk, counts.lost_without_disk) == (2, 1)
    measured = {
        each.metric.name: each.value for each in Durability(DurabilityParameters()).measured({STACK_CUT: counts})
    }
    assert measured["durability.stack-cut.states_without_disk"] == 2
    assert measured["durability.stack-cut.lost_without_disk"] == 1


@pytest.mark.parametrize(("end", "unseen"), [(POWER_CUT, True), (STACK_CUT, False)])
def test_the_report_says_what_below_the_image_was_tried(end: str, unseen: bool) -> None:
    run = experiment(trial(NONE.name, 1, end), trial(UNSAFE.name, 1, end, lost=700))
    text = " ".join(render_markdown(Analysis(run)).split())
    assert ("what the host's file system or volume does below the image" in text) == unseen
    assert ("A stack cut is the same of the host's own disks" in text) != unseen
    assert "700 of 800" in text and "lost 700" in text


def test_what_the_run_found_below_the_disk_counts_as_documentation() -> None:
    run = experiment(trial(NONE.name, 1))
    tmpfs = Feature("durable", "no", "documented; findmnt", "/tmp is a tmpfs, kept in memory")
    facts = {"host": {"disk": {"features": {NONE.name: [tmpfs.to_json()]}}}}
    survival = Analysis(replace(run, facts=facts)).survival
    assert survival is not None and survival.evidence[0].documented == tmpfs
    assert survival.evidence[0].state == "not shown"


def test_a_level_of_another_version_is_not_documented() -> None:
    newer = Treatment("vm disk.cache=quantum", "vm", {"disk.cache": "quantum"})
    shown = one(trial(newer.name, 1), treatments=(newer,))
    assert (shown.state, shown.documented.state, shown.disagreement) == ("yes", "not tried", "")


# Numbers.


def test_bounds_are_rounded_to_their_safe_side() -> None:
    upper = [percent(share, up=True) for share in (0.009936, 0.00139, 1.0, 0.2209)]
    assert upper == ["1.0 %", "0.14 %", "100 %", "23 %"]
    assert [percent(share) for share in (0.95, 0.6571, 0.99863, 0.00223)] == ["95 %", "65 %", "99 %", "0.22 %"]
    assert Count(300, 0).bound == "at most 1.0 %"


any_count = st.integers(-5, 10**7)


@given(st.lists(st.tuples(any_count, any_count, any_count), min_size=1, max_size=4))
def test_counts_of_any_kind_are_read(counts: Sequence[tuple[int, int, int]]) -> None:
    """An imported run may say that more was lost than was looked at."""
    trials = [
        trial(NONE.name, number, states=states, lost=lost, damaged=damaged, control=lost)
        for number, (states, lost, damaged) in enumerate(counts, 1)
    ]
    analysis = Analysis(experiment(*trials))
    assert analysis.survival is not None
    for end in (end for one in analysis.survival.evidence for end in one.ends):
        assert 0 <= end.count.low <= end.count.high <= 1 and 0 <= end.count.lost <= end.count.states
    assert printed(render(analysis))


# No other part takes counts for figures.


def test_counts_are_not_compared_ranked_scored_or_summarized() -> None:
    analysis = Analysis(durability_experiment())
    assert analysis.experiment.trials and not analysis.trials
    for nothing in (
        *(analysis.comparisons, analysis.rankings, analysis.factor_effects, analysis.scores.found, analysis.gains),
        *(analysis.boot_numbers, analysis.medians, analysis.headline_metrics, analysis.exits, analysis.ledger),
        *(summary(analysis).figures, analysis.causes),
    ):
        assert not nothing


@pytest.mark.variations
def test_a_disk_run_has_the_same_figures_with_durability_beside_it() -> None:
    alone, beside = Analysis(storage_experiment(3, few=True)), Analysis(with_trials(storage_experiment(3, few=True)))
    assert beside.survival is not None
    assert beside.results == alone.results
    assert beside.medians == alone.medians


def test_neither_stopping_nor_a_pilot_looks_at_counts() -> None:
    run = durability_experiment()
    assert iterations.counted(run.trials, {}) == ()
    assert iterations.schedules(run.trials, run.boots, (metric("power-cut", LOST).name,)) == {}


def test_counts_cannot_be_weighed() -> None:
    from vmtax.analysis import weight_profiles

    with pytest.raises(BadInput, match="was not measured"):
        weight_profiles.asked(durability_experiment(), "", f"{metric('power-cut', STATES).name}=1")


# Into the advice.


def advised(run: Experiment, *needs: str) -> tuple[Analysis, Advice]:
    analysis = Analysis(run, requirements=Requirements(tuple(needs)))
    return analysis, advise(analysis, kind=DISK)


def test_a_trial_beats_documentation_and_the_advice_says_which_it_was() -> None:
    analysis, advice = advised(with_trials(storage_experiment(2, few=True), writeback=3), "durable")
    refused = dict(advice.refused)
    lossy = [t for t in refused if "cache=writeback" in t]
    assert lossy and all("6 of 1,400 states of a power cut lost data" in refused[name] for name in lossy)
    assert all("(by trial)" in refused[name] for name in lossy)
    assert advice.choice is not None
    features = DISK.looked_at(analysis)
    assert DISK.reading(features).startswith("What is durable is by trial for 12 of 24, else as documented;")
    untried = next(name for name in features if "filesystem=xfs" in name)
    assert next(f for f in features[untried] if f.name == "durable").how == DOCUMENTED


def test_what_the_choice_rests_on_is_said() -> None:
    run = storage_experiment(2, few=True)
    plain = replace(run, treatments=tuple(t for t in run.treatments if t.levels["disk.filesystem"] == "ext4"))
    _, tried = advised(with_trials(plain))
    assert "That it is durable was tried: 0 of 1,400 states of a power cut lost anything" in " ".join(tried.reasons)
    few = replace(plain, trials=(*plain.trials, *(trial(t.name, 1, states=9, control=9) for t in plain.treatments)))
    _, unclear = advised(few)
    assert "That it is durable is documented, and not shown by trial: 0 of 9 states" in " ".join(unclear.reasons)
    _, without = advised(plain)
    assert "trial" not in " ".join(without.reasons)


def test_durability_by_trial_is_enough_to_recommend_a_disk_of_a_run_that_tried_nothing_else() -> None:
    text = printed(render(Analysis(with_trials(storage_experiment(2, features=False, few=True), none=1)), full=True))
    text = " ".join(text.split())
    assert "only durability is known, by trial or from documentation" in text
    assert "What each choice gives up" in text
    bare = printed(render(Analysis(durability_experiment())))
    assert "recommend" not in bare.lower(), "no speed, no recommendation"


@pytest.mark.parametrize(
    ("trials", "expected"),
    [
        ([(KILLED, 1, 0)], "documented"),
        ([("power-cut", 700, 0)], "simulated cut"),
        ([("power-cut", 40, 0)], "documented"),
        ([("stack-cut", 700, 0)], "simulated cut"),
        ([("power-cut", 700, 3)], "simulated cut"),
        ([(KILLED, 1, 0), ("power-cut", 700, 0)], "simulated cut"),
        ([(KILLED, 5, 5), ("power-cut", 700, 0)], "killed QEMU"),
        ([("real-cut", 700, 0)], "real cut"),
        ([("real-cut", 1, 1)], "real cut"),
        ([("host-cut", 1, 1)], "real cut"),
        ([("real-cut", 1, 0), ("power-cut", 700, 9)], "simulated cut"),
        ([], "documented"),
    ],
)
def test_what_the_answer_about_durability_rests_on(trials: list[tuple[str, int, int]], expected: str) -> None:
    tried = [trial(NONE.name, 1, end, states=states, lost=lost) for end, states, lost in trials]
    survival = found(*tried) if tried else None
    assert basis(survival, NONE, ()) == expected


def test_what_nobody_documents_or_tried_rests_on_nothing() -> None:
    unknown = treatment(cache="of-tomorrow")
    assert basis(None, unknown, ()) is None
    assert basis(None, NONE, [Feature("durable", "not tried", "", "")]) is None
