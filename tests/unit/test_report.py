"""Reports of made-up experiments. UPDATE_GOLDEN=1 writes the golden files anew; then read what changed in them."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType

from tests.answers import experiment_data
from tests.sample import on_emulated_host, sample_experiment
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.by_workload import view
from vmtax.core.records import Comparison, Experiment, Metric, Treatment
from vmtax.report.answers.envelope import envelope
from vmtax.report.answers.run import experiment as run_answer
from vmtax.report.contents import document
from vmtax.report.document import Detail, Row, Section, Table, columns, headed, name_cell, plain, value_cell
from vmtax.report.render.terminal import section as terminal_section
from vmtax.report.runs import runs_table
from vmtax.report.sections.summary import Finding, banner, findings, headline
from vmtax.report.show import render
from vmtax.store import ExperimentSummary
from vmtax.workload.words import label

GOLDEN = Path(__file__).parents[1] / "golden"


def compared(experiment: Experiment) -> tuple[Comparison, ...]:
    return Analysis(experiment).comparisons


def with_comparisons(experiment: Experiment, *comparisons: Comparison) -> Analysis:
    """An analysis in which just these were compared."""
    analysis = Analysis(experiment)
    analysis.comparisons = comparisons
    return analysis


def sentences(experiment: Experiment) -> dict[str, str]:
    return {f.resource: f.sentence for f in findings(Analysis(experiment))}


def printed(renderable: RenderableType, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())


def banner_of(experiment: Experiment) -> str:
    return banner(Analysis(experiment)) or ""


def shown(experiment: Experiment, width: int = 80) -> str:
    return printed(render(Analysis(experiment)), width)


def on_terminal(*sections: Section | None, detail: Detail = Detail.BRIEF) -> str:
    parts = [part for one in sections if one for part in terminal_section(one, detail)]
    return printed(Group(*parts))


def check_golden(name: str, text: str) -> None:
    file = GOLDEN / name
    if "UPDATE_GOLDEN" in os.environ:
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def renamed(experiment: Experiment, names: dict[str, str], **more: Any) -> Experiment:
    """The same experiment under other names of treatments."""
    return dataclasses.replace(
        experiment,
        treatments=tuple(dataclasses.replace(t, name=names.get(t.name, t.name)) for t in experiment.treatments),
        boots=tuple(dataclasses.replace(b, treatment=names.get(b.treatment, b.treatment)) for b in experiment.boots),
        trials=tuple(dataclasses.replace(t, treatment=names.get(t.treatment, t.treatment)) for t in experiment.trials),
        **more,
    )


def one_comparison(ratio: float, low: float | None, high: float | None, verdict: Any, **more: Any) -> Finding:
    """The finding about a VM that has one comparison."""
    metric = Metric(more.pop("metric", "chess.nodes_per_second"), "1/s", more.pop("better", "higher"))
    comparison = Comparison(metric, "host", "vm", ratio, low, high, more.pop("rounds", 7), verdict)
    experiment = dataclasses.replace(
        sample_experiment(emulated=False),
        trials=(),
        boots=(),
        treatments=(Treatment("host", "host"), Treatment("vm", "vm")),
    )
    (finding,) = findings(with_comparisons(experiment, comparison))
    return finding


# --- words


def test_sentences_of_real_hardware() -> None:
    told = sentences(sample_experiment(emulated=False))
    assert re.fullmatch(
        r"CPU throughput: the VM takes \d\.\d % \(\d\.\d–\d\.\d\) more time than the host;"
        r" the nested VM takes \d\.\d % \(\d\.\d–\d\.\d\) more time than the VM\.",
        told["CPU"],
    )
    assert "Random 4 KiB reads per second" in told["Disk"]
    assert list(told) == ["CPU", "Memory", "Disk", "Network", "Boot"]
    assert "emulated" not in " ".join(told.values())


def test_boot_shows_times_and_what_nesting_costs_but_nothing_of_the_host() -> None:
    told = sentences(sample_experiment())["Boot"]
    number = r"\d+(\.\d)? s \(emulated\)"
    assert re.match(
        rf"The VM answers its first command after {number}, the nested VM after {number}; the nested VM takes", told
    )
    assert "more time" in told and "host" not in told


def test_every_clause_of_an_emulated_sentence_says_so() -> None:
    experiment = sample_experiment()
    for sentence in [*sentences(experiment).values(), headline(Analysis(experiment)) or ""]:
        quantities = re.findall(r"\d+(?:\.\d+)?(?:×| %| m?s\b)", sentence)
        assert quantities and sentence.count("emulated") == len(quantities), sentence
    assert banner_of(sample_experiment(emulated=False)) == ""
    assert "TCG" in banner_of(experiment)


def test_on_an_emulated_host_every_number_says_so_the_hosts_too() -> None:
    experiment = on_emulated_host(sample_experiment(emulated=False))
    assert banner_of(experiment).startswith("The host under test is itself emulated (TCG), and so is every figure")
    table = view(Analysis(experiment))
    assert table.analysis.emulated == {"host", "vm", "nested"}
    rows = [row for workload in table.workloads for case in workload.cases for row in case.rows]
    numbers = [number for row in rows for number in (*row.medians, *row.effects) if number is not None]
    assert len(numbers) > 100 and all(number.emulated for number in numbers)
    alone = dataclasses.replace(experiment, treatments=experiment.treatments[:1], boots=())
    assert Analysis(alone).emulated == {"host"} and banner_of(alone) == banner_of(experiment), "without any guest"
    (warnings,) = {entry.warnings for entry in compared(experiment) if entry.treatment == "vm" and entry.rounds}
    assert [text.partition(" ran ")[0] for text in warnings] == ["emulated: host", "emulated: vm"]
    assert all("on a host whose CPU is real" in text for text in warnings), "KVM works there"


def test_two_emulated_hosts_are_reported_as_two() -> None:
    experiment = sample_experiment(emulated=False)
    there = [dataclasses.replace(t, name=f"{t.name} on ssh://b", side="ssh://b") for t in experiment.treatments]
    both = dataclasses.replace(experiment, treatments=(*experiment.treatments, *there))
    assert banner_of(on_emulated_host(both, "ssh://b")).startswith("Both hosts under test are themselves emulated")
    one = dataclasses.replace(on_emulated_host(both), boots=())
    assert banner_of(one).startswith("host, vm, nested ran on an emulated CPU"), "only that side's"


def test_an_interval_that_includes_zero_is_no_cost() -> None:
    finding = one_comparison(0.997, 0.99, 1.004, "no difference shown")
    assert finding.sentence == "CPU throughput: no difference of the VM from the host is shown (+0.3 %, −0.4…1.0)."


def test_a_gain_is_less_time() -> None:
    finding = one_comparison(1.03, 1.02, 1.045, "better")
    assert finding.sentence == "CPU throughput: the VM takes 2.9 % (2.0–4.3) less time than the host."


def test_the_ratio_of_a_time_is_its_cost() -> None:
    comparison = dataclasses.replace(
        compared(sample_experiment(emulated=False))[0],
        metric=Metric("build.seconds", "s", "lower"),
        ratio=1.204,
        low=1.19,
        high=1.22,
    )
    (finding,) = findings(with_comparisons(sample_experiment(emulated=False), comparison))
    assert finding.sentence.startswith("Kernel build time: the VM takes 20 % (19–22) more time than the host")
    assert finding.resource == "Kernel build"


def test_too_few_rounds_are_admitted() -> None:
    finding = one_comparison(0.98, None, None, "too few rounds", rounds=4)
    assert "too few rounds (4) for an interval" in finding.sentence
    assert finding.sentence.startswith("CPU throughput: so far the VM takes 2.0 % more time than the host")
    few = sample_experiment(rounds=4)
    assert headline(Analysis(few)) is None
    assert "Too few rounds (4)" in shown(few)


def test_a_failed_side_is_not_measured() -> None:
    assert "not measured" in one_comparison(float("nan"), None, None, "too few rounds", rounds=0).sentence.lower()


def test_the_primary_metric_is_what_the_sentence_is_about() -> None:
    experiment = sample_experiment(emulated=False)
    plan = {**experiment.plan, "primary": ["disk.write-1m.iops"]}
    assert "Sequential 1 MiB writes" in sentences(dataclasses.replace(experiment, plan=plan))["Disk"]


def test_labels_of_percentiles() -> None:
    assert [label(Metric(f"disk.x.{p}_seconds", "s", "lower")) for p in ("p50", "p99", "p999")] == [
        "p50 latency",
        "p99 latency",
        "p99.9 latency",
    ]


# --- terminal


def test_everything_at_80_columns() -> None:
    text = printed(render(Analysis(sample_experiment(treatments=4, failures=2)), full=True))
    check_golden("show-full.txt", text)
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text  # plain where it is no terminal


def test_emulated_stands_in_the_head_of_each_column_whose_figures_are() -> None:
    experiment = sample_experiment()
    numbers = next(one for one in document(Analysis(experiment), Detail.FULL).sections if one.id == "numbers")
    tables = [block for block in numbers.blocks if isinstance(block, Table)]
    for table in tables:
        heads = [plain(column.head) for column in table.columns]
        assert all(head.endswith(" emulated") == ("vm" in head or "nested" in head) for head in heads), heads
        cells = [piece for row in table.rows for cell in row.cells for piece in cell.pieces]
        assert cells and not [piece for piece in cells if piece.kind == "emulated"]
    mixed = Table("", columns("what", "figure"), (_row(emulated=True), _row(emulated=False)))
    assert headed(mixed) == mixed, "the mark stays beside the number where its column has others"


def _row(*, emulated: bool) -> Row:
    return Row((name_cell("one"), value_cell("1", emulated=emulated)))


def test_runs() -> None:
    run = ExperimentSummary(
        "20261121-0412-quick-7f3a", "quick", "local", 0.0, 1200.0, "complete", 3, 7, 300, 2, seconds=1200.0
    )
    text = printed(runs_table([run, dataclasses.replace(run, finished=None, state="running", failed=0)]))
    assert "20261121-0412-quick-7f3a" in text and "20 m 00 s" in text and "2 failed" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "no runs yet" in printed(runs_table([]))


# --- JSON


def shape(value: Any) -> Any:
    """Types in place of values; of a list the shape of its first entry."""
    if isinstance(value, dict):
        return {key: shape(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def test_json_shape() -> None:
    experiment = sample_experiment(failures=1)
    answer = json.loads(envelope("experiment", run_answer(Analysis(experiment))))
    assert (answer["schema"], answer["kind"]) == ("vmtax/1", "experiment")
    answer["data"]["facts"] = answer["data"]["plan"] = "object"  # their shape is not this module's
    for treatment in answer["data"]["treatments"]:
        treatment["levels"] = "object"
    check_golden("experiment.shape.json", json.dumps(shape(answer), indent=2) + "\n")


def test_json_marks_emulated_numbers_and_leaves_out_failed_trials() -> None:
    experiment = sample_experiment(failures=1)
    data = experiment_data(Analysis(experiment))
    assert {m["emulated"] for m in data["measurements"] if m["treatment"] == "vm"} == {True}
    assert {m["emulated"] for m in data["measurements"] if m["treatment"] == "host"} == {False}
    assert all(c["emulated"] for c in data["comparisons"])
    assert len(data["failures"]) == 1
    ok = sum(len(trial.measurements) for trial in experiment.trials if trial.status == "ok")
    assert len(data["measurements"]) == ok


def test_json_has_no_nan() -> None:
    assert json.loads(envelope("x", {"a": [float("nan"), 1.5]}))["data"] == {"a": [None, 1.5]}


def test_a_configuration_without_any_figure_is_no_setting() -> None:
    run = sample_experiment(rounds=2, treatments=5)
    other = next(t.name for t in run.treatments[3:] if t.layer == "vm")
    silent = dataclasses.replace(run, trials=tuple(trial for trial in run.trials if trial.treatment != other))
    for experiment, shown in ((run, True), (silent, False)):
        cases = [case for workload in view(Analysis(experiment)).workloads for case in workload.cases]
        assert any(setting.treatment == other for case in cases for setting in case.settings) == shown
