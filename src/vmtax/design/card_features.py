"""Features of a guest's network card besides carrying packets, as far as they are documented. Pure.

Sources: QEMU's docs/devel/migration/vfio.rst (a VFIO device can only be migrated if its kernel driver can save it;
otherwise it blocks the migration) and docs/system/virtio-net-failover.rst. The kernel's
Documentation/PCI/pci-iov-howto.rst: each virtual function has its own register set, on which its driver works as on
that of any card. The kernel's Documentation/networking/bridge.rst: a bridge is a single device, to which the ports of
all guests belong. libslirp's src/state.c saves only the sockets of guestfwd. libvirt's formatdomain, "Direct attachment
to physical interface".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vmtax.design.features import DOCUMENTED, Feature, State
from vmtax.design.net import Path

MIGRATABLE, ISOLATION = "migratable", "isolation"
Answer = tuple[State, str]  # with the reason


@dataclass(frozen=True, slots=True)
class Documented:
    """What is documented for the guests on one path."""

    migratable: Answer
    isolation: Answer

    @property
    def is_carried(self) -> bool:
        """Whether the host's CPU carries the packets."""
        return self.isolation[0] == "no"

    @property
    def features(self) -> tuple[Feature, Feature]:
        """Both features, as documented."""
        (sent, how), (alone, why) = self.migratable, self.isolation
        return Feature(MIGRATABLE, sent, DOCUMENTED, how), Feature(ISOLATION, alone, DOCUMENTED, why)


_SENT: Answer = ("yes", "QEMU emulates the card, and migrates its state")
_STAYS: Answer = (
    "no",
    "QEMU refuses to migrate a guest with a virtual function whose state the host's driver cannot save",
)
_FALLS_BACK: Answer = (
    "yes",
    "QEMU takes the function from the guest, whose virtio card of the same address goes along and carries the packets",
)
_ENDS: Answer = ("no", "the guest's connections end in its QEMU, and are lost when another one goes on")
_SHARED: Answer = ("no", "a bridge of the host's kernel carries the packets of all guests")
_SOCKETS: Answer = ("no", "the host's own TCP carries its connections, beside those of all programs")
_PASSED: Answer = ("no", "the host's kernel passes the packets of all guests to one card")
_ALONE: Answer = ("yes", "a virtual function has a register set and queues of its own in the card")
# A path without an entry gives guests different cards: it is measured, and not recommended.
PATHS: Mapping[Path, Documented] = {
    Path.TAP: Documented(_SENT, _SHARED),
    Path.VHOST: Documented(_SENT, _SHARED),
    Path.MACVTAP: Documented(_SENT, _PASSED),
    Path.E1000E: Documented(_SENT, _SHARED),
    Path.RTL8139: Documented(_SENT, _SHARED),
    Path.USER: Documented(_ENDS, _SOCKETS),
    Path.SRIOV: Documented(_STAYS, _ALONE),
    Path.SRIOV_STANDBY: Documented(_FALLS_BACK, _ALONE),
}
