"""A host with Windows in a run: what is refused in one line, what is looked at, and what is said beside its figures."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.sample import sample_experiment
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.builds import has_other_builds, is_like
from vmtax.cli import on_windows
from vmtax.cli.app import BadUse
from vmtax.cli.asked import DiskOptions
from vmtax.cli.measuring import disk_target
from vmtax.cli.on_windows import lines, refuse_asked
from vmtax.cli.work import RunWork, until_free
from vmtax.core.errors import BadInput
from vmtax.core.layers import EXISTING, EXISTING_PATH
from vmtax.core.machines import MachineLost
from vmtax.core.records import Treatment
from vmtax.experiment.resume import CannotResume
from vmtax.experiment.runner import Options
from vmtax.hypervisor import BootFailed
from vmtax.machine.local import LocalMachine
from vmtax.machine.windows.command import WindowsOutcome
from vmtax.machine.windows.command_line import encoded
from vmtax.machine.windows.machine import WindowsMachine
from vmtax.meter.hyper_v import HyperVCard, HyperVFacts, HyperVGuest
from vmtax.meter.windows import BOOTED, WindowsFacts
from vmtax.plan.estimate import Emulation, Foreseen, foresee
from vmtax.plan.schema import Plan, parse
from vmtax.report.sections.next_steps import next_steps
from vmtax.report.sections.noise import section
from vmtax.report.wording.guest_settings import guest_settings
from vmtax.storage import Target
from vmtax.storage.file import StorageError
from vmtax.store import Store
from vmtax.testbed.machines.on_windows import (
    HOST,
    PHYSICAL_HOST,
    WindowsHosts,
    WindowsTestbed,
    fitted_to_windows,
    refuse_strangers,
)
from vmtax.testbed.session import windows_way
from vmtax.testbed.session.exclusive import HostBusy
from vmtax.testbed.session.session import CannotMeasure, Destination, ExistingVm, TestbedOptions
from vmtax.testbed.session.windows_way import WindowsLogin
from vmtax.workload.chess import NODES_PER_SECOND
from vmtax.workload.site import Link

URL = "ssh://Administrator@hyperv"
TWO = "{name: x, layers: [host, existing], workloads: [chess, disk, memory], rounds: {min: 1, max: 1}, budget: 1h}"
OF_VM = WindowsFacts(cpus=2, memory_bytes=4 * 2**30, is_vm=True, uuid="b", scheme_name="Balanced", system="Windows 11")
OF_HOST = replace(OF_VM, cpus=8, uuid="a", scheme_name="High performance")
RUNNING = HyperVGuest("win", "Running", 2, 2, 4 * 2**30, None)


class FarWindows:
    """A `WindowsMachine` that answers by these rules."""

    def __init__(self, path: str, answers: dict[str, str], free: int = 2**40) -> None:
        self.path, self.rules, self.free, self.is_there = path, answers, free, True
        self.directory = PureWindowsPath("C:\\vmtax-1")

    def carry(self, line: str) -> WindowsOutcome:
        return WindowsOutcome(self.rules[line], "", 0) if line in self.rules else WindowsOutcome("", "", 1)

    def free_bytes(self, directory: PureWindowsPath) -> int:
        return self.free

    def answers(self) -> bool:
        return self.is_there


def login(name: str, path: str, facts: WindowsFacts, answers: dict[str, str], free: int = 2**40) -> WindowsLogin:
    far = FarWindows(path, answers, free)
    return WindowsLogin(name, cast("WindowsMachine", far), PureWindowsPath("C:\\x"), facts)


def hosts(
    vm: WindowsFacts = OF_VM, named: str = "HYPERV.example.org", host: WindowsFacts = OF_HOST, free: int = 2**40
) -> WindowsHosts:
    key = f"\n    PhysicalHostName    REG_SZ    {named}\n\n"
    there = login("ssh://win", EXISTING_PATH, vm, {PHYSICAL_HOST: key} if named else {}, free)
    here = login(URL, HOST, host, {"hostname": "hyperv\n"})
    return WindowsHosts(cast("LocalMachine", None), here, HyperVFacts((RUNNING,), is_host=True), there)


def crowded(there: WindowsHosts) -> WindowsHosts:
    return replace(there, hyper_v=HyperVFacts((RUNNING, replace(RUNNING, name="another")), is_host=True))


def work(plan: str = TWO, **options: Any) -> RunWork:
    asked = TestbedOptions(**{"existing": ExistingVm("ssh://win"), **options})
    return RunWork(parse(plan).model_copy(update={"host": URL}), Options("vmtax run", asked))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (work("{name: x, layers: [host, vm], workloads: [chess]}"), "where vmtax starts no VM: name a VM of it with"),
        (
            work("{name: x, layers: [host, existing], workloads: [disk], factors: {disk.cache: [none, writeback]}}"),
            "whose settings vmtax does not change: leave out --vary",
        ),
        (work(qemu="/usr/bin/kvm"), "--qemu: ssh://Administrator@hyperv is Windows, where that is not possible"),
        (work(target=Target(devices=("/dev/sdb",))), "--disk-device: "),
        (work(emulate=True), "--emulate: "),
        (work(destination=Destination("ssh://b", "a", "b")), "--destination: "),
        (work(existing=ExistingVm("ssh://win", clone=True)), "--clone: "),
        (work(existing=ExistingVm("libvirt:win")), "--guest libvirt:win: ssh://Administrator@hyperv is Windows, whose"),
    ],
)
def test_what_no_windows_can_do_is_refused(asked: RunWork, words: str) -> None:
    with pytest.raises(BadUse) as caught:
        refuse_asked(asked)
    assert words in str(caught.value) and len(str(caught.value).splitlines()) == 1


def test_what_a_windows_can_do_is_not_refused() -> None:
    refuse_asked(work())
    refuse_asked(work("{name: x, layers: [host], workloads: [chess]}", existing=None))


@pytest.mark.parametrize(
    ("there", "words"),
    [
        (hosts(replace(OF_VM, is_vm=False)), "ssh://win is no VM"),
        (hosts(replace(OF_VM, uuid="a")), "ssh://win is the same machine as its host, ssh://Administrator@hyperv"),
        (hosts(named="HYPERV-CLUSTER-"), "ssh://win runs on hyperv-cluster-, and"),
        (hosts(named="OTHER"), "ssh://win runs on other, and ssh://Administrator@hyperv is hyperv"),
    ],
)
def test_a_vm_of_somewhere_else_is_refused(there: WindowsHosts, words: str) -> None:
    with pytest.raises(CannotMeasure, match=words):
        refuse_strangers(there)


LONG = hosts(named="HYPERV-CLUSTER-")
cast("Any", LONG.host.there).rules["hostname"] = "hyperv-cluster-01\n"


@pytest.mark.parametrize("there", [hosts(), hosts(named=""), hosts(replace(OF_VM, uuid=None)), LONG])
def test_a_vm_that_may_be_its_own_is_measured(there: WindowsHosts) -> None:
    refuse_strangers(there)


def test_a_plan_gets_the_vms_size_and_what_there_are_programs_for() -> None:
    plan = fitted_to_windows(parse(TWO), hosts())
    assert [one.name for one in plan.workloads] == ["chess", "disk"]
    assert (plan.guest.vcpus, plan.guest.memory) == (2, 4 * 2**30)
    with pytest.raises(CannotMeasure, match="hyperv has 1 CPUs, and ssh://win has 2"):
        fitted_to_windows(parse(TWO), hosts(host=replace(OF_HOST, cpus=1)))
    with pytest.raises(StorageError, match=r"ssh://win: .* another directory with --guest-dir"):
        fitted_to_windows(parse(TWO), hosts(free=2**20))


NETWORK = "{name: x, layers: [host, existing], workloads: [transfer]}"


def test_a_login_of_which_the_address_is_not_known_has_no_far_end() -> None:
    with pytest.raises(CannotMeasure, match=f"{URL}, transfer: its login does not say from which IPv4 address"):
        fitted_to_windows(parse(NETWORK), hosts())
    there = hosts()
    for each in there.layers.values():
        cast("Any", each.there).rules["echo %SSH_CONNECTION%"] = "10.0.0.9 51514 10.0.0.5 22\n"
    plan = fitted_to_windows(parse(NETWORK), there)
    assert [one.name for one in plan.workloads] == ["transfer"]
    asked = replace(work(NETWORK), plan=plan)
    (said,) = [line.text for line in lines(asked, there, foreseen(plan)) if line.what == "serves"]
    assert said == "vmtax-net at TCP ports of this machine, for those Windows, until the run ends"
    made = of_windows(plan, there)
    made.links = {HOST: Link(cast("Any", there.host.there), (), "10.0.0.9", 7)}
    assert "The far end of `transfer` is the machine that ran vmtax." in made.notes
    with made.opened(Treatment(HOST, HOST)) as running:
        assert running.subjects[0].site.link is made.links[HOST]


def test_before_the_question_all_is_said_that_is_done_there() -> None:
    there, asked = hosts(), work()
    asked = replace(asked, plan=fitted_to_windows(asked.plan, there))
    said = [*lines(asked, there, foreseen(asked.plan))]
    assert [line.what for line in said] == ["what", "how long", *("writes", "enters") * 2], "no VM runs but the one"
    beside = [line.text for line in lines(asked, crowded(there), foreseen(asked.plan)) if line.what == "beside"]
    assert beside == ["1 other VM of ssh://Administrator@hyperv running now"]
    assert [line.text.split(" of ")[1].split(",")[0] for line in said if line.what == "writes"] == [URL, "ssh://win"]
    assert all("never run on Windows" in line.text for line in said if line.what == "enters")
    apart = [line.text.rpartition("at most ")[2] for line in said if line.what == "writes"]
    alone = replace(asked, plan=asked.plan.model_copy(update={"layers": ("host",)}))
    (once,) = [line for line in lines(alone, replace(there, vm=None), foreseen(alone.plan)) if line.what == "writes"]
    assert apart[0] == once.text.rpartition("at most ")[2], "what is written there, not on both together"
    limited = replace(asked, plan=asked.plan.model_copy(update={"max_writes": 2**40}))
    assert [line.text for line in lines(limited, there, foreseen(limited.plan))][-1].startswith("before a round")
    with pytest.raises(BadInput, match="max_writes"):
        [*lines(replace(asked, plan=asked.plan.model_copy(update={"max_writes": 2**20})), there, foreseen(asked.plan))]


def foreseen(plan: Plan) -> Foreseen:
    return foresee(plan, plan.entries(), Emulation())


def of_windows(plan: Plan, there: WindowsHosts) -> WindowsTestbed:
    made = WindowsTestbed.__new__(WindowsTestbed)  # nothing is brought there
    made.plan, made.hosts, made.workloads = plan, there, plan.build_workloads()
    made.digests, made.written, made.links, made.booted = {"fio.exe": "1"}, {}, {}, {}
    return made


def test_a_host_under_its_own_hypervisor_is_not_called_a_vm() -> None:
    facts = of_windows(fitted_to_windows(parse(TWO), hosts()), hosts()).host_facts()
    assert facts[HOST]["virtualized"] is None and facts[HOST]["hyper_v_vms_running"] == 1
    assert facts[EXISTING_PATH]["virtualized"] is True
    assert facts[HOST]["windows_programs"] == facts[EXISTING_PATH]["windows_programs"] == {"fio.exe": "1"}


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (True, "card 1 (IovWeight 100) has a virtual function (SR-IOV)"),
        (False, "card 1 (IovWeight 100) has no virtual function"),
        (None, "card 1 (IovWeight 100) may have a virtual function or not"),
    ],
)
def test_whether_the_vm_has_a_virtual_function_is_said_and_kept(function: bool | None, words: str) -> None:
    """So that two runs, before and after its card was changed, say in what they differ."""
    card = HyperVCard("a private name", 100, function)
    other = replace(RUNNING, name="other", cards=(replace(card, weight=0),))
    known = HyperVFacts((other, replace(RUNNING, cards=(card,))), is_host=True)
    made = of_windows(parse(TWO), replace(hosts(), hyper_v=known, vm_name="win"))
    facts = made.host_facts()
    assert facts[EXISTING_PATH]["hyper_v_cards"] == [words] and "hyper_v_cards" not in facts[HOST]
    assert f"The VM's {words}." in made.notes and not any("private" in note for note in made.notes)
    nameless = of_windows(parse(TWO), replace(hosts(), hyper_v=known))
    assert "hyper_v_cards" not in nameless.host_facts()[EXISTING_PATH]


def test_settings_in_which_host_and_vm_differ_are_notes() -> None:
    made = of_windows(fitted_to_windows(parse(TWO), hosts()), hosts())
    (line,) = made.layer_differences(made.host_facts())
    assert line.startswith("power plan differs between the layers") and line.endswith("High performance; VM: Balanced")
    assert not any("not verified" in note for note in made.notes)
    unknown = of_windows(made.plan, hosts(named=""))
    assert "That the VM runs on ssh://Administrator@hyperv is not verified." in unknown.notes


def test_a_treatment_works_where_its_layer_is() -> None:
    there = hosts()
    made = of_windows(fitted_to_windows(parse(TWO), there), there)
    for name, path in ((HOST, HOST), (EXISTING, EXISTING_PATH)):
        with made.opened(Treatment(name, name)) as running:
            (subject,) = running.subjects
        assert (subject.machine, subject.site.layer, subject.site.vcpus, running.guests) == (path, name, 2, ())
    made.check()
    cast("Any", there.host.there).is_there = False
    with pytest.raises(MachineLost, match="host: does not answer"):
        made.check_host(Treatment(HOST, HOST))
    made.check_host(Treatment(EXISTING, EXISTING))


def test_a_restart_voids_the_round_of_that_layer_and_no_other() -> None:
    """The time of a boot follows from the clock, which is corrected by seconds."""
    there = hosts()
    made = of_windows(fitted_to_windows(parse(TWO), there), there)
    made.booted = {HOST: "2026-11-27T09:00:00", EXISTING: None}
    line = encoded(BOOTED)

    def opened(layer: str, booted: str) -> None:
        cast("Any", there.layers[layer].there).rules[line] = f"booted={booted}\n"
        with made.opened(Treatment(layer, layer)):
            pass

    opened(HOST, "2026-11-27T09:00:02")
    opened(HOST, "")
    with pytest.raises(BootFailed, match=f"{URL} was restarted during the run, at 2026-11-27T11:00:00 UTC"):
        opened(HOST, "2026-11-27T11:00:00")
    opened(HOST, "2026-11-27T11:00:01")
    opened(EXISTING, "2026-11-27T10:00:00")
    with pytest.raises(BootFailed, match="ssh://win was restarted"):
        opened(EXISTING, "2026-11-27T12:00:00")


def test_the_same_builds_compare_and_others_only_without_the_cpu() -> None:
    metric = NODES_PER_SECOND
    host, vm = Treatment(HOST, HOST), Treatment(EXISTING, EXISTING)
    built, other = {"windows_programs": {"a": "1"}}, {"windows_programs": {"a": "2"}}
    assert is_like(metric, host, vm, {"host": built, EXISTING_PATH: built})
    for facts in ({"host": {}, EXISTING_PATH: built}, {"host": other, EXISTING_PATH: built}):
        assert has_other_builds(facts) and not is_like(metric, host, vm, facts)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"host": {"windows_programs": {}}, EXISTING_PATH: {"windows_programs": {}}}, "The same Windows builds on"),
        ({"host": {"windows_programs": {}}}, "vmtax was never run on Windows itself, only on Wine."),
        ({"host": {}, EXISTING_PATH: {"windows_programs": {}}}, "Windows build against Linux build"),
    ],
)
def test_what_the_builds_mean_stands_beside_the_figures(facts: dict[str, Any], words: str) -> None:
    run = replace(sample_experiment(), facts=facts, options={})
    said = guest_settings(Analysis(run))
    assert words in said and "never run on Windows" in said


def test_a_directory_of_windows_is_for_a_far_host_alone(tmp_path: Path) -> None:
    asked = DiskOptions("D:\\tests", [], None, None, [])
    assert disk_target(URL, asked).directory == PurePosixPath("D:\\tests")
    with pytest.raises(BadUse, match=r"--disk-dir D:\\tests: must be absolute, for it is on lab:x"):
        disk_target("lab:x", asked)


def test_a_vm_that_is_not_booted_is_not_called_booted_twice() -> None:
    run = sample_experiment()
    twice = [replace(each, repeats="vm", name="vm again") for each in run.treatments if each.layer == "vm"][:1]
    trials = [replace(each, treatment="vm again") for each in run.trials if each.treatment == "vm"]
    run = replace(run, treatments=(*run.treatments, *twice), trials=(*run.trials, *trials))
    own = tuple(replace(each, layer=EXISTING) if each.layer == "vm" else each for each in run.treatments)
    for treatments, words in ((run.treatments, "in boots of its own"), (own, "is not booted is measured twice")):
        said = section(Analysis(replace(run, treatments=treatments)))
        assert said is not None and words in str(said.blocks[0])


def test_what_to_do_next_names_the_host_that_was_measured() -> None:
    run = sample_experiment()
    kept = tuple(each for each in run.treatments if each.layer == HOST)
    run = replace(run, treatments=kept, trials=tuple(each for each in run.trials if each.treatment == HOST), host=URL)
    for programs, command in (
        ({"windows_programs": {}}, f"vmtax run quick --host {URL} --guest ssh://Administrator@vm"),
        ({}, f"vmtax run quick --host {URL}"),
    ):
        steps = dict(next_steps(Analysis(replace(run, facts={"host": programs}))))
        assert steps.get(command) == "what a VM costs there", steps


def test_one_run_of_a_store_measures_a_windows_at_a_time(store: Store) -> None:
    with Store(store.path) as theirs:
        assert theirs.take_host("windows b")
        with pytest.raises(HostBusy, match="another run of this store measures ssh://win: `vmtax runs` lists it"):
            until_free(lambda: on_windows._busy(store, hosts()), waits=False)
    until_free(lambda: on_windows._busy(store, hosts()), waits=False)


def test_a_run_does_not_go_on_with_other_builds() -> None:
    made = of_windows(fitted_to_windows(parse(TWO), hosts()), hosts())
    for digest, refused in (("1", False), ("2", True)):
        began = replace(sample_experiment(), facts={HOST: {"windows_programs": {"fio.exe": digest}}})
        goes_on = replace(work(), resumed=began)
        with pytest.raises(CannotResume, match="other builds for Windows") if refused else contextlib.nullcontext():
            assert on_windows._with_the_same_programs(goes_on, made) is made


@pytest.mark.parametrize("is_built", [True, False])
def test_that_the_programs_are_built_first_is_said_before(monkeypatch: pytest.MonkeyPatch, is_built: bool) -> None:
    monkeypatch.setattr(windows_way.windows, "PACK", SimpleNamespace(current=lambda: object() if is_built else None))
    assert ("first it builds these programs" in hosts().host.announced) is not is_built
    assert hosts().host.announced.startswith(windows_way.ENTERS)
