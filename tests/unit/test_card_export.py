"""A network card as QEMU, libvirt, Proxmox and a shell take it, as text; the schema is asked in tests/integration."""

from __future__ import annotations

import shlex
from xml.etree import ElementTree as Xml

import pytest

from vmtax.design.settings import UnknownLevel
from vmtax.recommend import CardExport, export_card, lines

MAC = "52:54:00:00:00:01"


def card(**factors: str) -> CardExport:
    return export_card({f"net.{name}": level for name, level in factors.items()})


def interface(found: CardExport) -> Xml.Element:
    (element,) = Xml.fromstring(found.libvirt)
    assert element.tag == "interface"
    return element


def attributes(found: CardExport, path: str) -> dict[str, str]:
    element = interface(found).find(path)
    assert element is not None, found.libvirt
    return element.attrib


@pytest.mark.parametrize(
    ("path", "netdev", "device"),
    [
        ("tap", "", "virtio-net-pci"),
        ("vhost", ",vhost=on", "virtio-net-pci"),
        ("e1000e", "", "e1000e"),
        ("rtl8139", "", "rtl8139"),
    ],
)
def test_a_card_on_a_tap_is_what_qemu_boots(path: str, netdev: str, device: str) -> None:
    found = card(path=path)
    assert found.qemu == (
        *("-netdev", f"tap,id=network,ifname=vm1,script=no,downscript=no{netdev}"),
        *("-device", f"{device},netdev=network,romfile=,mac={MAC}"),
    )
    assert found.host == (
        ("ip", "tuntap", "add", "dev", "vm1", "mode", "tap"),
        ("ip", "link", "set", "dev", "vm1", "master", "BRIDGE", "up"),
    )
    assert attributes(found, "source") == {"bridge": "BRIDGE"} and attributes(found, "mac") == {"address": MAC}
    assert attributes(found, "model") == {"type": "virtio" if device == "virtio-net-pci" else device}


def test_who_carries_the_packets_is_written_down() -> None:
    assert attributes(card(path="tap"), "driver") == {"name": "qemu"}
    assert attributes(card(path="vhost"), "driver") == {"name": "vhost"}
    assert interface(card(path="e1000e")).find("driver") is None
    (note,) = card(path="tap").proxmox_notes
    assert card(path="tap").proxmox == () and "gives every virtio card vhost" in note and "--args" in note
    assert card(path="vhost").proxmox == (("qm", "set", "VMID", "--net0", f"virtio={MAC},bridge=BRIDGE"),)


def test_a_virtual_function_is_made_and_given() -> None:
    found = card(path="sriov")
    assert found.qemu == ("-device", "vfio-pci,host=0000:01:10.0")
    assert interface(found).attrib == {"type": "hostdev", "managed": "yes"}
    assert attributes(found, "source/address") == {
        **{"type": "pci", "domain": "0x0000", "bus": "0x01", "slot": "0x10", "function": "0x0"}
    }
    assert found.proxmox == (("qm", "set", "VMID", "--machine", "q35", "--hostpci0", "0000:01:10.0,pcie=1"),)
    commands = [shlex.join(argv) for argv in found.host]
    assert commands.index("sh -c 'echo 1 > /sys/class/net/CARD/device/sriov_numvfs'") < commands.index(
        f"ip link set dev CARD vf 0 mac {MAC}"
    )
    assert "0000:01:10.0" in found.put_in and MAC in found.put_in


def test_a_function_and_the_card_that_stands_by_for_it_are_a_pair_in_every_form_that_has_pairs() -> None:
    found = card(path="sriov-standby")
    assert found.qemu == (
        *("-netdev", "tap,id=network,ifname=vm1,script=no,downscript=no,vhost=on"),
        *("-device", "pcie-root-port,id=network-port,chassis=1,slot=1"),
        *("-device", f"virtio-net-pci,netdev=network,romfile=,mac={MAC},id=network-standby,failover=on"),
        "-device",
        "vfio-pci,host=0000:01:10.0,id=network-primary,bus=network-port,failover_pair_id=network-standby",
    )
    standby, primary = Xml.fromstring(found.libvirt)
    (alias,) = (each.attrib for each in standby.findall("alias"))
    (there,), (gone,) = ([each.attrib for each in one.findall("teaming")] for one in (standby, primary))
    assert there == {"type": "persistent"} and gone == {"type": "transient", "persistent": alias["name"]}
    assert [one.attrib["type"] for one in (standby, primary)] == ["bridge", "hostdev"]
    assert {one.findall("mac")[0].attrib["address"] for one in (standby, primary)} == {MAC}, "or they are no pair"
    commands = [shlex.join(argv) for argv in found.host]
    assert commands[-1] == f"bridge fdb replace {MAC} dev CARD master static"
    assert {*card(path="sriov").host, *card(path="vhost").host} < {*found.host}
    assert found.proxmox == () and "--args" in found.proxmox_notes[0] and "q35" in found.qemu_notes[0]


def test_a_network_that_qemu_plays_takes_nothing_of_the_host() -> None:
    found = card(path="user")
    assert found.qemu == (
        *("-netdev", "user,id=network,net=10.0.2.0/24,host=10.0.2.2"),
        *("-device", f"virtio-net-pci,netdev=network,romfile=,mac={MAC}"),
    ), "and the guest reaches the network by it"
    assert found.host == () and "nothing to set up" in found.host_notes[0] and "vm1" not in found.put_in
    assert interface(found).attrib == {"type": "user"} and interface(found).find("source") is None
    assert found.proxmox == (("qm", "set", "VMID", "--net0", f"virtio={MAC}"),) and found.proxmox_notes == ()


def test_a_macvtap_is_made_on_the_hosts_card_and_handed_over_open() -> None:
    found = card(path="macvtap")
    assert found.qemu[:2] == ("-netdev", "tap,id=network,fd=3,vhost=on") and "3<>/dev/tapN" in found.qemu_notes[0]
    assert shlex.join(found.host[0]) == "ip link add link CARD name vm1 type macvtap mode bridge"
    assert interface(found).attrib == {"type": "direct"} and attributes(found, "driver") == {"name": "vhost"}
    assert attributes(found, "source") == {"dev": "CARD", "mode": "bridge"}
    assert found.proxmox == () and "has no macvtap" in found.proxmox_notes[0]


def test_queues_mtu_and_offloads_are_in_every_form_or_in_its_notes() -> None:
    found = card(path="vhost", queues="4", mtu="9000", offloads="off")
    assert "queues=4" in found.qemu[1] and "mq=on" in found.qemu[3] and "guest_tso4=off" in found.qemu[3]
    assert "multi_queue" in found.host[0] and found.host[1][5:7] == ("mtu", "9000")
    assert attributes(found, "driver") == {"name": "vhost", "queues": "4"}
    assert attributes(found, "mtu") == {"size": "9000"}
    off = dict.fromkeys(("csum", "tso4", "tso6", "ecn", "ufo"), "off")
    assert attributes(found, "driver/guest") == off and attributes(found, "driver/host") == {**off, "gso": "off"}
    assert found.proxmox[0][-1] == f"virtio={MAC},bridge=BRIDGE,queues=4,mtu=9000"
    assert "cannot set net.offloads=off" in " ".join(found.proxmox_notes)
    assert "ip link set dev NAME mtu 9000" in " ".join(found.qemu_notes)
    played = card(path="e1000e", mtu="9000")
    assert "cannot set net.mtu=9000" in " ".join(played.proxmox_notes) and played.libvirt_notes == played.qemu_notes


def test_a_delay_of_interrupts_is_set_in_the_guest() -> None:
    for path in ("sriov", "e1000e"):
        found = card(path=path, interrupt_delay="4ms")
        for notes in (found.qemu_notes, found.libvirt_notes, found.proxmox_notes):
            assert "the guest sets" in notes[-1] and "`ethtool -C NAME rx-usecs 4000`" in notes[-1]
            assert "waits for up to 4 ms" in notes[-1] and "1500 bytes at 768 Mbit/s" in notes[-1], "what it gives up"
    assert card(path="vhost", interrupt_delay="4ms") == card(path="vhost")


def test_what_means_nothing_beside_a_path_is_not_written() -> None:
    assert card(path="sriov", queues="4", mtu="9000", offloads="off") == card(path="sriov")
    assert card(path="tap", queues="4") == card(path="tap")


def test_the_forms_fit_a_terminal() -> None:
    for path in ("tap", "vhost", "macvtap", "e1000e", "rtl8139", "user", "sriov", "sriov-standby"):
        text = lines(card(path=path, mtu="9000", offloads="off"), 80)
        longer = [line for line in text if len(line) > 80 and "<" not in line]
        assert [line for line in longer if "_tso4=off" not in line and "failover" not in line] == []


def test_a_level_of_another_version_is_refused() -> None:
    with pytest.raises(UnknownLevel, match=r"net\.path=pigeon is none of its levels"):
        card(path="pigeon")
