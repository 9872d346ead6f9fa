"""Before and after over a fleet: each host is compared with itself, and one that changed unlike the others is named."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import jsonschema_rs
import pytest
from typer.testing import CliRunner, Result

from tests.sample_many import a_run, costs
from tests.unit.test_report_html import Page
from vmtax.analysis.many.costs import RunCosts, run_costs
from vmtax.analysis.many.fleet_change import ChangedLine, FleetChange, NoPairs, fleet_change
from vmtax.cli import app
from vmtax.core.errors import BAD_INPUT, DONE
from vmtax.report.answers.schema import json_schema
from vmtax.report.render.formats import FLEET_CHANGE_FORMATS, find_fleet_change
from vmtax.report.wording import fleet_change as words
from vmtax.stats import HostEstimate, paired
from vmtax.store import Store

OLD, NEW = "6.12.48", "6.12.60"
Moves = Callable[[int], float]


def side(
    label: str, day: float, count: int = 20, moved: Moves = lambda n: 0.0, kernel: Callable[[int], str] = lambda n: OLD
) -> list[RunCosts]:
    """Hosts that are far apart from each other, whose guests take so much more time than usual, in log."""
    own = random.Random(7)
    return [
        costs(
            int(1000 * day) + n,
            day,
            own.gauss(0, 0.1) + moved(n),
            host_name=f"web{n:02d}",
            machine_id=f"{n:032x}",
            rounds=10,
            label=label,
            properties={"kernel": kernel(n)},
        )
        for n in range(count)
    ]


def change(after: Sequence[RunCosts], before: Sequence[RunCosts] | None = None) -> FleetChange:
    return fleet_change(side("old", 1) if before is None else before, after, 0.03)


def line(found: FleetChange, treatment: str = "vm", baseline: str = "") -> ChangedLine:
    wanted = ("chess.nodes_per_second", treatment, baseline)
    return next(one for one in found.lines if (one.line.metric.name, one.line.treatment, one.line.baseline) == wanted)


# --- one host


def test_the_change_of_a_host_is_welch_s_with_the_rounds_of_both_runs() -> None:
    one, other = HostEstimate(0.5, 0.003, 9), HostEstimate(0.54, 0.004, 5)
    found = paired(one, other)
    assert (found.log, found.error) == (pytest.approx(0.04), pytest.approx(0.005))
    assert found.freedom == math.floor(0.005**4 / (0.003**4 / 9 + 0.004**4 / 5)) == 10
    assert found.low is not None and found.high is not None
    assert (found.high - found.low) / 2 == pytest.approx(2.2281 * 0.005, rel=1e-4)
    assert (found.low + found.high) / 2 == pytest.approx(found.log)


def test_coarse_figures_without_an_error_have_no_interval() -> None:
    found = paired(HostEstimate(0.0, 0.0, 9), HostEstimate(0.1, 0.0, 5))
    assert (found.log, found.error, found.freedom, found.low) == (0.1, 0.0, 5, None)


@pytest.mark.parametrize("bad", [HostEstimate(math.nan, 0.1, 3), HostEstimate(0, math.inf, 3), HostEstimate(0, 1, 0)])
def test_no_change_of_impossible_hosts(bad: HostEstimate) -> None:
    for pair in ((bad, HostEstimate(0, 1, 1)), (HostEstimate(0, 1, 1), bad)):
        with pytest.raises(ValueError, match="two rounds or more"):
            paired(*pair)


# --- all hosts


def test_what_hosts_differ_in_from_each_other_is_no_change() -> None:
    found = change(side("new", 30))
    assert all(one.verdict == "same" for one in found.primary)
    assert (
        words.headline(found) == "Of 6 primary times on 20 hosts: 6 same within 3 %. No host changed unlike the others."
    )


def test_the_mean_change_is_what_was_planted_and_shown_for_times_and_for_costs() -> None:
    found = change(side("new", 30, moved=lambda n: 0.05, kernel=lambda n: NEW))
    for vm in (line(found).line, line(found, baseline="host").line):
        assert vm.low is not None and vm.high is not None and vm.low < math.exp(0.05) < vm.high
        assert vm.high - vm.low < 0.01
    assert line(found).verdict == "worse" and line(found, "host").verdict == "same"
    assert words.software(found) == [f"kernel {OLD} → {NEW} on 20 of 20 hosts"]


def test_a_host_that_changed_unlike_the_others_is_named_and_one_that_is_slow_on_both_sides_is_not() -> None:
    slow = side("old", 1, moved=lambda n: 0.5 if n == 5 else 0.0)
    found = change(side("new", 30, moved=lambda n: {3: 0.15, 5: 0.52}.get(n, 0.02)), slow)
    assert [host.host for host in line(found).line.odd] == ["web03"]
    assert words.headline(found).endswith("Unlike the others changed: web03.")


def test_hosts_that_were_not_upgraded_show_what_a_change_goes_with() -> None:
    upgraded = range(12)
    after = side("new", 30, moved=lambda n: 0.03 * (n in upgraded), kernel=lambda n: NEW if n in upgraded else OLD)
    (kernel,) = (one for one in line(change(after)).line.properties if one.name == "kernel")
    assert kernel.shown and [group.value for group in kernel.groups] == [OLD, f"{OLD} → {NEW}"]
    assert kernel.groups[1].ratio == pytest.approx(math.exp(0.03), abs=0.004)


def test_the_newest_run_of_a_machine_on_each_side_counts_under_whatever_name() -> None:
    after = side("new", 30)
    renamed = dataclasses.replace(after[4], host_name="other", host="ssh://other")
    late = dataclasses.replace(after[6], id="late", created=after[6].created + 1e5)
    found = change([late, *after[:4], renamed, *after[5:]])
    assert len(found.pairs) == 20 and {pair.after for pair in found.pairs} >= {"late", renamed.id}


def test_hosts_that_cannot_be_compared_are_left_out_with_the_reason() -> None:
    before, after = side("old", 1), side("new", 30)
    other = dataclasses.replace(after[3], work=dataclasses.replace(after[3].work, image="another"))
    found = change([other, *(run for run in after if run not in (after[3], after[8]))], before[1:])
    assert len(found.pairs) == 17
    why = {one.host: one.why for one in found.left_out}
    assert why["web08"] == "measured only before" and why["web00"] == "measured only after"
    assert "image.identity is" in why["web03"] and "before, another after" in why["web03"]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "1 host: too few to say how hosts change; 2 are needed."),
        (7, "Too few hosts to say whether one changed unlike the others; 8 are needed."),
    ],
)
def test_few_hosts_say_so(count: int, text: str) -> None:
    found = change(side("new", 30, count), side("old", 1, count))
    assert words.headline(found).endswith(text) and all(one.verdict for one in found.lines)


def test_no_host_in_common_is_no_comparison() -> None:
    strangers = [dataclasses.replace(run, machine_id="f" * 31 + str(n)) for n, run in enumerate(side("new", 30, 3))]
    with pytest.raises(NoPairs, match=r"compared in both 'old' and 'new': web0\d: measured"):
        change(strangers, side("old", 1, 3))


def test_times_of_a_run_are_those_that_it_measured() -> None:
    run = a_run(1)
    found = run_costs(run)
    assert found is not None
    levels = {(one.subject.metric.name, one.subject.treatment): one for one in found.levels}
    costs_found = {(one.subject.metric.name, one.subject.treatment, one.subject.baseline): one for one in found.figures}
    vm, host = (levels["chess.nodes_per_second", name] for name in ("vm", "host"))
    both = costs_found["chess.nodes_per_second", "vm", "host"]
    assert both.log == pytest.approx(vm.log - host.log, abs=0.02) and (vm.low, vm.subject.baseline) == (None, "")
    assert ("boot.ready_seconds", "vm") in levels and not any(one.low for one in found.levels)


# --- every way to read it


@pytest.mark.parametrize("format", FLEET_CHANGE_FORMATS)
@pytest.mark.parametrize("count", [1, 2, 20])
def test_every_format_writes_every_change(format: str, count: int) -> None:
    moved = side("new", 30, count, lambda n: 0.2 * (n == 1))
    text = find_fleet_change(format)(change(moved, side("old", 1, count)), True)
    assert "web00" in text and text.endswith(("\n", "</html>"))


def test_the_answer_fits_its_schema_and_describes_itself() -> None:
    found = change(side("new", 30, moved=lambda n: 0.15 * (n == 2)))
    answer = json.loads(find_fleet_change("json")(found, False))
    jsonschema_rs.validator_for(json_schema()).validate(answer)
    data = answer["data"]
    assert (answer["kind"], data["before"], data["after"], len(data["hosts"])) == ("fleet-change", "old", "new", 20)
    vm = next(one for one in data["lines"] if (one["treatment"], one["baseline"]) == ("vm", ""))
    assert [host["host"] for host in vm["hosts"] if host["unlike"]] == ["web02"] and vm["verdict"] == "same"


def test_a_page_nests_its_ids_are_its_own_and_it_has_a_map() -> None:
    page = Page(find_fleet_change("html")(change(side("new", 30, moved=lambda n: 0.2 * (n == 3))), False))
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    tiles = [attrs for tag, attrs in page.elements if tag == "i"]
    assert len(ids) == len(set(ids)) and len(tiles) == 6 * 20
    assert any("unlike" in (attrs.get("title") or "") for attrs in tiles)


# --- the command


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("home")
    with Store(path / "vmtax/vmtax.sqlite") as store:
        for number in range(6):
            name = f"web{number % 3}"
            facts = {"hostname": name, "machine_id": f"{number % 3:032x}"}
            label = "new" if number > 2 else "old"
            store.put(a_run(number, number, host=f"ssh://root@{name}", label=label, **facts))
    return path


def command(home: Path, monkeypatch: pytest.MonkeyPatch, *argv: str) -> Result:
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    return CliRunner().invoke(app, ["fleet", "compare", *argv])


def test_two_labels_are_compared(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = json.loads(command(home, monkeypatch, "old", "new", "--json", "--same-within", "1%").stdout)["data"]
    assert [host["host"] for host in data["hosts"]] == ["web0", "web1", "web2"] and data["same_within"] == 0.01
    file = tmp_path / "change.html"
    done = command(home, monkeypatch, "old", "new", "--format", "html", "--redact", "-o", str(file))
    assert done.exit_code == DONE and "web1" not in file.read_text() and "host-00000000" in file.read_text()


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (("old", "newer"), "no run has the label 'newer'; there are: new, old"),
        (("old", "new", "--plan", "slow"), "no run of plan 'slow' with the label 'new'"),
        (("old", "new", "--format", "xml"), "unknown format 'xml'"),
        (("old", "new", "--same-within", "200%"), "--same-within: 200% is not below 100%"),
        (("old", "old"), "'old' is on both sides: name two labels"),
    ],
)
def test_bad_input_is_one_line(argv: tuple[str, ...], text: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = command(home, monkeypatch, *argv)
    assert getattr(done.exception, "exit_code", None) == BAD_INPUT and text in str(done.exception)


def test_the_page_says_once_what_is_compared_and_how_its_own_figures_are_made() -> None:
    page = find_fleet_change("html")(change(side("new", 8)), False)
    assert page.count("before: old, after: new") == 1 and "vmtax fleet compare: quick, old and new" not in page
    assert "signed-rank" not in page and "Welch" in page
