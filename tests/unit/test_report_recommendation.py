"""The recommendation and what each choice gives up, in every report and on the command line."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from markdown_it import MarkdownIt
from typer.testing import CliRunner, Result

from tests.answers import experiment_data
from tests.sample import sample_experiment
from tests.sample_durability import with_trials
from tests.sample_storage import storage_experiment
from tests.stores import store_of
from tests.unit.test_report import check_golden, on_terminal, printed
from tests.unit.test_report_html import HOSTILE, Page
from tools import reference
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.deciding import deciding
from vmtax.analysis.requirements import Requirements
from vmtax.analysis.sessions.facts import changes
from vmtax.analysis.weight_profiles import PROFILES, WeightProfile, asked
from vmtax.cli import app
from vmtax.cli.app import BadUse
from vmtax.cli.options import complete_needs
from vmtax.core.errors import BadInput, CannotDo
from vmtax.core.records import Experiment
from vmtax.design.features import FEATURES
from vmtax.recommend import DISK
from vmtax.report.document import Detail
from vmtax.report.render.formats import FORMATS
from vmtax.report.render.html import render_html
from vmtax.report.render.markdown import render_markdown
from vmtax.report.sections import give_ups
from vmtax.report.sections.factor_effects import sentence
from vmtax.report.sections.recommendation import (
    Recommendation,
    recommendation,
    sections,
    to_apply,
    why_not,
)
from vmtax.report.show import render

TITLE, GIVE_UPS = DISK.title, DISK.gives_up
SAMPLE = storage_experiment(few=True)
SMALL = storage_experiment(2, few=True)
BARE = storage_experiment(2, features=False, few=True)
SAVEVM = Requirements(("savevm",))


def told(
    experiment: Experiment = SAMPLE, profile: WeightProfile | None = None, requirements: Requirements | None = None
) -> Recommendation:
    return of(Analysis(experiment, profile, requirements))


def of(analysis: Analysis) -> Recommendation:
    found = recommendation(analysis)
    assert found is not None
    return found


def plain(text: str) -> str:
    """Without what only makes it Markdown or keeps words together."""
    return " ".join(text.replace("\N{NO-BREAK SPACE}", " ").replace("\\", "").replace("*", "").split())


def with_features(experiment: Experiment, change: Any) -> Experiment:
    """The same run whose features are what `change` makes of them, treatment by treatment."""
    disk = experiment.facts["host"]["disk"]
    found = {name: changed for name, features in disk["features"].items() if (changed := change(name, features))}
    host = {**experiment.facts["host"], "disk": {**disk, "features": found}}
    return dataclasses.replace(experiment, facts={**experiment.facts, "host": host})


# --- what is reported


def test_a_recommendation_on_a_terminal_is_twelve_lines_with_the_figures_of_what_the_user_has() -> None:
    text = on_terminal(*sections(told(storage_experiment(emulated=False, few=True))))
    lines = text.strip().splitlines()
    assert len(lines) <= 12 and max(map(len, lines)) <= 80
    assert any(line.startswith("now") for line in lines) and any(line.startswith("→ ") for line in lines)
    assert all(head in text for head in ("4K read", "fsync", "CPU, µs", "durable", "may fill"))


def test_the_section_on_a_terminal() -> None:
    text = on_terminal(*sections(told(requirements=SAVEVM)))
    assert max(map(len, text.splitlines())) <= 80
    check_golden("show-advice.txt", text)


def test_every_report_has_it() -> None:
    analysis = Analysis(SMALL, requirements=SAVEVM)
    found = of(analysis)
    terminal = printed(render(analysis, full=True), 300)
    page = Page(render_html(analysis))
    markdown = render_markdown(analysis)
    assert found.advice.choice and found.advice.choice.treatment == "vm disk.format=qcow2 disk.cache=writeback"
    for text in map(plain, (terminal, page.prose(), markdown)):
        assert TITLE in text and GIVE_UPS in text and found.second in text
        assert all(line in text for line in (*found.advice.notes, *found.advice.reasons, *found.refused))
        assert all(give_ups.about(group) in text for group in found.groups)
    for text in map(plain, (page.prose(), markdown)):
        assert all(one.feature.words in text and one.feature.how in text for one in found.reasons)
        assert found.put_in in text and "qm set VMID" in text and "<target dev='vda' bus='virtio'/>" in text
    assert found.apply in plain(terminal) and "qm set" not in terminal
    titles = [attrs["title"] for tag, attrs in page.elements if tag == "span" and "title" in attrs]
    assert {give_ups.why(tests) for group in found.groups for tests in group.tests} <= {*titles}
    full = printed(render(analysis, full=True), 300)
    assert "Choices that meet the needs" in full and "yes, 18 of 24: a regular file (stat)" in full


def test_every_figure_says_that_it_is_emulated() -> None:
    found = told()
    assert found.second.endswith("(emulated).") and all(one.emulated for one in found.rated)
    real = told(storage_experiment(emulated=False, few=True))
    assert "emulated" not in f"{real.second} {real.advice.notes}" and not any(one.emulated for one in real.rated)
    data = experiment_data(Analysis(SAMPLE))["advice"]
    assert all(one["emulated"] for one in (data["choice"], data["runner_up"], *data["options"]))


def test_treatments_with_the_same_answers_are_one_row() -> None:
    found = told()
    assert [give_ups.about(group) for group in found.groups][::2] == [
        "3 with disk.filesystem=ext4, disk.format=qcow2, disk.bus=virtio",
        "6 with disk.filesystem=ext4 or xfs, disk.format=raw, disk.bus=virtio",
        "3 with disk.filesystem=none, disk.format=raw, disk.bus=virtio",
    ]
    assert sum(len(group.treatments) for group in found.groups) == 24
    assert found.advice.choice and found.advice.choice.treatment in found.groups[4].treatments
    assert [give_ups.holds(group) for group in found.groups if give_ups.holds(group)] == [
        "among them the runner-up",
        "among them the choice",
    ]
    assert [give_ups.shown(state) for state in found.groups[5].states] == ["yes", "no", "no", "no", "no", "?", "yes"]
    odd = {"vm", "vm disk.filesystem=xfs disk.bus=ide", "vm disk.format=qcow2 disk.cache=writeback"}

    def migrates(name: str, features: list[dict[str, str]]) -> list[dict[str, str]]:
        alike = [{**one, "state": "yes", "words": "", "how": "tried"} for one in features]
        return [*alike[:-1], {**alike[-1], "state": "no"}] if name in odd else alike

    apart = told(with_features(SAMPLE, migrates))
    assert [give_ups.about(group) for group in apart.groups][1].startswith("3: vm, "), (
        "they have nothing in common: their names"
    )
    alone = told(with_features(SAMPLE, lambda name, features: migrates("", features)))
    assert [give_ups.about(group) for group in alone.groups] == ["all 24"]
    one = told(with_features(SAMPLE, lambda name, features: features if name == "vm" else None))
    assert [give_ups.about(group) for group in one.groups] == ["vm"] and "were not tried" in " ".join(one.advice.notes)


# --- what it rests on


def test_speed_is_the_score_the_mix_or_the_first_primary_metric() -> None:
    assert told().metric == "disk.randwrite-4k-qd1.iops" and told().advice.by == "4 KiB random writes (one at a time)"
    scored = storage_experiment(sequential=True)
    assert told(scored).metric == "score.both"
    assert told(scored).advice.by == "the storage score for reads and writes"
    found = told(scored, PROFILES["database"])
    assert found.metric == "score.database" and "--for database" in found.apply
    analysis = Analysis(scored, PROFILES["database"])
    made = analysis.scores
    analysis.scores = dataclasses.replace(
        made, found=tuple(dataclasses.replace(one, measured=0.33) for one in made.found)
    )
    poor = of(analysis)
    assert "only 33 % was measured: too little to be an answer" in " ".join(poor.advice.reasons)
    own = asked(scored, "", "disk.randread-4k-qd32.iops=2,disk.rewrite-64k.iops=1")
    found = told(scored, own)
    assert found.metric == "score.weights" and found.advice.by == "the storage score for the given weights"
    assert shlex.split(found.apply)[-1] == "disk.randread-4k-qd32.iops=2,disk.rewrite-64k.iops=1"
    nothing = told(dataclasses.replace(SAMPLE, trials=()), PROFILES["build"])
    assert nothing.advice.choice is None and "score.build was not measured" in nothing.advice.notes[0]
    assert not nothing.put_in and not nothing.second and not nothing.rated


def test_durable_is_needed_unless_loss_is_accepted_or_it_is_not_known() -> None:
    assert told().advice.needs == ("durable",)
    assert told(requirements=Requirements(accept_loss=True)).advice.needs == ()
    assert told(requirements=Requirements(("durable",), accept_loss=True)).advice.needs == ("durable",)
    assert told(requirements=SAVEVM).advice.needs == ("savevm",)

    def unknown(name: str, features: list[dict[str, str]]) -> list[dict[str, str]]:
        return [{**one, "state": "not tried"} if one["name"] == "durable" else one for one in features]

    assert told(with_features(SAMPLE, unknown)).advice.needs == ()


def test_a_need_that_nothing_meets_is_reported_with_the_reasons() -> None:
    no_file = {"name": "file", "state": "no", "how": "stat", "words": ""}
    nothing = with_features(SAMPLE, lambda _, found: [no_file if one["name"] == "file" else one for one in found])
    analysis = Analysis(nothing, requirements=Requirements(("file",)))
    found = of(analysis)
    assert found.advice.choice is None and found.groups
    text = on_terminal(*sections(found), detail=Detail.FULL)
    assert "No recommendation" in text and "Left out  24 choices (vm, " in text and "Apply it" not in text
    assert Page(render_html(analysis)).prose().count("How to apply it") == 0
    assert "How to apply it" not in render_markdown(analysis)
    with pytest.raises(CannotDo, match="ask for less with --needs"):
        to_apply(found)


@pytest.mark.variations
def test_without_features_or_choices_there_is_no_section() -> None:
    two = ("host", "vm")
    alone = dataclasses.replace(
        SAMPLE,
        treatments=tuple(t for t in SAMPLE.treatments if t.name in two),
        trials=tuple(t for t in SAMPLE.trials if t.treatment in two),
    )
    for experiment, why in ((BARE, "did not find out"), (sample_experiment(), "fewer than 2"), (alone, "fewer than 2")):
        assert recommendation(Analysis(experiment)) is None and why in why_not(Analysis(experiment))
        assert TITLE not in printed(render(Analysis(experiment))) and TITLE not in render_html(Analysis(experiment))
        assert (
            TITLE not in render_markdown(Analysis(experiment))
            and experiment_data(Analysis(experiment))["advice"] is None
        )
    started = dataclasses.replace(SAMPLE, trials=(), boots=(), finished=None, state="running")
    assert told(started).advice.choice is None and told(started).groups
    for format in (format for format in FORMATS.values() if not format.costs):
        assert format.render(Analysis(started))


@pytest.mark.variations
def test_the_table_of_features_is_not_shown_again_among_the_facts() -> None:
    assert "disk.features" not in Page(render_html(Analysis(SAMPLE))).prose()
    lost = with_features(
        SAMPLE, lambda name, found: [{**o, "state": "no"} if o["name"] == "migration" else o for o in found]
    )
    reworded = with_features(SAMPLE, lambda name, found: [{**one, "words": "other"} for one in found])
    assert not changes([SAMPLE], [reworded])
    first = changes([SAMPLE], [lost])[0]
    assert first.name == "disk.features.vm" and "migration yes" in first.before and "migration no" in first.after


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.varied(1)
def test_names_and_words_are_text(text: str) -> None:
    def hostile(words: str) -> Experiment:
        changed = with_features(SAMPLE, lambda _, found: [{**one, "words": words, "how": words} for one in found])
        treatments = tuple(
            dataclasses.replace(t, name=f"vm {words}" if t.name == "vm" else t.name) for t in changed.treatments
        )
        facts = json.loads(json.dumps(changed.facts))
        features = facts["host"]["disk"]["features"]
        features[f"vm {words}"] = features.pop("vm")
        return dataclasses.replace(changed, treatments=treatments, facts=facts, trials=(), boots=())

    page, harmless = Page(render_html(Analysis(hostile(text)))), Page(render_html(Analysis(hostile("harmless"))))
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in harmless.elements]
    renderer = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    made = [Page(renderer.render(render_markdown(Analysis(hostile(words))))) for words in (text, "harmless")]
    assert [tag for tag, _ in made[0].elements] == [tag for tag, _ in made[1].elements]


@pytest.mark.variations
def test_what_decides_is_a_sentence_beside_each_table_of_effects() -> None:
    sentences = [sentence(one) for one in deciding(Analysis(SAMPLE))]
    assert len(sentences) == 5
    for text in map(plain, (printed(render(Analysis(SAMPLE), full=True), 300), render_markdown(Analysis(SAMPLE)))):
        assert all(plain(one) in text for one in sentences)


def test_a_factor_that_goes_with_another_is_named_beside_what_decides() -> None:
    bus = {"none": "virtio", "writeback": "virtio"}
    treatments = tuple(
        dataclasses.replace(t, levels={**t.levels, "disk.bus": bus.get(t.levels["disk.cache"], "ide")})
        if "disk.cache" in t.levels
        else t
        for t in SAMPLE.treatments
    )
    made = dataclasses.replace(SAMPLE, treatments=treatments)
    found = [sentence(one) for one in deciding(Analysis(made))]
    sentences = [text for text in found if " decides " in text]
    assert sentences and all(
        text.endswith(" Any of it may as well be disk.bus: its levels go with those of the others.")
        for text in sentences
    )


def without_mitigations(experiment: Experiment) -> Experiment:
    """The same run, in which the guests with writeback had no mitigations."""
    treatments = tuple(
        dataclasses.replace(t, levels={**t.levels, "cpu.mitigations": "off"})
        if t.levels.get("disk.cache") == "writeback"
        else t
        for t in experiment.treatments
    )
    return dataclasses.replace(experiment, treatments=treatments)


# --- the command line


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Experiment], Path]:
    """Stores a run where the commands look for it."""
    for place in ("DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{place}_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return lambda run: store_of(tmp_path / "vmtax", run)


def run(command: str) -> Result:
    return CliRunner().invoke(app, shlex.split(command))


def test_what_is_recommended_is_what_is_applied(store: Callable[[Experiment], Path]) -> None:
    store(SMALL)
    shown = run("show --needs savevm").stdout
    apply = re.search(r"Apply it +(vmtax show .*?) *\n", shown)
    assert apply and apply[1].endswith("--apply --needs savevm")
    text = run(apply[1].removeprefix("vmtax ")).stdout
    assert text.startswith("# vm disk.format=qcow2 disk.cache=writeback, which meets savevm: chosen by 4 KiB\n")
    assert "# Everything here ran emulated" in text and "temporary and is gone" in text
    for part in ("qemu-img create", "-device virtio-blk-pci", "<disk type='file' device='disk'>", "qm set VMID"):
        assert part in text
    assert "/srv/vm1" in text, "a file system of its own is not mounted over libvirt's directory"
    unbroken = ("if=none", "--virtio0 STORAGE", "-o preallocation")  # one word
    assert [line for line in text.splitlines() if len(line) > 80 and not any(word in line for word in unbroken)] == []


@pytest.mark.parametrize("options", ["", "--needs savevm,file --accept-loss"])
@pytest.mark.varied(1)
def test_json_answers_are_what_the_schema_allows(options: str, store: Callable[[Experiment], Path]) -> None:
    store(SMALL)
    schema = json.loads((reference.DIRECTORY / "vmtax-1.schema.json").read_text())
    answer = json.loads(run(f"show --json {options}").stdout)
    jsonschema_rs.Draft202012Validator(schema).validate(answer)
    found = answer["data"]["advice"]
    assert found["choice"] in found["options"] and found["export"]["qemu"]
    assert len(found["options"]) + len(found["refused"]) == len(found["give_ups"]) == 24
    assert all([one["name"] for one in row["features"]] == [*FEATURES] for row in found["give_ups"])


@pytest.mark.variations
def test_a_condition_is_reported_wherever_the_choice_is(store: Callable[[Experiment], Path]) -> None:
    """Guests with writeback are the fastest, but here they have no mitigations."""
    made = without_mitigations(SMALL)
    store(made)
    schema = json.loads((reference.DIRECTORY / "vmtax-1.schema.json").read_text())
    answer = json.loads(run("show --json").stdout)
    jsonschema_rs.Draft202012Validator(schema).validate(answer)
    found = answer["data"]["advice"]
    assert len(found["options"]) == 16 and len(found["refused"]) == 8
    assert not any("writeback" in option["treatment"] for option in (found["choice"], *found["options"]))
    assert all(one["why"].endswith("another condition than cpu.mitigations=auto") for one in found["refused"])
    note = found["notes"][0]
    assert note.startswith("Only guests with cpu.mitigations=auto were considered, not the 8 at other levels")
    apply = run("show --apply").stdout
    assert note in plain(apply.replace("\n# ", " ")) and f"# {found['choice']['treatment']}" in apply
    for text in (
        printed(render(Analysis(made), full=True), 300),
        Page(render_html(Analysis(made))).prose(),
        render_markdown(Analysis(made)),
    ):
        assert note in plain(text) and "8 choices (vm disk.cache=writeback, " in plain(text)


def test_guests_that_differ_in_conditions_alone_are_no_ways_to_keep_a_disk() -> None:
    usual, other = (t for t in without_mitigations(SMALL).treatments if t.name in ("vm", "vm disk.cache=writeback"))
    other = dataclasses.replace(other, levels={**other.levels, "disk.cache": usual.levels["disk.cache"]})
    made = dataclasses.replace(SMALL, treatments=(usual, other))
    assert recommendation(Analysis(made)) is None and "fewer than 2 ways to keep a guest's disk" in why_not(
        Analysis(made)
    )


def test_what_cannot_be_advised_on_is_refused_in_one_line(store: Callable[[Experiment], Path]) -> None:
    store(BARE)
    for command in ("show --needs file", "show --accept-loss --json", "report --needs file", "show --apply"):
        error = run(command).exception
        assert isinstance(error, BadUse) and "did not find out what its disks can do" in str(error), command
        assert "\n" not in str(error)
    assert not list(Path.cwd().glob("*.html")), "nothing is written"


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("show --needs durabel", "did you mean durable"),
        ("show --format csv --needs file", "csv has measurements and no recommendation: leave out --needs"),
        ("report --format parquet --accept-loss", "leave out --accept-loss"),
        ("show --apply --json", "leave out --json, --format and --full"),
        ("show --apply --full", "leave out --json, --format and --full"),
    ],
)
def test_bad_options(command: str, complaint: str, store: Callable[[Experiment], Path]) -> None:
    store(SMALL)
    error = run(command).exception
    assert isinstance(error, BadUse | BadInput) and error.exit_code == 2
    assert complaint in str(error)


def test_the_report_takes_the_options(store: Callable[[Experiment], Path], tmp_path: Path) -> None:
    store(SMALL)
    target = tmp_path / "r.md"
    assert run(f"report --format markdown -o {target} --needs savevm").exit_code == 0
    assert "- Choose: **vm disk.format=qcow2 disk.cache=writeback** emulated" in target.read_text()


def test_needs_are_completed_one_after_the_other() -> None:
    assert complete_needs("dur") == ["durable"]
    assert complete_needs("durable,s") == ["durable,savevm", "durable,snapshots"]
    assert "durable,durable" not in complete_needs("durable,")


def test_of_each_feature_what_is_given_up_is_said_first() -> None:
    found = told()
    order = ("no", "not tried", "not shown", "yes")
    for name in DISK.features:
        states = [order.index(one.feature.state) for one in found.reasons if one.feature.name == name]
        assert states == sorted(states)
    assert any(one.feature.state == "no" for one in found.reasons)
    assert all(0 < len(one.treatments) <= one.of == 24 for one in found.reasons)


def _tried(experiment: Experiment, *, but: str = "") -> Experiment:
    """Its guests' disks lost their power in simulation, except those with these words in their name."""
    trials = with_trials(experiment).trials[len(experiment.trials) :]
    kept = [one for one in trials if not but or but not in one.treatment]
    return dataclasses.replace(experiment, trials=(*experiment.trials, *kept))


@pytest.mark.parametrize(
    ("experiment", "head", "cells"),
    [
        (SMALL, "durable, documented", {"yes"}),
        (_tried(SMALL), "durable, simulated cut", {"yes"}),
        (_tried(SMALL, but="writeback"), "durable", {"yes simulated cut", "yes documented"}),
        (_tried(SMALL, but="qcow2"), "durable", {"yes simulated cut", "yes documented"}),
    ],
)
@pytest.mark.variations
def test_the_column_says_whether_durability_was_tried(experiment: Experiment, head: str, cells: set[str]) -> None:
    analysis = Analysis(experiment, requirements=SAVEVM)
    table = of(analysis).table
    assert table is not None
    heads = [head if isinstance(head, str) else head[0].text for head in (column.head for column in table.columns)]
    place = heads.index(head)
    assert {" ".join(piece.text for piece in row.cells[place].pieces) for row in table.rows} == cells
    for text in (plain(Page(render_html(analysis)).prose()), plain(render_markdown(analysis))):
        assert re.search(head, text)
        assert all(re.search(cell.replace(" ", r"\W+", 1), text) for cell in cells)
    assert max(map(len, printed(render(analysis)).splitlines())) <= 80
    named = {row["durable_by"] for row in experiment_data(analysis)["advice"]["give_ups"]}
    assert named == {"documented"} if experiment is SMALL else {"documented", "simulated cut"}  # xfs was not tried
