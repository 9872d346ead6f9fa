"""UDP, several streams, round trips and SMB copies between host, VM and their peer, and the cards of a VM. A sleeper is
woken in the same run, to boot its guests once.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.conftest import measured, vmtax
from vmtax.image.cache import Image
from vmtax.machine.local import LocalMachine
from vmtax.testbed.parts.network import HAS_MACVTAP

PLAN = """\
name: network-tiny
layers: [host, vm]
guest: {vcpus: 1, memory: 512MiB}
workloads:
  - net: {cases: [tcp-in, udp-in, udp-out], rate: 2, streams: 3, seconds: 1}
  - latency: {cases: [tcp-rr, udp-rr-16], seconds: 2}
  - smb: {size: 16MiB}
  - wakeup: {seconds: 2}
  - cpuid: {seconds: 1}
primary: [net.tcp-in.local_seconds_per_byte]
rounds: {min: 1, max: 1}
"""


def test_udp_streams_round_trips_copies_and_wake_ups_are_measured_on_host_and_vm(image: Image, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN)
    data = measured(str(plan), directory=tmp_path)
    have = {(row["treatment"], row["metric"]): row["value"] for row in data["measurements"]}
    for layer in ("host", "vm"):
        for way in ("in", "out"):
            assert 0 <= have[layer, f"net.udp-{way}.lost"] < 0.5
            assert have[layer, f"net.udp-{way}.bits_per_second"] < 2.1e6
        assert have[layer, "net.tcp-in.local_seconds_per_byte"] > 0
        for case in ("tcp-rr", "udp-rr-16"):
            assert 0 < have[layer, f"latency.{case}.p50_seconds"] < 1
    assert have["vm", "smb.in.bytes_per_second"] > 0 and have["vm", "smb.out.bytes_per_second"] > 0
    assert have["vm", "latency.tcp-rr.per_second"] < have["host", "latency.tcp-rr.per_second"]
    assert {
        ("host", "wakeup.p99_seconds"),
        ("vm", "wakeup.p50_seconds"),
        ("vm", "cpuid.instruction_seconds"),
    } <= have.keys()


CARDS = """\
name: cards-tiny
layers: [vm]
guest: {vcpus: 1, memory: 512MiB}
factors: {net.path: [e1000e, rtl8139, user], net.interrupt_delay: [4ms]}
workloads: [{net: {cases: [tcp-out], seconds: 1}}]
rounds: {min: 1, max: 1}
"""


OPTIONS = """\
name: card-options-tiny
layers: [vm]
guest: {vcpus: 1, memory: 512MiB}
factors: {net.mtu: [1500, 9000], net.offloads: [on, off]}
design: one-at-a-time
workloads: [{net: {cases: [tcp-in], rate: 4, seconds: 1}}]
rounds: {min: 1, max: 1}
"""


@pytest.mark.machines
def test_a_guest_has_its_card_without_offloads_and_with_large_packets(image: Image, tmp_path: Path) -> None:
    """A card that still offers what is to be off fails its guest, so measurements prove it."""
    plan = tmp_path / "plan.yaml"
    plan.write_text(OPTIONS)
    data = measured(str(plan), directory=tmp_path)
    have = {row["treatment"] for row in data["measurements"]}
    assert {"vm", "vm net.mtu=9000", "vm net.offloads=off"} <= have


@pytest.mark.machines
def test_a_guest_has_the_card_that_is_asked_for_and_what_cannot_be_here_is_refused(
    image: Image, tmp_path: Path
) -> None:
    """A guest whose card has another driver or delay fails, so measurements prove both. Only a lab has sriov's peer."""
    plan = tmp_path / "plan.yaml"
    plan.write_text(CARDS.replace("user]", "user, sriov]"))
    done = vmtax("run", str(plan), "--yes", "--emulate", directory=tmp_path)
    assert done.returncode == 2 and "net.path=sriov takes a " in done.stderr.splitlines()[-1]
    macvtap = LocalMachine("host").succeeds(*HAS_MACVTAP)
    plan.write_text(CARDS.replace("user]", "user, macvtap]") if macvtap else CARDS)
    data = measured(str(plan), directory=tmp_path)
    have = {row["treatment"] for row in data["measurements"]}
    usual = {"vm", "vm again", "vm net.path=rtl8139", "vm net.path=user"}
    assert have == usual | ({"vm net.path=macvtap"} if macvtap else set())
