"""net.path=sriov-standby: which of the guest's two cards carries its packets, and what is void."""

from __future__ import annotations

import pathlib
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fake_machine import FakeClock, FakeMachine, Reply
from tests.unit.test_net_paths import host as network_host
from vmtax.core.records import Treatment
from vmtax.design.net import NetSettings, Path, settings_of, take_functions
from vmtax.experiment.signatures import Signatures
from vmtax.experiment.trial import TrialKey, run_trials
from vmtax.hypervisor import BootFailed, Card, GuestSpec, Nic, Passed, Qemu, Tap, card_of
from vmtax.machine import MachineLost
from vmtax.meter import MeteredCommand
from vmtax.network import Segment
from vmtax.network.sriov import LOAD_DRIVERS
from vmtax.plan.schema import parse
from vmtax.testbed.host import migration
from vmtax.testbed.network import net_paths, standby
from vmtax.testbed.network.standby import LOWER, PING, CardPair, Carriers, Lower, PacketCounts, Tapped
from vmtax.testbed.parts import Request
from vmtax.testbed.parts.migration import MigrationPart
from vmtax.testbed.parts.network import NetworkPart
from vmtax.testbed.session.base import Handover, RunningSubject, RunningTreatment
from vmtax.testbed.subjects import cards
from vmtax.workload import Site
from vmtax.workload.chess import Chess, ChessParameters

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "workload"
MAC, WORK = "52:54:00:76:77:01", MeteredCommand("iperf3", ok=True, seconds=3.0)
PLAN = "{name: x, layers: [vm], factors: {net.path: [vhost, sriov-standby]}, workloads: [net]}"


def lower(received: int, sent: int, link: int = 1) -> str:
    return f"eth1\neth2 virtio_net 1 4 2\neth3 igbvf {link} {received} {sent}\n"


ALONE = "eth1\neth2 virtio_net 1 4 2\n"


def tap(received: int, sent: int) -> str:
    return f'[{{"ifname":"vt1","stats64":{{"rx":{{"packets":{received}}},"tx":{{"packets":{sent}}}}}}}]\n'


SHOW = ("ip", "-n", "vmtax-x", "-s", "-j", "link", "show", "dev", "vt1")


def guest(**answers: Any) -> Any:
    """A running guest that says so of its cards."""
    known = {LOAD_DRIVERS: "", ("ip", "link", "set", "dev", "eth1", "up"): "", PING: ""}
    machine = FakeMachine("host/vm", {**known, (*LOWER, MAC): answers["lower"], PING: answers.get("ping", "")})
    spec = SimpleNamespace(cards=(Nic(Tap("vt1", vhost=True), MAC, stands_by=True, primary=Passed("0000:01:10.0")),))
    return SimpleNamespace(path="host/vm", machine=machine, spec=spec)


def tapped(*seen: str) -> Tapped:
    return Tapped(FakeMachine("host", {SHOW: list(seen)}), "vmtax-x", "vt1", MAC)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    clock = FakeClock()
    monkeypatch.setattr(standby.time, "sleep", clock.sleep)
    monkeypatch.setattr(standby.time, "monotonic", clock.time)
    return clock


def test_a_function_and_a_card_on_a_tap_have_one_address_and_the_settings_of_neither_other() -> None:
    levels = {"net.path": "sriov-standby", "net.queues": "4", "net.mtu": "9000", "net.offloads": "off"}
    treatment = Treatment("vm", "vm", levels)
    assert settings_of(treatment) == NetSettings(path=Path.SRIOV_STANDBY) and take_functions([treatment])
    mac = net_paths.mac_of(Path.SRIOV_STANDBY, 1)
    assert mac == net_paths.mac_of(Path.SRIOV, 1), "that which the function is given"
    card = card_of(settings_of(treatment), "vt1", mac, "0000:01:10.0")
    assert card == Nic(Tap("vt1", vhost=True), mac, stands_by=True, primary=Passed("0000:01:10.0"))


def test_the_card_that_has_both_under_it_is_taken_once_the_function_has_a_link(clock: FakeClock) -> None:
    found = guest(lower=["", ALONE, lower(0, 0, link=0), lower(0, 0)])
    assert standby.find(found, MAC) == "eth1"
    assert found.machine.unused() == [PING] and clock.now == 1_000_003.0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", f"no card with the address {MAC} that has others under it"),
        (ALONE, "no virtual function came under the guest's card eth1 .*so the virtio card carries its packets"),
        (lower(0, 0, link=0), "the virtual function eth3 of the guest has no link"),
    ],
)
def test_a_guest_without_a_working_function_has_not_obtained_its_path(text: str, why: str, clock: FakeClock) -> None:
    with pytest.raises(BootFailed, match=f"^host/vm: net.path=sriov-standby was not obtained: .*{why}"):
        standby.find(guest(lower=text), MAC)


def test_pings_go_by_the_function() -> None:
    standby.prove(guest(lower=[lower(10, 10), lower(14, 14)]), tapped(tap(2, 4), tap(2, 5)))


@pytest.mark.parametrize(
    ("after", "there", "ping", "why"),
    [
        (lower(10, 10), tap(5, 7), "", "of 3 pings the virtual function carried 0 packets, and the virtio card 6"),
        (lower(14, 14), tap(2, 8), "", "carried 8 packets, and the virtio card 4"),
        (lower(14, 14), tap(2, 4), Reply("3 packets transmitted\n", code=1), "the peer does not answer: 3 packets"),
        (ALONE, tap(2, 4), "", "cannot be counted"),
        (lower(14, 14), "", "", "cannot be counted"),
    ],
)
def test_packets_by_the_other_card_or_by_both_are_not_the_path(after: str, there: str, ping: Any, why: str) -> None:
    found = guest(lower=[lower(10, 10), after], ping=ping)
    with pytest.raises(BootFailed, match=why):
        standby.prove(found, tapped(tap(2, 4), there))


def read(*seen: str, there: tuple[str, ...]) -> Any:
    """What the meter says of a trial."""
    meter, machine = Carriers([("host/vm", tapped(*there))]), guest(lower=list(seen)).machine
    meter.before(machine)
    return meter.after(machine, [WORK])


def test_what_each_card_carried_is_kept_with_a_trial() -> None:
    found = read(lower(10, 10), lower(1010, 2010), there=(tap(2, 4), tap(2, 5)))
    assert (dict(found.rows), found.void) == ({"function_packets": 3000.0, "standby_packets": 1.0}, "")


def test_a_trial_by_the_card_that_stands_by_is_void() -> None:
    found = read(lower(10, 10), lower(1010, 2010), there=(tap(2, 4), tap(2, 404)))
    assert found.void == (
        "net.path=sriov-standby was not kept: the virtio card carried 400 packets, and the virtual function 3000"
    )
    assert "function is gone" in read(lower(10, 10), ALONE, there=(tap(2, 4), tap(2, 4))).void


def test_broadcasts_come_to_both_cards() -> None:
    assert PacketCounts(0, 0, to_standby=20, from_standby=0).why_void == ""
    assert PacketCounts(0, 0, to_standby=21, from_standby=0).why_void != ""
    assert PacketCounts(50_000, 50_000, to_standby=1000, from_standby=0).why_void == ""


def test_a_guest_that_is_lost_or_is_another_has_no_readings() -> None:
    lost = FakeMachine("host/vm", {(*LOWER, MAC): [lower(10, 10), MachineLost("gone")]})
    meter = Carriers([("host/vm", tapped(tap(2, 4)))])
    meter.before(lost)
    assert (
        meter.after(lost, [WORK]).rows == {}
        and not meter.after(lost, [MeteredCommand("x", ok=False, seconds=1.0)]).void
    )
    other = FakeMachine("host/vm-2")
    meter.before(other)
    assert meter.after(other, [WORK]).rows == {}


def test_a_void_trial_has_no_figures() -> None:
    bench = (GOLDEN / "chess.txt").read_text()
    works: Any = {lambda argv: "stockfish" in argv[0]: bench, (*LOWER, MAC): lower(10, 10)}
    machine = FakeMachine("host/vm", works)
    subject = RunningSubject(Site(machine, "vm", 1, ()))
    meter = Carriers([("host/vm", tapped(tap(2, 4), tap(2, 99)))])
    running = RunningTreatment((subject,), FakeMachine("host"), meters=(meter,))
    (trial,) = run_trials(TrialKey(1, 1, "vm"), running, Chess(ChessParameters()), "", Signatures(), iteration=1)
    assert (trial.status, trial.measurements) == ("failed", ())
    assert (trial.error or "").startswith("net.path=sriov-standby was not kept") and trial.raw
    assert trial.readings["host/vm"]["net.standby_packets"] == 95.0


def test_where_the_packets_are_counted() -> None:
    host = FakeMachine("host", {lambda argv: argv[0] in ("ip", "bridge"): ""})
    segment = Segment(host, "x")
    assert Tapped.of(guest(lower=""), host, segment) == Tapped(host, "vmtax-x", "vt1", MAC)
    plain: Any = SimpleNamespace(spec=SimpleNamespace(cards=(Nic(Tap("vt1")), Passed("0000:01:10.0"))))
    assert Tapped.of(plain, host, segment) is None


def test_the_bridge_sends_the_address_to_the_wire_alone() -> None:
    host = FakeMachine("host", {lambda argv: argv[0] in ("ip", "bridge"): ""})
    segment = Segment(host, "x")
    segment.add_uplink("eth2")
    segment.leave_outside(MAC)
    assert host.calls[-1] == (*("bridge", "-n", "vmtax-x", "fdb", "replace", MAC, "dev", "eth2", "master", "static"),)


@given(st.text() | st.integers(0, len(lower(1, 2))).map(lambda end: lower(1, 2)[:end]))
def test_damaged_output_is_refused_or_read(text: str) -> None:
    found = standby.parse(text)
    assert found is None or found.name


def test_what_the_guest_prints_is_understood() -> None:
    assert standby.parse(lower(7, 8)) == CardPair(
        "eth1", Lower("eth3", "igbvf", True, 7, 8), Lower("eth2", "virtio_net", True, 4, 2)
    )
    assert standby.parse(ALONE) == CardPair("eth1", None, Lower("eth2", "virtio_net", True, 4, 2))


def test_it_takes_what_a_function_takes_and_vhost() -> None:
    plan = parse(PLAN, "x")
    treatments = plan.treatments()[0]

    def why(**answers: Any) -> str:
        return NetworkPart().lacking(Request(network_host(**answers), plan, treatments))["vm net.path=sriov-standby"]

    assert why(vhost=Reply(code=1)) == "net.path=sriov-standby needs the host's /dev/vhost-net: load vhost_net"
    assert why(cards="").startswith("net.path=sriov-standby needs a card: no network card here has virtual functions")
    assert "needs a peer behind the card" in why()
    unprivileged = FakeMachine("host", {("id", "-u"): "1000\n"})
    refused = NetworkPart().lacking(Request(unprivileged, plan, treatments))
    assert refused["vm net.path=sriov-standby"] == "net.path=sriov-standby needs root on the host under test"


def test_it_is_migrated_where_a_function_alone_is_not() -> None:
    plan = parse(PLAN.replace("vhost, sriov", "sriov, sriov").replace("[net]", "[migration]"), "x")
    assert set(MigrationPart().lacking(Request(FakeMachine("host"), plan, plan.treatments()[0]))) == {"vm"}, (
        "sriov, the first level"
    )


def moving(**answers: Any) -> tuple[Any, FakeMachine, Any]:
    """A guest with a function that moves, its host, and what the move does to its address."""
    host = FakeMachine("host", {SHOW: tap(2, 4), lambda argv: argv[0] in ("ip", "bridge"): ""})
    card = plugged(host, "0000:01:10.4", answers.get("path", Path.SRIOV_STANDBY))
    running = guest(lower=answers.get("lower", lower(0, 0)))
    running.plugged = []
    running.plug = running.plugged.append
    return running, host, cards.handover(running, (host, card), (host, replace(card, awaits=True)))


def plugged(host: FakeMachine, function: str, path: Path) -> cards.Plug:
    """A card that the second guest of a host has."""
    segment = Segment(host, "x")
    segment.add_uplink("eth2")
    host.calls.clear()
    host.inputs.clear()
    return cards.Plug(segment, MAC, NetSettings(path=path), function, number=2)


FDB = ("bridge", "-n", "vmtax-x", "fdb")
FUNCTION = ("ip", "-n", "vmtax-x", "link", "set", "dev", "eth2", "vf", "1", "mac")


def admitted(host: FakeMachine) -> list[str]:
    """Behind which ports the card was told that the address is."""
    return [text.split("\n")[1] for argv, text in host.inputs if argv[0] == "bridge"]


def test_the_address_goes_from_the_function_to_the_taps_and_back() -> None:
    running, host, handover = moving(lower=[lower(0, 0), lower(5, 5), lower(9, 9)])
    handover.fell_back()
    assert host.calls[0] == (*FUNCTION, "00:00:00:00:00:00")
    assert admitted(host) == [f"fdb replace {MAC} dev vt1 master static"]
    there: Any = SimpleNamespace(spec=SimpleNamespace(cards=(Nic(Tap("vt2", vhost=True), MAC, stands_by=True),)))
    handover.arrived(there)
    assert admitted(host)[-1] == f"fdb replace {MAC} dev vt2 master static" and running.plugged == []
    host.calls.clear()
    handover.regain(running)
    assert running.plugged == [Passed("0000:01:10.4")], "the one that its first QEMU no longer has"
    assert host.calls == [
        (*FUNCTION, MAC),
        (*FDB, "del", MAC, "dev", "eth2", "self"),
        (*FDB, "replace", MAC, "dev", "eth2", "master", "static"),
        *(SHOW, SHOW),
    ]
    running, _, handover = moving(lower=[lower(5, 5)] * 3)
    with pytest.raises(BootFailed, match="of 3 pings the virtual function carried 0 packets"):
        handover.regain(running)


def test_a_guest_that_did_not_move_has_its_address_at_its_function_again() -> None:
    running, host, handover = moving(lower=[lower(0, 0), lower(5, 5), lower(9, 9)])
    handover.stayed(running)
    assert host.calls == [], "it failed before the guest had given up anything"
    handover.fell_back()
    handover.stayed(running)
    assert (*FUNCTION, MAC) in host.calls and host.calls[-3][-4:] == ("dev", "eth2", "master", "static")
    assert running.plugged == [], "QEMU itself gives it back"


def test_a_guest_that_gets_no_function_again_has_no_figures(clock: FakeClock) -> None:
    running, host, handover = moving(lower=ALONE)
    handover.fell_back()
    with pytest.raises(BootFailed, match="no virtual function came under the guest's card eth1"):
        handover.regain(running)
    assert not [argv for argv in host.calls if "del" in argv], "its packets go on by the virtio card"


def test_a_guest_on_a_tap_alone_only_moves_to_another_tap() -> None:
    running, host, handover = moving(path=Path.VHOST)
    handover.fell_back()
    assert host.calls == []
    there: Any = SimpleNamespace(spec=SimpleNamespace(cards=(Nic(Tap("vt2", vhost=True), MAC),)))
    handover.arrived(there)
    assert admitted(host) == [f"fdb replace {MAC} dev vt2 master static"]
    handover.regain(running)
    assert len(host.calls) == 1 and running.plugged == []
    assert type(cards.handover(running, (host, None), (host, None))) is Handover


def test_between_two_hosts_the_address_leaves_one_and_the_function_is_the_other_s() -> None:
    running, here, _ = moving(lower=[lower(0, 0), lower(5, 5), lower(9, 9)])
    there = FakeMachine("b", {SHOW: tap(2, 4), lambda argv: argv[0] in ("ip", "bridge"): ""})
    near, far = (
        plugged(host, pci, Path.SRIOV_STANDBY) for host, pci in ((here, "0000:01:10.4"), (there, "0000:02:10.4"))
    )
    handover = cards.handover(running, (here, near), (there, replace(far, awaits=True)))
    handover.fell_back()
    assert there.calls == [(*FUNCTION, "00:00:00:00:00:00")], "it may have the address of the guest before"
    assert admitted(here) == [f"fdb replace {MAC} dev vt1 master static"] and admitted(there) == []
    here.calls.clear()
    handover.arrived(running)
    assert here.calls == [
        (*FDB, "del", MAC, "dev", "eth2", "self"),
        (*FDB, "replace", MAC, "dev", "eth2", "master", "static"),
    ]
    assert admitted(there) == [f"fdb replace {MAC} dev vt1 master static"]
    here.calls.clear()
    handover.regain(running)
    assert running.plugged == [Passed("0000:02:10.4")] and here.calls == []
    assert (*FUNCTION, MAC) in there.calls and there.calls[-3][-4:] == ("dev", "eth2", "master", "static")


def test_the_next_guest_s_function_has_its_address_again() -> None:
    _, host, _ = moving()
    card = plugged(host, "0000:01:10.4", Path.SRIOV_STANDBY)
    card.insert(ExitStack())
    assert host.calls == [(*FUNCTION, MAC)], "before QEMU starts: a guest's driver asks for it once"


def test_two_bridges_without_functions_learn_by_themselves() -> None:
    hosts = [FakeMachine(path, {lambda argv: argv[0] in ("ip", "bridge"): ""}) for path in ("host", "b")]
    here, there = [(host, cards.Plug(Segment(host, "x"), MAC, NetSettings(path=Path.VHOST))) for host in hosts]
    for host in hosts:
        host.calls.clear()
    running = guest(lower="")
    handover = cards.handover(running, here, there)
    handover.fell_back()
    handover.arrived(running)
    handover.regain(running)
    assert [host.calls for host in hosts] == [[], []]


@pytest.mark.parametrize("path", [Path.SRIOV_STANDBY, Path.VHOST])
def test_what_a_guest_moves_to_has_neither_its_function_nor_its_address(path: Path) -> None:
    host = FakeMachine("host", {lambda argv: argv[0] in ("ip", "bridge"): ""})
    segment = Segment(host, "x")
    segment.add_uplink("eth2")
    card, attach = cards.Plug(segment, MAC, NetSettings(path=path), "0000:01:10.0", awaits=True).insert(ExitStack())
    assert isinstance(card, Nic) and card.primary is None and card.stands_by == (path is Path.SRIOV_STANDBY)
    host.calls.clear()
    assert attach is not None
    attach()
    assert [argv for argv in host.calls if argv[0] == "bridge"] == []


def test_qemus_that_keep_their_user_meet_in_a_directory_of_its_own() -> None:
    host = FakeMachine("host", {lambda argv: argv[0] in ("mkdir", "chown"): ""})
    confined = Qemu(("qemu",), "10.0", "", user=1879048199)
    migration.meeting(host, confined, keeps_user=True)
    assert [argv[0] for argv in host.calls] == ["mkdir"]
    migration.meeting(host, confined)
    assert host.calls[-1][:2] == ("chown", "1879048199")


@pytest.mark.parametrize("stands_by", [True, False])
def test_an_image_s_qemu_reaches_devices_that_its_guest_has_and_may_pin_its_memory(stands_by: bool) -> None:
    device = Passed("0000:01:10.0")
    card: Card = Nic(Tap("vt1"), MAC, stands_by=True) if stands_by else device  # it may be plugged in later
    qemu = Qemu(("qemu-system-x86_64",), "10.0", "", tree="/tree")

    def command_line(*given: Card) -> tuple[str, ...]:
        spec = GuestSpec("vm", 1, 2**29, "kvm", qemu, "/k", "/i", "/r", cards=given)
        return qemu.command_line(spec, pathlib.PurePosixPath("/initrd"), pathlib.PurePosixPath("/console"))

    argv, without = command_line(card), command_line()
    assert argv[argv.index("/dev/vfio") - 1] == "--dev-bind" and "CAP_IPC_LOCK" in argv
    assert "/dev/vfio" not in without and "CAP_IPC_LOCK" not in without
