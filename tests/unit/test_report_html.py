"""The HTML report: well formed, self-contained, and what was measured is only ever text in it."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest

from tests.sample import sample_experiment
from tests.unit.test_report import compared, renamed
from vmtax.report.html import render_html
from vmtax.report.picture import pictures
from vmtax.report.summary import headline_metrics
from vmtax.report.view import view
from vmtax.result import Experiment

SCRIPT = "<script>alert(1)</script>"
VOID = {"meta", "link", "br", "hr", "img", "input", "wbr"}
MEGABYTE = 10**6


def html(experiment: Experiment) -> str:
    return render_html(experiment, compared(experiment))


class Page(HTMLParser):
    """Checks that elements nest, and collects what the tests ask for."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[tuple[str, ...], str]] = []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.texts.append((tuple(self.open), data))

    def count(self, tag: str) -> int:
        return sum(1 for name, _ in self.elements if name == tag)

    def prose(self) -> str:
        """What a person reads: no style, no script."""
        return " ".join(" ".join(t for path, t in self.texts if not {"style", "script"} & {*path}).split())


def test_the_page_is_well_formed_and_small() -> None:
    text = html(sample_experiment(treatments=6, failures=3))
    page = Page(text)
    assert len(text.encode()) <= 3 * MEGABYTE
    assert dict(page.elements)["html"] == {"lang": "en"}
    assert page.count("h1") == 1
    assert page.count("caption") == page.count("table") > 5
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert all(attrs.get("scope") for tag, attrs in page.elements if tag == "th")
    plots = [attrs for _, attrs in page.elements if attrs.get("class") == "plot"]
    assert len(plots) == 3 and all("largest is" in (attrs.get("aria-label") or "") for attrs in plots)
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {attrs["aria-labelledby"] for _, attrs in page.elements if "aria-labelledby" in attrs} <= {*ids}


def test_nothing_is_loaded_from_outside() -> None:
    page = Page(html(sample_experiment()))
    loading = {"src", "href", "srcset", "data", "action", "poster", "background"}
    assert not [(tag, attrs) for tag, attrs in page.elements if loading & {*attrs}]
    styles = "".join(text for path, text in page.texts if "style" in path)
    assert styles and "url(" not in styles and "@import" not in styles
    policy = next(attrs["content"] for _, attrs in page.elements if attrs.get("http-equiv"))
    assert policy is not None and policy.startswith("default-src 'none'")


def test_names_are_text_everywhere() -> None:
    names = {"vm": f"vm {SCRIPT}", "vm guest.mitigations=off": f"vm x={SCRIPT}"}
    experiment = renamed(
        sample_experiment(treatments=4), names, name=SCRIPT, command=f"vmtax run {SCRIPT}", notes=(SCRIPT,)
    )
    experiment = dataclasses.replace(experiment, facts={SCRIPT: {SCRIPT: SCRIPT}}, host=SCRIPT)
    text = html(experiment)
    page = Page(text)
    assert "<script>alert" not in text and SCRIPT in page.prose()
    assert page.count("script") == Page(html(sample_experiment(treatments=4))).count("script")
    data = re.search(r'<script type="application/json" id="figures">(.*?)</script>', text, re.DOTALL)
    assert data and not {"<", ">", "&"} & {*data[1]}
    figures = json.dumps(json.loads(data[1]))
    assert "&lt;script&gt;" in figures and "<script" not in figures  # plotly reads its own markup in names
    assert SCRIPT in "".join(t for path, t in page.texts if path[-1:] == ("title",))


def emulated_cells(page: str) -> Iterator[tuple[list[str], list[str]]]:
    """(head, cells) of each row of the tables that set layers side by side."""
    for table in re.findall(r"<table>.*?</table>", page, re.DOTALL):
        head = re.findall(r'<th scope="col">(.*?)</th>', table)
        for row in re.findall(r'<tr><th scope="row">.*?</tr>', table, re.DOTALL):
            yield head, re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)


def test_every_emulated_cell_says_so() -> None:
    found = 0
    for head, cells in emulated_cells(html(sample_experiment())):
        for name, cell in zip(head[1:], cells, strict=True):
            if name not in ("host", "rounds") and "none" not in cell:
                assert "emulated" in cell, (name, cell)
                found += 1
            elif name == "host":
                assert "emulated" not in cell
    assert found > 100
    page = html(sample_experiment(emulated=False))
    assert "emulated" not in Page(page).prose()


def test_emulated_settings_say_so() -> None:
    page = html(sample_experiment(treatments=4))
    cells = re.findall(r"<td>\s*<span class=\"median\">.*?</td>", page, re.DOTALL)
    assert cells and all(cell.count('class="emulated"') == 2 for cell in cells)


def test_pictures_hold_the_comparisons_and_say_emulated() -> None:
    experiment = sample_experiment(treatments=4)
    metrics = headline_metrics(experiment, compared(experiment))
    drawn = {p.id: p for p in pictures(view(experiment, compared(experiment)), metrics)}
    assert list(drawn) == ["throughput", "time", "settings"]
    first = drawn["throughput"].figure["data"][0]
    overheads = {
        c.metric.name: 100 * (1 - c.ratio) for c in compared(experiment) if (c.baseline, c.treatment) == ("host", "vm")
    }
    assert first["x"][0] == pytest.approx(overheads["chess.nodes_per_second"])
    for picture in drawn.values():
        for trace in picture.figure["data"]:
            assert "(emulated)" in trace["name"]
            assert all("(emulated)" in text for text in trace["text"])
            assert all(arm >= 0 for arm in (*trace["error_x"]["array"], *trace["error_x"]["arrayminus"]))
        assert "emulated" in picture.figure["layout"]["xaxis"]["title"]["text"]


def test_the_page_tells_doubts_facts_notes_and_how_to_repeat() -> None:
    experiment = sample_experiment(failures=2)
    prose = Page(html(experiment)).prose()
    for text in (
        experiment.command,
        experiment.id,
        *experiment.notes,
        "mmap failed",
        "qemu-system-x86_64",
        "host/vm/vm",
    ):
        assert text in prose


def test_an_unfinished_run_can_be_shown() -> None:
    experiment = sample_experiment(rounds=4)
    assert "too few rounds" in Page(html(experiment)).prose()
    prose = Page(html(dataclasses.replace(experiment, trials=(), boots=(), finished=None, state="running"))).prose()
    assert "not finished" in prose and "Nothing can be compared yet" in prose
