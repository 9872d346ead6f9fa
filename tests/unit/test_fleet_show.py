"""Many hosts: each counts once, odd ones are found and innocent ones not accused, and a thousand can be read."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import json
import math
import random
import re
from collections.abc import Sequence
from pathlib import Path

import jsonschema_rs
import pytest
from typer.testing import CliRunner, Result

from tests.sample_many import a_run, costs
from tests.unit.test_exchange import samples
from tests.unit.test_report_html import HOSTILE, Page
from vmtax.analysis.many.costs import RunCosts
from vmtax.analysis.many.fleet import GROUP_ALPHA, Fleet, FleetLine, fleet
from vmtax.cli import app
from vmtax.core.errors import BAD_INPUT, DONE
from vmtax.report.answers.schema import json_schema
from vmtax.report.document import Detail, SortableTable
from vmtax.report.render.formats import FLEET_FORMATS, find_fleet
from vmtax.report.sections.fleet import document
from vmtax.report.wording import fleet as words
from vmtax.store import Store

KERNELS = ("6.12.48", "6.12.60")
MEGABYTE = 1e6


def hosts(
    count: int, odd: Sequence[int] = (), *, apart: float = 0.004, kernel: float = 0.0, seed: int = 1
) -> list[RunCosts]:
    """Hosts that differ a little; every third has the newer kernel, with which everything takes so much longer."""
    rng = random.Random(seed)
    return [
        costs(
            1000 * seed + n,
            rng.random(),
            rng.gauss(0, apart) + (0.15 if n in odd else 0.0) + (kernel if n % 3 == 0 else 0.0),
            host_name=f"web{n:04d}",
            rounds=10,
            properties={"kernel": KERNELS[n % 3 == 0]},
        )
        for n in range(count)
    ]


def line(found: Fleet, metric: str = "chess.nodes_per_second", treatment: str = "vm") -> FleetLine:
    wanted = (metric, treatment, "host")
    return next(one for one in found.lines if (one.metric.name, one.treatment, one.baseline) == wanted)


def said(page: Page) -> str:
    return "".join(text for _, text in page.texts)


# --- each host once


def test_the_newest_run_of_a_machine_counts_under_whatever_name() -> None:
    runs = hosts(8)
    again = dataclasses.replace(runs[2], id="20270101-0000-quick-0001", created=runs[2].created + 9e5)
    renamed = dataclasses.replace(
        runs[5], id="20270101-0000-quick-0002", host_name="db1", created=runs[5].created - 9e5
    )
    found = fleet([*runs, again, renamed])
    assert len(found.costs) == 8 and again in found.costs and runs[2] not in found.costs
    assert "web0005" in found.hosts and "db1" not in found.hosts
    texts = [*map(words.merged, found.merged)]
    assert texts[0] == f"web0002: the newest run counts, {again.id}; 1 earlier run of it not"
    assert texts[1].startswith("web0005 and db1 have one machine-id, so they are one host: its newest run counts")
    assert "systemd-machine-id-setup" in texts[1]


def test_hosts_with_other_work_are_left_out_and_named() -> None:
    runs = hosts(8)
    other = {**runs[7].work.guest, "vcpus": 4}
    runs[7] = dataclasses.replace(runs[7], created=9e9, work=dataclasses.replace(runs[7].work, guest=other))
    found = fleet(runs)
    assert len(found.costs) == 7, "the most hosts, not the newest run"
    assert [one.host for one in found.left_out] == ["web0007"] and "guest.vcpus is 4" in found.left_out[0].why


@pytest.mark.variations
def test_the_fleet_does_not_depend_on_the_order_of_its_runs() -> None:
    runs = hosts(12, odd=[4])
    assert fleet(runs[::-1]) == fleet(runs)


# --- the answers


@pytest.mark.parametrize("odd", [[], [3], [3, 7, 11], [0, 1, 2, 3, 4]])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.varied(2)
def test_odd_hosts_are_found_and_no_other_is_accused(odd: list[int], seed: int) -> None:
    found = fleet(hosts(20, odd, seed=seed + 1))
    chess = line(found)
    assert {host.host for host in chess.odd} == {f"web{n:04d}" for n in odd}
    assert all(host.deviation > 1.08 for host in chess.odd)


def test_the_mean_and_the_next_host_are_around_what_was_planted() -> None:
    found = fleet(hosts(60, apart=0.02, seed=2))
    chess = line(found)
    true = math.exp(next(figure.log for figure in costs(1, sd=1e-9).figures))
    assert chess.low is not None and chess.high is not None and chess.low < true < chess.high
    assert chess.next_low is not None and chess.next_high is not None and chess.between is not None
    assert chess.next_low < chess.low and chess.high < chess.next_high
    assert chess.between == pytest.approx(0.02, rel=0.35)
    inside = sum(chess.next_low <= host.ratio <= chess.next_high for host in chess.hosts)
    assert inside >= 54


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "1 host: too few to say which is odd; 8 are needed."),
        (7, "7 hosts: too few to say which is odd; 8 are needed."),
        (8, "No host is odd among 8, in 6 primary costs."),
    ],
)
def test_few_hosts_say_so(count: int, text: str) -> None:
    found = fleet(hosts(count))
    assert words.headline(found) == text
    assert (line(found).ratio is None) == (count == 1)


def test_hosts_without_enough_costs_in_common_are_not_called_even() -> None:
    runs = hosts(8)
    runs[7] = dataclasses.replace(runs[7], figures=())
    assert words.headline(fleet(runs)) == "8 hosts: too few that have the same cost to say which is odd; 8 are needed."
    even = words.headline(fleet([*runs, *hosts(9)[8:]]))
    assert even.startswith("No host is odd among 8, in "), "one of the nine has no cost"


def test_machines_of_one_name_are_told_apart_everywhere() -> None:
    runs = [dataclasses.replace(run, host_name="localhost") for run in hosts(9, odd=[3])]
    found = fleet(runs)
    assert len(set(found.hosts)) == 9 and all(name.startswith("localhost ") for name in found.hosts)
    assert {host.host for one in found.lines for host in one.hosts} == set(found.hosts)
    text = find_fleet("prometheus")(found, False)
    series = [each.rpartition(" ")[0] for each in text.splitlines() if not each.startswith("#")]
    assert len(series) == len(set(series)), "two samples of one series are refused"


def test_what_costs_go_with_is_corrected_for_all_costs_together() -> None:
    found = fleet(hosts(18, kernel=0.02))
    every = [one for each in found.primary for one in each.properties]
    assert len(every) > 1 and all(one.shown == (one.p <= GROUP_ALPHA) for one in every)
    least = min(one.p for one in every)
    assert least >= len(every) / 2001 * 0.999, "the least p-value that permutation gives, times their number"


@pytest.mark.variations
def test_what_a_cost_goes_with_is_no_cause() -> None:
    found = fleet(hosts(30, kernel=0.03))
    text = "\n".join(words.associations(found))
    assert "CPU, chess: vm against host goes with the kernel: 6.12.48 " in text and "on 20 hosts, 6.12.60 " in text
    assert "because" not in text and text.endswith(words.ASSOCIATION)
    assert words.associations(fleet(hosts(30))) == []
    assert words.not_shown(fleet(hosts(30))) == "No primary cost is shown to go with: kernel."


def test_properties_that_group_the_hosts_alike_cannot_be_told_apart() -> None:
    versions = dict(zip(KERNELS, ("7.2", "10.0"), strict=True))
    runs = [
        dataclasses.replace(run, properties={**run.properties, "QEMU": versions[run.properties["kernel"]]})
        for run in hosts(30, kernel=0.03)
    ]
    text = "\n".join(words.associations(fleet(runs)))
    assert "the same hosts differ in QEMU" in text and "goes with the QEMU" not in text


def without_errors(run: RunCosts) -> RunCosts:
    return dataclasses.replace(run, figures=tuple(dataclasses.replace(one, error=0.0) for one in run.figures))


def test_coarse_figures_without_an_error_are_no_end_of_the_fleet() -> None:
    runs = hosts(9)
    runs[0] = without_errors(runs[0])
    assert line(fleet(runs)).ratio is not None
    every = [*map(without_errors, runs)]
    assert (line(fleet(every)).ratio, line(fleet(every)).odd) == (None, ())


# --- every way to read it


@pytest.mark.parametrize("format", FLEET_FORMATS)
@pytest.mark.parametrize("count", [1, 2, 20])
@pytest.mark.varied(3)
def test_every_format_writes_every_fleet(format: str, count: int) -> None:
    text = find_fleet(format)(fleet(hosts(count, odd=[1] if count == 20 else [])), True)
    assert "web0000" in text and text.endswith(("\n", "</html>"))


def test_the_answer_fits_its_schema() -> None:
    answer = json.loads(find_fleet("json")(fleet(hosts(30, odd=[2], kernel=0.03)), False))
    jsonschema_rs.validator_for(json_schema()).validate(answer)
    first = answer["data"]["lines"][0]
    assert [host["host"] for host in first["hosts"] if host["odd"]] == ["web0002"]


def test_other_programs_get_a_row_or_a_sample_for_each_host() -> None:
    found = fleet(hosts(9))
    rows = list(csv.DictReader(io.StringIO(find_fleet("csv")(found, False))))
    assert [row["host"] for row in rows] == list(found.hosts)
    labels = {dict(labels)["host"] for _, labels in samples(find_fleet("prometheus")(found, False))}
    assert labels == {*found.hosts}


@pytest.mark.variations
def test_each_host_takes_little_of_a_page() -> None:
    """A thousand, and how long they take: tests/integration/test_many_hosts.py."""
    text, small = (find_fleet("html")(fleet(hosts(count, odd=[17, 40])), False) for count in (200, 100))
    assert (len(text.encode()) - len(small.encode())) * 10 < 3 * MEGABYTE
    page = Page(text)
    tiles = [attrs for tag, attrs in page.elements if tag == "i"]
    assert len(tiles) == 6 * 200 and sum("odd" in (attrs["class"] or "") for attrs in tiles) >= 2
    assert sum(tag == "tr" for tag, _ in page.elements) > 200 and "script" not in {tag for tag, _ in page.elements}


def test_a_page_nests_and_its_ids_are_its_own() -> None:
    page = Page(find_fleet("html")(fleet(hosts(20, odd=[3], kernel=0.03)), False))
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert "1 of 20 hosts is odd: web0003." in said(page)


def test_names_of_hosts_are_only_text() -> None:
    runs = hosts(9)
    runs[3] = dataclasses.replace(runs[3], host_name=HOSTILE[0] if isinstance(HOSTILE, tuple) else str(HOSTILE))
    Page(find_fleet("html")(fleet(runs), False))


def test_a_table_knows_the_place_of_each_row_for_each_column() -> None:
    found = fleet(hosts(20, odd=[3], kernel=0.03))
    (table,) = (
        block
        for section in document(found, Detail.PAGE).sections
        for block in section.blocks
        if isinstance(block, SortableTable)
    )
    assert len(table.places) == len(table.rows) == 20
    for column, _ in enumerate(table.columns):
        assert sorted(places[column] for places in table.places) == [*range(20)]
    names = [row.cells[0].pieces[0].text for row in table.rows]
    by_cost = sorted(range(20), key=lambda row: table.places[row][2])
    ratios = {host.host: host.ratio for host in line(found).hosts}
    assert all(ratios[names[a]] <= ratios[names[b]] for a, b in itertools.pairwise(by_cost))
    assert names[0] == "web0003", "odd hosts come first"


def test_a_terminal_shows_some_hosts_and_the_odd_ones_first() -> None:
    text = find_fleet("terminal")(fleet(hosts(40, odd=[30])), False)
    assert re.search(r"web0030\s+odd", text) and "and 28 more" in text


# --- the command


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("home")
    with Store(path / "vmtax/vmtax.sqlite") as store:
        for number in range(3):
            name = f"web{number}"
            facts = {"hostname": name, "machine_id": f"{number:032x}"}
            store.put(a_run(number, number, host=f"ssh://root@{name}", label="autumn", **facts))
    return path


def command(home: Path, monkeypatch: pytest.MonkeyPatch, *argv: str) -> Result:
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    return CliRunner().invoke(app, ["fleet", "show", *argv])


@pytest.mark.parametrize("argv", [(), ("quick",), ("--label", "autumn"), ("quick", "--label", "autumn")])
def test_the_fleet_of_a_plan_or_a_label(argv: tuple[str, ...], home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = command(home, monkeypatch, *argv, "--json")
    assert done.exit_code == DONE and len(json.loads(done.stdout)["data"]["hosts"]) == 3


def test_a_fleet_without_names(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "fleet.html"
    done = command(home, monkeypatch, "--format", "html", "--redact", "-o", str(file))
    assert done.exit_code == DONE and "web1" not in file.read_text() and "host-00000000" in file.read_text()


@pytest.mark.parametrize(
    ("argv", "text"),
    [(("slow",), "no run of plan 'slow'; there are: quick"), (("--format", "xml"), "unknown format 'xml'")],
)
def test_bad_input_is_one_line(argv: tuple[str, ...], text: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = command(home, monkeypatch, *argv)
    assert getattr(done.exception, "exit_code", None) == BAD_INPUT and text in str(done.exception)
