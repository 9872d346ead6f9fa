"""A host on which everything is set up that lasts for the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from vmtax.core.records import Json
from vmtax.hypervisor.confine import enter_tree
from vmtax.image.packs import Pack
from vmtax.machine import Process
from vmtax.network import PEER_ADDRESS
from vmtax.plan.guests import guests_at_once
from vmtax.storage import (
    FirstWrite,
)
from vmtax.testbed.host.carrier import CarrierDisk
from vmtax.testbed.host.cpus import ONE, Sets
from vmtax.testbed.host.disks import Disks
from vmtax.testbed.network.networks import Network
from vmtax.testbed.session.examine import Examined
from vmtax.testbed.storage.cutting import Checking
from vmtax.testbed.storage.databases import DatabasePack
from vmtax.workload import Command, Link
from vmtax.workload.net import PORT
from vmtax.workload.site import Access, PeerServer

# Starts a server that serves one test, then becomes the client. Constant text: the client's command line is in
# arguments.
WITH_SERVER = ("sh", "-c", 'iperf3 --server --one-off --daemon --bind 127.0.0.1 && exec "$@"', "sh")
# Seconds by which guests that are released together may start apart, because their programs start unevenly: without
# emulation, with emulated VMs, and for each guest on emulated KVM, where four guests started 4 s apart on an idle
# machine.
LEAD_SECONDS, EMULATED_LEAD_SECONDS, EMULATED_KVM_LEAD_SECONDS = 1, 3, 2.5


@dataclass(frozen=True, slots=True)
class KernelPack:
    """The kernel pack on one host."""

    pack: Pack
    file: str
    mount: str | None  # None if the host itself builds no kernel


@dataclass(frozen=True)
class Provisioned(Examined):
    """A host on which everything is set up that lasts for the run."""

    network: Network | None = None  # None if the network is not measured, or we are not root there
    kernel_pack: KernelPack | None = None  # None if no kernel is built
    database_pack: DatabasePack | None = None  # None if no database is written
    disks: Disks | None = None  # of host and VM; None if no disk is measured
    carrier_disks: tuple[CarrierDisk, ...] = ()  # of the outer VMs; empty if no disk of a nested guest is measured
    # Layer or kind of disk -> how it was written in full
    written: Mapping[str, FirstWrite] = field(default_factory=dict)
    features: Mapping[str, list[Json]] = field(default_factory=dict)  # treatment -> what its disk can do
    impossible: Mapping[str, str] = field(default_factory=dict)  # treatments that cannot be measured here -> why
    checking: Checking | None = None  # None if no guest is ended while it writes
    disks_directory: PurePosixPath | None = None  # of this run; None if no disk is measured
    existing: Provisioned | None = None
    link: Link | None = None  # for the whole run, of its own; None: those of `network`
    access: Access = field(default_factory=Access.random)  # to the servers of this run

    @property
    def pack_files(self) -> tuple[str, ...]:
        """Packs that every guest gets."""
        return tuple(pack.file for pack in (self.kernel_pack, self.database_pack) if pack is not None)

    @property
    def first_writes(self) -> dict[str, FirstWrite]:
        """Layer or kind of disk -> how it was written in full; disks of nested guests are written in their outer VM's
        first boot.
        """
        nested = self.carrier_disks[0].first_write if self.carrier_disks else None
        return {**self.written, **({"nested": nested} if nested else {})}

    @property
    def lead(self) -> int:
        """The value of Site.lead for all its sites, even for one that works alone: what is compared must be done in the
        same way.
        """
        if guests_at_once(self.plan) == 1:
            return 0
        if self.host_emulated or (self.emulated and "nested" in self.plan.layers):
            return round(EMULATED_KVM_LEAD_SECONDS * guests_at_once(self.plan))
        return EMULATED_LEAD_SECONDS if self.emulated else LEAD_SECONDS

    def peer_servers(self, number: int = 1) -> list[PeerServer]:
        """Those that serve one machine's network tests: a server left busy by a dying guest must not serve the next
        guest.

        `number`: of the machine, among those that are measured at once; each has its own servers.
        """
        commands = [workload for workload in self.workloads if isinstance(workload, Command)]
        return [server for one in commands for server in one.servers(PEER_ADDRESS, port(number), self.access)]

    def at_peer(self, argv: Sequence[str], capabilities: tuple[str, ...], room: int | None = None) -> tuple[str, ...]:
        """The command line that runs a command of the image at the network peer, with those capabilities of root's;
        `room`: as in `enter_tree`.
        """
        assert self.network is not None
        userland = enter_tree(self.network.tree, root=True, network=True, capabilities=capabilities, room=room)
        return ("ip", "netns", "exec", self.network.peer, *userland, "--", *argv)

    def watch(self, argv: Sequence[str]) -> Process:
        """Start a command that exchanges packets with a guest, at the network peer."""
        assert self.network is not None
        return self.network.at.start(*self.at_peer(argv, ("CAP_NET_RAW",)))

    def kernel_userland(self, sets: Sets = ONE) -> tuple[str, ...] | None:
        """The command that enters the kernel pack on the host, on the CPUs of `sets`; None: the host builds none."""
        if self.kernel_pack is None or self.kernel_pack.mount is None:
            return None
        return (*self.kept(sets), *enter_tree(self.kernel_pack.mount, root=self.is_root))

    def host_link(self, number: int = 1, sets: Sets = ONE) -> Link | None:
        """The link to the peer for one set of processes on the host; without root, both ends are on a private
        loopback.
        """
        if self.link is not None:
            return self.link
        if not self.networked:
            return None
        if self.network is not None:
            enter = self.userland(namespace=self.network.end, sets=sets)
            return Link(self.host, enter, PEER_ADDRESS, port(number))
        return Link(self.host, (*self.userland(sets=sets), *WITH_SERVER), "127.0.0.1", PORT)


def port(number: int) -> int:
    """Port of iperf3's server at the peer for the machine of that number, from 1."""
    return PORT + number - 1
