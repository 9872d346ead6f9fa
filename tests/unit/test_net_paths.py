"""The factor net.path: what QEMU is given, what a guest must have got, and what is refused beforehand."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.fake_machine import FakeMachine, Reply
from vmtax.core.errors import CannotDo
from vmtax.core.records import Treatment
from vmtax.design.net import DELAYS, NetSettings, Path, settings_of
from vmtax.hypervisor import BootFailed, Nic, Passed, Tap, UserNetwork, card_of
from vmtax.hypervisor.qemu.cards import card_arguments, handed_over
from vmtax.machine.local import LocalMachine
from vmtax.machine.reader import LocalReader
from vmtax.network import sriov
from vmtax.network.interrupts import SET_DELAY, delay_interrupts
from vmtax.plan.schema import Plan, parse
from vmtax.testbed.network import net_paths
from vmtax.testbed.parts import Request
from vmtax.testbed.parts.network import HAS_MACVTAP, HAS_VHOST, VHOST_IS_LOADED, NetworkPart

PLAN = """\
name: paths
layers: [vm]
factors: {net.path: [tap, vhost, macvtap, rtl8139, user, sriov]}
workloads: [net]
"""
MAC = "52:54:00:76:75:01"


def lacking(machine: FakeMachine, plan: Plan, treatments: Sequence[Treatment] | None = None) -> Mapping[str, str]:
    """What that host lacks for these treatments, all of the plan's by default."""
    return NetworkPart().lacking(Request(machine, plan, plan.treatments()[0] if treatments is None else treatments))


def test_what_qemu_is_given() -> None:
    assert card_of(NetSettings(), "t1", MAC, None) == Nic(Tap("t1"), MAC)
    assert card_of(NetSettings(path=Path.VHOST), "t1", MAC, None) == Nic(Tap("t1", vhost=True), MAC)
    assert card_of(NetSettings(path=Path.RTL8139), "t1", MAC, None) == Nic(Tap("t1"), MAC, model="rtl8139")
    behind = UserNetwork("10.1.0.0/24", "10.1.0.1", "10.1.0.3", (5201,))
    card = card_of(NetSettings(path=Path.USER), "", MAC, None, behind)
    assert card == Nic(behind, MAC)
    netdev = "user,id=network,restrict=on,net=10.1.0.0/24,host=10.1.0.1,hostfwd=tcp:127.0.0.1:0-10.1.0.3:5201"
    assert card_arguments([card])[:2] == ("-netdev", netdev)
    settings = NetSettings(path=Path.MACVTAP)
    card = card_of(settings, "m1", MAC, None, Tap("m1", "/dev/vmtax-x/1", vhost=True))
    assert card_arguments([card])[:2] == ("-netdev", "tap,id=network,fd=3,vhost=on")
    assert handed_over([card]) == ("sh", "-c", 'exec 3<>"$1"; shift; exec "$@"', "sh", "/dev/vmtax-x/1")
    assert handed_over([Nic(Tap("t1"), MAC)]) == ()
    assert card_of(NetSettings(path=Path.SRIOV), "t1", MAC, "0000:01:10.0") == Passed("0000:01:10.0")


def test_a_plan_without_the_factor_has_the_card_that_it_always_had() -> None:
    assert settings_of(Treatment("vm", "vm", {})).path is Path.TAP
    assert NetworkPart().lacking(Request(FakeMachine("host", {}), parse("{name: x, workloads: [net]}", "x"), [])) == {}


@pytest.mark.parametrize(
    ("path", "driver", "obtained"),
    [
        (Path.TAP, "virtio_net", True),
        (Path.VHOST, "virtio_net", True),
        (Path.E1000E, "e1000e", True),
        (Path.RTL8139, "8139cp", True),
        (Path.MACVTAP, "virtio_net", True),
        (Path.USER, "virtio_net", True),
        (Path.USER, "", False),
        (Path.SRIOV, "igbvf", True),
        (Path.SRIOV, "mlx5_core", True),
        (Path.SRIOV, "virtio_net", False),
        (Path.E1000E, "virtio_net", False),
        (Path.TAP, "e1000e", False),
        (Path.SRIOV, "", False),
    ],
)
def test_a_guest_has_the_path_whose_driver_carries_its_packets(path: Path, driver: str, obtained: bool) -> None:
    class Fake:
        path = "host/vm"
        machine = FakeMachine(
            "host/vm", {sriov.LOAD_DRIVERS: "", (*net_paths.FIND, MAC): f"eth2 {driver}\n" if driver else "\n"}
        )

    guest: Any = Fake()
    if obtained:
        assert net_paths.find_card(guest, NetSettings(path=path), MAC) == "eth2"
        return
    with pytest.raises(BootFailed, match=rf"host/vm: net.path={path} was not obtained"):
        net_paths.find_card(guest, NetSettings(path=path), MAC)


def host(**answers: Any) -> FakeMachine:
    """A host that can give a guest every path, but for what `answers` says."""
    said: dict[str, Any] = {
        "vhost": "",
        "loaded": "",
        "macvtap": "",
        "cards": "eth2 7 0 1 1 0\n",
        "up": "",
        "iommu": "",
        "vfio": "",
    } | answers
    return FakeMachine(
        "host",
        {
            ("id", "-u"): "0\n",
            HAS_VHOST: said["vhost"],
            VHOST_IS_LOADED: said["loaded"],
            HAS_MACVTAP: said["macvtap"],
            sriov.CARDS: said["cards"],
            ("ip", "-o", "link", "show", "dev", "eth2", "up"): said["up"],
            sriov.HAS_IOMMU: said["iommu"],
            sriov.HAS_VFIO: said["vfio"],
            ("cat", "/proc/cmdline"): "quiet intel_iommu=on\n",
        },
    )


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({"cards": ""}, "needs a card: no network card here has virtual functions"),
        ({"up": "3: eth2: <UP>\n"}, "needs a card: every card with virtual functions is in use (eth2)"),
        ({"iommu": Reply(code=1)}, "needs an IOMMU: switch it on in the firmware, and boot with intel_iommu=on"),
        ({"vfio": Reply(code=1)}, "needs VFIO: the kernel modules vfio_pci"),
        ({}, "needs a peer behind the card: name one with --peer"),
    ],
)
def test_a_function_that_cannot_be_had_is_left_out_beforehand_with_its_reason(answers: Any, why: str) -> None:
    plan = parse(PLAN, "x")
    left_out = lacking(host(**answers), plan)
    assert set(left_out) == {"vm net.path=sriov"}
    assert left_out["vm net.path=sriov"].startswith(f"net.path=sriov {why}")


def test_vhost_takes_its_device_and_every_path_the_workload() -> None:
    plan = parse(PLAN, "x")
    left_out = lacking(host(macvtap=Reply(code=1)), plan)
    assert left_out["vm net.path=macvtap"] == "net.path=macvtap needs the kernel module macvtap, which is not there"
    left_out = lacking(host(vhost=Reply(code=1)), plan)
    assert left_out["vm net.path=macvtap"] == "net.path=macvtap needs the host's /dev/vhost-net: load vhost_net"
    assert left_out["vm net.path=vhost"] == "net.path=vhost needs the host's /dev/vhost-net: load vhost_net"
    idle = parse(PLAN.replace("[net]", "[chess]"), "x")
    left_out = lacking(host(), idle)
    assert set(left_out.values()) == {"net.path needs a workload that uses the network"}


@pytest.mark.parametrize(("device", "has"), [(pathlib.Path("/dev/null"), True), (None, False)])
def test_vhost_that_is_loaded_must_be_there_to_be_opened(
    device: pathlib.Path | None, has: bool, tmp_path: pathlib.Path
) -> None:
    """A container sees that it is loaded, and need not have its device; nothing is made in its place."""
    registered, there = tmp_path / "misc", tmp_path / "vhost-net"
    registered.write_text("238 vhost-net\n232 kvm\n")
    if device is not None:
        there.symlink_to(device)
    assert LocalReader().try_run(*HAS_VHOST[:-2], str(registered), str(there)).ok == has
    assert there.exists() == has


def test_a_card_has_its_queues_and_lacks_its_offloads_where_they_mean_something() -> None:
    def card(levels: dict[str, str]) -> NetSettings:
        return settings_of(Treatment("vm", "vm", levels))

    queued = card({"net.path": "vhost", "net.queues": "4", "net.offloads": "off"})
    assert card_of(queued, "t1", MAC, None) == Nic(Tap("t1", vhost=True, queues=4), MAC, offloads=False)
    assert card({"net.path": "tap", "net.queues": "4"}).queues == 1
    rtl8139 = card({"net.path": "rtl8139", "net.mtu": "9000", "net.offloads": "off", "net.interrupt_delay": "1ms"})
    assert rtl8139 == NetSettings(path=Path.RTL8139)


@pytest.mark.parametrize(
    ("wanted", "seen", "why"),
    [
        (NetSettings(path=Path.VHOST, queues=4), {net_paths.QUEUES: "1\n"}, "net.queues=4 .*: the guest uses 1"),
        (NetSettings(path=Path.VHOST, queues=4), {net_paths.QUEUES: "4\n"}, None),
        (NetSettings(offloads=False), {net_paths.FEATURES: "001000"}, "net.offloads=off was not obtained"),
        (NetSettings(offloads=False), {net_paths.FEATURES: "000000"}, None),
    ],
)
def test_a_guest_has_its_queues_and_no_offloads_or_is_void(
    wanted: NetSettings, seen: dict[tuple[str, ...], str], why: str | None
) -> None:
    class Fake:
        path = "host/vm"
        machine = FakeMachine(
            "host/vm",
            {sriov.LOAD_DRIVERS: "", (*net_paths.FIND, MAC): "eth1 virtio_net\n"}
            | {(*argv, "eth1"): text for argv, text in seen.items()},
        )

    guest: Any = Fake()
    if why is None:
        assert net_paths.find_card(guest, wanted, MAC) == "eth1"
        return
    with pytest.raises(BootFailed, match=why):
        net_paths.find_card(guest, wanted, MAC)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("4000\n", None),
        ("4032\n", None),  # e1000e rounds
        ("1022\n", "1022 of 4000 us was set"),
        (Reply(stderr="Operation not supported\n", code=1), "Operation not supported"),
    ],
)
def test_a_card_delays_its_interrupts_or_its_guest_is_void(answer: str | Reply, why: str | None) -> None:
    class Fake:
        path = "host/vm"
        machine = FakeMachine(
            "host/vm",
            {
                sriov.LOAD_DRIVERS: "",
                (*net_paths.FIND, MAC): "eth1 igbvf\n",
                (*SET_DELAY, "eth1", "4000"): answer,
            },
        )

    guest: Any = Fake()
    wanted = NetSettings(path=Path.SRIOV, interrupt_delay=4000)
    if why is None:
        assert net_paths.find_card(guest, wanted, MAC) == "eth1"
        return
    with pytest.raises(BootFailed, match=rf"net\.interrupt_delay was not obtained \(igbvf\): {why}"):
        net_paths.find_card(guest, wanted, MAC)


def test_every_delay_is_one_that_igbvf_keeps() -> None:
    """Those whose rate has one of its two lowest bits set are what it adapts. 8000 us: 749 interrupts a second."""
    assert [delay for delay in DELAYS.values() if delay and int(1e9 / (1024 * delay)) & 3] == []


def test_a_card_that_delays_nothing_says_so() -> None:
    with contextlib.closing(LocalMachine()) as local, pytest.raises(CannotDo, match="Operation not supported"):
        delay_interrupts(local, "lo", 1000)


@pytest.mark.parametrize("workloads", ["net: {cases: [tcp-in, udp-in], rate: 4}", "net, latency", "net, smb"])
def test_a_network_that_qemu_plays_carries_tcp_alone(workloads: str) -> None:
    plan = parse(PLAN.replace(", sriov]", "]").replace("[net]", f"[{workloads}]"), "x")
    left_out = lacking(host(), plan)
    assert list(left_out) == ["vm net.path=user"]
    assert left_out["vm net.path=user"].startswith("net.path=user carries nothing but net's TCP cases: leave ")
    plan = parse(PLAN, "x")
    assert "vm net.path=user" not in lacking(host(), plan)


def test_a_network_that_qemu_plays_needs_no_root_and_is_not_behind_a_card(monkeypatch: Any) -> None:
    plan = parse(PLAN, "x")
    user = next(each for each in plan.treatments()[0] if settings_of(each).path is Path.USER)
    assert lacking(FakeMachine("host", {}), plan, [user]) == {}
    monkeypatch.setattr("vmtax.testbed.parts.network.peer_behind_card", lambda machine: "peer")
    left_out = lacking(host(), plan)
    beside = "cannot be measured with net.path=sriov of the same plan"
    assert left_out == {
        user.name: f"net.path=user {beside}: it goes over no card",
        "vm net.path=macvtap": f"net.path=macvtap {beside}: the card is a port of a bridge, and such a card carries no"
        " macvtap",
    }


def test_more_queues_than_cpus_are_refused_and_the_peer_has_the_largest_mtu() -> None:
    text = PLAN.replace(
        "{net.path: [tap, vhost, macvtap, rtl8139, user, sriov]}", "{net.path: [vhost], net.queues: [1, 4]}"
    )
    plan = parse(text + "guest: {vcpus: 2, memory: 512MiB}\n", "x")
    assert plan.treatments()[1][0].endswith(": net.queues=4 takes 4 CPUs, and guest.vcpus is 2")
    plan = parse(
        PLAN.replace("{net.path: [tap, vhost, macvtap, rtl8139, user, sriov]}", "{net.mtu: [1500, 9000]}"), "x"
    )
    assert lacking(host(), plan) == {}
    assert net_paths.largest_mtu(plan.treatments()[0]) == 9000


def test_of_guests_at_once_every_other_one_has_a_function_and_an_address_of_its_own(monkeypatch: Any) -> None:
    monkeypatch.setattr("vmtax.testbed.parts.network.peer_behind_card", lambda machine: "peer")
    text = PLAN.replace("[tap, vhost, macvtap, rtl8139, user, sriov]", "[sriov+vhost], guest.count: [1, 4]")
    plan = parse(text + "guest: {vcpus: 1, memory: 512MiB}\n", "x")
    (four,) = (each for each in plan.treatments()[0] if each.repeats is None)
    assert [settings_of(four, number).path for number in (1, 2, 3, 4)] == [Path.SRIOV, Path.VHOST] * 2
    assert len({net_paths.mac_of(path, number) for path in (Path.SRIOV, Path.VHOST) for number in (1, 2)}) == 4
    assert plan.treatments()[1] == [
        "vm: net.path=sriov+vhost takes 2 guests at once or more, and guest.count is 1",
    ]
    assert lacking(host(), plan, [four]) == {}
    few = lacking(host(cards="eth2 3 0 1 1 0\n"), plan, [four])
    assert few[four.name].endswith("4 virtual functions are wanted at once, and a card here has 3 at most")


def test_a_card_is_announced_and_modules_are_loaded_only_for_what_is_measured() -> None:
    plan = parse(PLAN, "x")
    every = plan.treatments()[0]
    without = [each for each in every if settings_of(each).path in (Path.TAP, Path.RTL8139, Path.USER)]
    (taken,) = NetworkPart().announced(Request(host(), plan, every))
    assert taken.startswith("the network card eth2: a virtual function for each guest")
    _, module = NetworkPart().announced(Request(host(loaded=Reply(code=1)), plan, every))
    assert module == "the kernel module vhost_net, which stays loaded until the host reboots"
    assert NetworkPart().announced(Request(FakeMachine("host", {}), plan, without)) == []
    machine = FakeMachine("host", {net_paths.LOAD_VHOST: ""})
    net_paths.load(machine, without)
    assert machine.unused() != []
    net_paths.load(machine, every)
    assert machine.unused() == []
