"""A VM of the user's that is watched from its host alone: no agent, login or program in it is needed."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, cast

import pytest

from tests.fake_machine import Answers, FakeMachine, Reply, Scripted
from tests.sample import sample_experiment
from tests.unit import test_attach_proxmox
from tests.unit.test_attach import UUID, host, info
from tests.unit.test_idle_guests import idle_run
from tests.unit.test_ledger import AFTER, BEFORE, printed
from tests.unit.test_windows_run import SilentWindows
from vmtax.analysis.analysis import Analysis
from vmtax.attach import DomainError
from vmtax.attach.proxmox import find_vm
from vmtax.cli.app import BadUse
from vmtax.cli.asked import GuestOptions, Measured, PlanChanges
from vmtax.cli.existing_vm import on_existing, watches
from vmtax.cli.running import new_work
from vmtax.cli.work import RunWork, fitted
from vmtax.core.layers import CLONE, EXISTING, EXISTING_PATH
from vmtax.core.machines import MachineLost
from vmtax.core.stopwatch import Instant
from vmtax.experiment.resume import CannotResume
from vmtax.experiment.runner import Options
from vmtax.experiment.signatures import Signatures
from vmtax.experiment.trial import TrialKey, run_trials
from vmtax.machine import Machine
from vmtax.machine.windows.machine import WindowsMachine
from vmtax.machine.windows.transport import SshTransport
from vmtax.meter.ledger import COMMAND, HostLedger
from vmtax.network.wire import BOOT_ID
from vmtax.plan.schema import GuestSize, load, parse
from vmtax.report.render.markdown import render_markdown
from vmtax.report.sections.summary import banner
from vmtax.testbed.session import session
from vmtax.testbed.session.base import RunningSubject, RunningTreatment
from vmtax.testbed.session.observed import Watched
from vmtax.testbed.session.session import ExistingVm, Hosts, TestbedOptions
from vmtax.testbed.session.watching import FILES, Watching, watching
from vmtax.testbed.session.ways import Login
from vmtax.testbed.subjects import existing
from vmtax.workload import Site
from vmtax.workload.idle import CPU, IdleParameters, IdleWorkload

STAT = "4242 (CPU (1) x) S " + "7 " * 18 + "{} 0 0\n"


def nowhere(name: str) -> AbstractContextManager[Machine]:
    raise AssertionError(f"{name} is not entered")


def watched_by_libvirt(**answers: Scripted) -> tuple[Watching, FakeMachine]:
    machine = with_qemu(host(**{"domstate": "running\n", **answers}))
    return watching(machine, "libvirt:web1", nowhere), machine


def with_qemu(machine: FakeMachine, found: str = "4242\n", threads: str = "CPU 0/KVM\n") -> FakeMachine:
    extra: Answers = {
        (lambda argv: "vmtax-find" in argv): found,
        (lambda argv: "/comm" in " ".join(argv)): threads,
        ("cat", "/proc/4242/stat"): STAT.format(910),
    }
    return before(machine, extra)


def before(machine: FakeMachine, answers: Answers) -> FakeMachine:
    """A machine that knows these answers, and those of another one."""
    found = FakeMachine(machine.path, answers)
    found._answers |= machine._answers
    return found


@pytest.mark.parametrize("state", ["", " state='disconnected'"])
def test_a_domain_is_watched_whatever_its_agent_says(state: str) -> None:
    channel = f"<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'{state}/></channel>"
    text = f"<domain type='kvm'><devices>{channel if state else ''}</devices></domain>"
    vm, machine = watched_by_libvirt(dumpxml=text)
    assert (vm.qemu, vm.uuid, vm.vcpus, vm.is_emulated) == (4242, UUID, 2, False)
    assert vm.why_void() == "" and vm.leave() == {} and vm.announced == ""
    asked = {word for argv in machine.calls for word in argv}
    assert not asked & {"qemu-agent-command", "guestinfo", "attach-device"}, "nothing is done to it"


def test_a_vm_of_proxmox_is_watched_without_an_agent() -> None:
    config = test_attach_proxmox.CONFIG.replace("agent: ", "tags: ")
    machine = test_attach_proxmox.host(config=config)
    with pytest.raises(DomainError, match="its guest agent is not switched on"):
        find_vm(machine, "101")
    machine = before(with_qemu(machine), {("cat", "/proc/77/stat"): STAT.format(1)})
    vm = watching(machine, "proxmox:101", nowhere)
    assert (vm.name, vm.qemu, vm.why_void()) == ("proxmox:101", 77, "")


def test_a_windows_with_a_login_is_found_by_its_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    there = WindowsMachine(SshTransport(cast("Any", SilentWindows()), "cmd.exe"))
    monkeypatch.setattr(there, "carry", SilentWindows().carry)
    machine = with_qemu(host())
    with pytest.raises(DomainError, match=r"ssh://win: what it takes of host cannot be seen: it does not say its UUID"):
        watching(machine, "ssh://win", lambda name: nullcontext(there))


def test_a_vm_with_a_login_is_left_before_it_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A login has processes in it, and wakes it to stay alive."""
    there = FakeMachine(EXISTING_PATH, {("cat", "/sys/class/dmi/id/product_uuid"): f"{UUID.upper()}\n"})
    monkeypatch.setattr(session, "LocalMachine", lambda path: with_qemu(host()))
    monkeypatch.setattr(session, "connect_guest", lambda *_: there)
    monkeypatch.setattr(session, "close_machine", lambda machine, warn: machine.close())
    monkeypatch.setattr(Login, "size", lambda self: GuestSize(vcpus=2, memory=2**30))
    vm = ExistingVm("ssh://vm", watched=True)
    with session.connected("local", pytest.fail, TestbedOptions(existing=vm)) as hosts:
        assert isinstance(hosts.existing, Watching) and there.closed
        assert (hosts.existing.uuid, hosts.existing.vcpus, hosts.existing.memory) == (UUID, 2, 2**30)
        assert "It was logged in to before" in hosts.existing.notes[1]
    there.closed = False
    with session.connected("local", pytest.fail, TestbedOptions(existing=replace(vm, watched=False))) as hosts:
        assert isinstance(hosts.existing, Login) and not there.closed
    assert there.closed


@pytest.mark.parametrize(("found", "words"), [("", "no QEMU there has"), ("4242\n4243\n", "several QEMUs there have")])
def test_a_vm_of_another_host_is_refused(found: str, words: str) -> None:
    with pytest.raises(DomainError) as refused:
        watching(with_qemu(host(), found), "libvirt:web1", nowhere)
    assert words in str(refused.value) and "name it as libvirt:NAME" in str(refused.value)


def test_an_emulated_vm_is_known_by_its_threads() -> None:
    vm = watching(with_qemu(host(), threads="qemu-system-x86\nCPU 0/TCG\n"), "libvirt:web1", nowhere)
    assert vm.is_emulated and vm.facts["emulated_cpu"] is True


@pytest.mark.parametrize(
    ("files", "is_emulated", "why"),
    [
        ("/dev/kvm\nanon_inode:kvm-vm\nanon_inode:kvm-vcpu:0\n", False, ""),
        ("/dev/null\nanon_inode:[eventfd]\n", True, "none of its open files is one of KVM."),
        ("", True, "only root sees there which files it has open."),
    ],
)
def test_a_vm_whose_threads_have_no_names_is_known_by_its_files(files: str, *, is_emulated: bool, why: str) -> None:
    """As a QEMU that somebody started without debug-threads."""
    machine = before(with_qemu(host(), threads=3 * "qemu-system-x86\n"), {(*FILES, "4242"): files})
    vm = watching(machine, "libvirt:web1", nowhere)
    assert (vm.is_emulated, vm.facts["emulated_cpu"]) == (is_emulated, is_emulated)
    assert [note.rpartition(", and ")[2] for note in vm.notes[1:]] == ([why] if why else [])
    assert not why or f"{vm.why_emulated}." == vm.notes[1], "the question before the run gives the same reason"


def test_what_is_no_idling_does_not_count() -> None:
    vm, _ = watched_by_libvirt(domstate="paused\n")
    assert vm.why_void() == "libvirt:web1 is paused, and did not idle"
    with pytest.raises(MachineLost, match="is paused"):
        vm.check()
    vm, _ = watched_by_libvirt()
    assert "has ended" in replace(vm, started="911").why_void(), "another process has its number"
    with pytest.raises(DomainError, match="is shut off"):
        watched_by_libvirt(dominfo=info("shut off"))


OTHER = "p 90 1 900 5 5 0 0 10000000 - {2}\np 91 2 901 0 {0} 0 0 {0}0000000 k vhost-{1}\n"


def figure(
    monkeypatch: pytest.MonkeyPatch, why_void: str = "", owner: str = "90", other: str = "qemu-system-x86"
) -> tuple[str, list[float]]:
    """Status and figures of a trial of the guest of test_ledger's host, which sleeps for 10 s.

    owner: the process for whose card a kernel thread works for 1 s; other: the name of the process that is not watched
    """
    ledgers = [printed(text + OTHER.format(ticks, owner, other)) for text, ticks in ((BEFORE, 100), (AFTER, 200))]
    slept = "100.00 1.00\n110.00 1.00\n"
    machine = FakeMachine("host", {(*COMMAND, "sh", "60"): ledgers, (lambda argv: "sleep" in " ".join(argv)): slept})
    monkeypatch.setattr(Instant, "now", staticmethod(lambda: Instant(*(2 * [10.0 * (len(machine.calls) // 2)]))))
    offers = (Watched(60, lambda: why_void),)
    subject = RunningSubject(Site(machine, EXISTING, 1, ()), offers=offers, path=EXISTING_PATH)
    running = RunningTreatment((subject,), machine, meters=(HostLedger({"host": 60}),))
    workload = IdleWorkload(IdleParameters(seconds=10.0))
    (trial,) = run_trials(TrialKey(1, 1, "existing"), running, workload, "", Signatures(), iteration=1)
    assert trial.machine == EXISTING_PATH
    return trial.status, [each.value for each in trial.measurements if each.metric == CPU]


def test_its_figure_is_the_time_of_its_own_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """7 s of its vCPU, 0.2 of its main thread, 0.1 of its iothread and 2 of vhost, less interrupts; in 10 s."""
    assert figure(monkeypatch) == ("ok", [pytest.approx(0.89, abs=0.02)])
    assert figure(monkeypatch, "libvirt:web1 is paused") == ("failed", [])


@pytest.mark.parametrize("other", ["qemu-system-x86", "cloud-hyperviso"])
def test_kernel_threads_of_another_vms_card_are_not_its_own(monkeypatch: pytest.MonkeyPatch, other: str) -> None:
    """On kernels before 6.4, they are no threads of the process that owns them."""
    (theirs,), (own,) = (figure(monkeypatch, owner=owner, other=other)[1] for owner in ("90", "60"))
    assert own - theirs == pytest.approx(0.1, abs=0.01)


def test_a_plan_is_for_that_vm_alone() -> None:
    plan = on_existing(load("idle"), None)
    assert watches(plan) and plan.layers == (EXISTING,) and [each.name for each in plan.workloads] == ["idle"]
    assert plan.rounds.min == plan.rounds.max == 7
    with pytest.raises(BadUse, match="is read by itself, on its host: leave it out"):
        on_existing(load("idle"), "host,existing")
    varied = parse("{name: x, layers: [host, vm], workloads: [idle], factors: {guest.hpet: ['off', 'on']}}")
    with pytest.raises(BadUse, match=r"compares guest.hpet, .*or add --clone"):
        on_existing(varied, None)


def test_a_time_to_watch_a_vm_is_refused() -> None:
    """Because the rounds are the plan's fewest, whatever the time."""
    vm = GuestOptions(guest="libvirt:web1")
    asked = Measured(existing=vm, changes=PlanChanges(budget="2h"))
    with pytest.raises(BadUse, match=r"--budget 2h: libvirt:web1 is only watched, .*: say how many with --rounds"):
        new_work("idle", asked)
    assert new_work("idle", replace(asked, existing=replace(vm, clone=True))).plan.budget == 2 * 3600
    assert new_work("idle", Measured(existing=vm, changes=PlanChanges(rounds=9))).plan.rounds.max == 9


@pytest.mark.parametrize("layer", [EXISTING, CLONE])
def test_what_is_not_measured_of_a_watched_vm_is_said(layer: str, capsys: pytest.CaptureFixture[str]) -> None:
    plan = on_existing(parse("{name: x, layers: [host, vm], workloads: [idle, boot]}"), None, layer)
    assert [each.name for each in plan.workloads] == ["idle"]
    assert capsys.readouterr().err == "left out, because only idleness is read of a VM from its host: boot\n"
    on_existing(load("idle"), None, layer)
    assert capsys.readouterr().err == "", "what it has for guests of ours needs no word"


def test_beside_other_work_idleness_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    plan = on_existing(parse("{name: x, layers: [host], workloads: [idle, chess]}"), None)
    assert [each.name for each in plan.workloads] == ["chess"] and not watches(plan)
    assert "vmtax run idle --guest" in capsys.readouterr().err


def test_its_host_needs_no_cpus_for_it() -> None:
    vm, machine = watched_by_libvirt()
    plan = on_existing(load("idle"), None)
    assert existing.fitted(plan, vm) == plan == existing.plan_beside(plan, vm)
    existing.look(plan, machine, replace(vm, vcpus=10**4))


def test_a_resumed_run_watches_it_again() -> None:
    vm = ExistingVm("libvirt:web1", PurePosixPath("/var/tmp"), watched=True)
    options = TestbedOptions(existing=vm)
    assert TestbedOptions.from_json(options.to_json()) == options


def test_a_report_has_its_own_time_and_compares_it_with_nothing() -> None:
    run = idle_run(7, "nested")
    entire = {"name": "libvirt:web1", "directory": "/var/tmp", "watched": True}
    run = replace(run, options={**sample_experiment().options, "existing": entire})
    found = {each.treatment: each for each in Analysis(run).idle_guests}
    assert found["existing"].baseline == "" and found["existing"].seconds == pytest.approx(0.505, abs=0.01)
    assert not [one for one in Analysis(run).comparisons if EXISTING in (one.baseline, one.treatment)]
    text = render_markdown(Analysis(run))
    alone = tuple(each for each in run.treatments if each.layer == EXISTING)
    trials = tuple(each for each in run.trials if each.treatment == EXISTING)
    emulated = {**run.facts, EXISTING_PATH: {"emulated_cpu": True}}
    lone = replace(run, treatments=alone, trials=trials, facts=emulated)
    assert (banner(Analysis(lone)) or "").startswith("The VM is emulated (TCG), and so is every figure.")
    below = {**run.facts, "host": {**run.facts["host"], "emulated_cpu": True}, EXISTING_PATH: {"emulated_cpu": False}}
    for each in (replace(lone, facts=below), replace(run, facts=below)):
        assert (banner(Analysis(each)) or "").startswith(
            "The host under test is itself emulated (TCG), and so is every"
        )
        assert EXISTING in Analysis(each).emulated, "its KVM is on an emulated CPU, too"
    assert "an existing VM, and of a clone that is only watched, what" in " ".join(text.split())
    assert "nothing was looked at inside" in " ".join(text.split())


BOOTED: Answers = {("cat", BOOT_ID): "0a0b0c0d-1111-2222-3333-444455556666\n"}


@pytest.mark.parametrize("changed", [None, "started", "booted", "unknown"])
def test_a_run_goes_on_with_the_same_process_only(changed: str | None) -> None:
    """Its number may be another process's by then."""
    host_of = before(with_qemu(host()), {**BOOTED, ("cat", "/proc/4242/comm"): "kvm\n"})
    begun = watching(host_of, "qemu:4242", nowhere)
    changes: dict[str, Answers] = {
        "started": {("cat", "/proc/4242/stat"): STAT.format(911)},
        "booted": {("cat", BOOT_ID): "0a0b0c0d-1111-2222-3333-444455556667\n"},
    }
    later = changes.get(changed or "", {})
    machine = before(host_of, {})
    machine._answers |= FakeMachine("host", later)._answers
    uuid = "" if changed == "unknown" else begun.uuid
    facts = {**sample_experiment().facts, EXISTING_PATH: {"uuid": uuid}}
    plan = on_existing(load("idle"), None)
    work = RunWork(plan, Options("vmtax run", TestbedOptions()), replace(sample_experiment(), facts=facts))
    hosts = Hosts(cast("Any", machine), machine, existing=watching(machine, "qemu:4242", nowhere))
    if changed is None:
        assert fitted(work, hosts).plan == plan
        return
    with pytest.raises(CannotResume, match=r"qemu:4242 .*is another VM: begin a new run"):
        fitted(work, hosts)


def test_any_qemu_is_watched_by_its_number() -> None:
    names: dict[Any, Any] = {("cat", "/proc/4242/comm"): "qemu-system-x86\n", ("cat", "/proc/77/comm"): "bash\n"}
    names[("cat", "/proc/78/comm")] = "kvm-nx-lpage-re\n"
    machine = before(with_qemu(host()), {**names, **BOOTED, ("cat", "/proc/9/comm"): Reply(code=1)})
    vm = watching(machine, "qemu:4242", nowhere)
    assert (vm.qemu, vm.facts["cpus_online"]) == (4242, None)
    refused = {
        "qemu:77": "process 77 there is bash, and no QEMU: `pgrep -l 'qemu-|\\^kvm\\$'` lists",
        "qemu:78": "process 78 there is kvm-nx-lpage-re, and no QEMU",
        "qemu:9": "there is no process 9",
    }
    for name, words in refused.items():
        with pytest.raises(DomainError, match=words):
            watching(machine, name, nowhere)
    assert on_existing(load("idle"), None, name="qemu:4242").layers == (EXISTING,)
    with pytest.raises(BadUse, match="only idleness is measured of a QEMU by its number"):
        on_existing(parse("{name: x, layers: [host], workloads: [chess]}"), None, name="qemu:4242")
