"""The first screen of a report: tiles, title, main figures, and the addresses of metrics."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sample import sample_experiment, with_repeat
from tests.sample_storage import storage_experiment
from tests.unit.test_report_html import Page, html
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.summary import Contrast
from vmtax.core.notices import Code
from vmtax.core.records import Experiment, Measurement, Metric
from vmtax.core.units import format_cost
from vmtax.report.contents import document
from vmtax.report.document import Detail, Paragraph, Section, Table, Tile, Tiles, plain
from vmtax.report.sections.first import First, _named, cost_cell, first, rare, word_of

QUICK = with_repeat(sample_experiment(emulated=False))


def sections(experiment: Experiment) -> dict[str, Section]:
    return {section.id: section for section in document(Analysis(experiment), Detail.PAGE).sections}


def tiles(experiment: Experiment) -> tuple[Tile, ...]:
    (found,) = sections(experiment)["answer"].blocks
    assert isinstance(found, Tiles)
    return found.items


def shown(experiment: Experiment) -> First:
    return first(Analysis(experiment))


def test_a_tile_for_each_subject_says_what_the_summary_does() -> None:
    found = tiles(QUICK)
    assert [tile.subject for tile in found] == ["CPU", "Memory", "Disk", "Network", "Boot"]
    for tile, figure in zip(found[:4], shown(QUICK).subjects, strict=False):
        contrast = shown(QUICK).of(figure)
        assert contrast is not None
        cost = format_cost(contrast.ratio, contrast.low, contrast.high)
        assert (tile.figure, tile.interval) == (cost.estimate, cost.interval)
        assert tile.bar is not None and "#mark-circle" in tile.bar and tile.more.startswith("nested vs VM ")
    assert [tile.word for tile in found[:4]] == [
        "a little slower: chess, all CPUs",
        "about the same: stream bandwidth",
        "slower: 4 KiB random reads (one at a time)",
        "much slower: throughput, inbound",
    ]
    assert found[4].figure == "1.3 s" and found[4].word == "VM: from launch to the first answer"
    assert not [tile for tile in found if tile.emulated]
    assert all(tile.emulated for tile in tiles(sample_experiment()))


def contrast(ratio: float, notes: tuple[Code, ...] = (), *, same: bool = False) -> Contrast:
    return Contrast("host", "vm", ratio, None, None, 7, "worse", same, False, notes)


@pytest.mark.parametrize(
    ("ratio", "word"),
    [
        (0.5, "faster"),
        (0.979, "faster"),
        (0.98, "about the same"),
        (1.019, "about the same"),
        (1.02, "a little slower"),
        (1.099, "a little slower"),
        (1.1, "slower"),
        (1.499, "slower"),
        (1.5, "much slower"),
        (9.99, "much slower"),
        (10.0, "very much slower"),
        (math.inf, "no round has both"),
    ],
)
def test_a_cost_has_a_word_of_its_size(ratio: float, word: str) -> None:
    assert word_of(contrast(ratio)) == word
    assert word_of(contrast(ratio, same=True)) == ("the same" if ratio < math.inf else word)


def test_a_cost_that_is_not_shown_has_no_word_of_its_size_and_is_not_the_same_either() -> None:
    unclear = dataclasses.replace(contrast(1.3), verdict="no difference shown")
    assert word_of(unclear) == "no difference is shown"
    assert word_of(dataclasses.replace(unclear, same=True)) == "the same"


@pytest.mark.parametrize(
    ("ratio", "ends", "text"), [(1.35, (1.02, 1.95), "same 2–95 %"), (2.5, (1.5, 3.5), "same 1.5–3.5×")]
)
def test_an_interval_beside_same_has_its_unit(ratio: float, ends: tuple[float, float], text: str) -> None:
    """Other intervals stand behind an estimate, which has it."""
    found = dataclasses.replace(contrast(ratio, same=True), low=ends[0], high=ends[1])
    assert " ".join(span.text for span in cost_cell(found).pieces) == text
    assert not cost_cell(dataclasses.replace(found, same=False)).pieces[1].text.endswith(("%", "×"))


def test_a_tile_says_of_a_cost_within_the_noise_floor_that_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interval may show a difference that the noise floor is larger than."""
    nesting = dataclasses.replace(contrast(1.35, same=True), low=1.02, high=1.95)
    monkeypatch.setattr(First, "nesting", lambda shown, figure: nesting)
    assert tiles(QUICK)[0].more == "nested vs VM: within the noise floor"


def test_doubts_about_at_most_half_of_the_costs_are_numbered() -> None:
    """Of four costs: what all have, three, two or one of them; what has too few rounds is said elsewhere."""
    few: tuple[Code, ...] = ("few-rounds",)
    doubts: list[tuple[Code, ...]] = [
        ("emulated", "failed", "refused", "carry-over"),
        ("emulated", "failed", "refused"),
        ("emulated", "failed", *few),
        ("emulated",),
    ]
    figures: Any = [SimpleNamespace(contrasts=(contrast(1.2, notes), None, contrast(1.2, few))) for notes in doubts]
    assert rare(figures, 2) == {"refused", "carry-over"}


def test_more_cpu_time_is_not_called_slower() -> None:
    run = sample_experiment(rounds=3)
    metric = Metric("idle.host_cpu_seconds", "s", "lower")
    trials = tuple(
        dataclasses.replace(
            one, workload="idle", case="", measurements=(Measurement(metric, 0.1 if one.treatment == "host" else 0.4),)
        )
        for one in run.trials
        if one.workload == "chess"
    )
    (tile,) = (one for one in tiles(dataclasses.replace(run, trials=trials)) if one.subject == "Idle")
    assert tile.word == "much more: host's CPU time in a second"


def test_a_tile_without_an_interval_is_hollow_and_the_verdict_says_why() -> None:
    few = sample_experiment(rounds=3)
    for tile in tiles(few)[:4]:
        assert tile.interval == "" and "chance" not in tile.word
        assert tile.bar is not None and "#mark-circle-open" in tile.bar
    (verdict,) = sections(few)["verdict"].blocks
    assert isinstance(verdict, Paragraph) and plain(verdict.text).startswith("3 rounds: too few for intervals")


def test_a_tile_says_itself_that_it_may_be_chance_where_others_have_intervals() -> None:
    short = tuple(t for t in QUICK.trials if t.workload != "chess" or t.round <= 3)
    found = {tile.subject: tile.word for tile in tiles(dataclasses.replace(QUICK, trials=short))}
    assert ", or chance: " in found["CPU"] and "chance" not in found["Disk"]


def test_a_guest_without_anything_to_compare_it_with_says_why_it_has_no_bar() -> None:
    single = [t for t in QUICK.treatments if t.name in ("host", "vm")]
    names = {treatment.name for treatment in single}
    trials = tuple(t for t in QUICK.trials if t.treatment in names)
    boots = tuple(b for b in QUICK.boots if b.treatment in names)
    run = dataclasses.replace(QUICK, treatments=tuple(single), trials=trials, boots=boots)
    (boot,) = [tile for tile in tiles(run) if tile.subject == "Boot"]
    assert boot.bar is None and boot.more == "the host has no such figure"


def test_one_layer_is_shown_by_its_medians() -> None:
    host = tuple(t for t in QUICK.trials if t.treatment == "host")
    treatments = tuple(t for t in QUICK.treatments if t.name == "host")
    alone = dataclasses.replace(QUICK, trials=host, treatments=treatments, boots=())
    found = {tile.subject: tile for tile in tiles(alone)}
    assert found["Disk"].figure.endswith("k/s") and found["Disk"].word.startswith("host: 4 KiB random reads")
    assert all(tile.bar is None for tile in found.values())
    assert "main" in sections(alone)
    assert document(Analysis(alone), Detail.PAGE).head.answer == "example: quick, measured on host"


def test_the_title_is_the_host_and_the_answer() -> None:
    def title(experiment: Experiment) -> str:
        return document(Analysis(experiment), Detail.PAGE).head.answer

    assert title(QUICK) == "example: a VM costs +2.5 % CPU, +1.4 % memory, +23 % disk, +60 % network"
    assert title(dataclasses.replace(QUICK, host="ssh://root@b")).startswith("root@b: a VM costs +2.5 % CPU")
    assert "an emulated VM costs 21" in title(sample_experiment())
    assert _named("existing VM", emulated=False) == "an existing VM"
    page = Page(html(QUICK))
    assert "".join(text for path, text in page.texts if path[-1:] == ("title",) and "head" in path) == title(QUICK)


def test_a_cost_within_the_noise_floor_is_the_same() -> None:
    section = sections(QUICK)["main"]
    table = section.blocks[0]
    assert isinstance(table, Table)
    heads = [plain(column.head) for column in table.columns]
    assert heads == ["figure", "VM costs", "nested vs VM", "host", "VM", "nested VM", "noise floor"]
    found = shown(QUICK).summary.figures
    rows = [row for row in table.rows if not row.is_heading]
    assert len(rows) == len(found)
    for row, figure in zip(rows, found, strict=True):
        for cell, contrast in zip(row.cells[1:3], figure.contrasts, strict=False):
            if contrast is None:
                assert not cell.pieces
            else:
                assert (cell.pieces[0].text == "same") == contrast.same
                assert (cell.pieces[0].kind == "strong") == (contrast.verdict == "worse" and not contrast.same)


def test_every_metric_has_an_address_that_the_main_figures_lead_to() -> None:
    page = Page(html(QUICK))
    ids = {attrs["id"] for _, attrs in page.elements if "id" in attrs}
    metrics = {metric.name for metric, _ in Analysis(QUICK).medians if "cpu" not in metric.name}
    assert metrics <= ids and "disk.randwrite-4k-qd1.iops" in ids
    links = {attrs.get("href") for tag, attrs in page.elements if tag == "a"}
    assert {f"#{figure.metric.name}" for figure in shown(QUICK).summary.figures} <= links


@pytest.mark.variations
def test_the_worst_five_outliers_are_shown_and_the_others_folded() -> None:
    many = sections(sample_experiment(rounds=12, treatments=6))["outliers"]
    table = next(block for block in many.blocks if isinstance(block, Table))
    assert len(table.rows) == 5 and many.blocks[-1] is not table


def test_a_storage_run_begins_with_its_recommendation() -> None:
    found = document(Analysis(storage_experiment(2, few=True)), Detail.PAGE)
    first_shown = [section.id for section in found.sections if section.place in ("top", "first")]
    assert first_shown[0] == "advice" and "answer" not in first_shown
    assert ": " in found.head.answer and "choose " in found.head.answer


@pytest.mark.parametrize("experiment", [QUICK, storage_experiment(few=True), sample_experiment(rounds=1)])
@pytest.mark.varied(1)
def test_all_but_the_answer_is_folded(experiment: Experiment) -> None:
    places = {section.id: section.place for section in sections(experiment).values()}
    assert {places[id] for id in ("numbers", "outliers", "doubts", "repeat", "facts")} == {"folded"}
    assert [id for id, place in places.items() if place == "beside"] == ["machine", "sure"]
