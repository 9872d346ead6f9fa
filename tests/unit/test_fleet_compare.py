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
from vmtax.stats import HostEstimate, RunDrift, paired, repeated, run_drift
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
    assert {one.line.baseline for one in found.primary} == {""}, "a change is that of times, not of costs"
    assert not line(found, baseline="host").line.primary
    assert words.software(found) == [f"kernel {OLD} → {NEW} on 20 of 20 hosts"]


def test_a_host_that_changed_unlike_the_others_is_named_and_one_that_is_slow_on_both_sides_is_not() -> None:
    slow = side("old", 1, moved=lambda n: 0.5 if n == 5 else 0.0)
    found = change(side("new", 30, moved=lambda n: {3: 0.15, 5: 0.52}.get(n, 0.02)), slow)
    assert [host.host for host in line(found).line.odd] == ["web03"]
    assert words.headline(found).endswith("Unlike the others changed: web03.")


@pytest.mark.variations
def test_hosts_that_were_not_upgraded_show_what_a_change_goes_with() -> None:
    upgraded = range(12)
    after = side("new", 30, moved=lambda n: 0.03 * (n in upgraded), kernel=lambda n: NEW if n in upgraded else OLD)
    (kernel,) = (one for one in line(change(after)).line.properties if one.name == "kernel")
    assert kernel.shown and [group.value for group in kernel.groups] == [OLD, f"{OLD} → {NEW}"]
    assert kernel.groups[1].ratio == pytest.approx(math.exp(0.03), abs=0.004)


def test_a_machine_is_one_host_under_whatever_name() -> None:
    after = side("new", 30)
    renamed = dataclasses.replace(after[4], host_name="other", host="ssh://other")
    found = change([*after[:4], renamed, *after[5:]])
    assert len(found.pairs) == 20 and (renamed.id,) in {pair.after for pair in found.pairs}


# --- several runs of one host on one side


def again(
    label: str, day: float, count: int = 20, drift: float = 0.0, runs: int = 2, moved: float = 0.0
) -> list[RunCosts]:
    """Each host that often, which differs by itself from run to run."""
    own = random.Random(int(day))
    shifts = [[moved + own.gauss(0, drift) for _ in range(count)] for _ in range(runs)]
    return [run for n, shift in enumerate(shifts) for run in side(label, day + n, count, shift.__getitem__)]


def test_of_several_runs_of_a_host_the_mean_counts_and_all_are_named() -> None:
    before = [*side("old", 1, moved=lambda n: 0.04), *side("old", 2, moved=lambda n: 0.02)]
    after = side("new", 30, moved=lambda n: 0.03)
    found = change(after, before)
    assert line(found).line.ratio == pytest.approx(1.0, abs=0.003), "not 1.01 as the newest alone, nor 0.99"
    first = found.pairs[0]
    assert first.before == (before[20].id, before[0].id) and first.after == (after[0].id,)
    assert "of several runs of a host the mean counts: 40 runs before, 20 after" in words.facts(found)
    assert line(found).line.hosts[0].rounds == 10, "of the side that has fewer"


def test_the_host_is_the_unit_however_often_it_was_measured() -> None:
    """Ten runs of one host that changed do not outvote the others."""
    before, after = side("old", 1, 3), side("new", 30, 3)
    often = [run for day in range(31, 40) for run in side("new", day, 3, lambda n: 0.3 * (n == 0))[:1]]
    after[0] = side("new", 30, 3, lambda n: 0.3 * (n == 0))[0]
    found = line(change([*after, *often], before)).line
    assert len(found.hosts) == 3 and found.ratio == pytest.approx(math.exp(0.1), abs=0.02)


def test_the_interval_of_a_single_host_includes_what_hosts_change_from_run_to_run() -> None:
    alone = change(side("new", 30), side("old", 1))
    assert line(alone).run_to_run is None and words.single_hosts(alone) == words.ROUNDS_ALONE
    found = change(again("new", 30, drift=0.03), again("old", 1, drift=0.03))
    assert line(found).run_to_run == pytest.approx(0.03, rel=0.4)
    assert "from run to run, as those that were measured several times show: 3" in words.single_hosts(found)

    def width(change: FleetChange) -> float:
        host = line(change).line.hosts[3]
        assert host.low is not None and host.high is not None
        return math.log(host.high / host.low)

    assert 2 * 2 * 0.03 * 0.7 < width(found) < 2 * 2 * 0.03 * 1.5 and width(alone) < 0.03


def test_runs_of_one_boot_count_as_one_where_a_reboot_is_between_the_sides() -> None:
    """What a reboot changes would be in no interval if each of them counted."""
    after = again("new", 30, drift=0.03, runs=3)
    boots = [dataclasses.replace(run, boot=f"after {run.machine_id}") for run in after]
    assert line(change(after)).run_to_run and line(change(boots)).run_to_run is None
    everywhere = [
        [dataclasses.replace(run, boot=f"{run.machine_id}") for run in runs] for runs in (after, side("old", 1))
    ]
    assert line(change(*everywhere)).run_to_run, "no reboot: then runs are what there is"
    unknown = [dataclasses.replace(run, boot="") for run in after]
    assert line(change(unknown)).run_to_run, "boots that no version recorded are not one boot"


@pytest.mark.variations
def test_runs_of_other_work_than_the_newest_are_left_out_and_named() -> None:
    after = [*side("new", 30), *side("new", 31)]
    other = dataclasses.replace(after[3], work=dataclasses.replace(after[3].work, image="another"))
    found = change([*after[:3], other, *after[4:]])
    assert found.pairs[3].after == (after[23].id,) and len(found.pairs) == 20
    assert [(one.run, "another" in one.why) for one in found.left_out] == [(other.id, True)]


@pytest.mark.variations
def test_values_that_differ_within_a_side_are_all_named() -> None:
    after = [*side("new", 30, kernel=lambda n: OLD), *side("new", 31, kernel=lambda n: NEW)]
    assert words.software(change(after)) == [f"kernel {OLD} → {NEW} | {OLD} on 20 of 20 hosts"]


def test_the_mean_of_runs_and_its_error() -> None:
    one, other = HostEstimate(0.5, 0.003, 9), HostEstimate(0.54, 0.004, 5)
    alone = repeated([one, other])
    assert (alone.log, alone.error) == (pytest.approx(0.52), pytest.approx(0.0025)) and alone.freedom == 10
    assert repeated([one]) == one
    drift = RunDrift(variance=0.0002, scatter=0.000225, freedom=6)
    found = repeated([one, other], drift)
    assert found.error == pytest.approx(math.sqrt(0.0001 + 0.0025**2))
    total, own = 0.0001 + 0.0025**2, (0.0015**4 / 9 + 0.002**4 / 5)
    assert found.freedom == math.floor(total**2 / (own + 0.0001125**2 / 6)) == 5
    assert repeated([HostEstimate(0.1, 0.0, 4), HostEstimate(0.3, 0.0, 3)]) == HostEstimate(0.2, 0.0, 3)


def test_what_hosts_change_from_run_to_run_is_told_by_all_together() -> None:
    def host(*logs: float) -> list[HostEstimate]:
        return [HostEstimate(log, 0.001, 9) for log in logs]

    groups = [host(5.0, 5.02), host(1.0, 1.0, 1.03), host(2.0, 2.02, 2.04, 2.0), host(9.0)]
    found = run_drift(groups)
    assert found is not None and found.freedom == 6
    assert found.scatter == pytest.approx((0.0002 + 0.0006 + 0.0011) / 6)
    assert found.variance == pytest.approx(found.scatter - 0.001**2)
    assert run_drift(groups[:2] + groups[3:]) is None, "3 degrees of freedom are too few"
    none = run_drift([host(5.0, 5.0001)] * 6)
    assert none is not None and none.variance == 0


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
@pytest.mark.varied(2)
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


@pytest.mark.variations
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
        for number in range(9):
            name = f"web{number % 3}"
            facts = {"hostname": name, "machine_id": f"{number % 3:032x}"}
            label = ("old", "new", "new2")[number // 3]
            store.put(a_run(number, number, host=f"ssh://root@{name}", label=label, **facts))
    return path


def command(home: Path, monkeypatch: pytest.MonkeyPatch, *argv: str) -> Result:
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    return CliRunner().invoke(app, ["fleet", "compare", *argv])


def test_several_labels_are_one_side(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = json.loads(command(home, monkeypatch, "old", "new, new2", "--json").stdout)["data"]
    assert (data["before"], data["after"]) == ("old", "new,new2")
    assert [(len(host["before"]), len(host["after"])) for host in data["hosts"]] == [(1, 2)] * 3
    assert data["hosts"][0]["after"] == sorted(data["hosts"][0]["after"], reverse=True)


def test_two_labels_are_compared(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = json.loads(command(home, monkeypatch, "old", "new", "--json", "--same-within", "1%").stdout)["data"]
    assert [host["host"] for host in data["hosts"]] == ["web0", "web1", "web2"] and data["same_within"] == 0.01
    file = tmp_path / "change.html"
    done = command(home, monkeypatch, "old", "new", "--format", "html", "--redact", "-o", str(file))
    assert done.exit_code == DONE and "web1" not in file.read_text() and "host-00000000" in file.read_text()


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (("old", "newer"), "no run has the label 'newer'; there are: new2, new, old"),
        (("old", "new", "--plan", "slow"), "no run of plan 'slow' with the label 'new'"),
        (("old", "new", "--format", "xml"), "unknown format 'xml'"),
        (("old", "new", "--same-within", "200%"), "--same-within: 200% is not below 100%"),
        (("old", "old"), "'old' is on both sides: name other labels after than before"),
        (("old,new", "new2,new"), "'new' is on both sides: name other labels after than before"),
        (("old", "new,newer"), "no run has the label 'newer'; there are: new2, new, old"),
        (("old,", "new"), "a label is missing beside a comma: such as spring1,spring2"),
    ],
)
def test_bad_input_is_one_line(argv: tuple[str, ...], text: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = command(home, monkeypatch, *argv)
    assert getattr(done.exception, "exit_code", None) == BAD_INPUT and text in str(done.exception)


@pytest.mark.variations
def test_the_page_says_once_what_is_compared_and_how_its_own_figures_are_made() -> None:
    page = find_fleet_change("html")(change(side("new", 8)), False)
    assert page.count("before: old, after: new") == 1 and "vmtax fleet compare: quick, old and new" not in page
    assert "signed-rank" not in page and "Welch" in page
