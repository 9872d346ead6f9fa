"""Layers: which are compared follows from what each stands on."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import MagicMock

import pytest

from tests.fake_machine import FakeMachine, Reply
from tests.sample import sample_experiment
from tests.unit.test_report import printed
from vmtax.analysis.analysis import Analysis
from vmtax.container import ContainerError
from vmtax.container.seccomp import FILTER
from vmtax.core.layers import CONTRASTS, GUESTS, LAYERS, USUAL
from vmtax.core.records import Experiment, Treatment
from vmtax.experiment.trial import Signatures, TrialKey, run_trials
from vmtax.machine import Outcome
from vmtax.meter import METERS
from vmtax.plan.estimate import not_measured
from vmtax.plan.schema import parse
from vmtax.report.render.screen import FirstScreen
from vmtax.report.sections.first import first, page_title
from vmtax.report.show import render
from vmtax.report.wording.layers import STYLES, THE, cost_name
from vmtax.testbed.layers.opening import OPENERS
from vmtax.testbed.parts import Request, lacking
from vmtax.testbed.parts.containers import Containers
from vmtax.testbed.session.base import Overdue, RunningSubject, RunningTreatment
from vmtax.workload import Site
from vmtax.workload.chess import Chess, ChessParameters

PLAN = parse("{name: x, layers: [host, container], workloads: [chess]}")
CONTAINER = Treatment("container", "container")


def test_a_layer_is_compared_with_those_below_it_and_beside_it() -> None:
    assert CONTRASTS == (
        ("host", "container"),
        ("host", "existing"),
        ("container", "existing"),
        ("host", "clone"),
        ("container", "clone"),
        ("existing", "clone"),
        ("host", "vm"),
        ("container", "vm"),
        ("existing", "vm"),
        ("clone", "vm"),
        ("vm", "nested"),
        ("host", "nested"),
    )
    assert GUESTS == ("vm", "nested") and [LAYERS[name].kernels for name in USUAL] == [0, 1, 2]
    assert parse("{name: x, workloads: [chess]}").layers == USUAL


def test_every_layer_can_be_opened_and_drawn() -> None:
    assert LAYERS.keys() == OPENERS.keys() == STYLES.keys() == THE.keys()
    assert len({style.mark for style in STYLES.values()}) == len({style.dash for style in STYLES.values()}) == 6
    names = [cost_name(*pair) for pair in CONTRASTS]
    assert names == [
        *("container costs", "existing VM costs", "existing VM vs container"),
        *("cloned VM costs", "cloned VM vs container", "cloned VM vs existing VM"),
        *("VM costs", "VM vs container", "VM vs existing VM", "VM vs cloned VM", "nested vs VM", "nested costs"),
    ]


def test_where_no_container_can_be_started_it_is_left_out_with_the_cure() -> None:
    def host(**answers: Reply) -> FakeMachine:
        return FakeMachine(
            "host",
            {
                ("id", "-u"): answers.get("user", Reply(stdout="0\n")),
                ("crun", "--version"): Reply(code=127),
                ("runc", "--version"): answers.get("runc", Reply(stdout="runc version 1.1.5\n")),
                ("cat", "/etc/os-release"): "ID=debian\n",
                ("test", "-r", FILTER): answers.get("filter", Reply()),
            },
        )

    def why(machine: FakeMachine, *treatments: Treatment) -> dict[str, str]:
        return dict(Containers().lacking(Request(machine, PLAN, treatments)))

    assert why(host(), CONTAINER) == {} and why(FakeMachine("host", {}), Treatment("host", "host")) == {}
    assert "root" in why(host(user=Reply(stdout="7\n")), CONTAINER)["container"]
    assert "apt-get install runc" in why(host(runc=Reply(code=127)), CONTAINER)["container"]
    assert "golang-github-containers-common" in why(host(filter=Reply(code=1)), CONTAINER)["container"]
    assert lacking(Request(host(), PLAN, [CONTAINER])) == {}


def test_what_is_not_measured_on_a_layer_is_said_where_that_is_not_plain() -> None:
    plan = parse("{name: x, layers: [host, container, vm, nested], workloads: [build, boot, migration, chess]}")
    assert not_measured(plan) == ["not measured on container: build", "not measured on nested: migration"]


def test_a_runtime_that_starts_no_container_leaves_these_out_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = FakeMachine("host", {})
    refused = MagicMock(side_effect=ContainerError("host: no container can be started: runc 1.1: no such cgroup"))
    monkeypatch.setattr("vmtax.testbed.parts.containers.find_runtime", refused)
    request = Request(machine, PLAN, [Treatment("host", "host"), CONTAINER])
    assert Containers().take(request) == {"container": "no container can be started: runc 1.1: no such cgroup"}
    assert Containers().take(request.without({"container": ""})) == {}


@pytest.mark.parametrize("timed_out", [True, False])
def test_a_command_that_goes_on_after_its_limit_is_ended(timed_out: bool) -> None:
    outcome = Outcome("host", ("stockfish",), 1, "", "", 1.0, timed_out)
    host = FakeMachine("host", {meter.command: Reply(code=2) for meter in METERS})
    machine, end = MagicMock(path="host", **{"try_run.return_value": outcome}), MagicMock()
    subject = RunningSubject(Site(machine, "container", 1, ()), offers=(Overdue(end),), path="host/container")
    running = RunningTreatment((subject,), host, meters=())
    workload = Chess(ChessParameters())
    (trial,) = run_trials(TrialKey(1, 1, "container"), running, workload, "", Signatures(), iteration=1)
    assert (trial.machine, trial.status, end.called) == ("host/container", "failed", timed_out)


def recast(experiment: Experiment, layers: dict[str, str]) -> Experiment:
    """The same figures, as if they were of these layers: the name of each treatment is that of its layer."""
    kept = [each for each in experiment.treatments if each.repeats is None and each.layer in layers]
    names = {each.name: layers[each.layer] for each in kept}
    return replace(
        experiment,
        treatments=tuple(replace(each, name=names[each.name], layer=layers[each.layer]) for each in kept),
        trials=tuple(replace(t, treatment=names[t.treatment]) for t in experiment.trials if t.treatment in names),
        boots=(),
    )


def test_reports_name_every_contrast_of_layers_as_what_it_is() -> None:
    sample = sample_experiment(rounds=7, emulated=False)
    three = Analysis(recast(sample, {"host": "host", "vm": "container", "nested": "nested"}))
    text = " ".join(printed(render(three, full=True), 80).split())
    assert "the container takes" in text and "the nested VM takes" in text, "neither is said by another sentence"
    beside = Analysis(recast(sample, {"host": "host", "vm": "container", "nested": "vm"}))
    wide = printed(FirstScreen(beside), 140)
    assert "container costs" in wide and "VM costs" in wide and "VM vs container" in wide
    narrow = printed(FirstScreen(beside), 80)
    assert "VM costs" in narrow and "VM vs container" not in narrow, "a column without room"
    alone = Analysis(recast(sample, {"host": "host", "vm": "container"}))
    assert "a container costs" in page_title(first(alone))
