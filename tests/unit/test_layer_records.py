"""Layers: which are compared follows from what each stands on."""

from __future__ import annotations

from tests.fake_machine import FakeMachine, Reply
from vmtax.container.seccomp import FILTER
from vmtax.core.layers import CONTRASTS, GUESTS, LAYERS, USUAL
from vmtax.core.records import Treatment
from vmtax.plan.schema import parse
from vmtax.report.wording.layers import STYLES, THE, cost_name
from vmtax.testbed.layers.opening import OPENERS
from vmtax.testbed.parts import Request, lacking
from vmtax.testbed.parts.containers import Containers

PLAN = parse("{name: x, layers: [host, container], workloads: [chess]}")
CONTAINER = Treatment("container", "container")


def test_a_layer_is_compared_with_those_below_it_and_beside_it() -> None:
    assert CONTRASTS == (
        ("host", "container"),
        ("host", "vm"),
        ("container", "vm"),
        ("vm", "nested"),
        ("host", "nested"),
    )
    assert GUESTS == ("vm", "nested") and [LAYERS[name].kernels for name in USUAL] == [0, 1, 2]
    assert parse("{name: x, workloads: [chess]}").layers == USUAL


def test_every_layer_can_be_opened_and_drawn() -> None:
    assert LAYERS.keys() == OPENERS.keys() == STYLES.keys() == THE.keys()
    assert len({style.mark for style in STYLES.values()}) == len({style.dash for style in STYLES.values()}) == 4
    names = [cost_name(*pair) for pair in CONTRASTS]
    assert names == ["container costs", "VM costs", "VM against container", "nesting adds", "nested VM costs"]


def test_where_no_container_can_be_started_it_is_left_out_with_the_cure() -> None:
    def host(**answers: Reply) -> FakeMachine:
        return FakeMachine(
            "host",
            {
                ("id", "-u"): answers.get("user", Reply(stdout="0\n")),
                ("crun", "--version"): Reply(code=127),
                ("runc", "--version"): answers.get("runc", Reply(stdout="runc version 1.1.5\n")),
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
