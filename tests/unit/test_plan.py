from __future__ import annotations

import math
import os
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.spin import spin_plan
from vmtax import stats
from vmtax.design.factors import FACTORS
from vmtax.design.treatments import moved_defaults
from vmtax.plan import rules
from vmtax.plan.estimate import check, fit_rounds, pilot_seconds, seconds_per_round
from vmtax.plan.schema import PlanError, builtin_plans, describe, from_data, load, parse
from vmtax.workload.fio import MINIMUM_TAIL, PERCENTILES, Disk

VM = "a VM of yours is named by --guest libvirt:NAME"
BUILTIN = (
    "build, build-2020, cpu, density, disk-aio, disk-backup, disk-build, disk-cache, durability, idle, layers,"
    " migration, multi-queue, nesting-2016, network, pages, quick, sriov, storage, storage-2013, tiles, windows"
)


def problems(text: str) -> list[str]:
    with pytest.raises(PlanError) as caught:
        parse(text, "p.yaml")
    return caught.value.problems


def test_a_wrong_metric_does_not_fill_the_terminal_with_all_the_others() -> None:
    (line,) = problems("name: a\nworkloads: [chess, disk]\nprimary: [chesss]")
    assert "unknown metric 'chesss'; legal: chess.nodes_per_second, " in line
    assert len(line) < 1100 and re.search(r", and \d+ more$", line)


def test_the_example_of_the_design_is_read() -> None:
    plan = parse(
        """
name: quick
host: local
guest: {vcpus: 2, memory: 1GiB}
layers: [host, vm, nested]
factors: {disk.cache: [none, writeback]}
exclude: [{disk.cache: writeback, layers: nested}]
workloads: [chess, {disk: {patterns: [randread-4k-qd1, write-1m], size: 1GiB}}]
primary: [chess.nodes_per_second, disk.randread-4k-qd1.iops]
precision: 2%
rounds: {min: 7, max: 60}
budget: 20m
"""
    )
    assert plan.guest.memory == 2**30
    assert (plan.precision, plan.budget, plan.rounds.max) == (0.02, 1200, 60)
    assert plan.exclude == ({"disk.cache": ("writeback",), "layers": ("nested",)},)
    assert [treatment.name for treatment in plan.treatments()[0]] == ["host", "vm", "vm disk.cache=writeback", "nested"]
    assert [workload.cases() for workload in plan.build_workloads()][1] == ("randread-4k-qd1", "write-1m")


def test_a_plan_needs_only_a_name_and_workloads(spin: None) -> None:
    plan = parse("name: a\nworkloads: [spin, start: {cases: [long]}]")
    assert (plan.host, plan.layers, plan.guest.vcpus, plan.budget) == ("local", ("host", "vm", "nested"), 2, 1200)
    assert plan.primary == ("spin.short.turns", "start.long.turns")
    assert (plan.factors, plan.seed) == ({}, None)


def test_a_level_that_old_yaml_takes_for_a_boolean_is_kept(spin: None) -> None:
    plan = parse("name: a\nworkloads: [spin]\nfactors: {cpu.mitigations: [auto, off], disk.bus: ide}")
    assert plan.factors == {"cpu.mitigations": ("auto", "off"), "disk.bus": ("ide",)}


@pytest.mark.parametrize(("written", "seconds"), [("none", None), ("~", None), ("1h30m", 5400.0)])
def test_a_budget_may_be_none(spin: None, written: str, seconds: float | None) -> None:
    assert parse(f"name: a\nworkloads: [spin]\nbudget: {written}").budget == seconds


@pytest.mark.parametrize("host", ["local", "ssh://box", "ssh://me@box.example:2222", "ssh://root@[fe80::1]:22"])
def test_hosts_that_can_be_reached(spin: None, host: str) -> None:
    assert spin_plan(host=host).host == host


@pytest.mark.parametrize("host", ["ssh://-oProxyCommand=x", "ssh://-x@box", "ssh://box:0", "ssh://box/x", "box", ""])
def test_hosts_that_cannot_be_reached(spin: None, host: str) -> None:
    with pytest.raises(PlanError, match=r"host: must be local, ssh://\[user@\]host\[:port\] or lab"):
        spin_plan(host=host)


def test_every_mistake_is_reported_at_once_with_its_line_and_the_nearest_name(spin: None) -> None:
    text = """\
name: a b
host: "lab:A b"
guset: {vcpus: 2}
guest: {vcpus: 0, memory: 100MiB}
layers: [host, nestd, host]
factors:
  disk.cahe: [none]
  disk.cache: [none, writebak]
exclude: [{layers: guest}, {}]
workloads:
  - spn
  - spin: {cases: [shrt], secs: 3}
  - start:
    seconds: 3
precision: 2
rounds: {min: 9, max: 7.5}
budget: 20
"""
    assert problems(text) == [
        "p.yaml:1:1: name: must be 1 to 64 letters, digits, `.`, `_` or `-`, and begin with one of the first two: "
        "'a b'",
        "p.yaml:2:1: host: must be lab or lab:NAME, the name up to 20 of a-z, 0-9 and -, not 'lab:A b'",
        "p.yaml:3:1: guset: unknown key 'guset'; did you mean guest? legal: name, host, guest, layers, factors, "
        "design, combinations, exclude, workloads, primary, decide, only_primary, give_ups, precision, same_within, "
        "rounds, iterations, budget, max_writes, seed",
        "p.yaml:4:9: guest.vcpus: must be at least 1, not 0",
        "p.yaml:4:19: guest.memory: must be from 256MiB to 1024TiB",
        "p.yaml:5:16: layers[1]: unknown layer 'nestd'; did you mean nested? legal: host, container, existing, clone, "
        "vm, nested",
        "p.yaml:7:3: factors.disk.cahe: unknown factor 'disk.cahe'; did you mean disk.cache? legal: "
        + ", ".join(FACTORS),
        "p.yaml:8:22: factors.disk.cache[1]: unknown level of disk.cache 'writebak'; did you mean writeback? legal: "
        "none, writeback, writethrough, directsync, unsafe",
        "p.yaml:9:12: exclude[0].layers: unknown layer 'guest'; legal: host, container, existing, clone, vm, nested",
        "p.yaml:9:28: exclude[1]: is empty: say what to leave out, such as {disk.cache: writeback, layers: nested}",
        "p.yaml:13:5: workloads[2]: must be one workload: indent the parameters below its name (start, seconds)",
        "p.yaml:15:1: precision: must be a number and a unit, such as 2% (or none), not 2",
        "p.yaml:16:18: rounds.max: must be a whole number, not 7.5",
        "p.yaml:17:1: budget: must be a number and a unit, such as 20m (or none), not 20",
    ]


def test_mistakes_in_workloads_and_metrics_name_the_legal_ones(spin: None) -> None:
    assert problems("name: a\nworkloads: [spn, spin: {cases: [shrt], secs: 3}]") == [
        "p.yaml:2:13: workloads[0]: unknown workload 'spn'; did you mean spin? legal: spin, start",
        "p.yaml:2:33: workloads[1].spin.cases[0]: unknown value 'shrt'; did you mean short? legal: short, long",
        "p.yaml:2:40: workloads[1].spin.secs: unknown key 'secs'; did you mean seconds? legal: cases, seconds",
    ]
    assert problems("name: a\nworkloads: [start, spin]\nprimary: [spin.short.turn]") == [
        "p.yaml:3:11: primary[0]: unknown metric 'spin.short.turn'; did you mean spin.short.turns? "
        "legal: spin.short.turns, spin.short.stalls"
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "p.yaml: the file is empty: a plan needs at least `name` and `workloads`"),
        ("- a", "p.yaml:1:1: a plan is a mapping (key: value) at the top, not a list"),
        ("a: [1", "p.yaml:1:6: not YAML: while parsing a flow sequence: expected ',' or ']', but got '<stream end>'"),
        ("name: a\nworkloads: [spin]\nname: b", "p.yaml:1:1: name: given twice, on lines 1 and 3: keep one"),
        ("a: &x 1\nb: *x", "p.yaml:2:4: an alias (*name) is not supported: write it out"),
        ("a:\n  ? [b]\n  : c", "p.yaml:2:5: a.?: a key must be plain text"),
        ("a: !!python/none x", "p.yaml:1:1: a: the tag '!!python/none' is not supported: leave it out"),
        ("a: \0", "p.yaml:1:4: this character is not allowed in YAML"),
        ("a: !!int x", "p.yaml:1:1: a: 'x' is not what its tag !!int says: leave the tag out"),
        ('name: b\na: "\\UFFFFFFFF"', "p.yaml:2:7: not YAML: this escape is no character of Unicode"),
        ("a: " + "[" * 50 + "]" * 50, "p.yaml:1:25: nested more than 20 levels deep, so it is not a plan"),
        ("[" * 5000, "p.yaml:1:22: nested more than 20 levels deep, so it is not a plan"),
        ("- " * 5000, "p.yaml:1:41: nested more than 20 levels deep, so it is not a plan"),
        ("a: [" + "b," * 10_000 + "]", "p.yaml:1:19999: more than 10,000 values, so it is not a plan"),
        ("#" * 70_000, "p.yaml: larger than 64 KiB, so it is not a plan"),
        ("seed: " + "9" * 5000, "p.yaml:1:1: seed: a number of 5,000 characters is too long: at most 40 are read"),
    ],
)
def test_what_is_no_plan_at_all_gets_one_line(spin: None, text: str, line: str) -> None:
    found = problems(text)
    assert len(found) == 1
    assert found[0].startswith(line)


def test_a_workload_without_keys_says_so() -> None:
    text = "name: a\nlayers: [vm]\nworkloads: [{boot: {seconds: 1}}]"
    wrong = "workloads[0].boot.seconds: unknown key 'seconds'; no key is legal here: leave it out"
    assert problems(text) == [f"p.yaml:3:21: {wrong}"]


def test_a_case_that_is_named_twice_is_refused_at_its_place() -> None:
    text = "name: a\nlayers: [vm]\nworkloads:\n  - net: {cases: [tcp-in, tcp-out, tcp-in]}"
    assert problems(text) == ["p.yaml:4:36: workloads[0].net.cases[2]: 'tcp-in' is given twice"]


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("rounds", "{min: 0}", "rounds.min: must be at least 1, not 0"),
        ("rounds", "{min: 70}", "rounds: min must not be more than max, but min is 70 and max is 60"),
        ("rounds", "7", "rounds: must be a mapping (key: value), not 7"),
        ("guest", "{vcpus: true}", "guest.vcpus: must be a whole number, not true"),
        ("guest", "{memory: 1XB}", "guest.memory: '1XB' is no size"),
        ("precision", "0%", "precision: must be none, or from 0.01% to 50%"),
        ("budget", "31d", "budget: must be none, or from 1s to 30d"),
        ("seed", "-1", "seed: must be at least 0, not -1"),
        ("layers", "[]", "layers: must have at least one entry"),
        ("layers", "[vm, vm]", "layers[1]: 'vm' is given twice"),
        ("layers", "vm", "layers: must be a list, not 'vm'"),
        ("workloads", "[spin, spin]", "workloads[1]: 'spin' is given twice"),
        ("factors", "{disk.cache: []}", "factors.disk.cache: must have at least one level; legal: none, writeback"),
        ("factors", "{disk.bus: [ide, ide]}", "factors.disk.bus[1]: 'ide' is given twice"),
        (
            "factors",
            "{disk.aio: native, disk.cache: unsafe}",
            "factors: no configuration is left to measure: disk.aio=native needs disk.cache=none: add --vary ",
        ),
        ("exclude", "[{layers: [vm]}]", "exclude: no configuration is left to measure: vm: excluded"),
    ],
)
def test_values_out_of_range_say_what_is_right(spin: None, key: str, value: str, line: str) -> None:
    fields = {"name": "a", "layers": "[vm]", "workloads": "[spin]", key: value}
    found = problems("\n".join(f"{name}: {text}" for name, text in fields.items()))
    assert len(found) == 1
    assert found[0].split(": ", 1)[1].startswith(line)


@pytest.mark.parametrize(
    ("parameter", "line"),
    [
        ("chess: {depth: true}", "chess.depth: must be a whole number, not true"),
        ("chess: {depth: '13'}", "chess.depth: must be a whole number, not '13'"),
        ("chess: {depth: 13.0}", "chess.depth: must be a whole number, not 13.0"),
        ("chess: {depth: 31}", "chess.depth: must be at most 30, not 31"),
        ("net: {seconds: '5'}", "net.seconds: must be a number, not '5'"),
        ("net: {seconds: true}", "net.seconds: must be a number, not true"),
        ("net: {seconds: .nan}", "net.seconds: must be a finite number, not nan"),
        ("net: {seconds: 1e400}", "net.seconds: must be a finite number, not inf"),
        ("net: {seconds: 3601}", "net.seconds: must be at most 3600, not 3601"),
        ("net: {cases: tcp-in}", "net.cases: must be a list, not 'tcp-in'"),
        ("disk: {size: 15MiB}", "disk.size: must be from 16MiB to 64TiB"),
        ("disk: {size: 65TiB}", "disk.size: must be from 16MiB to 64TiB"),
        ("disk: {size: 1073741824}", "disk.size: must be a number and a unit, such as 1GiB, not 1073741824"),
        ("disk: {size: .inf}", "disk.size: must be a number and a unit, such as 1GiB, not inf"),
        ("disk: {fresh_size: " + "9" * 30 + "TiB}", "disk.fresh_size: must be from 16MiB to 64TiB"),
        ("disk: {fresh_size: " + "9" * 400 + "TiB}", f"disk.fresh_size: '{'9' * 36}... is no size"),
    ],
)
def test_parameters_are_of_their_type_and_within_bounds(parameter: str, line: str) -> None:
    (found,) = problems(f"name: a\nworkloads: [{{{parameter}}}]")
    assert found.partition("workloads[0].")[2].startswith(line)


@pytest.mark.parametrize(
    ("setup", "rounds", "line"),
    [
        (0, 60, None),
        (100, 60, None),
        (101, 59, "the plan's budget of 11 m 40 s allows 59 of up to 60 rounds"),
        (600, 10, "the plan's budget of 11 m 40 s allows 10 of up to 60 rounds, fewer than rounds.min (12)"),
        (640, 7, "the plan's budget of 11 m 40 s is too small and will be exceeded: 7 rounds need about 11 m 50 s"),
    ],
)
def test_setting_up_is_a_part_of_the_budget(setup: float, rounds: int, line: str | None, spin: None) -> None:
    plan = parse("{name: a, workloads: [spin], budget: 700s, rounds: {min: 12, max: 60}}")
    found, lines = fit_rounds(plan, 10.0, setup)
    assert (found, lines[:1]) == (rounds, [] if line is None else [line])


@pytest.mark.parametrize(("count", "is_refused"), [(1, False), (5000, False), (5001, True)])
def test_as_many_configurations_as_can_be_planned_are_possible(count: int, is_refused: bool) -> None:
    space: Any = SimpleNamespace(count=lambda: count, design="full", combinations=())
    assert bool(rules.too_many(["host", "vm"], space)) is is_refused


def test_a_plan_of_more_configurations_than_can_be_planned_is_refused_with_its_count(spin: None) -> None:
    every = "{" + ", ".join(f"{name}: [{', '.join(factor.levels)}]" for name, factor in FACTORS.items()) + "}"
    count = math.prod(len(factor.levels) for factor in FACTORS.values())
    started = time.process_time()
    assert problems(f"name: a\nlayers: [host, vm, nested]\nworkloads: [spin]\nfactors: {every}") == [
        f"p.yaml:4:1: factors: {count:,} combinations of levels on 3 layers make {3 * count:,} configurations"
        " before exclusions, at most 10,000 are possible: use `design: one-at-a-time`, fewer levels or a list of"
        " `combinations`"
    ]
    assert time.process_time() - started < 1
    plan = parse(f"name: a\nlayers: [host, vm, nested]\nworkloads: [spin]\ndesign: one-at-a-time\nfactors: {every}")
    assert 30 < len(plan.treatments()[0]) <= 3 * sum(len(factor.levels) for factor in FACTORS.values())
    assert len(check(plan)) < 50


def test_parts_that_mean_nothing_for_the_layers_are_refused(spin: None) -> None:
    assert problems("name: a\nlayers: [host]\nworkloads: [start]\nfactors: {disk.bus: ide}") == [
        "p.yaml:3:13: workloads[0]: start runs on vm, nested, but layers has host",
        "p.yaml:4:11: factors.disk.bus: is about vm and nested and clone, but layers has host",
    ]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("".join(f"k{i}: 1\n" for i in range(4000)), "3,982"),  # and two keys are missing
        (f"factors: {{{', '.join(f'k{i}: 1' for i in range(4000))}}}", "3,982"),
        (f"name: a\nworkloads: [spin]\nexclude: [{', '.join(f'k{i}: 1' for i in range(3000))}]", "2,980"),
    ],
)
@pytest.mark.varied(1)
def test_of_thousands_of_problems_the_first_are_reported_and_the_rest_counted(
    spin: None, text: str, count: str
) -> None:
    found = problems(text)
    assert len(found) == 21 and found[-1] == f"p.yaml: and {count} more problems"


def test_a_line_is_bounded_whatever_it_repeats(spin: None) -> None:
    long = "x" * 50_000
    for text in (
        f"{long}: 1",
        f"host: {long}",
        f"name: a\nfactors: {{disk.bus: {long}}}",
        f"a: !{long} b",
        f"a: !{long}",
    ):
        for line in problems(text):
            assert line.startswith("p.yaml:") and len(line) <= 1000
    assert problems(f"{long[:1000]}: 1")[2].startswith(f"p.yaml:1:1: {'x' * 30}...{'x' * 27}: unknown key 'xxx")


def test_what_an_option_of_the_command_line_set_is_called_by_the_option(spin: None) -> None:
    stored = spin_plan().model_dump(mode="json")
    with pytest.raises(PlanError) as caught:
        from_data(stored | {"rounds": {"min": 0, "max": 0}}, options={"rounds": "--rounds"})
    assert caught.value.problems == ["--rounds: must be at least 1, not 0"]


def test_a_missing_plan_names_the_ones_there_are(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, line in {
        "quik": f"unknown plan 'quik'; did you mean quick? legal: {BUILTIN}; or give the path of a YAML file; {VM}",
        str(tmp_path): f"{tmp_path}: is no regular file, so it is not a plan",
        str(tmp_path / "pipe"): f"{tmp_path / 'pipe'}: is no regular file, so it is not a plan",
        "a" * 300: f"unknown plan '{'a' * 36}...; legal: {BUILTIN}; or give the path of a YAML file; {VM}",
        "/" + "a" * 300: f"/{'a' * 99}...{'a' * 97}: cannot be read: File name too long",
        str(tmp_path / "a.yaml"): f"{tmp_path / 'a.yaml'}: cannot be read: No such file or directory",
        "/dev/zero": "/dev/zero: is no regular file, so it is not a plan",
    }.items():
        with pytest.raises(PlanError) as caught:
            load(name)
        assert caught.value.problems == [line]
    (tmp_path / "latin.yaml").write_bytes(b"name: a\n# \xe9\n")
    with pytest.raises(PlanError, match=r"latin\.yaml:2: not UTF-8 text"):
        load(str(tmp_path / "latin.yaml"))


# No text does anything but give a Plan or a PlanError


def test_the_builtin_plans_are_valid_say_what_they_answer_and_survive_being_stored() -> None:
    assert builtin_plans() == BUILTIN.split(", ")
    for name in builtin_plans():
        plan = load(name)
        assert plan.name == name
        assert describe(name).count("?") == 1
        assert from_data(plan.model_dump(mode="json")) == plan
        assert fit_rounds(plan, seconds_per_round(plan))[0] >= stats.minimum_rounds(plan.stopping().alpha)


@pytest.mark.parametrize("name", builtin_plans())
def test_the_builtin_plans_cause_no_warning_by_themselves(name: str) -> None:
    plan = load(name)
    assert moved_defaults(plan.space) == []
    assert fit_rounds(plan, seconds_per_round(plan), pilot_seconds(plan)) == (plan.rounds.max, []), (
        "the budget is enough"
    )
    for workload in plan.build_workloads():
        if isinstance(workload, Disk):
            shares = [share for name, share, _, _ in PERCENTILES if name in workload.parameters.percentiles]
            # 251/s: a slow SSD's rate of synchronous writes, the slowest operations.
            assert MINIMUM_TAIL / (1 - max(shares)) <= 251 * workload.parameters.seconds


def test_a_replaced_field_is_validated(spin: None) -> None:
    stored = spin_plan().model_dump(mode="json")
    assert from_data(stored | {"layers": ["vm"]}).layers == ("vm",)
    with pytest.raises(PlanError, match=r"plan: layers\[0\]: unknown layer 'v'"):
        from_data(stored | {"layers": ["v"]})


def test_a_built_in_plan_does_not_complain_about_its_own_budget() -> None:
    own = load("quick")
    rounds, lines = fit_rounds(own, 600.0)
    assert rounds == 7 and lines == [], "seven are needed, whatever they take"
    for other in (own.model_copy(update={"budget": 600.0}), own.model_copy(update={"name": "mine"})):
        assert any("budget of" in line and "too small" in line for line in fit_rounds(other, 600.0)[1])
