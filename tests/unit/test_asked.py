"""A level that a user types is in a configuration that is measured, or a line says which option is missing."""

from __future__ import annotations

import contextlib
import itertools
import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.asked import accepted, listed, measured, names, wrong
from tests.sample import sample_experiment
from vmtax.analysis.comparisons import contrasts
from vmtax.cli.asked import Measured, PlanChanges, Versions
from vmtax.cli.running import new_work
from vmtax.core.errors import BAD_INPUT
from vmtax.design.factors import FACTORS
from vmtax.design.treatments import moved_defaults
from vmtax.experiment.resume import CannotResume, resumable
from vmtax.plan.asked import NotMeasured, refuse_left_out
from vmtax.plan.guests import guests_at_once, largest, sized, smallest
from vmtax.plan.schema import PlanError, builtin_plans, load, parse

OWN = "name: own\nlayers: [{}]\nfactors: {{{}}}\nworkloads: [{}]\n"


@pytest.mark.parametrize("plan", builtin_plans())
@pytest.mark.varied(2)
def test_no_level_of_a_factor_is_dropped_in_silence_in_any_plan(plan: str) -> None:
    """All levels at once, each alone, and some pairs of them; every line that says what to add is tried."""
    for name in listed(plan):
        levels = FACTORS[name].levels
        pairs = list(itertools.combinations(levels, 2))
        few = random.Random(f"{plan} {name}").sample(pairs, min(2, len(pairs)))
        for typed in ([*levels], *([level] for level in (levels[0], levels[-1])), *map(list, few)):
            vary = [f"{name}={','.join(typed)}"]
            assert not (why := wrong(plan, vary)), f"{plan} {vary}: {why}"


def test_no_number_of_guests_is_advised_with_which_a_role_is_missing() -> None:
    assert not wrong("tiles", ["cpu.overcommit=1,2,4,8"])


@pytest.mark.variations
def test_nor_are_levels_of_two_factors() -> None:
    source = random.Random(2026)
    for _ in range(150):
        plan = source.choice(builtin_plans())
        two = source.sample(listed(plan), 2)
        vary = [f"{n}={','.join(source.sample(FACTORS[n].levels, min(2, len(FACTORS[n].levels))))}" for n in two]
        assert not (why := wrong(plan, vary)), f"{plan} {vary}: {why}"


@pytest.mark.parametrize(
    ("plan", "vary", "line"),
    [
        ("quick", ["net.queues=1,4"], "net.queues=4 needs guest.vcpus=4 and net.path=vhost: add --vary guest.vcpus=4"),
        ("quick", ["memory.backing=1g"], "memory.backing=1GiB needs guest.memory=2GiB: add --vary guest.memory=2GiB"),
        ("density", ["cpu.topology=threads"], "cpu.topology=threads needs guest.vcpus=2: add --vary guest.vcpus=2"),
        (
            "storage",
            ["zfs.recordsize=16k,128k"],
            "zfs.recordsize=16KiB,128KiB needs disk.volume=dataset and disk.filesystem=as-is: add --vary",
        ),
        (
            "disk-cache",
            ["disk.bus=ide", "disk.queues=1,2"],
            "disk.queues=1,2 needs disk.bus=virtio: in place of --vary disk.bus=ide, --vary disk.bus=ide,virtio",
        ),
        (
            "layers",
            ["net.queues=2", "net.interrupt_delay=1ms"],
            "needs net.path=e1000e, which net.queues=2 does not go with: leave out one of them",
        ),
        ("layers", ["memory.backing=thp", "net.queues=2", "net.interrupt_delay=1ms"], "which net.queues=2 does not"),
        (
            "tiles",
            ["cpu.overcommit=8"],
            "add --vary guest.count=24; in place of --vary cpu.overcommit=8, --vary cpu.overcommit=1,8",
        ),
        ("tiles", ["guest.count=3,4"], "guest.count=4 is no multiple of 3; right are 3, 6, 12, 24, 48"),
        ("storage-2013", ["disk.page_cache=bounded", "disk.discard=unmap"], ""),
        ("cpu", ["disk.cache=none,writeback"], "disk.cache needs a workload that uses the disk under test, such as"),
        ("cpu", ["net.mtu=1500,9000"], "net.mtu needs a workload that uses the network, such as net, and plan cpu has"),
        ("quick", ["migration.mode=precopy"], "migration.mode needs a workload that migrates guests"),
        ("disk-cache", ["disk.cache=none"], "nothing to compare, because vm is the only configuration"),
        ("durability", ["guest.count=2"], "guest.count=2 cannot be measured: durability ends one guest at a time"),
    ],
)
def test_the_line_says_which_option_is_missing(plan: str, vary: list[str], line: str) -> None:
    wanted, refused = accepted(plan, vary)
    assert (wanted is None) == bool(line)
    assert line in refused and "\n" not in refused
    assert NotMeasured.exit_code == PlanError.exit_code == BAD_INPUT == 2


@pytest.mark.parametrize(
    ("plan", "vary", "said"),
    [
        ("quick", ["zfs.volblocksize=16k,64k"], ["disk.volume=zvol in every guest", "disk.filesystem=none in every"]),
        ("quick", ["net.queues=1,2"], ["net.path=vhost in every guest instead of the default tap: net.queues needs"]),
        ("quick", ["disk.cluster_size=64k,2M"], ["disk.format=qcow2 in every guest"]),
        ("disk-cache", ["disk.volume=zvol", "disk.format=raw,qcow2"], ["disk.filesystem=ext4 in every guest"]),
        ("disk-cache", ["disk.volume=zvol,dataset"], ["disk.filesystem differs with disk.volume, because no level"]),
        (
            "disk-cache",
            ["disk.volume=plain,lvm,zvol,dataset", "disk.format=raw,qcow2"],
            ["disk.filesystem differs with disk.volume, because no level goes with all of them: as-is with plain or"],
        ),
        ("storage-2013", ["zfs.compression=lz4,off"], []),  # its list says itself where ZFS is
    ],
)
def test_what_levels_need_is_set_and_said(plan: str, vary: list[str], said: list[str]) -> None:
    wanted, refused = accepted(plan, vary)
    assert wanted is not None, refused
    lines = moved_defaults(wanted.space)
    assert len(lines) == len(said) and all(map(str.startswith, lines, said))
    assert len({treatment.name for treatment in wanted.treatments()[0]}) == len(wanted.treatments()[0])


@pytest.mark.parametrize(
    ("plan", "layers", "refused"),
    [
        ("migration", "host,vm", "measures nothing on host, because migration cannot run there"),
        ("quick", "host,vm", ""),
    ],
)
def test_a_layer_on_which_nothing_is_measured_is_refused(plan: str, layers: str, refused: str) -> None:
    asked = Measured(PlanChanges(layers=layers))
    with pytest.raises(NotMeasured, match=refused) if refused else contextlib.nullcontext():
        new_work(plan, asked)


def test_what_differs_with_a_level_is_in_the_names_of_the_configurations() -> None:
    wanted, _ = accepted("disk-cache", ["disk.volume=zvol,dataset", "disk.cache=none"])
    assert wanted is not None
    assert [one.name for one in wanted.treatments()[0]] == ["vm", "vm disk.filesystem=as-is disk.volume=dataset"]


def test_with_a_second_qemu_one_configuration_is_enough() -> None:
    asked = Measured(PlanChanges(vary=["disk.cache=none"]), versions=Versions(interleave_with="/opt/qemu"))
    assert len(new_work("disk-cache", asked).plan.treatments()[0]) == 1


@pytest.mark.parametrize(
    ("layers", "factors", "workload", "line"),
    [
        ("vm", "disk.volume: [zvol, dataset], disk.filesystem: [none]", "disk", "disk.volume=dataset needs"),
        ("vm", "zfs.recordsize: [16k]", "disk", ""),
        (
            "vm",
            "disk.cache: [none, writeback], disk.aio: [native]",
            "disk",
            "disk.cache=writeback needs disk.aio=threads",
        ),
        ("vm", "net.path: [tap, vhost]", "chess", "net.path needs a workload that uses the network"),
        ("vm", "disk.cache: [none]", "disk", ""),  # one configuration, as it is written
        ("vm", "disk.cache: [none, writeback], disk.aio: [native, threads]", "disk", ""),
        ("vm", "guest.memory: [1g, 1GiB]", "chess", "'1GiB' is given twice"),
        ("host, vm", "guest.vcpus: [1, 2]", "chess", ""),
        ("vm", "guest.vcpus: [1, 2]", "chess: {threads: [2]}", "threads is 2, and guest.vcpus 1"),
    ],
)
def test_the_same_holds_for_what_a_user_writes_into_a_plan(
    layers: str, factors: str, workload: str, line: str, tmp_path: Path
) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(OWN.format(layers, factors, workload if ":" not in workload else f"{{{workload}}}"))
    wanted, refused = accepted(str(path), [])
    assert (wanted is None) == bool(line), refused
    assert line in refused


def test_what_a_plan_excludes_by_name_was_not_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    text = OWN.format("vm", "disk.cache: [none, unsafe], disk.aio: [threads]", "disk")
    path.write_text(f"{text}exclude: [{{disk.cache: unsafe}}]\n")
    assert accepted(str(path), [])[0] is not None
    line = accepted(str(path), ["disk.cache=none,unsafe"])[1]
    assert line == "--vary: disk.cache=unsafe is not measured: excluded by the plan's exclude[0]"


def test_what_a_host_lacks_may_be_left_out_unless_it_was_typed() -> None:
    plan = load("disk-cache")
    impossible = {"vm disk.cache=writeback": "QEMU does not open it"}
    refuse_left_out(plan, {}, impossible)
    refuse_left_out(plan, {"disk.aio": ["threads"]}, impossible)
    with pytest.raises(NotMeasured, match=r"^host: disk.cache=writeback cannot be measured: QEMU does not open it$"):
        refuse_left_out(plan, {"disk.cache": ["none", "writeback"]}, impossible, "host: ")
    everything = dict.fromkeys((each.name for each in plan.treatments()[0]), "zpool is missing there")
    with pytest.raises(NotMeasured, match=r"^host: zpool is missing there$"):
        refuse_left_out(plan, {"disk.cache": ["none", "writeback"], "disk.aio": ["threads"]}, everything, "host: ")


def test_each_size_is_compared_with_the_host_on_as_many_cpus() -> None:
    wanted, refused = accepted("quick", ["guest.vcpus=1,2", "guest.memory=512M,1g"])
    assert wanted is not None, refused
    pairs = contrasts(wanted.treatments()[0])
    assert ("host", "vm guest.memory=1GiB") in pairs and ("host guest.vcpus=2", "vm guest.vcpus=2") in pairs
    assert not [pair for pair in pairs if pair[0] == "host" and "vm guest.vcpus=2" in pair[1]]
    assert ("host guest.vcpus=2", "nested guest.vcpus=2 guest.memory=1GiB") in pairs
    sizes = {(one.name, sized(wanted, one.levels).guest.vcpus) for one in wanted.treatments()[0]}
    assert {("host", 1), ("host guest.vcpus=2", 2), ("vm guest.vcpus=2", 2)} <= sizes
    assert (smallest(wanted).guest.vcpus, largest(wanted).guest.memory) == (1, 2**30)
    assert largest(sized(wanted, {"guest.vcpus": "1"})).guest.vcpus == guests_at_once(wanted) == 1


def test_containers_have_the_memory_of_the_guests_that_they_are_compared_with() -> None:
    wanted, refused = accepted("quick", ["guest.memory=512M,1g"], layers="host,container,vm")
    assert wanted is not None, refused
    assert ("container guest.memory=1GiB", "vm guest.memory=1GiB") in contrasts(wanted.treatments()[0])
    assert [one.name for one in wanted.treatments()[0] if one.layer == "host"] == ["host"]


def test_without_the_factors_treatments_have_no_size() -> None:
    assert not [one for one in load("quick").treatments()[0] if "guest.vcpus" in one.levels]
    wanted = new_work("quick", Measured(PlanChanges(vcpus=1, memory="512M"))).plan
    assert (wanted.guest.vcpus, wanted.guest.memory) == (1, 512 * 2**20)
    for changes, line in [
        (PlanChanges(vcpus=0), "--vcpus: must be at least 1"),
        (PlanChanges(memory="1k"), "--memory"),
    ]:
        with pytest.raises(PlanError, match=line):
            new_work("quick", Measured(changes))


def test_levels_are_read_in_any_spelling_and_have_one() -> None:
    spelled = {
        "zfs.recordsize": (["16k", "16K", "16KiB", "16384", "16Ki", "0.015625M"], "16KiB"),
        "memory.backing": (["1g", "1G", "1GiB", "1024MiB"], "1GiB"),
        "cpu.halt_polling": (["200us", "0.2ms", "200000ns"], "200us"),
        "cpu.hyperv": (["vapic+time", "time+vapic", "time+vapic+time"], "vapic+time"),
        "guest.memory": (["1536M", "1.5g", "1536MiB"], "1536MiB"),
    }
    for factor, (texts, level) in spelled.items():
        assert {FACTORS[factor].spelled(text) for text in texts} == {level}
        plan = parse(OWN.format("vm", f"{factor}: {texts[0]}", "disk, net") + "guest: {memory: 2g}\n")
        assert plan.factors[factor] == (level,)
    assert names(["disk.cache=none"]) <= measured(load("disk-cache"))


def test_a_run_whose_plan_meant_other_levels_is_not_resumed() -> None:
    plan = accepted("disk-cache", ["zfs.recordsize=16k,128k"])[0]
    assert plan is not None
    run = replace(sample_experiment(rounds=1), plan=plan.model_dump(mode="json"), state="interrupted")
    now = tuple(plan.treatments()[0])
    assert resumable(replace(run, treatments=now))[0] == plan
    before = replace(now[0], levels={**now[0].levels, "disk.volume": "plain"})
    with pytest.raises(CannotResume, match="begin it anew"):
        resumable(replace(run, treatments=(before, *now[1:])))
