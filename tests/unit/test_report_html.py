"""The HTML report: well formed, self-contained, and what was measured is only ever text in it."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from html.parser import HTMLParser
from importlib import resources

import pytest

from tests.sample import large_experiment, on_emulated_host, sample_experiment
from tests.sample_storage import storage_experiment
from tests.svg import dots
from tests.unit.test_report import compared, renamed
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.by_workload import view
from vmtax.core.records import Experiment, Measurement, Trial
from vmtax.report.figures import forests
from vmtax.report.render.html import render_html
from vmtax.report.wording.glossary import term_id
from vmtax.workload import WORKLOADS

HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</script>", "{{7*7}}", "%{y}<b>x</b>")
WORDS = (
    "text",
    "muted",
    "warn",
    "vm",
    *(f"level-{number}" for number in range(1, 7)),
)  # colours in which something is written
VOID = {"meta", "link", "br", "hr", "img", "input", "wbr"}
MEGABYTE = 10**6


def html(experiment: Experiment) -> str:
    return render_html(Analysis(experiment))


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
        """What a person reads: no style."""
        return " ".join(" ".join(t for path, t in self.texts if "style" not in path).split())


def test_the_page_is_well_formed_and_small() -> None:
    text = html(sample_experiment(treatments=6, failures=3))
    page = Page(text)
    assert len(text.encode()) <= 0.6 * MEGABYTE
    assert dict(page.elements)["html"] == {"lang": "en"}
    assert page.count("h1") == 1
    assert page.count("caption") == page.count("table") > 5
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert all(attrs.get("scope") for tag, attrs in page.elements if tag == "th")
    told = [text for path, text in page.texts if path[-2:] == ("svg", "desc")]
    assert len(told) == 4 + 2 + 5 + 1 + 1 + 2 and all(len(text) > 60 for text in told)
    assert sum(attrs.get("role") == "img" for _, attrs in page.elements) == len(told)
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {attrs["aria-labelledby"] for _, attrs in page.elements if "aria-labelledby" in attrs} <= {*ids}


def test_nothing_is_loaded_from_outside() -> None:
    page = Page(html(sample_experiment()))
    loading = {"src", "srcset", "data", "action", "poster", "background"}
    assert not [(tag, attrs) for tag, attrs in page.elements if loading & {*attrs}]
    ids = {f"#{attrs['id']}" for _, attrs in page.elements if "id" in attrs}
    assert {attrs["href"] for _, attrs in page.elements if "href" in attrs} <= ids  # all of them lead somewhere
    styles = "".join(text for path, text in page.texts if "style" in path)
    assert styles and "url(" not in styles and "@import" not in styles
    policy = next(attrs["content"] for _, attrs in page.elements if attrs.get("http-equiv"))
    assert policy is not None and policy.startswith("default-src 'none'")


def harmless_like(text: str) -> str:
    """A text that is as long, and has its spaces where the other has them."""
    return re.sub(r"\S", "h", text)


def hostile(text: str) -> Experiment:
    """An experiment in which everything that comes from outside is `text`."""
    names = {"vm": f"vm {text}", "vm guest.mitigations=off": f"vm x={text}"}
    run = renamed(sample_experiment(treatments=4, failures=1), names, name=text, command=text, notes=(text,), host=text)
    trials = tuple(
        dataclasses.replace(
            t, case=t.case and text, warnings=(text,), error=t.error and text, measurements=_called(t, text)
        )
        for t in run.trials
    )
    boots = tuple(dataclasses.replace(boot, argv=(text,), warnings=(text,)) for boot in run.boots)
    return dataclasses.replace(run, id=text, facts={text: {text: text}}, trials=trials, boots=boots)


def _called(trial: Trial, text: str) -> tuple[Measurement, ...]:
    """The measurements under names of metrics that hold `text`; the headlines keep theirs."""
    return tuple(
        m
        if m.metric.name in {kind.headline for kind in WORKLOADS.values()}
        else Measurement(dataclasses.replace(m.metric, name=m.metric.name + text), m.value)
        for m in trial.measurements
    )


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.varied(2)
def test_names_are_text_everywhere(text: str) -> None:
    told = html(hostile(text))
    page, harmless = Page(told), Page(html(hostile(harmless_like(text))))
    assert text in page.prose()
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in harmless.elements]
    assert [sorted(attrs) for _, attrs in page.elements] == [sorted(attrs) for _, attrs in harmless.elements]
    assert text in "".join(t for path, t in page.texts if path[-1:] == ("title",))
    assert page.count("img") == page.count("script") == 0


def test_no_page_has_a_script_or_may_run_one() -> None:
    for run, most in ((sample_experiment(treatments=4, failures=2), 400_000), (storage_experiment(), 1.1 * MEGABYTE)):
        text = html(run)
        policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
        assert policy and policy[1].replace("&#39;", "'") == "default-src 'none'; style-src 'unsafe-inline'"
        assert Page(text).count("script") == 0
        assert len(text.encode()) <= most


def luminance(colour: str) -> float:
    parts = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_text_is_readable_in_every_theme() -> None:
    style = resources.files("vmtax.report").joinpath("page/style.css").read_text("utf-8")
    themes = [
        dict(re.findall(r"--([\w-]+): (#\w{6})", block)) for block in re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    ]
    assert len(themes) == 3
    for theme in themes:
        for word, ground in (
            *((name, "paper") for name in WORDS),
            *((name, "wash") for name in WORDS),
            ("warn", "warn-wash"),
            *(("text", ground) for ground in ("heat-low", "heat-high")),
        ):
            dark, light = sorted((luminance(theme[word]), luminance(theme[ground])))
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (word, ground, theme)
        for mark, ground in itertools.product(
            ("vm", "nesting", "host", *(f"level-{n}" for n in range(1, 7))), ("paper", "wash")
        ):
            dark, light = sorted((luminance(theme[mark]), luminance(theme[ground])))
            assert (light + 0.05) / (dark + 0.05) >= 3, (mark, ground, theme)


def test_terms_are_explained() -> None:
    page = Page(html(sample_experiment()))
    links = {attrs["href"] for tag, attrs in page.elements if tag == "a" and attrs.get("class") == "term"}
    assert len(links) >= 10
    assert next(attrs["href"] for tag, attrs in page.elements if tag == "a") == "#main-content"  # the skip link
    with pytest.raises(KeyError):
        term_id("no such word")


@pytest.mark.variations
def test_ten_thousand_measurements_stay_small() -> None:
    experiment = large_experiment(10_000)
    assert len(html(experiment).encode()) <= 3 * MEGABYTE


def heads_of_numbers(page: str) -> list[str]:
    """The heads over figures, of the tables that set layers side by side."""
    tables = re.findall(r"<table>.*?</table>", page, re.DOTALL)
    heads = [re.sub("<.*?>", "", head) for table in tables for head in re.findall(r'<th scope="col">(.*?)</th>', table)]
    return [head for head in heads if head not in ("metric", "rounds", "against itself")]


def test_the_heads_of_emulated_columns_say_so() -> None:
    heads = heads_of_numbers(html(sample_experiment()))
    assert len(heads) > 20
    assert all(head.endswith(" emulated") == (head != "host") for head in heads), heads
    page = html(sample_experiment(emulated=False))
    assert "emulated" not in Page(page).prose()


def test_the_heads_of_an_emulated_host_say_so() -> None:
    page = html(on_emulated_host(sample_experiment(emulated=False)))
    heads = heads_of_numbers(page)
    assert "host emulated" in heads and all(head.endswith(" emulated") for head in heads)
    assert "The host under test is itself emulated" in Page(page).prose()


def test_emulated_settings_say_so() -> None:
    page = html(sample_experiment(treatments=4))
    tables = re.findall(r"<caption class=\"unseen\">[^<]*, settings</caption>.*?</table>", page, re.DOTALL)
    assert tables and all(table.count('class="emulated"') == 2 for table in tables), "median and cost"


def test_pictures_hold_the_comparisons_and_say_emulated() -> None:
    experiment = sample_experiment(treatments=4)
    drawn = {p.id: p for p in forests(view(Analysis(experiment)))}
    assert list(drawn) == ["layers", "tails", "cpu", "settings"]
    vm, nesting = dots(drawn["layers"])[:2]
    axis = {c.metric.name: 1 / c.ratio for c in compared(experiment) if (c.baseline, c.treatment) == ("host", "vm")}
    chess, stream = axis["chess.nodes_per_second"], axis["memory.stream.bytes_per_second"]
    other = next(dot for dot in dots(drawn["layers"]) if dot.tip.startswith("Memory stream"))
    scale = (vm.x - other.x) / math.log(chess / stream)
    assert vm.tip.startswith("CPU chess, all CPUs: 21.2\N{MULTIPLICATION SIGN} (")
    faults = next(dot for dot in dots(drawn["layers"]) if dot.tip.startswith("Memory page faults"))
    assert vm.x - faults.x == pytest.approx(scale * math.log(chess / axis["memory.faults.per_second"]), abs=1e-3)
    assert nesting.kind == "diamond"
    for picture in drawn.values():
        assert all("emulated" in dot.tip and dot.bar and dot.bar[0] <= dot.x <= dot.bar[1] for dot in dots(picture))
        assert all("emulated" in key.text for key in picture.legend)
        assert "emulated" in picture.alternative


def test_a_picture_holds_one_quantity() -> None:
    """A mean, a percentile and CPU time never share an axis."""
    for picture in forests(view(Analysis(storage_experiment(many=False)))):
        kinds = {re.sub(r".*, ([\w ]+), \d+ rounds$", r"\1", dot.tip) for dot in dots(picture)}
        assert not ({"p99 latency"} & kinds and len(kinds) > 1), kinds
        assert not ({"host CPU per operation"} & kinds and len(kinds) > 1), kinds


def test_the_page_shows_doubts_facts_notes_and_how_to_repeat() -> None:
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


@pytest.mark.variations
def test_an_unfinished_run_can_be_shown() -> None:
    experiment = sample_experiment(rounds=4)
    assert "too few rounds" in Page(html(experiment)).prose()
    prose = Page(html(dataclasses.replace(experiment, trials=(), boots=(), finished=None, state="running"))).prose()
    assert "not finished" in prose and "Nothing can be compared: no round" in prose
