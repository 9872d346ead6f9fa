"""The report in a real browser: light and dark, on a telephone, on paper; choosing works; nothing is executed."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.command import HANGS
from tests.sample import sample_experiment, with_repeat
from tests.sample_many import costs
from tests.sample_storage import storage_experiment
from tests.unit.test_report_html import hostile
from tests.unit.test_report_pictures import hostile_sweep
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.many.fleet import fleet
from vmtax.core.records import Experiment
from vmtax.report.render.formats import find_fleet
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
# A frame of some width, for chromium's own window has none so narrow; it tells what sticks out, and what is seen.
FRAMED = """<!doctype html><body><iframe width="%d" height="900" style="border: 0"></iframe><script>
const frame = document.querySelector("iframe");
frame.srcdoc = %s;
setTimeout(() => {
  const inside = frame.contentDocument, page = inside.documentElement;
  const width = page.clientWidth;
  const wide = [...page.querySelectorAll("body *")].filter((one) =>
    one.getBoundingClientRect().right > width + 1 && !one.closest(".scroll, .marks"));
  const below = (id) => inside.getElementById(id)?.getBoundingClientRect().top;
  const contents = inside.querySelector("nav.contents").getBoundingClientRect().width > 0;
  const beside = inside.querySelector("aside").getBoundingClientRect().left > width / 2;
  const folded = inside.querySelectorAll("details:not([open])").length;
  const out = wide.map((one) => one.outerHTML.slice(0, 80));
  const told = { width, scroll: page.scrollWidth, wide: out, contents, beside, folded, tiles: below("answer") };
  document.documentElement.dataset.told = JSON.stringify(told);
}, 3000);
</script>"""


# The page in a frame; something else is chosen there, and what the pictures then show is reported.
CHOOSING = """<!doctype html><body><iframe width="%d" height="900" style="border: 0"></iframe><script>
const frame = document.querySelector("iframe");
frame.srcdoc = %s;
const shown = (page, what) => [...page.querySelectorAll(what)].filter((one) => one.getBoundingClientRect().height > 0);
setTimeout(() => {
  const page = frame.contentDocument;
  page.querySelectorAll("details").forEach((one) => { one.open = true; });
  const seen = () => ({
    titles: shown(page, ".choice svg[role=img]").map((one) => one.querySelector("title").textContent),
    legends: shown(page, "#tradeoff .legend").map((one) => one.textContent),
    marks: shown(page, "#tradeoff g[data-second] use").length,
    colours: shown(page, "#tradeoff g.level-1").map((one) => getComputedStyle(one).color),
    notes: shown(page, ".chosen, .old").length,
  });
  const before = seen();
  const [metric, pair, place, factor] = page.querySelectorAll(".choice select");
  metric.value = "2"; pair.value = "5"; place.value = "1"; factor.value = "3";
  const inside = page.documentElement.clientWidth;
  const wide = shown(page, ".choice *").filter((one) => one.getBoundingClientRect().right > inside + 1);
  const out = wide.map((one) => one.outerHTML.slice(0, 80));
  document.documentElement.dataset.told = JSON.stringify({ before, after: seen(), out });
}, 3000);
</script>"""


# The table of hosts in a frame: the names in it from the top down, by name, by its last cost, and the other way round.
SORTING = """<!doctype html><body><iframe width="1200" height="900" style="border: 0"></iframe><script>
const frame = document.querySelector("iframe");
frame.srcdoc = %s;
setTimeout(() => {
  const page = frame.contentDocument;
  const top = (one) => one.getBoundingClientRect().top;
  const names = () => [...page.querySelectorAll(".sortable tbody tr")].sort((a, b) => top(a) - top(b))
    .map((row) => row.querySelector("th").textContent);
  const by = [...page.querySelectorAll(".sorts input[type=radio]")];
  const name = names();
  by[by.length - 1].checked = true;
  const cost = names();
  page.querySelector(".sorts .reverse").checked = true;
  document.documentElement.dataset.told = JSON.stringify({ name, cost, reverse: names() });
}, 3000);
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


def loaded(page: Path, profile: Path, theme: str = LIGHT, at: str = "") -> tuple[str, list[str]]:
    """(the document as it stands after loading, what the page's scripts complained about)."""
    chromium = shutil.which("chromium")
    assert chromium, "no chromium: install the Debian package of that name (apt-get install chromium)"
    command = (chromium, *OPTIONS, theme, f"--user-data-dir={profile}", "--dump-dom", f"{page.as_uri()}{at}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if ":CONSOLE" in line or "Uncaught" in line]


@pytest.mark.parametrize(
    ("theme", "colour", "width"),
    [(*theme, width) for theme, width in zip(THEMES.items(), (1100, 400), strict=True)],
    ids=["light", "dark, on a telephone"],
)
def test_another_picture_can_be_chosen(theme: str, colour: str, width: int, tmp_path: Path) -> None:
    """By CSS alone, and no other is seen."""
    told = told_by(CHOOSING, storage_experiment(), tmp_path, width, theme=theme)
    before, after = told["before"], told["after"]
    assert told["out"] == []
    assert before["titles"] == [
        "Disk randwrite-4k-qd1 operations, vm: disk.cache by disk.bus (emulated)",
        "Disk randwrite-4k-qd1, vm (emulated)",
    ]
    crossed, tradeoff = after["titles"]
    assert crossed == "Disk first-write-64k operations, vm: disk.filesystem by disk.format (emulated)"
    assert tradeoff == "Disk randread-4k-qd32, vm (emulated)"
    for seen, factor in ((before, "disk.cache"), (after, "disk.filesystem")):
        assert len(seen["legends"]) == 1 and f"{factor}=none" in seen["legends"][0]
        assert (seen["marks"], seen["notes"], seen["colours"]) == (24, 0, [colour])


def pages(report: Path, profile: Path) -> int:
    """On how many sheets of A4 it is printed."""
    file = report.with_suffix(".pdf")
    chromium = shutil.which("chromium")
    assert chromium
    printing = ("--no-pdf-header-footer", f"--user-data-dir={profile}", f"--print-to-pdf={file}", report.as_uri())
    subprocess.run((chromium, *OPTIONS, *printing), capture_output=True, timeout=HANGS, check=True)
    return len(re.findall(rb"/Type /Page\b", file.read_bytes()))


def test_quick_is_small_and_is_printed_on_three_sheets(tmp_path: Path) -> None:
    page = written(with_repeat(sample_experiment(failures=3)), tmp_path / "report.html")
    assert page.stat().st_size <= 400_000 and "<script" not in page.read_text()
    assert 1 <= pages(page, tmp_path / "profile") <= 3


def test_the_report_of_two_layers_is_printed_on_two_sheets_and_each_ranking_on_part_of_one(tmp_path: Path) -> None:
    page = written(with_repeat(sample_experiment(emulated=False)), tmp_path / "report.html")
    assert pages(page, tmp_path / "profile") == 2, "the tiles and the first picture, then the figures and the machine"
    page = written(storage_experiment(emulated=False), tmp_path / "storage.html")
    assert pages(page, tmp_path / "profile") <= 8, "eleven pictures, none of them across an edge"


def told_by(frame: str, experiment: Experiment, directory: Path, *more: object, theme: str = LIGHT) -> Any:
    """What the script of a page says that frames the report."""
    page = written(experiment, directory / "report.html")
    return told_by_page(frame, page.read_text(), directory, *more, theme=theme)


def told_by_page(frame: str, page: str, directory: Path, *more: object, theme: str = LIGHT) -> Any:
    """The same of any page."""
    file = directory / "frame.html"
    file.write_text(frame % (*more, json.dumps(page).replace("</", "<\\/")))
    document, complaints = loaded(file, directory / "profile", theme)
    told = re.search(r'data-told="([^"]*)"', document)
    assert complaints == [] and told
    return json.loads(html.unescape(told[1]))


@pytest.mark.varied(2)
@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize(
    "experiment",
    [
        with_repeat(sample_experiment(treatments=8, failures=3)),
        storage_experiment(many=True),
        sample_experiment(rounds=1),
    ],
    ids=["layers and settings", "72 configurations", "one round"],
)
def test_nothing_sticks_out_and_the_contents_stand_where_there_is_room(
    experiment: Experiment, width: int, tmp_path: Path
) -> None:
    told = told_by(FRAMED, experiment, tmp_path, width)
    assert (told["width"], told["scroll"], told["wide"]) == (width, width, [])
    assert told["contents"] == told["beside"] == (width == 1400)
    assert told["folded"] > 10
    assert told.get("tiles", 0) < 420, "the answer is on the first screen"


def test_hosts_are_sorted_without_a_script(tmp_path: Path) -> None:
    runs = [costs(n, vm=(7 * n % 12) / 50, host_name=f"web{n:02d}") for n in range(12)]
    told = told_by_page(SORTING, find_fleet("html")(fleet(runs), False), tmp_path)
    assert told["name"] == [f"web{n:02d}" for n in range(12)]
    assert told["cost"] == [f"web{n:02d}" for n in sorted(range(12), key=lambda n: 7 * n % 12)]
    assert told["reverse"] == told["cost"][::-1]


def test_the_address_of_a_metric_unfolds_what_it_is_in(tmp_path: Path) -> None:
    page = written(sample_experiment(), tmp_path / "report.html")
    document, _ = loaded(page, tmp_path / "profile", at="#disk.randwrite-4k-qd1.iops")
    (unfolded,) = re.findall(r'<details open="">.*?</details>', document, re.DOTALL)
    assert 'id="disk.randwrite-4k-qd1.iops"' in unfolded


@pytest.mark.parametrize("made", [hostile, hostile_sweep], ids=["layers", "a sweep"])
@pytest.mark.parametrize(
    "policy", [pytest.param(True, marks=pytest.mark.machines), False], ids=["", "without its policy"]
)
def test_nothing_measured_is_executed(made: Callable[[str], Experiment], policy: bool, tmp_path: Path) -> None:
    mark = "document.documentElement.dataset.hit=1"
    text = (
        f"<script>{mark};alert(1)</script>\"><img src=x onerror='{mark}'></script>{{{{7*7}}}}<a href=javascript:{mark}>"
    )
    page = written(made(text), tmp_path / "report.html")
    if not policy:
        bare, count = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())
        assert count == 1
        page.write_text(bare)
    document, complaints = loaded(page, tmp_path / "profile")
    assert complaints == []  # nor did the policy have anything to refuse
    assert "data-hit" not in document
    found = Elements(document)
    assert not [tag for tag, _ in found.elements if tag in ("img", "script")]
    assert not [attrs for _, attrs in found.elements if any(name.startswith("on") for name in attrs)]
    assert {attrs["href"][:1] for tag, attrs in found.elements if tag == "a"} == {"#"}
    assert found.texts.count(text) > 20
