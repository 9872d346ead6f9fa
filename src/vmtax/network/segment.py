"""A bridge in a network namespace of its own; no address, route or firewall rule of the machine is changed.

             switch namespace
peer namespace --veth-- bridge --tap-- guest
end namespace  --veth-- bridge               (the host layer's own end)
                        bridge --uplink      (inside a guest that carries a nested one: its network card)
peer namespace --veth-- macvtap --- guest    (past the bridge, whose ports carry no macvtap)
"""

from __future__ import annotations

import itertools
from pathlib import PurePosixPath

from vmtax.machine import Machine

# In private namespaces, so they cannot collide with other addresses.
PEER_ADDRESS = "10.77.0.1"
END_ADDRESS = "10.77.0.2"  # not a guest's address: the peer would send to the card that had the address last
FAR_ADDRESS = "10.77.0.254"  # of the end on a second host
MOST_GUESTS = 250
PREFIX_LENGTH = 24
SUBNET = f"10.77.0.0/{PREFIX_LENGTH}"
DIRECT_SUBNET = "10.77.1.0/24"
BOTH_LENGTH = 16  # length of the prefix that both parts share
ETHERNET_MTU = 1500  # bytes
BRIDGE = "br0"
NO_MAC = "00:00:00:00:00:00"
DIRECT = "direct"  # name of both ends of the veth that carries macvtaps
# A macvtap's device is named after its index in its own namespace, and the kernel makes it in the machine's /dev: start
# where no macvtap of the machine itself would be.
FIRST_INDEX = 1_077_000
# Prints the device number of a macvtap, as 241:1. Constant text.
NUMBERS = ("sh", "-c", 'cat "/sys/class/net/$1/"macvtap/tap*/dev', "sh")
# Delete it if it exists: it is registered for undo before it is created. Constant text, the name stays an argument.
DELETE_NAMESPACE = ("sh", "-c", '! test -e "/run/netns/$1" || exec ip netns delete "$1"', "sh")

# Give a network card back to our namespace, down. Constant text, the names stay arguments. The addresses that it
# accepted for guests are removed first: a card that cannot filter by address receives all packets because of them, and
# would continue.
GIVE_BACK = (
    *("sh", "-c"),
    'ip -n "$1" link show dev "$2" > /dev/null 2>&1 || exit 0;'
    ' bridge -n "$1" fdb show dev "$2" | while read -r mac rest; do case "$mac" in 52:54:00:76:*)'
    ' bridge -n "$1" fdb del "$mac" dev "$2" self 2> /dev/null; esac; done;'
    ' ip -n "$1" link set dev "$2" nomaster down promisc off && ip -n "$1" link set dev "$2" netns $$',
    "sh",
)


def guest_address(number: int, *, direct: bool = False) -> str:
    """The address of the guest of that number, from 1, among those that are on the segment at once.

    `direct`: of a guest with a macvtap; the address tells the peer that the guest is not behind the bridge
    """
    if not 1 <= number <= MOST_GUESTS:
        raise ValueError(f"guest {number} of a segment for {MOST_GUESTS}")
    return f"10.77.{int(direct)}.{2 + number}"


def bring_back(machine: Machine, namespace: str, card: str) -> None:
    """Let the guard move a card from one of the machine's namespaces back to ours; it will be up if it is up now."""
    if machine.run("ip", "-o", "link", "show", "dev", card, "up").strip():
        machine.undo_later("ip", "link", "set", "dev", card, "up")
    machine.undo_later(*GIVE_BACK, namespace, card)


class Segment:
    """One private Ethernet segment on one machine. Needs root there; the guard removes it."""

    def __init__(self, machine: Machine, token: str, within: str | None = None) -> None:
        """`token`: a few letters that make the names ours; interface names have 15 characters at most.

        `within`: token of an existing segment of the machine that this one is a part of, and ends with
        """
        self._machine = machine
        self._token = token
        self.switch = f"vmtax-{within or token}"
        self._taps = itertools.count(1)
        self._devices = PurePosixPath("/dev", self.switch)  # other file systems may not allow devices
        self._uplink: str | None = None  # a network card of the machine
        if within is not None:
            return
        self._namespace(self.switch)
        self._in_switch(f"link add {BRIDGE} type bridge", f"link set {BRIDGE} up")

    def _namespace(self, name: str) -> None:
        self._machine.undo_later(*DELETE_NAMESPACE, name)
        self._machine.run("ip", "netns", "add", name)

    def _in_switch(self, *commands: str) -> None:
        """Run several `ip` commands at once: over an emulated ssh each would cost a sixth of a second."""
        self._machine.run("ip", "-n", self.switch, "-batch", "-", input="\n".join(commands) + "\n")

    def add_end(self, name: str, address: str, mac: str | None = None, mtu: int = ETHERNET_MTU) -> str:
        """Make a namespace with one veth on the bridge; returns the namespace's name, for `ip netns exec`.

        `mac`: of the veth there; None: any
        `mtu`: of both of its ends, in bytes
        """
        namespace = f"{self.switch}-{name}"
        self._namespace(namespace)
        self._in_switch(
            f"link add {name} mtu {mtu} type veth peer name eth0 mtu {mtu} netns {namespace}",
            f"link set {name} master {BRIDGE} up",
        )
        commands = [f"link set eth0 address {mac}"] if mac is not None else []
        commands += ["link set lo up", f"address add {address}/{PREFIX_LENGTH} dev eth0", "link set eth0 up"]
        self._machine.run("ip", "-n", namespace, "-batch", "-", input="\n".join(commands) + "\n")
        return namespace

    def tap_name(self) -> str:
        """A new name for a tap that QEMU makes itself; it vanishes with its QEMU, and needs no undoing."""
        return f"vt{self._token}{next(self._taps)}"

    def add_direct(self, peer: str) -> None:
        """Add a veth to the peer's namespace, with the peer's address there, on which macvtaps are made."""
        self._machine.remove_later(self._devices)
        self._machine.run("mkdir", "-m", "700", str(self._devices))
        self._in_switch(f"link add {DIRECT} type veth peer name {DIRECT} netns {peer}", f"link set {DIRECT} up")
        commands = (
            f"address add {PEER_ADDRESS}/32 dev {DIRECT}",
            f"link set {DIRECT} up",
            f"route add {DIRECT_SUBNET} dev {DIRECT} src {PEER_ADDRESS}",
        )
        self._machine.run("ip", "-n", peer, "-batch", "-", input="\n".join(commands) + "\n")

    def make_macvtap(self, mac: str) -> tuple[str, str]:
        """Make a macvtap: (its name, the file that QEMU opens); `remove_macvtap` removes both."""
        number = next(self._taps)
        name, path = f"vt{self._token}{number}", str(self._devices / str(number))
        made = f"link add link {DIRECT} name {name} index {FIRST_INDEX + number} address {mac} type macvtap mode bridge"
        self._in_switch(made, f"link set {name} up")
        numbers = self._machine.run("ip", "netns", "exec", self.switch, *NUMBERS, name).strip().split(":")
        self._machine.run("mknod", "-m", "600", path, "c", *numbers)
        return name, path

    def remove_macvtap(self, name: str, path: str) -> None:
        """Remove it once its guest has ended: another one may have the same MAC."""
        self._machine.run("rm", "-f", path)
        self._in_switch(f"link delete {name}")

    def add_port(self, card: str) -> None:
        """Put a network card of the machine on the bridge; it is moved back before our namespace is deleted."""
        bring_back(self._machine, self.switch, card)
        self.attach(card)

    def add_uplink(self, card: str) -> None:
        """Like `add_port`, for a card with its own address table: see `admit`."""
        self.add_port(card)
        self._uplink = card
        # A card with functions may return our own broadcasts, from which the bridge must not learn addresses.
        self._machine.run("bridge", "-n", self.switch, "link", "set", "dev", card, "learning", "off")

    def admit(self, mac: str, port: str) -> None:
        """Let the uplink receive packets for this MAC, which is behind a port of the bridge.

        A card with functions sorts incoming packets by its own address table.
        """
        if self._uplink is not None:
            commands = f"fdb replace {mac} dev {self._uplink} self\nfdb replace {mac} dev {port} master static\n"
            self._machine.run("bridge", "-n", self.switch, "-batch", "-", input=commands)

    def leave_outside(self, mac: str) -> None:
        """Let the bridge send packets for this MAC to the uplink only.

        The MAC belongs to a function of that card, or to a guest of another host. Without this, the packets would go to
        all ports, and those that arrive by the uplink also to a tap of the same guest.
        """
        if self._uplink is not None:
            words = ("replace", mac, "dev", self._uplink, "master", "static")
            self._machine.run("bridge", "-n", self.switch, "fdb", *words)

    def dismiss(self, mac: str) -> None:
        """Let the uplink's own port no longer receive packets for this MAC: a function of the card does."""
        if self._uplink is not None:
            self._machine.try_run("bridge", "-n", self.switch, "fdb", "del", mac, "dev", self._uplink, "self")

    def set_function(self, number: int, mac: str) -> None:
        """Set the MAC of a function of the uplink, numbered from 0; NO_MAC: none."""
        assert self._uplink is not None
        self._machine.run("ip", "-n", self.switch, "link", "set", "dev", self._uplink, "vf", str(number), "mac", mac)

    def attach(self, interface: str, mtu: int | None = None) -> None:
        """Put a tap of QEMU's, or a guest's own network card, on the bridge. `mtu`: in bytes; None: unchanged."""
        self._machine.run("ip", "link", "set", "dev", interface, "netns", self.switch)
        size = "" if mtu is None else f" mtu {mtu}"
        self._in_switch(f"link set {interface} master {BRIDGE}{size} up")
