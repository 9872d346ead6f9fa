"""The costs of one host from run to run: which runs belong together, what changed, and every way to read it."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import jsonschema_rs
import pytest
from typer.testing import CliRunner, Result

from tests.sample import on_emulated_host, sample_experiment
from tests.sample_many import ONE_MACHINE, a_run, costs
from tests.unit.test_report_html import Page
from vmtax.analysis.many import choose
from vmtax.analysis.many import costs as many
from vmtax.analysis.many.costs import RunCosts, run_costs
from vmtax.analysis.many.history import HistoryLine, HostHistory, history
from vmtax.cli import app
from vmtax.cli import many as kept
from vmtax.core.errors import BAD_INPUT, DONE
from vmtax.core.records import Experiment
from vmtax.report.answers.schema import json_schema
from vmtax.report.render.formats import HISTORY_FORMATS, find_history
from vmtax.report.wording import history as words
from vmtax.store import Store

KERNELS = ("6.12.48+deb13-amd64", "6.12.60+deb13-amd64")


def weekly(runs: int, change: int | None = None, by: float = 0.05) -> list[RunCosts]:
    """One run a week; from run number `change` on, guests are slower, under another kernel."""
    return [
        costs(
            number,
            7 * number,
            by if (is_after := change is not None and number >= change) else 0.0,
            properties={"kernel": KERNELS[is_after]},
        )
        for number in range(runs)
    ]


def line(found: HostHistory, metric: str = "chess.nodes_per_second", treatment: str = "vm") -> HistoryLine:
    return next(
        one for one in found.lines if (one.metric.name, one.treatment, one.baseline) == (metric, treatment, "host")
    )


# --- what is read of a run


def test_the_costs_of_a_run_are_those_that_show_has() -> None:
    from vmtax.analysis.analysis import Analysis
    from vmtax.analysis.effects import effect

    run = sample_experiment(rounds=9, seed=3, emulated=False)
    found, analysis = run_costs(run), Analysis(run)
    assert found is not None and len(found.figures) > 30
    for figure in found.figures:
        subject = figure.subject
        shown = effect(analysis, subject.metric, subject.baseline, subject.treatment)
        assert shown is not None and figure.low is not None and figure.high is not None
        assert shown.times == pytest.approx(tuple(map(math.exp, (figure.log, figure.low, figure.high))))
        assert figure.rounds == shown.rounds == 9 and not figure.emulated
    names = [figure.subject.metric.name for figure in found.figures if figure.primary]
    assert dict.fromkeys(names).keys() == dict.fromkeys(run.plan["primary"]).keys()


def test_costs_are_read_as_they_were_written() -> None:
    found = run_costs(a_run(3, kernel_version="#1 SMP"))
    assert found is not None
    assert many.read(many.written(found)) == found
    assert found.properties["kernel"] == "6.12.48+deb13-amd64 #1 SMP"


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[:-10],
        lambda text: text.replace("vmtax costs", "other"),
        lambda text: text.replace('"log":', '"lag":', 1),
        lambda text: text.partition("\n")[0] + "\n[]",
    ],
)
def test_damaged_costs_are_computed_again(damage: Callable[[str], str]) -> None:
    found = run_costs(a_run(3))
    assert found is not None and many.read(damage(many.written(found))) is None


def test_emulated_costs_are_marked() -> None:
    found = run_costs(on_emulated_host(a_run(3)))
    assert found is not None and all(figure.emulated for figure in found.figures)
    assert "emulated CPU" in (words.banner(history([found])) or "")


def test_a_plan_of_an_older_version_has_no_costs() -> None:
    run = a_run(3)
    assert run_costs(dataclasses.replace(run, plan={**run.plan, "workloads": ["gone"]})) is None


# --- which runs belong together


@pytest.mark.parametrize(
    ("runs", "sizes"),
    [
        ([("web1", "a"), ("web1", "a")], [2]),
        ([("web1", "a"), ("web1.example", "a")], [2]),  # two names of one machine
        ([("web1", "a"), ("web1", "b")], [1, 1]),  # the name went to another machine
        ([("web1", None), ("web1", None)], [2]),
        ([("web1", None), ("web1", "a")], [2]),  # an earlier version recorded no id
        ([("web1", None), ("web1", "a"), ("web1", "b")], [1, 1, 1]),
        ([("web1", None), ("web2", "a")], [1, 1]),
    ],
)
def test_runs_of_one_machine_belong_together(runs: list[tuple[str, str | None]], sizes: list[int]) -> None:
    made = [costs(n, host_name=name, machine_id=id) for n, (name, id) in enumerate(runs)]
    assert [len(found) for found in choose.by_machine(made).values()] == sizes


def other_memory(run: Experiment) -> Experiment:
    return dataclasses.replace(run, plan={**run.plan, "guest": {"vcpus": 2, "memory": "2GiB"}})


def other_image(run: Experiment) -> Experiment:
    host = {**run.facts["host"], "image": {"identity": "e" * 64}}
    return dataclasses.replace(run, facts={**run.facts, "host": host})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (other_memory, "guest.memory is 2147483648"),
        (other_image, "image.identity is eeee"),
        (on_emulated_host, "emulated is yes"),
    ],
)
def test_runs_of_other_work_are_left_out_and_named(change: Callable[[Experiment], Experiment], why: str) -> None:
    made = [run_costs(run) for run in (change(a_run(1)), a_run(2, 7), a_run(3, 14))]
    found = history([one for one in made if one is not None])
    assert len(found.runs) == 2
    ((left),) = found.left_out
    assert left.why.startswith(why) and found.runs[-1] in left.why
    assert "the first" not in left.why


# --- what changed


def test_without_a_change_there_is_a_bound() -> None:
    found = history(weekly(8))
    assert not any(one.changes for one in found.primary)
    assert found.most is not None and 0.003 < found.most < 0.03
    assert words.headline(found) == f"Nothing changed since 21 November 2026, or by at most {100 * found.most:.1f} %."
    assert all(one.most is not None and one.most <= found.most for one in found.primary)


def test_a_change_is_found_where_it_is_with_what_changed_beside_it() -> None:
    found = history(weekly(12, change=9))
    chess = line(found)
    (change,) = chess.changes
    assert change.run == found.runs[9] and change.ratio == pytest.approx(1.051, abs=0.006) and change.p < 1e-6
    assert change.software == (f"kernel {' → '.join(KERNELS)}",)
    assert (chess.since, chess.runs_since) == (found.created[9], 3) and chess.most is None
    text = words.headline(found)
    assert text.startswith("Changed on 23 January 2027:") and "by at most" not in text, "three runs show no bound"
    assert "|" in words.bars(chess) and words.bars(chess).index("|") == 9


@pytest.mark.parametrize("runs", [1, 2, 3])
def test_few_runs_are_too_few_to_say(runs: int) -> None:
    found = history(weekly(runs))
    assert (found.most, {one.most for one in found.lines}) == (None, {None})
    assert words.headline(found) == f"Too few runs to say whether anything changed: {runs} of the 4 that are needed."


def test_runs_are_in_the_order_of_time() -> None:
    runs = weekly(6)
    assert history(runs[::-1]) == history(runs)


def test_clocks_that_were_wrong_misplace_runs_and_break_nothing() -> None:
    runs = [*(costs(n, 7.0 * n) for n in range(8)), costs(8, -20_000.0), costs(9, 9e4)]
    found = history(runs)
    assert [found.runs[0], found.runs[-1]] == [runs[8].id, runs[9].id]
    for format in HISTORY_FORMATS:
        assert find_history(format)(found, True)


def test_a_trend_is_given_per_month() -> None:
    drifting = [costs(n, 7 * n, 0.002 * n) for n in range(5)]
    chess = line(history(drifting))
    assert chess.trend is not None and chess.trend_low is not None and chess.trend_high is not None
    assert chess.trend_low < 0.002 * 30 / 7 < chess.trend_high


def test_only_a_trend_that_is_shown_is_listed() -> None:
    drifting = history([costs(n, 7 * n, 0.004 * n) for n in range(8)])
    assert line(drifting).drifts and any(text.startswith("CPU, chess: vm") for text in words.trends(drifting))
    assert words.trends(history(weekly(12))) == []


@pytest.mark.parametrize(("runs", "is_odd"), [(12, True), (7, False)])
def test_an_odd_run_is_named_and_is_no_change(runs: int, is_odd: bool) -> None:
    found = history([costs(n, 7 * n, 0.2 if n == 4 else 0.0) for n in range(runs)])
    assert not any(one.changes for one in found.lines)
    named = [point.run for point in line(found).points if point.odd]
    assert named == [found.runs[4]] * is_odd
    assert [text.partition(":")[0] for text in words.odd(found)] == named


@pytest.mark.parametrize(
    ("ratios", "drawn"),
    [
        ((1.0, 1.1), "▁█"),
        ((1.1, 1.0), "█▁"),
        ((1.0, 1.0), "▅▅"),
        ((1.0, 1.001), "▄▅"),  # not drawn as if it were large
        ((2.0,), "▅"),
        (tuple(1 + n / 100 for n in range(30)), "▃▄▄▄▄▅▅▅▅▆▆▆▇▇▇▇████"),
    ],
)
def test_a_sparkline_shows_the_newest_runs_and_no_noise_as_a_change(ratios: tuple[float, ...], drawn: str) -> None:
    base = line(history(weekly(1)))
    points = tuple(dataclasses.replace(base.points[0], run=str(n), ratio=ratio) for n, ratio in enumerate(ratios))
    assert words.bars(dataclasses.replace(base, points=points)) == drawn


# --- every way to read it


@pytest.mark.parametrize("format", HISTORY_FORMATS)
@pytest.mark.parametrize("runs", [1, 5, 30])
@pytest.mark.varied(5)
def test_every_format_writes_every_history(format: str, runs: int) -> None:
    text = find_history(format)(history(weekly(runs, change=20)), True)
    assert "quick" in text and text.endswith(("\n", "</html>"))


def test_the_answer_fits_its_schema() -> None:
    answer = json.loads(find_history("json")(history(weekly(9, change=6)), False))
    jsonschema_rs.validator_for(json_schema()).validate(answer)
    assert answer["kind"] == "history" and len(answer["data"]["runs"]) == 9


def test_a_page_loads_nothing_and_names_what_changed() -> None:
    text = find_history("html")(history(weekly(12, change=6)), False)
    page = Page(text)
    said = "".join(text for _, text in page.texts)
    assert "Changed on 2 January 2027" in said and "<script" not in text and len(text) < 400_000


def test_wide_csv_has_a_row_for_each_run_and_the_ends_of_each_interval() -> None:
    found = history(weekly(5))
    rows = list(csv.DictReader(io.StringIO(find_history("csv")(found, False))))
    assert [row["run"] for row in rows] == list(found.runs)
    assert [datetime.fromisoformat(row["time"]).timestamp() for row in rows] == list(map(int, found.created))
    name = "chess_nodes_per_second_vm_against_host"
    assert [float(row[name]) for row in rows] == [point.ratio for point in line(found).points]
    assert all(float(row[f"{name}_low"]) < float(row[name]) < float(row[f"{name}_high"]) for row in rows)
    assert rows[0]["kernel"] == KERNELS[0] and len(rows[0]) == 10 + 3 * len(found.lines)


def test_a_line_that_a_run_lacks_is_empty_there() -> None:
    runs = weekly(5)
    runs[1] = dataclasses.replace(runs[1], figures=runs[1].figures[3:])
    rows = list(csv.DictReader(io.StringIO(find_history("csv")(history(runs), False))))
    assert [bool(row["chess_nodes_per_second_vm_against_host"]) for row in rows] == [True, False, True, True, True]


# --- the command


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("home")
    with Store(path / "vmtax/vmtax.sqlite") as store:
        for number in range(5):
            store.put(a_run(number, 7 * number, label="nightly" if number else "first"))
        store.put(a_run(9, 40, host="ssh://root@web2", machine_id="7" * 32, label="nightly"))
        store.put(a_run(10, -3, name="disk", label="odd"))
    return path


def command(home: Path, monkeypatch: pytest.MonkeyPatch, *argv: str) -> Result:
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    return CliRunner().invoke(app, ["history", *argv])


@pytest.mark.parametrize(
    ("argv", "runs", "host"),
    [
        (("quick",), 1, "web2"),  # the host of the newest run
        (("quick", "--host", "web2"), 1, "web2"),
        (("quick", "--host", "ssh://root@web2"), 1, "web2"),
        (("quick", "--host", "example"), 5, "example"),
        (("quick", "--host", "local"), 5, "example"),
        (("quick", "--host", "local", "--label", "nightly"), 4, "example"),
        (("--label", "odd"), 1, "example"),
        ((), 1, "example"),  # the plan of the newest run, by its arrival
    ],
)
@pytest.mark.varied(3)
def test_the_runs_of_a_plan_a_label_and_a_host(
    argv: tuple[str, ...], runs: int, host: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = command(home, monkeypatch, *argv, "--json")
    data = json.loads(done.stdout)["data"]
    assert done.exit_code == DONE and (len(data["runs"]), data["host"]) == (runs, host)


def test_other_hosts_are_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "1 other host also ran quick" in command(home, monkeypatch, "quick").stderr
    assert "also ran" not in command(home, monkeypatch, "quick", "--host", "local").stderr


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (("slow",), "no run of plan 'slow'; there are: disk, quick"),
        (("--label", "none"), "no run has the label 'none'; there are: odd, nightly, first"),
        (("disk", "--label", "nightly"), "no run of plan 'disk' with the label 'nightly'; there are: quick"),
        (("quick", "--host", "web9"), "no such run on host 'web9'; there are: web2, example"),
        (("--format", "xml"), "unknown format 'xml'"),
    ],
)
def test_bad_input_is_one_line(argv: tuple[str, ...], text: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = command(home, monkeypatch, *argv)
    assert getattr(done.exception, "exit_code", None) == BAD_INPUT and text in str(done.exception)


def test_what_was_computed_is_kept_until_the_run_changes(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = command(home, monkeypatch, "quick", "--host", "local").stdout
    monkeypatch.setattr(Store, "load", lambda *_, **__: pytest.fail("read again"))
    assert command(home, monkeypatch, "quick", "--host", "local").stdout == first
    with Store(home / "vmtax/vmtax.sqlite", reads=True) as store:
        run = next(run for run in store.experiments() if run.label == "nightly")
    assert kept.kept(run) is not None
    assert kept.kept(dataclasses.replace(run, ok=run.ok + 1)) is None
    kept.COSTS.remove(run.id)
    assert kept.kept(run) is None


def test_a_file_is_written_instead(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "history.html"
    done = command(home, monkeypatch, "quick", "--format", "html", "-o", str(file))
    assert (done.exit_code, done.stdout) == (DONE, f"{file}\n") and "<h1>" in file.read_text()


def compare(home: Path, monkeypatch: pytest.MonkeyPatch, *argv: str) -> Result:
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    return CliRunner().invoke(app, ["compare", *argv])


def test_more_than_two_runs_are_a_history_or_a_fleet(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(home / "vmtax/vmtax.sqlite", reads=True) as store:
        quick = [run for run in store.experiments() if run.name == "quick"]
    local = [run.id for run in quick if run.host == "local"]
    other = [run.id for run in quick if run.host != "local"]
    done = compare(home, monkeypatch, *local[:3], "--json")
    assert done.exit_code == DONE and json.loads(done.stdout)["kind"] == "history"
    assert json.loads(done.stdout)["data"]["runs"] == local[2::-1]
    done = compare(home, monkeypatch, *local[:2], *other, "--json")
    assert json.loads(done.stdout)["kind"] == "fleet" and len(json.loads(done.stdout)["data"]["hosts"]) == 2


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (("last", "first", "last"), "is named twice"),
        (("last", "first", "odd", "--fail-if-worse", "3%"), "compare two sides: separate the runs of a side by commas"),
        (("last", "first", "odd", "--format", "junit"), "unknown format 'junit'"),
        (("last", "first", "nobody"), "no run 'nobody'"),
    ],
)
def test_bad_input_of_many_runs_is_one_line(
    argv: tuple[str, ...], text: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = compare(home, monkeypatch, *argv)
    assert done.exception is not None and text in str(done.exception)


def test_the_one_machine_of_the_samples_has_an_id() -> None:
    assert costs(1).machine_id == ONE_MACHINE
