"""The first screen of a run: what `vmtax show` prints."""

from __future__ import annotations

import dataclasses
import re
import tarfile
from pathlib import Path

import pytest

from tests.sample import on_emulated_host, sample_experiment, with_repeat
from tests.sample_storage import storage_experiment
from tests.unit.test_at_once import FOUR, ONE, trial
from tests.unit.test_report import check_golden, printed, renamed, shown
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.summary import BETTER, FIGURES, summary
from vmtax.analysis.summary import label as line_of
from vmtax.core.records import Experiment, Metric, Treatment
from vmtax.core.units import MINUS, TIMES
from vmtax.report.render.screen import LONGEST_LABEL
from vmtax.report.sections.first import first
from vmtax.report.show import render
from vmtax.report.wording.facts import fact_in_words
from vmtax.store import Store

GOLDEN = Path(__file__).parents[1] / "golden"
COST = re.compile(rf"[+{MINUS}]?\d[\d.e+]*(?: %|{TIMES})")
INTERVAL = re.compile(rf"{MINUS}?\d[\d.]*[–…]{MINUS}?\d[\d.]*")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> list[Experiment]:
    """The sample runs of all earlier versions."""
    found = []
    for archive in sorted(GOLDEN.glob("20??-??-??/store.tar.xz")):
        home = tmp_path_factory.mktemp("home")
        with tarfile.open(archive) as packed:
            packed.extraction_filter = getattr(tarfile, "data_filter", None)
            packed.extractall(home)
        with Store(home / "vmtax.sqlite") as store:
            found += [store.load(entry.id) for entry in store.experiments()]
    assert len(found) >= 15
    return found


def quick(**more: bool) -> Experiment:
    return with_repeat(sample_experiment(**more))


def test_the_screens_are_as_expected() -> None:
    check_golden("show.txt", shown(with_repeat(sample_experiment(failures=2))))
    check_golden("show-layers.txt", shown(quick(emulated=False)))
    page = (GOLDEN.parents[1] / "docs/how-to/read-a-report.md").read_text()
    assert (
        f"```\nAn invented example, to show the form: no machine has measured it.\n\n{shown(quick(emulated=False))}```"
        in page
    )
    check_golden("show-120.txt", shown(quick(emulated=False), 120))


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.varied(1)
def test_each_stored_run_fits_its_screen(stored: list[Experiment], width: int) -> None:
    for run in stored:
        text = printed(render(Analysis(run)), width)
        lines = text.splitlines()
        assert max(map(len, lines)) <= width, run.id
        assert not [line for line in lines if line != line.rstrip()], run.id
        assert run.id in text
        if width == 80:
            assert len(lines) <= (48 if Analysis(run).disk_features else 30), run.id


@pytest.mark.parametrize("run", [quick(), quick(emulated=False), with_repeat(sample_experiment(failures=2))])
def test_a_run_of_quick_fits_80_columns_and_30_lines(run: Experiment) -> None:
    lines = shown(run).splitlines()
    assert len(lines) <= 30 and max(map(len, lines)) <= 80
    assert [line for line in lines if line.split()[0:1] == ["host"] and "nested" in line], "the medians have room"


def test_a_run_of_disks_begins_with_the_recommendation_and_fits_two_screens() -> None:
    lines = shown(storage_experiment()).splitlines()
    assert len(lines) <= 48 and max(map(len, lines)) <= 80
    assert (
        next(line for line in lines[2:] if line and not line.startswith(("EMULATED", "everything"))) == "Recommendation"
    )


def test_the_figures_that_matter_are_there_and_each_interval_is_beside_its_estimate() -> None:
    run = quick(emulated=False)
    text = shown(run)
    measured = {metric.name for metric, _ in Analysis(run).medians}
    names = [name for name in FIGURES if name in measured and BETTER.get(name) not in measured]
    assert len(names) >= 13
    for label in {FIGURES[name] for name in names}:
        assert f"\n{label} " in text
    for line in text.splitlines():
        for interval in INTERVAL.finditer(line):
            before = line[: interval.start()].rstrip()
            assert before.endswith("same") or COST.search(before[-9:]) or "guest against itself" in line, line


def test_the_host_has_its_name_and_is_said_to_be_no_vm() -> None:
    run = quick(emulated=False)
    host = {**run.facts["host"], "virtualized": True, "hypervisor": "vmware"}

    def first(**more: object) -> str:
        return shown(dataclasses.replace(run, **more)).splitlines()[0]

    assert first() == "quick on example (Xeon Gold 6338, bare metal), guests on KVM"
    assert first(host="local, imported").startswith("quick on example (Xeon"), "no word of a title"
    assert first(host="ssh://root@b").startswith("quick on ssh://root@b (Xeon")
    assert first(facts={"host": host}) == "quick on example (Xeon Gold 6338, a VM under vmware), guests on KVM"
    older = {key: value for key, value in run.facts["host"].items() if key not in ("hostname", "virtualized")}
    assert first(facts={"host": older}) == "quick on Xeon Gold 6338, guests on KVM"
    assert first(facts={}) == "quick on local, guests on KVM"


def test_a_run_without_warnings_says_so() -> None:
    run = quick(emulated=False)
    assert "Warnings: a command ended late" in shown(run)
    analysis = Analysis(run)
    analysis.causes = ()
    assert "Warnings: none." in printed(render(analysis))


def test_no_range_has_0_only_where_that_holds_of_every_column() -> None:
    analysis = Analysis(with_repeat(sample_experiment(failures=2)))
    assert "intervals; each is larger than chance." in printed(render(analysis), 120)
    metric = summary(analysis).figures[0].metric
    wanted = (metric, "host", "nested")
    third = next(one for one in analysis.comparisons if (one.metric, one.baseline, one.treatment) == wanted)
    unclear = dataclasses.replace(third, verdict="no difference shown")
    analysis.comparisons = tuple(unclear if one is third else one for one in analysis.comparisons)
    assert "with 95 % intervals." in printed(render(analysis), 120)


def test_a_primary_metric_is_shown_also_where_another_says_more() -> None:
    run, iperf = quick(), "net.tcp-in.local_seconds_per_byte"
    named = dataclasses.replace(run, plan={**run.plan, "primary": [*run.plan["primary"], iperf]})
    assert "iperf3's CPU, in" not in shown(run) and "iperf3's CPU, in" in shown(named)


def test_many_busy_cores_are_a_number_without_an_exponent() -> None:
    analysis = Analysis(quick(emulated=False))
    analysis.ledger = tuple(
        dataclasses.replace(one, busy=64 * one.busy, entries={name: 64 * n for name, n in one.entries.items()})
        for one in analysis.ledger
    )
    assert re.search(r"1\d\d host cores busy", printed(render(analysis)))


@pytest.mark.parametrize(
    ("without", "name"),
    [
        ((), "network, inbound"),
        (("net",), "CPU, chess"),
        (("net", "chess"), "memory bandwidth"),
        (("net", "disk"), "CPU, chess"),
    ],
)
def test_the_line_about_busy_cores_names_the_line_of_the_table_that_it_is_about(
    without: tuple[str, ...], name: str
) -> None:
    analysis = Analysis(quick(emulated=False))
    analysis.ledger = tuple(one for one in analysis.ledger if one.workload not in without)
    lines = printed(render(analysis)).splitlines()
    assert any(line.startswith(f"In “{name}”, 1.") and "host cores busy (vm): guest code " in line for line in lines)
    assert any(line.startswith(f"{name} ") for line in lines)


def test_nothing_is_said_of_cases_that_the_screen_does_not_show() -> None:
    analysis = Analysis(quick(emulated=False))
    analysis.ledger = tuple(dataclasses.replace(one, case="of another plan") for one in analysis.ledger)
    assert "cores busy" not in printed(render(analysis))


@pytest.mark.parametrize("golden", sorted(GOLDEN.glob("show*.txt")), ids=lambda file: file.name)
def test_no_screen_is_wider_than_the_terminal_that_it_is_for(golden: Path) -> None:
    columns = re.search(r"-(\d+)\.txt$", golden.name)
    assert max(map(len, golden.read_text().splitlines())) <= (int(columns[1]) if columns else 80)


@pytest.mark.parametrize("columns", [40, 60, 72, 80, 100, 120])
@pytest.mark.varied(1)
def test_no_stored_run_is_wider_than_the_terminal(columns: int, stored: list[Experiment]) -> None:
    for run in [*stored, quick(), quick(emulated=False)]:
        table = [
            line for line in shown(run, columns).splitlines() if not line.startswith("Next") and "vmtax " not in line
        ]
        assert max(map(len, table)) <= columns, run.id


def test_the_noise_is_beside_each_cost_on_a_terminal_of_80_columns() -> None:
    text = shown(quick(emulated=False))
    assert " noise\n" in text and "Noise: guest against itself." in text


def test_two_sides_are_named_without_their_prepositions(stored: list[Experiment]) -> None:
    found = [" ".join(shown(run).split()) for run in stored if any(each.side for each in run.treatments)]
    assert any("same work, ssh://b against local" in text for text in found)
    assert not any("against on " in text or "against with " in text for text in found)


def test_no_two_figures_have_one_name() -> None:
    assert len({*FIGURES.values()}) == len(FIGURES)


def test_emulated_stands_in_the_banner_the_heads_and_the_sentence_with_costs() -> None:
    lines = shown(quick()).splitlines()
    first = next(number for number, line in enumerate(lines) if " VM " in line and "nested" in line)
    marked = [number for number, line in enumerate(lines) if "emulated" in line.lower()]
    assert lines[first + 1].split() == ["emulated"] * 4, "both guests and both costs"
    highest = "Highest, emulated: VM 37× (host's CPU"
    assert [n for n in marked if n > first + 1 and "vmtax doctor" not in lines[n]] == [
        number for number, line in enumerate(lines) if line.startswith(highest)
    ]
    assert highest in "".join(lines) and "cores busy" not in "".join(lines), "an emulator's say nothing"
    assert lines[2].startswith("EMULATED: Every guest ran on an emulated CPU")
    hosts = shown(on_emulated_host(quick(emulated=False)), 120)
    assert ["emulated"] * 6 in [line.split() for line in hosts.splitlines()]


def test_a_cost_within_the_noise_floor_is_said_to_be_the_same() -> None:
    run = quick(emulated=False)
    found = summary(Analysis(run))
    floors = {figure.metric.name: figure.floor for figure in found.figures}
    assert all(floor is not None and floor >= 1 for name, floor in floors.items() if name.startswith("chess"))
    for figure in found.figures:
        for one in figure.contrasts:
            if one is not None and one.same:
                assert figure.floor is not None and 1 / figure.floor <= one.ratio <= figure.floor
    assert "Noise: guest against itself" in shown(run, 100)


def test_a_doubt_is_a_numbered_footnote_at_its_number() -> None:
    lines = shown(with_repeat(sample_experiment(failures=2))).splitlines()
    notes = [line for line in lines if re.match(r"\[\d\] ", line)]
    marks = {mark for line in lines if line not in notes for mark in re.findall(r"\[\d\]", line)}
    assert marks == {note[:3] for note in notes} != set()


def test_few_rounds_are_admitted_with_what_to_do() -> None:
    text = shown(sample_experiment(rounds=2))
    assert "Too few rounds (2) for intervals: no cost has a range." in text
    assert "Next: vmtax run quick --rounds 7" in text
    assert not INTERVAL.search(text.split("Costs:")[0].split("VM costs")[1])


def test_an_unfinished_run_says_how_to_go_on() -> None:
    run = sample_experiment()
    assert f"Next: vmtax run --resume {run.id}" in shown(dataclasses.replace(run, state="interrupted"))
    assert f"Next: vmtax watch {run.id}" in shown(dataclasses.replace(run, state="running", finished=None))
    empty = dataclasses.replace(run, trials=(), boots=(), finished=None, state="failed")
    assert "Nothing can be compared: no round" in shown(empty) and len(shown(empty).splitlines()) <= 30


def test_where_every_trial_failed_the_screen_says_why() -> None:
    run = sample_experiment(rounds=1)
    failed = [dataclasses.replace(one, status="failed", error="lower the rate", measurements=()) for one in run.trials]
    text = shown(dataclasses.replace(run, trials=tuple(failed)))
    assert "No trial has a result. The first: lower the rate." in text
    unknown = [dataclasses.replace(one, error=None) for one in failed]
    assert "None" not in shown(dataclasses.replace(run, trials=tuple(unknown)))


def test_where_every_guest_failed_nothing_is_said_to_be_compared() -> None:
    run = quick(emulated=False)
    trials = [
        one if one.treatment == "host" else dataclasses.replace(one, status="failed", error="", measurements=())
        for one in run.trials
    ]
    run = dataclasses.replace(run, trials=tuple(trials))
    text = shown(run)
    assert "Nothing can be compared: no round has a result on two sides." in text
    assert "disk-cache" not in text and not first(Analysis(run)).few


def test_of_one_configuration_and_its_repeat_nothing_is_compared() -> None:
    run = with_repeat(sample_experiment(rounds=2))
    treatments = tuple(one for one in run.treatments if "vm" in (one.name, one.repeats))
    names = {one.name for one in treatments}
    trials = tuple(one for one in run.trials if one.treatment in names)
    assert len(names) == 2
    text = shown(dataclasses.replace(run, treatments=treatments, trials=trials))
    assert "One configuration was measured, so there is nothing to compare it with." in " ".join(text.split())


def test_a_run_of_one_layer_says_that_there_is_nothing_to_compare() -> None:
    run = sample_experiment(emulated=False)
    alone = dataclasses.replace(
        run,
        treatments=run.treatments[:1],
        boots=(),
        trials=tuple(trial for trial in run.trials if trial.treatment == "host"),
    )
    text = shown(alone)
    assert "nothing to compare it with" in text and "Next: vmtax run quick" in text


def test_several_guests_at_once_have_a_table_and_are_not_set_against_one() -> None:
    trials = [trial(FOUR.name, number, f"host/vm-{guest}", 20.0) for number in (1, 2, 3) for guest in (1, 2, 3, 4)]
    trials += [trial(ONE.name, number, "host/vm", 40.0) for number in (1, 2, 3)]
    text = shown(dataclasses.replace(sample_experiment(), treatments=(FOUR, ONE), trials=tuple(trials), boots=()))
    assert text.index("Several guests") < text.index("no two configurations have the same number") < text.index("Next:")


def test_configurations_are_set_against_the_first_with_the_same_number_of_guests() -> None:
    levels = [(count, cache) for count in ("1", "4") for cache in ("none", "writeback")]
    treatments = [Treatment(f"vm {n}x {c}", "vm", {"guest.count": n, "disk.cache": c}) for n, c in levels]
    trials = [
        trial(treatment.name, number, "host/vm" if guest == 1 else f"host/vm-{guest}", 10.0 * place)
        for place, treatment in enumerate(treatments, 1)
        for number in range(1, 8)
        for guest in range(1, int(treatment.levels["guest.count"]) + 1)
    ]
    run = dataclasses.replace(sample_experiment(), treatments=tuple(treatments), trials=tuple(trials), boots=())
    text = shown(run)
    assert "VM configurations, against vm 1x none" in text and "VM configurations, against vm 4x none" in text
    # 20 operations against 10, and four times 40 against four times 30: never 160 against 10
    assert text.count("50 %") >= 1 and text.count("25 %") >= 1 and "94 %" not in text


@pytest.mark.parametrize(
    ("allowed", "words"), [("1-2", "3, of which 1-2 may be used"), ("0-2", "3"), ("not known", "3"), ("", "3")]
)
def test_the_cpus_of_a_machine_are_those_that_the_run_may_use(allowed: str, words: str) -> None:
    assert fact_in_words("cpus_online", {"cpus_online": "3", "cpus_allowed": allowed}) == words


def test_names_from_outside_are_not_obeyed() -> None:
    run = renamed(sample_experiment(treatments=4), {"vm": "vm [red]\x1b[2J"}, name="[bold]x[/bold]\x1b]0;title\x07")
    text = shown(run, 160)
    assert "[bold]x[/bold]" in text and "vm [red]" in text
    assert "\x1b" not in text and "\x07" not in text


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("disk.randread-4k-qd1.mean_seconds", "random read 4 KiB mean"),
        ("disk.randwrite-4k-qd1.mean_seconds", "disk randwrite-4k-qd1 mean"),
        ("wakeup.mean_seconds", "wake-up mean latency"),
    ],
)
def test_the_mean_of_a_disk_at_a_rate_has_the_name_of_its_operations(name: str, label: str) -> None:
    assert line_of(Metric(name, "s", "lower")) == label and len(label) <= LONGEST_LABEL


def test_the_vm_s_settings_are_those_that_it_had() -> None:
    run = quick(emulated=False)
    levels = {"cpu.model": "host", "disk.volume": "plain", "disk.filesystem": "as-is", "disk.format": "raw"}
    levels |= {"disk.cache": "none", "disk.aio": "native", "disk.bus": "virtio", "net.path": "tap"}
    run = dataclasses.replace(
        run, treatments=tuple(dataclasses.replace(one, levels={**one.levels, **levels}) for one in run.treatments)
    )
    line = "VM: CPU model host, raw file, cache=none, aio=native, virtio-blk, virtio card on a tap, QEMU 10.0.3."
    assert line in " ".join(shown(run).split())
    host = {**run.facts["host"], "measured_as_root": False}
    as_user = dataclasses.replace(run, facts={**run.facts, "host": host})
    assert "QEMU's user-mode network, QEMU 10.0.3." in " ".join(shown(as_user).split()), (
        "whatever the plan's level says"
    )


def test_costs_are_larger_than_chance_only_where_each_is_shown_to_be(stored: list[Experiment]) -> None:
    """A cost without an interval, or within the noise of a guest against itself, may be chance."""
    claimed = 0
    for run in [*stored, quick(), quick(emulated=False)]:
        analysis = Analysis(run)
        found = summary(analysis)
        costs = [one for figure in found.figures for one in figure.contrasts if one is not None]
        if "each is larger than chance" in " ".join(shown(run).split()):
            claimed += 1
            assert all(one.low is not None and one.verdict in ("worse", "better") and not one.same for one in costs)
    assert claimed, "of some runs it is true"


def test_a_figure_that_the_plan_is_about_is_not_shown_in_another_unit_too() -> None:
    run = sample_experiment()
    wide = "disk.write-1m.bytes_per_second"
    asked = dataclasses.replace(run, plan={**run.plan, "primary": [wide]})
    lines = [line for line in shown(asked).splitlines() if line.startswith(("sequential write", "disk write-1m"))]
    assert len(lines) == 1 and "MB/s" in lines[0]
    named = [figure.metric.name for figure in summary(Analysis(asked)).figures]
    assert {wide, "disk.write-1m.iops"} <= set(named), "programs get both, as before"
    both = dataclasses.replace(run, plan={**run.plan, "primary": [wide, "disk.write-1m.iops"]})
    assert len([line for line in shown(both).splitlines() if line.startswith("sequential write")]) == 2


@pytest.mark.variations
def test_the_configuration_that_others_are_compared_with_says_its_levels() -> None:
    run = sample_experiment(treatments=9)
    (line,) = [line for line in shown(run).splitlines() if line.startswith("VM configurations, against vm")]
    assert re.search(r"against vm \((?:[a-z._]+=[^ ,]+(?:, )?)+\)$", line)
    narrow = [line for line in shown(run, 40).splitlines() if line.startswith("VM configurations, against vm")]
    assert narrow == ["VM configurations, against vm"]
