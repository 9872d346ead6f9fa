"""Clones of a VM of the user's that are only watched while they idle: also those of a Windows."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from tests.fake_machine import FakeMachine, Reply
from tests.unit.test_attach import UUID
from tests.unit.test_clone import PARTS, clone_of, host, xml
from vmtax.attach.clone import boot, guests
from vmtax.attach.clone.boot import WINDOWS_BOOT_SECONDS, Cloned, booted
from vmtax.attach.clone.definition import Definition
from vmtax.attach.clone.edit import edited
from vmtax.attach.clone.guests import QUIET_SECONDS, LinuxGuest, WatchedGuest
from vmtax.attach.clone.point import ClonePoint, ServedDisk
from vmtax.attach.domain import Domain, DomainError
from vmtax.cli.app import BadUse
from vmtax.cli.existing_vm import on_existing
from vmtax.cli.work import foreseen
from vmtax.core import notices
from vmtax.core.layers import CLONE, CLONE_PATH
from vmtax.core.records import Treatment
from vmtax.design.hyperv import ALL, ENLIGHTENMENTS, HIDDEN, OFF
from vmtax.existing import enlightenments
from vmtax.existing.guest import Remarks
from vmtax.experiment import preview
from vmtax.image.place import Placed
from vmtax.plan.estimate import GUESS
from vmtax.plan.schema import load
from vmtax.testbed.layers import clone as layer
from vmtax.testbed.session.cloning import ClonedBoot, Cloning
from vmtax.testbed.session.observed import Observed, Watched
from vmtax.testbed.session.session import TestbedOptions
from vmtax.workload import Site

METADATA = (
    "<metadata><libosinfo:libosinfo xmlns:libosinfo='http://libosinfo.org/xmlns/libvirt/domain/1.0'>"
    '<libosinfo:os id="http://microsoft.com/win/11"/></libosinfo:libosinfo></metadata>'
)
HYPERV = "<features><acpi/><hyperv mode='custom'><relaxed state='on'/></hyperv></features>"
CLOCK = "<clock offset='localtime'><timer name='rtc' tickpolicy='catchup'/><timer name='hpet' present='no'/></clock>"
TABLET = "<input type='tablet' bus='usb'/><input type='evdev'><source dev='/dev/input/event1'/></input>"
NO_TPM = xml(more=METADATA, devices="<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>")


@pytest.mark.parametrize("level", [OFF, HIDDEN, ALL, *ENLIGHTENMENTS, "vapic+time"])
def test_a_clone_shows_the_parts_of_hyper_v_that_its_level_has(level: str) -> None:
    """As they are read from a definition again."""
    clone = clone_of(xml(more=HYPERV + CLOCK), cpu__hyperv=level)
    features, clock = clone.find("features"), clone.find("clock")
    hides, remarks = enlightenments.hides_kvm(features), Remarks()
    found = enlightenments.level(dict(enlightenments.of_domain(features, clock)), "", remarks, hides_kvm=hides)
    assert (found or OFF, hides) == (level, level != OFF)
    assert features is not None and features.find("acpi") is not None and clock is not None
    assert clock.get("offset") == "localtime" and clock.find("timer").get("name") == "rtc"  # type: ignore[union-attr]


@pytest.mark.parametrize(("level", "present"), [("off", "no"), ("on", "yes"), ("auto", "no")])
def test_a_clone_has_the_hpet_of_its_level(level: str, present: str) -> None:
    clone = clone_of(xml(more=CLOCK), guest__hpet=level)
    timers = [each for each in clone.findall("clock/timer") if each.get("name") == "hpet"]
    assert [each.get("present") for each in timers] == [present]
    assert clone_of(xml(), guest__hpet="on").find("clock").get("offset") == "utc"  # type: ignore[union-attr]


def test_a_clone_keeps_the_tablet_that_a_windows_polls() -> None:
    assert [each.get("type") for each in clone_of(xml(devices=TABLET)).findall("devices/input")] == ["tablet"]


def test_a_clone_that_is_only_watched_gets_nothing_of_ours() -> None:
    parts = SimpleNamespace(**{name: getattr(PARTS, name) for name in PARTS.__slots__})
    parts.image, parts.data = "", None
    clone = ET.fromstring(edited(Definition.of(xml(), "web1"), cast("Any", parts), {}))
    assert len(clone.findall("devices/disk")) == 1
    assert [each.get("name") for each in clone.findall("devices/channel/target")] == ["org.qemu.guest_agent.0"]


def windows(**answers: Any) -> tuple[Domain, FakeMachine]:
    machine = host(**{"dumpxml": NO_TPM, "guestinfo": "os.id               : mswindows\n", **answers})
    return Domain(machine, "web1", UUID, "qemu:///system", 2, 2**30), machine


def test_what_a_watched_clone_of_a_windows_is_is_said_before() -> None:
    domain, _ = windows()
    vm = Cloning.of((domain, "running"), PurePosixPath("/var/tmp"), is_watched=True)
    assert "a Windows is left alone for 5 minutes" in vm.announced and "never run on Windows itself" in vm.announced
    assert "5 minutes after each boot" in vm.announced
    assert "its TPM, so that what depends on a key in it" in vm.announced
    assert "no screen and no network" in vm.notes[1]


@pytest.mark.parametrize(("code", "doubt"), [(0, ""), (1, "restless: Not all of its services had started 120 s")])
def test_a_clone_that_still_starts_services_is_recorded_as_restless(code: int, doubt: str) -> None:
    """`code`: of the program in it that waits for them."""
    status = f'{{"return":{{"exited":true,"exitcode":{code}}}}}\n'
    machine = host(qemu_agent_command=['{"return":{"pid":7}}\n', status])
    domain = Domain(machine, "web1", UUID, "qemu:///system", 2, 2**30)
    clone = Cloned(domain, None, None, 9.0, LinuxGuest(Placed("/root", "/k", "/i")).settle(domain))
    (said,) = layer.doubts(clone) or ("",)
    assert said.startswith(doubt) and bool(said) == bool(doubt)
    assert not doubt or notices.read(said).code == "restless"


def test_how_long_it_takes_has_the_minutes_in_which_clones_of_a_windows_are_left_alone() -> None:
    """Of each clone of each round, and of nothing else that is measured beside them."""
    domain, _ = windows()
    vm = Cloning.of((domain, "running"), PurePosixPath("/var/tmp"), is_watched=True)
    plan = load("idle").model_copy(update={"layers": ("host", CLONE), "budget": None})
    treatments = [Treatment("host", "host"), Treatment("clone", CLONE), Treatment("clone cpu.hyperv=off", CLONE)]
    alone = preview._alone_seconds(cast("Any", SimpleNamespace(existing=vm)), treatments)
    assert alone == 2 * QUIET_SECONDS and not preview._alone_seconds(cast("Any", SimpleNamespace(existing=None)), [])

    def seconds(alone: float) -> float:
        place: Any = SimpleNamespace(name="local", machine=None, possible=treatments, below={"emulated_cpu": False})
        place.alone_seconds = alone
        work: Any = SimpleNamespace(plan=plan, resumed=None, options=SimpleNamespace(testbed=TestbedOptions()))
        store: Any = SimpleNamespace(seconds_per_round=lambda *words, **named: None)
        return foreseen(store, work, [place], "").seconds[1]

    assert seconds(alone) - seconds(0.0) == pytest.approx(plan.rounds.max * alone * GUESS[1])


def test_hyper_v_is_for_clones_on_kvm() -> None:
    vm = Cloning(
        cast("Any", SimpleNamespace(name="web1")), "off", PurePosixPath("/"), Definition.of(xml(kind="qemu"), "")
    )
    assert "cpu.hyperv=all: only KVM has it" in (vm.why_not({"cpu.hyperv": "all"}) or "")
    assert vm.why_not({"cpu.hyperv": "off", "guest.hpet": "on"}) is None


def boots(monkeypatch: pytest.MonkeyPatch, **answers: Any) -> Cloned:
    """A clone of that Windows, once it was left."""
    domain, machine = windows(**{"create": "", "other": "x\n", **answers})
    clock = MagicMock(monotonic=machine.clock.time, sleep=machine.clock.sleep)
    monkeypatch.setattr(boot, "time", clock)
    monkeypatch.setattr(guests, "time", clock)
    point = ClonePoint(domain, Definition.of(NO_TPM, "web1"), PurePosixPath("/var/tmp/p"), is_off=True)
    point.exports["vda"] = ServedDisk("point", "/var/tmp/p/nbd-vda", 2**31)
    local = MagicMock()
    local.fresh_name.return_value = "vmtax-1-clone-2"
    began = machine.clock.now
    with booted(point, CLONE_PATH, local, WatchedGuest(), {}, None) as clone:
        assert machine.clock.now - began >= clone.ready_seconds + QUIET_SECONDS
    assert not machine.undo_list
    assert not [argv for argv in machine.calls if "guest-exec" in " ".join(argv)], "nothing is started in it"
    return clone


def test_a_windows_is_left_alone_before_it_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    clone = boots(monkeypatch, qemu_agent_command='{"return":{}}\n')
    assert clone.machine is None and clone.ready_seconds < QUIET_SECONDS


def test_a_windows_that_waits_for_its_recovery_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DomainError) as refused:
        boots(monkeypatch, qemu_agent_command=Reply(code=1, seconds=400), domstate="running\n")
    assert f"within {WINDOWS_BOOT_SECONDS:.0f} s" in str(refused.value)
    assert "manage-bde -protectors -disable C:" in str(refused.value)


def test_a_clone_that_is_paused_or_restarts_by_itself_is_void(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = FakeMachine("host", {(lambda argv: "vmtax-find" in argv): "4242\n", (lambda argv: argv[0] == "sh"): ""})
    states = [SimpleNamespace(ok=True, stdout=said) for said in ("running\n", "paused\n")]
    states.append(SimpleNamespace(ok=False, stdout=""))
    clone = Cloned(cast("Any", MagicMock(uuid=UUID, **{"ask.side_effect": states})), None, None, 9.0)
    point = MagicMock(**{"why_void.return_value": ""})
    cloning = MagicMock(name="libvirt:web1", is_emulated=False, uuid=UUID, **{"take.return_value": point})
    monkeypatch.setattr(layer.host, "site", lambda on, disk: Site(machine, "host", 2, ()))
    on = cast("Any", SimpleNamespace(host=machine, session=MagicMock(), lead=0))
    subject = layer._watched(on, Treatment("clone", CLONE), cloning, clone)
    assert (subject.machine, subject.site.layer) == (CLONE_PATH, CLONE)
    seen, recorded = subject.offer(Watched), subject.offer(ClonedBoot)
    assert seen is not None and recorded is not None and subject.offer(Observed) is recorded
    assert (seen.qemu, recorded.qemu, recorded.ready_seconds) == (4242, 4242, 9.0)
    assert seen.why_void() == ""
    assert "is paused, and did not idle" in seen.why_void()
    assert "restarts by itself" in seen.why_void()


def test_a_plan_compares_clones_alone() -> None:
    plan = on_existing(load("idle"), None, CLONE)
    assert plan.layers == (CLONE,) and [each.name for each in plan.workloads] == ["idle"] and plan.rounds.max == 14
    with pytest.raises(BadUse, match="is read by itself"):
        on_existing(load("idle"), "host,clone", CLONE)
