"""The report in a real browser: the pictures are drawn, in both themes, it fits a telephone, nothing is executed."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.sample import sample_experiment
from tests.sample_storage import storage_experiment
from tests.unit.test_report_html import figures_in, hostile
from vmtax.analysis.analysis import Analysis
from vmtax.core.records import Experiment
from vmtax.report.render.html import render_html

OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
    *("--enable-logging=stderr", "--virtual-time-budget=30000"),
)
LIGHT = "--blink-settings=preferredColorScheme=1"
THEMES = {  # how chromium is told, and the first contrast's colour there
    LIGHT: "rgb(27, 94, 158)",
    "--blink-settings=preferredColorScheme=0": "rgb(125, 180, 234)",  # dark
}
# A frame of a telephone's width, for chromium's own window has none so narrow; it tells what sticks out.
NARROW = """<!doctype html><body><iframe width="400" height="900" style="border: 0"></iframe><script>
const frame = document.querySelector("iframe");
frame.srcdoc = %s;
setTimeout(() => {
  const page = frame.contentDocument.documentElement;
  const wide = [...page.querySelectorAll("body *")].filter((one) =>
    one.getBoundingClientRect().right > 401 && !one.closest(".scroll, svg")).map((one) => one.outerHTML.slice(0, 80));
  const told = { drawn: page.dataset.pictures, width: page.clientWidth, scroll: page.scrollWidth, wide };
  document.documentElement.dataset.told = JSON.stringify(told);
}, 10000);
</script>"""


# The page in a frame; another pair of factors is chosen there, and what the pictures then show is told.
CHOOSING = """<!doctype html><body><iframe width="1100" height="900" style="border: 0"></iframe><script>
const frame = document.querySelector("iframe");
frame.srcdoc = %s;
const titles = (page) => [...page.querySelectorAll("#crossed .xtitle, #crossed .ytitle")].map((one) => one.textContent);
setTimeout(() => {
  const page = frame.contentDocument;
  const before = titles(page);
  const select = page.querySelectorAll('select[data-plot="crossed"]')[1];
  select.value = "5";
  select.dispatchEvent(new Event("change"));
  setTimeout(() => {
    const rows = page.querySelectorAll("#rank-1 .yaxislayer-above .ytick text").length;
    const told = { drawn: page.documentElement.dataset.pictures, before, after: titles(page), rows };
    document.documentElement.dataset.told = JSON.stringify(told);
  }, 2000);
}, 10000);
</script>"""


class Elements(HTMLParser):
    """The elements of a document as a browser tells it, and its pieces of text."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts = ""
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.texts += data


def written(experiment: Experiment, file: Path) -> Path:
    file.write_text(render_html(Analysis(experiment)), encoding="utf-8")
    return file


def loaded(page: Path, profile: Path, theme: str = LIGHT) -> tuple[str, list[str]]:
    """(the document as it stands after loading, what the page's scripts complained about)."""
    chromium = shutil.which("chromium")
    assert chromium, "no chromium: install the Debian package of that name (apt-get install chromium)"
    command = (chromium, *OPTIONS, theme, f"--user-data-dir={profile}", "--dump-dom", page.as_uri())
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if ":CONSOLE" in line or "Uncaught" in line]


def figures(page: Path) -> dict[str, Any]:
    """The figures that the page shows at first, by id."""
    return {
        id: next(iter(figure["choices"].values())) if "choices" in figure else figure
        for id, figure in figures_in(page.read_text()).items()
    }


def test_the_pictures_are_drawn(tmp_path: Path) -> None:
    page = written(sample_experiment(treatments=4, failures=2), tmp_path / "report.html")
    shown = figures(page)
    assert {"throughput", "time", "settings", "latency-1", "order"} <= {*shown}
    traces = [trace for figure in shown.values() for trace in figure["data"]]
    points = sum(len(trace["x"]) for trace in traces if "markers" in trace["mode"])
    intervals = sum(len(trace["x"]) for trace in traces if "error_x" in trace)
    for number, (theme, colour) in enumerate(THEMES.items()):
        document, complaints = loaded(page, tmp_path / f"profile{number}", theme)
        assert complaints == []
        assert 'data-pictures="drawn"' in document
        drawn = document.partition("<body")[2].partition('id="figures"')[0]
        assert drawn.count('class="main-svg"') >= len(shown)
        assert drawn.count('<path class="point') == points > 300
        assert drawn.count('<path class="xerror"') == intervals > 50
        assert colour in drawn
        assert drawn.count('<button type="button"') == len(shown)  # saving the picture, and nothing that uploads it


def told_by(frame: str, experiment: Experiment, directory: Path) -> Any:
    """What the script of a page says that frames the report."""
    page = written(experiment, directory / "report.html")
    file = directory / "frame.html"
    file.write_text(frame % json.dumps(page.read_text()).replace("</", "<\\/"))
    document, complaints = loaded(file, directory / "profile")
    told = re.search(r'data-told="([^"]*)"', document)
    assert complaints == [] and told
    return json.loads(html.unescape(told[1]))


@pytest.mark.parametrize(
    "experiment",
    [sample_experiment(treatments=12, rounds=8, failures=3), storage_experiment(many=True)],
    ids=["", "with 72 treatments"],
)
def test_nothing_sticks_out_on_a_telephone(experiment: Experiment, tmp_path: Path) -> None:
    told = told_by(NARROW, experiment, tmp_path)
    assert told == {"drawn": "drawn", "width": 400, "scroll": 400, "wide": []}


def test_another_pair_of_factors_can_be_chosen(tmp_path: Path) -> None:
    told = told_by(CHOOSING, storage_experiment(), tmp_path)
    assert told["drawn"] == "drawn" and told["rows"] == 25
    before, after = ("".join(told[when]) for when in ("before", "after"))
    assert "disk.cache" in before and "disk.bus" in before
    assert "disk.filesystem" in after and "disk.format" in after and "disk.cache" not in after


@pytest.mark.parametrize("policy", [True, False], ids=["", "also without its policy"])
def test_nothing_measured_is_executed(policy: bool, tmp_path: Path) -> None:
    mark = "document.documentElement.dataset.hit=1"
    text = (
        f"<script>{mark};alert(1)</script>\"><img src=x onerror='{mark}'></script>{{{{7*7}}}}<a href=javascript:{mark}>"
    )
    page = written(hostile(text), tmp_path / "report.html")
    if not policy:
        bare, count = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())
        assert count == 1
        page.write_text(bare)
    document, complaints = loaded(page, tmp_path / "profile")
    assert complaints == []  # nor did the policy have anything to refuse
    assert 'data-pictures="drawn"' in document and "data-hit" not in document
    found = Elements(document)
    assert not [tag for tag, _ in found.elements if tag == "img"]
    assert not [attrs for _, attrs in found.elements if any(name.startswith("on") for name in attrs)]
    assert {attrs["href"][:1] for tag, attrs in found.elements if tag == "a"} == {"#"}
    # Figures, plotly packed, the page's script, and plotly inflated.
    assert sum(tag == "script" for tag, _ in found.elements) == 4
    assert found.texts.count(text) > 20
