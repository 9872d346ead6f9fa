"""The JSON of stored runs: what is accepted can be shown, compared and resumed; the rest is refused in one line."""

from __future__ import annotations

import copy
import dataclasses
import io
import json
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from rich.console import Console

from tests.sample_plans import DESTINATION, POWER_CUT, WAYS, WIRE, run_of
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.sessions import compared
from vmtax.core.errors import BadInput, CannotDo
from vmtax.core.records import Experiment
from vmtax.core.stored import MOST_ROUNDS, StoredOptions, StoredPlan
from vmtax.design.reboots import next_block
from vmtax.experiment.reboots import refuse_boot, refuse_changed
from vmtax.experiment.resume import resumable
from vmtax.plan.errors import PlanError
from vmtax.plan.schema import Plan, Rounds
from vmtax.plan.stored import plan_of
from vmtax.report.render.formats import FORMATS
from vmtax.report.show import render
from vmtax.storage import Target
from vmtax.store import Store, fit, model
from vmtax.store.failure import DamagedRun
from vmtax.store.model import Unfit
from vmtax.testbed.session.power import PowerCut
from vmtax.testbed.session.session import Destination, ExistingVm, TestbedOptions, Wire

BOOT = {"round": 1, "level": "none", "over": True, "boot_id": "x", "kernel_command_line": "ro"}
# Way to run a plan, where in the run, value -> words of the refusal
WRONG: tuple[tuple[str, str, Any, str], ...] = (
    *(("reboots", "facts.host.boots", value, "facts.host.boots") for value in ("x", {}, [None], ["x"], [{}], [[]])),
    *(("reboots", "facts.host.boots", [{**BOOT, "level": value}], "boots.0.level") for value in (None, 1, [], {})),
    *(("reboots", "facts.host.boots", [{**BOOT, "over": value}], "boots.0.over") for value in (None, "no", 1, [])),
    *(("reboots", "facts.host.boots", [{**BOOT, "boot_id": value}], "boots.0.boot_id") for value in (1, [], {})),
    *(("reboots", "facts.host.boots", [{**BOOT, "round": value}], "boots.0.round") for value in ("1", 0, 1.5, 2**31)),
    ("reboots", "facts.host.boots", [{**BOOT, "round": 8}], "facts.host.boots.0.round: 8 is more than the plan's"),
    ("reboots", "facts.host/vm.boots", [{**BOOT, "round": 9}], "facts.host/vm.boots.0.round: 9 is more than"),
    *(("build", "facts.host.kernel_pack", value, "facts.host.kernel_pack") for value in ("x", [], 1, True)),
    *(("build", "facts.host.kernel_pack", {"digest": value}, "digest") for value in (True, 0, [], {})),
    *(("quick", "facts.host.postgresql_pack", {"version": value}, "version") for value in (6.12, [])),
    *(("quick", "facts.host.qemu", value, "facts.host.qemu") for value in ("x", 8, {"text": []}, {"version": 10})),
    *(("quick", "facts.host.image", value, "facts.host.image") for value in ("x", [], {"identity": 1})),
    *(("quick", "facts.host.cpus_online", value, "cpus_online") for value in ("8", "9" * 5000, [], 1.5)),
    *(("quick", "facts.host.memory_bytes", value, "memory_bytes") for value in ("8", -1, 2**63)),
    *(("quick", f"facts.host.{name}", 1, name) for name in ("kernel_release", "boot_id", "hypervisor", "virtualized")),
    *(("quick", f"facts.host.{name}", "\ud800", "half a character, '\\ud800'") for name in ("os", "any", "microcode")),
    ("quick", "facts.host", {"\udfff": 1}, "facts.host: Input should be a valid string"),
    *(("wire", "options.wire", value, "options.wire") for value in ("x", [], {}, {"card": "a"}, {**WIRE, "peer": 1})),
    ("wire", "options.wire", {**WIRE, "card": "eth\0"}, "options.wire.card"),
    *(("power cut", "options.power_cut", value, "options.power_cut") for value in ("x", {}, {"command": ["a"]})),
    *(
        ("power cut", "options.power_cut", {**POWER_CUT, "command": value}, "options.power_cut.command")
        for value in ("x", [], [1], None, ["a\0b"])
    ),
    *(
        ("power cut", "options.power_cut", {**POWER_CUT, "back_within": value}, "options.power_cut.back_within")
        for value in ("x", 0, -1, None, 1e300)
    ),
    *(("destination", "options.destination", value, "options.destination") for value in ("x", [], {"host": "h"})),
    ("destination", "options.destination", {**DESTINATION, "far_card": None}, "far_card"),
    *(
        ("quick", f"options.{name}", value, name)
        for name in ("emulate", "demonstration", "imported")
        for value in (1, "")
    ),
    *(
        ("quick", f"options.{name}", value, name)
        for name in ("qemu", "interleave_with", "disk_group")
        for value in (1, [])
    ),
    *(("storage", "options.disk_devices", value, "disk_devices") for value in ("/dev/sdb", [1], {}, None)),
    *(("quick", "plan.precision", value, "plan.precision") for value in (-5, 0, 1, "2%", [], True)),
    *(("quick", "plan.seed", value, "plan.seed") for value in ("x", -1, 1.5, 2**63, [])),
    *(
        ("quick", "plan.rounds", value, "plan.rounds")
        for value in ({"min": 8, "max": 7}, {"min": 1}, [], {"min": 1, "max": 1e9})
    ),
    *(("quick", "plan.iterations", value, "plan.iterations") for value in (0, "often", [], -1)),
    *(("quick", "plan.decide", value, "plan.decide") for value in ({}, {"worse_than": 0}, {"worse_than": -1}, "x")),
    *(("quick", "plan.factors", value, "plan.factors") for value in ([], {"a": "b"}, {"a": [1]}, None)),
    *(("quick", "plan.combinations", value, "plan.combinations") for value in (-1, [1], [{}], [{"levels": []}])),
    *(("quick", "plan.workloads", value, "plan.workloads") for value in ("x", [1], [None], [[]], {})),
    *(("quick", "plan.primary", value, "plan.primary") for value in ("x", [1], None, {})),
    *(("quick", f"plan.{name}", value, name) for name in ("same_within",) for value in ("x", -1, [])),
)
# What a later version may write, and what may not be known
KEPT: tuple[tuple[str, str, Any], ...] = (
    *(
        ("quick", f"{part}.later", {"x": [1, {"y": None}]})
        for part in ("plan", "options", "facts.host", "facts.host.disk")
    ),
    ("reboots", "facts.host.boots.0.later", [1]),
    ("wire", "options.wire", {**WIRE, "later": "x"}),
    ("destination", "options.destination", {**DESTINATION, "later": "x"}),
    ("power cut", "options.power_cut", {**POWER_CUT, "later": "x"}),
    *(
        ("build", f"facts.host.{name}", None)
        for name in ("boots", "disk", "image", "qemu", "kernel_pack", "cpus_online")
    ),
    ("quick", "facts.host.mitigations", ["x"]),
    *(("quick", f"facts.host.{name}", "x") for name in ("disk.features", "kernel_pack.digest", "boots.0", ".", "")),
    ("quick", "facts.host", {"": {"cpus_online": "9" * 5000, "cpus_allowed": "0-3"}}),
    ("quick", "facts.host.any_bytes", "1e400"),
    ("reboots", "facts.host.boots", [{**BOOT, "level": "unknown"}, {**BOOT, "round": 7, "level": "unknown"}]),
    ("reboots, stopped", "facts.host.boots", [{**BOOT, "level": "unknown", "over": False}]),
)


def changed(way: str, where: str, value: Any) -> dict[str, Any]:
    """The document of a run with that value at that place; what is behind the third dot of a fact is its own name."""
    document = json.loads(json.dumps(dataclasses.asdict(run_of(way))))
    parent: Any = document
    part, _, rest = where.partition(".")
    names = [part, *(rest.split(".", 1) if part == "facts" else [rest])] if rest else [part]
    if names[-1].startswith(("boots.0.", "disk.later")):
        names[-1:] = names[-1].split(".")
    for name in names[:-1]:
        parent = parent[int(name) if isinstance(parent, list) else name]
    parent[names[-1]] = copy.deepcopy(value)
    return document


def everything(run: Experiment) -> None:
    """What the commands read of it; a refusal is one line."""
    facts = {"host": run_of("reboots").facts["host"]}
    stopped = dataclasses.replace(run, state="interrupted", options={**run.options, "imported": False})
    before = [dataclasses.replace(run_of("quick"), id="before")]
    TestbedOptions.from_json(run.options)
    for ask in (
        lambda: resumable(stopped),
        lambda: refuse_boot(run, {"boot_id": "y", "kernel_command_line": "ro"}, rebooted=True),
        lambda: refuse_changed(run, facts),
        lambda: compared(before, [run], [], same_within=0.03, limit=None),
    ):
        try:
            ask()
        except (BadInput, CannotDo) as error:
            assert len(str(error).splitlines()) == 1, error
    Console(file=io.StringIO(), width=100).print(render(Analysis(run), full=True))
    for name in ("html", "json"):
        FORMATS[name].render(Analysis(run))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.varied(3)
def test_a_run_of_every_built_in_plan_is_stored_shown_and_read_again(way: str, tmp_path: Path) -> None:
    with Store(tmp_path / "store.sqlite") as store:
        store.put(run_of(way))
        assert store.load() == run_of(way)
    everything(run_of(way))


@pytest.mark.parametrize(("way", "where", "value", "words"), WRONG)
@pytest.mark.varied(15)
def test_a_known_key_with_an_impossible_value_is_refused_in_one_line(
    way: str, where: str, value: Any, words: str
) -> None:
    with pytest.raises(Unfit) as refused:
        model.run_of(changed(way, where, value))
    assert words in str(refused.value) and len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(("way", "where", "value"), KEPT)
@pytest.mark.varied(3)
def test_an_unknown_key_is_kept_and_breaks_nothing(way: str, where: str, value: Any) -> None:
    document = changed(way, where, value)
    run = model.run_of(document)
    assert json.loads(json.dumps(dataclasses.asdict(run))) == document
    everything(run)


def test_a_damaged_run_names_the_place_and_the_cure(tmp_path: Path) -> None:
    made = run_of("reboots")
    facts = {**made.facts, "host": {**made.facts["host"], "boots": [None]}}
    with Store(tmp_path / "store.sqlite") as store:
        store.put(dataclasses.replace(made, facts=facts))
        with pytest.raises(
            DamagedRun, match=rf"run {made.id} is damaged: facts.host.boots.0: .*`vmtax runs rm"
        ) as told:
            store.load(made.id)
        assert "\n" not in str(told.value)


def test_the_search_for_the_next_boot_of_the_host_ends() -> None:
    """Its order is endless, and a stored boot may be none of it."""
    run = run_of("reboots")
    late = {**BOOT, "round": MOST_ROUNDS, "level": "unknown"}
    facts = {"host": {**run.facts["host"], "boots": [late]}}
    assert next_block(dataclasses.replace(run, facts=facts)).round == MOST_ROUNDS + 1
    assert next_block(run).round == len(run.facts["host"]["boots"]) / 2 + 1


def test_options_are_stored_by_the_names_that_are_checked() -> None:
    full = TestbedOptions(
        qemu="/opt/qemu",
        target=Target(devices=("/dev/vdb",), group="vg", pool="tank"),
        interleave_with="ssh://other",
        emulate=True,
        demonstration=True,
        wire=Wire("eth1", "ssh://peer", "eth2"),
        power_cut=PowerCut(("/usr/bin/fence", "--off"), 60.0),
        destination=Destination("ssh://there", "eth1", "eth2"),
        existing=ExistingVm("libvirt:web1", PurePosixPath("/srv/tmp"), clone=True, watched=True),
    )
    written = json.loads(json.dumps(full.to_json()))
    assert {*written, "imported"} == {*StoredOptions.model_fields}
    assert TestbedOptions.from_json(written) == full
    for name in ("wire", "power_cut", "destination", "existing"):
        known = StoredOptions.model_validate(written).__getattribute__(name)
        assert {*written[name]} == {*type(known).model_fields}, "and nothing more is written"


def test_a_plan_is_checked_within_the_bounds_of_plans() -> None:
    assert {*StoredPlan.model_fields} <= {*Plan.model_fields}
    for name in ("min", "max"):
        bounds = Rounds.model_fields[name].metadata
        assert any(getattr(bound, "le", None) == MOST_ROUNDS for bound in bounds)


def test_a_plan_of_another_version_is_refused_in_one_line() -> None:
    run = run_of("quick")
    strange = dataclasses.replace(run, plan={**run.plan, "layers": ["moon"], "later": 1, "guest": {"vcpus": 0}})
    with pytest.raises(PlanError, match=rf"^run {run.id} has a plan that this version cannot read: .*$") as told:
        plan_of(strange)
    assert "\n" not in str(told.value)


def test_facts_that_do_not_fit_cost_only_themselves() -> None:
    given = {"os": "Debian", "cpus_online": "many", "boots": [1], "qemu": {"version": "10"}}
    kept = fit.fitting_facts("host", given, {})
    assert {name: kept[name] for name in ("os", "qemu")} == {"os": "Debian", "qemu": {"version": "10"}}
    assert {*kept} == {"os", "qemu", "not_kept"}
    assert "cpus_online" in kept["not_kept"] and "boots.0" in kept["not_kept"]
    assert [*fit.fitting_facts("host", {str(n): n for n in range(model.MOST_VALUES)}, {})] == ["not_kept"]
