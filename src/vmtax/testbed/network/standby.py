"""Two cards of a guest under one name: a virtual function, and a virtio card that takes over when the function is gone.

The guest's net_failover driver makes a third card, which has the address: packets go by the function while it exists
and has a link. Checking for the driver is therefore not enough: packets are counted, in the guest and at the tap of the
virtio card, to learn which card carried them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import TypedDict

from vmtax.core.machines import first_line
from vmtax.design.net import VIRTIO
from vmtax.hypervisor import BootFailed, Guest, GuestSpec, Nic, Passed, Tap
from vmtax.machine import Machine, MachineLost, Reader
from vmtax.machine.answer import json_or_none
from vmtax.meter import At, MeteredCommand, Readings
from vmtax.network import PEER_ADDRESS, Segment
from vmtax.network.segment import NO_MAC
from vmtax.network.sriov import LOAD_DRIVERS
from vmtax.testbed.session.base import Handover

# Run in a guest: prints the card with this MAC that has other cards under it, then a line for each of these: name,
# driver, link, packets received and sent. While a card is down, these cannot be read. Constant text.
LOWER = (
    *("sh", "-c"),
    'for card in /sys/class/net/*; do read -r mac < "$card/address" && test "$mac" = "$1" || continue;'
    ' set -- "$1" "$card"/lower_*; test -e "$2" || continue; echo "${card##*/}"; shift;'
    ' for lower; do read -r link 2> /dev/null < "$lower/carrier" || link=0;'
    ' read -r in < "$lower/statistics/rx_packets"; read -r out < "$lower/statistics/tx_packets";'
    ' echo "${lower##*/lower_} $(basename "$(readlink -f "$lower/device/driver")") $link $in $out"; done; exit; done',
    "sh",
)
# QEMU plugs the function in once the guest's virtio driver is ready; then the guest must find it and load its driver.
FIND_SECONDS = 60.0
PINGS = 3
PING = ("busybox", "ping", "-c", str(PINGS), "-w", "20", PEER_ADDRESS)
# Most packets of a trial that may go by the other card, as a share and in any case: broadcasts come to both cards.
MOST_BESIDE, FEW_BESIDE = 0.01, 20


@dataclass(frozen=True, slots=True)
class Lower:
    """One of the two cards."""

    name: str
    driver: str
    has_link: bool
    received: int  # packets since the card appeared
    sent: int


_LOWER = re.compile(r"(\S+) (\S+) (\S+) (\d{1,19}) (\d{1,19})", re.ASCII)


class _Packets(TypedDict):
    packets: int


class _Ways(TypedDict):
    rx: _Packets
    tx: _Packets


class _Link(TypedDict):
    stats64: _Ways


@dataclass(frozen=True, slots=True)
class CardPair:
    """The cards that a guest has under one name."""

    name: str
    primary: Lower | None  # None: it has no function now
    standby: Lower | None


def parse(text: str) -> CardPair | None:
    """Parse the output of LOWER; None if the guest has no such card, or the output was not understood. Pure."""
    name, _, rest = text.partition("\n")
    found: dict[bool, Lower] = {}
    for row in rest.splitlines():
        match = _LOWER.fullmatch(row)
        if match is None:
            return None
        lower, driver, link, received, sent = match.groups()
        found[driver == VIRTIO] = Lower(lower, driver, link == "1", int(received), int(sent))
    return CardPair(name, found.get(False), found.get(True)) if name else None


def find(guest: Guest, mac: str) -> str:
    """Bring up the guest's card, wait until its function has a link, and return the card's name. Raises BootFailed with
    what is missing.
    """
    deadline = time.monotonic() + FIND_SECONDS
    while True:
        guest.machine.run(*LOAD_DRIVERS)
        pair = parse(guest.machine.run(*LOWER, mac))
        if pair is not None:
            guest.machine.run("ip", "link", "set", "dev", pair.name, "up")
            if pair.primary is not None and pair.primary.has_link:
                return pair.name
        if time.monotonic() > deadline:
            raise BootFailed(_missing(guest, pair, mac))
        time.sleep(1.0)


def _missing(guest: Guest, pair: CardPair | None, mac: str) -> str:
    if pair is None:
        why = f"the guest has no card with the address {mac} that has others under it (net_failover)"
    elif pair.primary is None:
        why = (
            f"no virtual function came under the guest's card {pair.name} (QEMU did not plug it in, or the guest has no"
            " driver for it), so the virtio card carries its packets"
        )
    else:
        why = f"the virtual function {pair.primary.name} of the guest has no link"
    return _not_obtained(guest, why)


def _not_obtained(guest: Guest, why: str) -> str:
    return f"{guest.path}: net.path=sriov-standby was not obtained: {why}"


@dataclass(frozen=True, slots=True)
class PacketCounts:
    """Packets since the cards appeared."""

    received: int  # by the function
    sent: int
    to_standby: int  # that the bridge sent to the tap
    from_standby: int

    def since(self, before: PacketCounts) -> PacketCounts:
        """The packets since `before`."""
        return PacketCounts(
            self.received - before.received,
            self.sent - before.sent,
            self.to_standby - before.to_standby,
            self.from_standby - before.from_standby,
        )

    @property
    def by_function(self) -> int:
        return self.received + self.sent

    @property
    def by_standby(self) -> int:
        return self.to_standby + self.from_standby

    @property
    def why_void(self) -> str:
        """Why the trial does not measure the function; "" if it does."""
        if self.by_standby <= FEW_BESIDE + MOST_BESIDE * self.by_function:
            return ""
        return (
            f"net.path=sriov-standby was not kept: the virtio card carried {self.by_standby} packets, and the virtual"
            f" function {self.by_function}"
        )


@dataclass(frozen=True, slots=True)
class Tapped:
    """Where the packets of one guest are counted."""

    host: Machine
    switch: str  # the namespace of the bridge
    tap: str
    mac: str

    @classmethod
    def of(cls, guest: Guest, host: Machine, segment: Segment) -> Tapped | None:
        """None if the guest has no stand-by card."""
        for card in guest.spec.cards:
            if isinstance(card, Nic) and card.stands_by and isinstance(card.behind, Tap):
                return cls(host, segment.switch, card.behind.interface, card.mac)
        return None

    def count(self, guest: Reader) -> PacketCounts | None:
        """None if the packets cannot be counted, or there is no function."""
        pair = parse(guest.try_run(*LOWER, self.mac).stdout)
        there = self.host.try_run("ip", "-n", self.switch, "-s", "-j", "link", "show", "dev", self.tap)
        if pair is None or pair.primary is None:
            return None
        links = json_or_none(there.stdout, list[_Link])
        if not links:
            return None
        counted = links[0]["stats64"]  # the host's tap receives what the guest sends
        received, sent = counted["rx"]["packets"], counted["tx"]["packets"]
        return PacketCounts(pair.primary.received, pair.primary.sent, to_standby=sent, from_standby=received)


def prove(guest: Guest, tapped: Tapped) -> None:
    """Verify that packets to the peer and back go by the function; the guest has its address. Raises BootFailed."""
    before, ping = tapped.count(guest.machine), guest.machine.try_run(*PING, timeout=60)
    after = tapped.count(guest.machine)
    if not ping.ok:
        raise BootFailed(_not_obtained(guest, f"the peer does not answer: {first_line(ping.stderr or ping.stdout)}"))
    if before is None or after is None:
        raise BootFailed(_not_obtained(guest, "the packets of its two cards cannot be counted"))
    seen = after.since(before)
    if min(seen.received, seen.sent) < PINGS or max(seen.to_standby, seen.from_standby) >= PINGS:
        why = f"of {PINGS} pings the virtual function carried {seen.by_function} packets"
        raise BootFailed(_not_obtained(guest, f"{why}, and the virtio card {seen.by_standby}"))


@dataclass(frozen=True, slots=True)
class Outlet:
    """How one host carries a guest's packets."""

    host: Machine
    segment: Segment
    function: str | None  # PCI address of the function that the guest gets there; None: it gets none


class AddressMove(Handover):
    """Moves a guest's MAC address between virtual functions and taps on bridges, of one host or of two.

    An uplink's card delivers packets by its address table, so each move must change that table. A guest with a function
    gives it up before the migration and gets one afterwards. On one host it is the same function: by then the source's
    QEMU, which held it, has ended.
    """

    def __init__(self, guest: Guest, mac: str, number: int, source: Outlet, destination: Outlet) -> None:
        """`number`: of the guest's function in its card, from 0; `destination`: equal to `source` on the same host."""
        self._mac, self._number, self._tap = mac, number, _tap(guest.spec)
        self._source, self._destination = source, destination
        self._has_fallen_back = False

    def fell_back(self) -> None:
        if self._source.function is None:
            return
        self._has_fallen_back = True
        self._source.segment.set_function(self._number, NO_MAC)
        if self._destination != self._source:  # that host may still have the address from the guest that moved before
            self._destination.segment.set_function(self._number, NO_MAC)
        self._source.segment.admit(self._mac, self._tap)

    def arrived(self, destination: Guest) -> None:
        if self._destination != self._source:
            self._source.segment.dismiss(self._mac)
            self._source.segment.leave_outside(self._mac)
        self._destination.segment.admit(self._mac, _tap(destination.spec))

    def regain(self, guest: Guest) -> None:
        if self._destination.function is None:
            return
        self._destination.segment.set_function(self._number, self._mac)
        guest.plug(Passed(self._destination.function))
        self._settle(guest, self._destination)

    def stayed(self, guest: Guest) -> None:
        # If a guest did not move, QEMU itself gives the function back to it.
        if self._has_fallen_back:
            self._source.segment.set_function(self._number, self._mac)
            self._settle(guest, self._source)

    def _settle(self, guest: Guest, outlet: Outlet) -> None:
        """Until the guest's driver uses the function, both cards deliver its packets, so that none is lost."""
        find(guest, self._mac)
        outlet.segment.dismiss(self._mac)
        outlet.segment.leave_outside(self._mac)
        self._has_fallen_back = False
        tapped = Tapped.of(guest, outlet.host, outlet.segment)
        assert tapped is not None
        prove(guest, tapped)


def _tap(spec: GuestSpec) -> str:
    (interface,) = (
        card.behind.interface for card in spec.cards if isinstance(card, Nic) and isinstance(card.behind, Tap)
    )
    return interface


class Carriers:
    """A meter of the given guests: which of its two cards carried a guest's packets during a trial.

    A trial whose packets the function did not carry is void.
    """

    name: ClassVar[str] = "net"
    at: ClassVar[At] = "seat"
    command: ClassVar[tuple[str, ...]] = LOWER

    def __init__(self, guests: Iterable[tuple[str, Tapped]]) -> None:
        """`guests`: the path of each, and where its packets are counted."""
        self._guests = dict(guests)
        self._before: dict[str, PacketCounts | None] = {}

    def before(self, machine: Reader) -> None:
        if machine.path in self._guests:
            self._before[machine.path] = self._guests[machine.path].count(machine)

    def after(self, machine: Reader, works: Sequence[MeteredCommand]) -> Readings:
        """Packets by the function, and by the stand-by card, each in both directions together."""
        if machine.path not in self._guests or not all(work.ok for work in works):
            return Readings()
        try:
            before, after = self._before[machine.path], self._guests[machine.path].count(machine)
        except MachineLost:
            return Readings()  # whoever uses the guest next gets the error
        if before is None or after is None:
            return Readings(void="net.path=sriov-standby was not kept: the guest's virtual function is gone")
        seen = after.since(before)
        rows = {"function_packets": float(seen.by_function), "standby_packets": float(seen.by_standby)}
        return Readings(rows, void=seen.why_void)
