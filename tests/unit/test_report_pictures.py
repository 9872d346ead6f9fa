"""The pictures of many treatments: rankings, what decides, latencies; and the page that holds them."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

import pytest

from tests.sample import sample_experiment
from tests.sample_storage import PRIMARY, storage_experiment
from tests.svg import dots, of_class
from tests.unit.test_report_html import Page, harmless_like, html
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.by_workload import view
from vmtax.analysis.deciding import Deciding, deciding
from vmtax.analysis.latency import distributions
from vmtax.analysis.rankings import Ranking
from vmtax.core.records import Experiment, Measurement
from vmtax.report.figures import forests, latency_pictures, rank_pictures
from vmtax.report.figures.base import times_dearer
from vmtax.report.figures.dots import Dot, cost_axis
from vmtax.report.figures.rankings import SMALL_CHARACTERS
from vmtax.report.sections.factor_effects import level_name, sentence, share_text
from vmtax.report.wording.rankings import ranked

SMALL_WRITES, DEEP_READS, FIRST, REWRITE, TAIL = PRIMARY
EXPERIMENT = storage_experiment(few=True)


def guests(experiment: Experiment) -> tuple[Ranking, ...]:
    return tuple(ranking for ranking in Analysis(experiment).primary_rankings if ranking.layer == "vm")


def pictures(experiment: Experiment) -> list[Any]:
    """Of the guests' rankings."""
    analysis = Analysis(experiment)
    return list(rank_pictures(analysis, ranked(analysis)))[: len(guests(experiment))]


def decided(experiment: Experiment, metric: str) -> Deciding:
    return next(one for one in deciding(Analysis(experiment)) if (one.metric.name, one.layer) == (metric, "vm"))


# --- names


# --- rankings


def test_a_ranking_is_drawn_best_first_with_its_kinds_apart() -> None:
    for ranking, picture in zip(guests(EXPERIMENT), pictures(EXPERIMENT), strict=True):
        drawn = dots(picture)
        assert len(drawn) == len(ranking.standings) == 24
        places = [dot.x for dot in drawn]
        expected = [math.log(times_dearer(ranking.metric.better, entry.overhead)) for entry in ranking.standings]
        scale = (places[-1] - places[0]) / (expected[-1] - expected[0])
        assert places == pytest.approx([places[0] + scale * value for value in expected], abs=1e-3)
        assert all(dot.bar is None or dot.bar[0] <= dot.x <= dot.bar[1] for dot in drawn)
        beaten = [dot for dot, entry in zip(drawn, ranking.standings, strict=True) if not entry.top]
        assert beaten and {dot.kind for dot in beaten} == {"square"}
        assert {dot.kind for dot in drawn if dot not in beaten} <= {"circle", "diamond", "diamond-open"}
        assert all("emulated" in dot.tip for dot in drawn)
        assert all(key.mark == "line" or key.text.endswith(", emulated") for key in picture.legend)


@pytest.mark.parametrize(
    "experiment", [EXPERIMENT, storage_experiment(3, few=True), sample_experiment(rounds=4, treatments=4)]
)
@pytest.mark.varied(1)
def test_a_dot_without_an_interval_is_hollow_and_the_legend_says_so(experiment: Experiment) -> None:
    analysis = Analysis(experiment)
    found = (*forests(view(analysis)), *rank_pictures(analysis, ranked(analysis)))
    assert found
    for picture in found:
        assert all((dot.bar is None) == dot.kind.endswith("-open") for dot in dots(picture))
        explained = {key.mark.removesuffix("-open") for key in picture.legend} | {"any"}
        assert {dot.kind.removesuffix("-open") for dot in dots(picture)} <= explained
        hollow = any(dot.bar is None for dot in dots(picture))
        assert hollow == any("hollow" in key.text for key in picture.legend)


def test_the_host_is_a_line_where_there_is_one() -> None:
    first, *_ = pictures(EXPERIMENT)
    assert len(of_class(first, "far")) == 1 and "The host itself, without a guest: " in first.caption
    bare, *_ = pictures(storage_experiment(host=False, few=True))
    assert not of_class(bare, "far") and "host itself" not in bare.caption


def test_a_host_that_is_far_away_does_not_squeeze_the_rest() -> None:
    trials = tuple(
        dataclasses.replace(
            t, measurements=tuple(Measurement(m.metric, m.value * 1000) for m in t.measurements if m.metric.unit != "s")
        )
        if t.treatment == "host"
        else t
        for t in EXPERIMENT.trials
    )
    first, *_ = pictures(dataclasses.replace(EXPERIMENT, trials=trials))
    assert not of_class(first, "far")
    assert "The host itself, without a guest: \N{MINUS SIGN}99." in first.caption
    places = [dot.x for dot in dots(first)]
    assert max(places) - min(places) > 0.8


def test_a_lost_guest_costs_the_others_nothing_and_is_said() -> None:
    first, *_ = pictures(storage_experiment(failed=1, few=True))
    assert "over 6 rounds, 1 of them incomplete" in first.caption
    assert any(key.text.startswith("beaten") for key in first.legend)


@pytest.mark.variations
def test_a_telephone_gets_labels_that_fit_above_the_dots() -> None:
    for picture in pictures(storage_experiment(many=True, few=True)):
        small = of_class(picture, "small")
        assert len(small) == 73 == len(of_class(picture, "wide"))
        lines = [line.text or "" for label in small for line in label.iter("text")]
        assert max(map(len, lines)) <= SMALL_CHARACTERS


def test_an_axis_has_percentages_or_factors_and_never_both() -> None:
    def names(*ratios: float) -> list[str]:
        return [name for _, name in cost_axis([Dot(ratio, None, None, "circle", "vm", "") for ratio in ratios]).ticks]

    assert all(name.endswith("%") for name in names(0.9, 1.3)) and "+20 %" in names(0.9, 1.3)
    assert names(1.05, 2.5) == ["1\N{MULTIPLICATION SIGN}", *names(1.05, 2.5)[1:]]
    assert all(name.endswith("\N{MULTIPLICATION SIGN}") for name in names(0.5, 40))


# --- what decides


def test_what_decides_is_a_sentence_and_bars() -> None:
    small = decided(EXPERIMENT, SMALL_WRITES)
    assert re.match(
        r"disk\.cache decides 9\d(\.\d)? % of 4 KiB random writes \(one at a time\); disk\.bus \d", sentence(small)
    )
    assert sentence(small).endswith(", not distinguishable.") and "disk.filesystem" in sentence(small)
    cache = small.terms[0]
    assert [level_name(level) for level in cache.levels] == ["writeback against none", "writethrough against none"]
    assert cache.levels[1].shown and cache.levels[1].effect.low > 0
    assert sentence(decided(EXPERIMENT, DEEP_READS)).startswith("disk.bus decides 9")
    assert "disk.format" in sentence(decided(EXPERIMENT, FIRST))
    prose = Page(html(EXPERIMENT)).prose().replace("\N{NO-BREAK SPACE}", " ")
    assert sentence(small) in prose


def test_nothing_that_decides_is_said_so() -> None:
    effect = next(e for e in Analysis(EXPERIMENT).factor_effects if e.layer == "vm")
    doubtful = dataclasses.replace(effect, low=0.01, high=0.1, share=0.02, shown=False)  # one level of many, by chance
    analysis = Analysis(EXPERIMENT)
    analysis.factor_effects = (doubtful,)
    (one,) = deciding(analysis)
    assert sentence(one) == (
        "No factor is shown to matter to 4 KiB random writes (one at a time):"
        " disk.filesystem 2.0 %, not distinguishable."
    )


def test_two_factors_are_a_term_of_their_own_only_if_together_they_are_shown_to_matter() -> None:
    effect = next(e for e in Analysis(EXPERIMENT).factor_effects if e.layer == "vm")
    alone = dataclasses.replace(effect, factors=("disk.cache",), levels=("writeback",), share=0.0, shown=False)
    pair = dataclasses.replace(
        effect,
        factors=("disk.cache", "disk.bus"),
        levels=("writeback", "ide"),
        low=0.1,
        high=0.2,
        share=0.005,
        shown=True,
    )
    analysis = Analysis(EXPERIMENT)
    for together, kept in (
        (pair, ["disk.cache with disk.bus", "disk.cache"]),
        (dataclasses.replace(pair, share=0.0049), ["disk.cache"]),
        (dataclasses.replace(pair, shown=False), ["disk.cache"]),
    ):
        analysis.factor_effects = (alone, together)
        (one,) = deciding(analysis)
        assert [term.name for term in one.terms] == kept and one.together == 2 - len(kept)
    analysis.factor_effects = (alone, pair)
    levels = [level for term in deciding(analysis)[0].terms for level in term.levels]
    assert [(level.first, level.shown) for level in levels] == [(None, True), ("none", False)]
    analysis.factor_effects = tuple(
        dataclasses.replace(alone, levels=(level,), low=low, high=0.1, shown=True)
        for level, low in (("writeback", 0.05), ("unsafe", -0.05))
    )
    levels = [level for term in deciding(analysis)[0].terms for level in term.levels]
    assert [level.shown for level in levels] == [True, False], "the factor matters, and this level costs nothing"


def test_shares_are_given_in_two_digits() -> None:
    told = [share_text(share) for share in (0.0004, 0.0234, 0.0996, 0.714, 0.9951, 1.0)]
    assert told == ["under 0.1 %", "2.3 %", "10 %", "71 %", "99.5 %", "100 %"]


# --- latencies of many


def test_of_many_the_best_and_the_worst_are_drawn() -> None:
    for distribution, picture in zip(
        distributions(Analysis(EXPERIMENT)), latency_pictures(distributions(Analysis(EXPERIMENT))), strict=True
    ):
        roles = [(curve.layer, curve.role) for curve in distribution.curves]
        assert len(roles) <= 4 and {("vm", "best"), ("vm", "worst")} <= {*roles} and roles[0] == ("host", "")
        judged = {c.role: dict(c.points)[0.99] for c in distribution.curves if c.layer == "vm"}
        assert judged["best"] == min(judged.values()) and judged["worst"] == max(judged.values())
        assert distribution.others == 27 - len(distribution.curves)
        styles = [(key.style, key.dash) for key in picture.legend]
        assert all(len({*column}) == len(styles) for column in zip(*styles, strict=True))
        assert picture.legend[-1].text.startswith("worst: vm")


# --- the page


@pytest.mark.variations
def test_the_page_of_a_sweep_is_well_formed() -> None:
    text = html(storage_experiment(failed=1, few=True))
    page = Page(text)
    figures = [attrs["id"] for tag, attrs in page.elements if tag == "figure" and "choice" in (attrs["class"] or "")]
    assert figures == ["crossed", "tradeoff"]
    selects = [attrs["class"] for tag, attrs in page.elements if tag == "select"]
    assert selects == ["first", "second"] * 2
    shown = [(attrs["data-first"], attrs.get("data-second")) for _, attrs in page.elements if "data-first" in attrs]
    assert len(shown) == 5 * 6 + 4
    for name, value in [("first", one) for one, _ in shown] + [("second", two) for _, two in shown if two]:
        rule = f'.choice:has(.{name} [value="{value}"]:checked) [data-{name}]:not([data-{name}="{value}"])'
        assert text.count(rule) == 1
    assert page.count("caption") == page.count("table")
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))


def hostile_sweep(text: str) -> Experiment:
    """The sweep with a factor, a level and all names that hold `text`."""
    names = {t.name: t.name.replace("ide", text) for t in EXPERIMENT.treatments}
    treatments = tuple(
        dataclasses.replace(
            t,
            name=names[t.name],
            levels={name.replace("bus", text): level.replace("ide", text) for name, level in t.levels.items()},
        )
        for t in EXPERIMENT.treatments
    )
    trials = tuple(dataclasses.replace(t, treatment=names[t.treatment]) for t in EXPERIMENT.trials)
    boots = tuple(dataclasses.replace(b, treatment=names[b.treatment]) for b in EXPERIMENT.boots)
    return dataclasses.replace(EXPERIMENT, treatments=treatments, trials=trials, boots=boots)


def test_levels_and_factors_are_text_everywhere() -> None:
    text = '</option></script><img src=x onerror="alert(1)">%{y}'
    told, harmless = html(hostile_sweep(text)), Page(html(hostile_sweep(harmless_like(text))))
    page = Page(told)
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in harmless.elements]
    assert [sorted(attrs) for _, attrs in page.elements] == [sorted(attrs) for _, attrs in harmless.elements]
    assert page.prose().count(text) > 20


def test_a_sweep_with_next_to_nothing_measured_is_shown() -> None:
    few = tuple(trial for trial in EXPERIMENT.trials if trial.round == 1 and trial.treatment.startswith("vm disk.bus"))
    assert Page(html(dataclasses.replace(EXPERIMENT, trials=few))).count("h1") == 1
    none = Page(html(dataclasses.replace(EXPERIMENT, trials=(), boots=())))
    assert none.count("select") == none.count("figure") == 0


def test_a_long_picture_has_its_scale_at_both_ends() -> None:
    few = sample_experiment(rounds=2)
    short = dataclasses.replace(few, trials=tuple(trial for trial in few.trials if trial.workload == "memory"))
    for run, times in ((few, 2), (short, 1)):
        layers = next(picture for picture in forests(view(Analysis(run))) if picture.id == "layers")
        names = [one.text for one in of_class(layers, "tick")]
        assert names and {names.count(name) for name in names} == {times}
