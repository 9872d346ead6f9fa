"""The pictures of which the reader chooses one: factor against factor, and speed against its price."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from tests.sample_storage import FACTORS, PRIMARY, storage_experiment
from tests.svg import dots, of_class, root, share, texts
from tests.unit.test_report_html import html
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.interactions import Grid, grids
from vmtax.analysis.speed_vs_cpu import PointFigure, pareto, steadied, tradeoffs
from vmtax.core.records import Experiment, Measurement
from vmtax.report.figures import base, crossed_picture, rank_pictures, tradeoff_picture
from vmtax.report.figures.speed_vs_cpu import scale_of
from vmtax.report.picture import Panel
from vmtax.report.wording.cost import cost_of
from vmtax.report.wording.rankings import ranked

SMALL_WRITES, DEEP_READS, FIRST, REWRITE, TAIL = PRIMARY
EXPERIMENT = storage_experiment(few=True)


def grid(experiment: Experiment, metric: str, *factors: str) -> Grid:
    found = (g for g in grids(Analysis(experiment)) if g.ranking.layer == "vm")
    return next(g for g in found if g.ranking.metric.name == metric and {g.rows[0], g.columns[0]} == {*factors})


def without(experiment: Experiment, measure: str) -> Experiment:
    """The same experiment in which nothing of that name was measured."""

    def kept(measurements: tuple[Measurement, ...]) -> tuple[Measurement, ...]:
        return tuple(m for m in measurements if not m.metric.name.endswith(measure))

    trials = tuple(dataclasses.replace(t, measurements=kept(t.measurements)) for t in experiment.trials)
    return dataclasses.replace(experiment, trials=trials)


# --- two factors at a time


def test_cells_show_the_shapes() -> None:
    small = grid(EXPERIMENT, SMALL_WRITES, "disk.cache", "disk.bus").cells
    assert small["writethrough", "virtio"].overhead > 0.6 > 0.2 > small["none", "virtio"].overhead
    assert (small["writethrough", "virtio"].treatments, small["writethrough", "virtio"].rounds) == (4, 6)
    deep = grid(EXPERIMENT, DEEP_READS, "disk.cache", "disk.bus").cells
    assert deep["none", "ide"].low is not None and deep["none", "ide"].low > 0.5
    first, again = (grid(EXPERIMENT, metric, "disk.format", "disk.cache").cells for metric in (FIRST, REWRITE))
    assert first["writeback", "qcow2"].overhead > 0.3 > 0.1 > again["writeback", "qcow2"].overhead


def test_what_was_pruned_is_not_measured() -> None:
    found = grid(EXPERIMENT, SMALL_WRITES, "disk.filesystem", "disk.format")
    assert found.rows == ("disk.filesystem", FACTORS["disk.filesystem"])
    assert {*found.cells} == {("ext4", "raw"), ("ext4", "qcow2"), ("xfs", "raw"), ("none", "raw")}
    picture = crossed_picture([found], ranked(Analysis(EXPERIMENT)), {})
    assert picture is not None
    (part,) = picture.parts
    assert len(of_class(part, "unmeasured")) == 2 and texts(part).count("not measured") == 2
    tips = [title.text or "" for title in root(part).iter("title")][1:]
    assert tips[0] == "ext4 with raw: median of 6 configurations, 6 rounds, emulated"
    assert tips[3] == "xfs with qcow2: no configuration has both, or none of them has a value"


def test_every_pair_and_metric_can_be_chosen() -> None:
    analysis = Analysis(EXPERIMENT)
    picture = crossed_picture(grids(analysis), ranked(analysis), {"disk.bus": 0.4})
    assert picture is not None
    assert [len(options) for _, options in picture.selects] == [5, 6]
    assert sorted(part.options for part in picture.parts) == [*itertools.product(range(5), range(6))]
    assert picture.parts[0].options == (0, 0)
    assert all("disk.bus" in option for option in picture.selects[1][1][:3]), "what matters more comes first"
    for part in picture.parts:
        ((shown_for, legend),) = part.legends.items()
        assert shown_for is None and legend[1].text.endswith(" for the same work, emulated")
        metric, pair = (options[place] for (_, options), place in zip(picture.selects, part.options, strict=True))
        assert part.title == f"{metric}: {pair}"


def test_a_cell_shows_its_cost_and_a_stronger_colour_for_more() -> None:
    analysis, found = Analysis(EXPERIMENT), grid(EXPERIMENT, SMALL_WRITES, "disk.cache", "disk.bus")
    picture = crossed_picture([found], ranked(analysis), {})
    assert picture is not None
    (part,) = picture.parts
    shares = [share(box.attrib["style"].removeprefix("--share: ")) for box in root(part).iter("rect")]
    costs = [found.cells[one, other].overhead for one in found.rows[1] for other in found.columns[1]]
    assert max(shares) == 1 and sorted(shares) == [shares[costs.index(one)] for one in sorted(costs)]
    (about,) = root(part).iter("desc")
    first, _ = cost_of("higher", costs[0], None, None)
    assert f"none with virtio: {first}; " in (about.text or "") and first in texts(part)


def test_a_pair_that_a_metric_lacks_says_so() -> None:
    analysis = Analysis(EXPERIMENT)
    every = [one for one in grids(analysis) if one.ranking.layer == "vm"]
    picture = crossed_picture(every[1:], ranked(analysis), {})
    assert picture is not None
    (lacking,) = [part for part in picture.parts if part.drawing is None]
    assert lacking.note.startswith("Not measured for this metric: ") and lacking.note.endswith("Choose another pair.")
    assert len(picture.parts) == 30


def test_what_is_left_out_of_a_large_choice_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MOST_CHARACTERS", 50_000)
    analysis = Analysis(EXPERIMENT)
    crossed = crossed_picture(grids(analysis), ranked(analysis), {})
    tradeoff = tradeoff_picture(tradeoffs(analysis), {})
    assert crossed is not None and tradeoff is not None
    kept = len(crossed.selects[1][1])
    assert 1 < kept < 6 and len(crossed.parts) == 5 * kept
    assert crossed.caption.endswith(f" Of 6 pairs, these are the {kept} whose factors decide most.")
    cases = len(tradeoff.selects[0][1])
    assert 1 < cases < 4 and len(tradeoff.parts) == cases
    assert tradeoff.caption.endswith(f" Of 4 cases, these are the first {cases}.")
    for choice in (crossed, tradeoff):
        assert sum(len(part.drawing or "") for part in choice.parts) <= 50_000


def test_a_lost_guest_costs_its_cell_a_round_not_more() -> None:
    short = storage_experiment(failed=1, few=True)
    cells = grid(short, SMALL_WRITES, "disk.filesystem", "disk.bus").cells
    assert cells["none", "ide"].rounds == 5 and cells["none", "ide"].low is None
    assert cells["none", "virtio"].rounds == 6


# --- speed against its price


def test_the_best_of_both() -> None:
    assert pareto([(10, 5), (8, 2), (9, 6), (1, 1), (8, 3)]) == {0, 1, 3}
    assert pareto([(1, 1), (1, 1)]) == {0, 1}
    assert pareto([(8, 2), (7, 2)]) == pareto([(8, 2), (8, 3)]) == {0}, "as good in one, worse in the other"


@pytest.mark.parametrize(("guests", "shown"), [(2, False), (3, True)])
def test_speed_stands_against_its_price_from_three_configurations_on(guests: int, shown: bool) -> None:
    kept = {"host", *[t.name for t in EXPERIMENT.treatments if t.layer == "vm"][:guests]}
    few = dataclasses.replace(
        EXPERIMENT,
        treatments=tuple(t for t in EXPERIMENT.treatments if t.name in kept),
        trials=tuple(t for t in EXPERIMENT.trials if t.treatment in kept),
    )
    assert bool(tradeoffs(Analysis(few))) == shown


def test_a_machine_that_wanders_widens_no_point() -> None:
    wander = {1: 1.0, 2: 1.4, 3: 0.8, 4: 1.1, 5: 0.9, 6: 1.3, 7: 1.2}
    slow, fast, gap = ({n: level * factor for n, level in wander.items()} for factor in (1.0, 2.0, 1.5))
    del gap[3]
    found = steadied([slow, fast, gap], 0.05)
    for one, factor in zip(found, (1.0, 2.0, 1.5), strict=True):
        assert (one.value == pytest.approx(1.1 * factor) and one.low is None) or one.low == pytest.approx(1.1 * factor)
    assert [one.rounds for one in found] == [7, 7, 6]
    assert steadied([{1: 2.0}], 0.05)[0].low is None


def marks(part: Panel, place: int) -> dict[str, set[str]]:
    """Colour -> kinds of the marks by one factor."""
    (shown,) = [one for one in root(part).iter("g") if one.attrib.get("data-second") == str(place)]
    return {
        level.attrib["class"]: {mark.attrib["href"].removeprefix("#mark-") for mark in level.iter("use")}
        for level in shown.iter("g")
        if level is not shown
    }


def test_speed_and_price_are_drawn_by_a_factor() -> None:
    found = tradeoffs(Analysis(EXPERIMENT))
    assert [one.name for one in found] == [f"Disk {metric.split('.')[1]}" for metric in PRIMARY[:4]]
    picture = tradeoff_picture(found, {"disk.cache": 0.7})
    assert picture is not None and len(picture.parts) == 4
    assert picture.selects[1] == ("marks show", ("disk.cache", "disk.filesystem", "disk.format", "disk.bus"))
    for one, part in zip(found, picture.parts, strict=True):
        assert marks(part, 0) == {"level-1": {"circle"}, "level-2": {"diamond"}, "level-3": {"triangle"}}
        assert [key.text for key in part.legends[0]] == [
            *(f"disk.cache={level}, emulated" for level in FACTORS["disk.cache"]),
            "no other guest beats these in both",
        ]
        drawn = root(part)
        for place in range(4):
            (by_factor,) = [group for group in drawn.iter("g") if group.attrib.get("data-second") == str(place)]
            assert len([*by_factor.iter("use")]) == 24
        tips = [circle.findtext("title") or "" for circle in drawn.iter("circle")]
        assert len(tips) == 24 and all(" (emulated): " in tip for tip in tips)
        assert sum("none is both faster and cheaper" in tip for tip in tips) == sum(point.best for point in one.points)
        (front,) = drawn.iter("polyline")
        steps = [tuple(map(float, step.split(","))) for step in front.attrib["points"].split()]
        assert [x for x, _ in steps] == sorted(x for x, _ in steps)
        assert [y for _, y in steps] == sorted((y for _, y in steps), reverse=True)
        assert [text for text in texts(part) if text.startswith("← host, without a guest")], "20 times cheaper"


def test_points_without_an_interval_are_hollow_and_the_legend_says_so() -> None:
    picture = tradeoff_picture(tradeoffs(Analysis(storage_experiment(3, few=True))), {})
    assert picture is not None
    for part in picture.parts:
        for place, legend in part.legends.items():
            assert place is not None
            kinds = set.union(*marks(part, place).values())
            assert kinds and all(kind.endswith("-open") for kind in kinds)
            assert {key.mark for key in legend} >= kinds
            assert "hollow: no interval" in [key.text for key in legend]


def test_of_many_levels_the_last_ones_share_a_mark() -> None:
    first, *_ = tradeoffs(Analysis(EXPERIMENT))
    levels = tuple(
        dataclasses.replace(p, treatment=dataclasses.replace(p.treatment, levels={"disk.size": str(number // 2)}))
        for number, p in enumerate(first.points)
    )
    picture = tradeoff_picture([dataclasses.replace(first, points=levels)], {})
    assert picture is not None
    (part,) = picture.parts
    assert len(marks(part, 0)) == 6 and part.legends[0][5].text == "other levels, emulated"
    assert [key.text for key in part.legends[0][:2]] == ["disk.size=0, emulated", "disk.size=1, emulated"]


def test_a_host_that_is_near_is_drawn() -> None:
    near, *_ = tradeoffs(Analysis(EXPERIMENT))
    assert near.host is not None
    host = dataclasses.replace(near.host, price=near.points[0].price, speed=near.points[0].speed)
    picture = tradeoff_picture([dataclasses.replace(near, host=host)], {})
    assert picture is not None
    (part,) = picture.parts
    assert all("host, without a guest" in [key.text for key in legend] for legend in part.legends.values())
    assert len(of_class(part, "host")) == 1 and not [text for text in texts(part) if "host, without" in text]


@pytest.mark.parametrize("ends", [(5.05e3, 5.12e3), (1e3, 1.3e3), (1e3, 2.4e3), (90, 480), (1e3, 6.3e3), (1.0, 1e7)])
def test_a_scale_has_round_numbers_that_do_not_touch(ends: tuple[float, float]) -> None:
    axis = scale_of([PointFigure(end, None, None, 6) for end in ends], "1/s", 6)
    assert 2 <= len(axis.ticks) <= 7
    places = [axis.at(value) for value, _ in axis.ticks]
    assert all(after - before >= 0.99 / 6 for before, after in itertools.pairwise(places))
    for value, name in axis.ticks:
        assert float(f"{10**value:.3g}") == pytest.approx(10**value), "the name is exact"
        assert name


@pytest.mark.variations
def test_without_the_price_there_is_no_such_picture() -> None:
    bare = without(EXPERIMENT, "host_cpu_seconds")
    assert tradeoffs(Analysis(bare)) == () and tradeoff_picture((), {}) is None
    page = html(bare)
    assert 'id="tradeoff"' not in page and 'id="crossed"' in page
    guest = tuple(t for t in EXPERIMENT.trials if t.treatment != "host")
    hostless = dataclasses.replace(EXPERIMENT, trials=guest)
    assert tradeoffs(Analysis(hostless))[0].host is None


def test_guests_of_other_rounds_than_the_best_leave_cells_empty() -> None:
    round_of = {treatment.name: 1 + place % 6 for place, treatment in enumerate(EXPERIMENT.treatments)}
    alone = tuple(t for t in EXPERIMENT.trials if t.treatment == "host" or t.round == round_of[t.treatment])
    sparse = dataclasses.replace(EXPERIMENT, trials=alone)
    analysis = Analysis(sparse)
    found = grids(analysis)
    assert any(not grid.cells for grid in found)
    assert crossed_picture(found, ranked(analysis), {}) is not None
    drawn = rank_pictures(analysis, ranked(analysis))
    rows = [len(ranking.standings) for ranking in analysis.primary_rankings]
    assert any(len(dots(picture)) < count for picture, count in zip(drawn, rows, strict=True))
