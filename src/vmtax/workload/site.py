"""Where a workload runs: a machine, the way into the common userland on it, its disk and its network."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from vmtax.core.machines import Machine

# Ends a server that neither vmtax nor its guard could end; no boot is measured for as long.
TIMED = ("timeout", "-k", "5", "86400")


@dataclass(frozen=True, slots=True)
class Access:
    """What a client of this run must know to use its servers; for standard inputs alone, and never shown or stored."""

    user: str = field(repr=False)
    password: str = field(repr=False)

    @staticmethod
    def random() -> Access:
        return Access(f"u{secrets.token_hex(8)}", secrets.token_hex(16))

    @property
    def line(self) -> str:
        return f"{self.user} {self.password}\n"


@dataclass(frozen=True, slots=True)
class PeerServer:
    """A server at the peer, for one machine."""

    argv: tuple[str, ...]  # inside the userland
    input: str = field(default="", repr=False)  # for its standard input
    answers: bool = False  # prints a line when it is ready, which its client needs
    room: int | None = None  # bytes of files that it keeps in memory; None: it keeps none for a client
    memory: int | None = None  # bytes that it may have altogether, where memory cgroups are
    capabilities: tuple[str, ...] = ()  # of root's that it needs


@dataclass(frozen=True, slots=True)
class Link:
    """How a client reaches its server. The client is on the layer or, if the layer cannot call out, at the peer."""

    machine: Machine  # where the client runs
    prefix: tuple[str, ...]  # enters the userland there
    address: str  # of the server
    port: int
    at_peer: bool = False  # True: the server is on the layer and the client is at the peer (user networking)
    access: Access | None = None
    answer: str = ""  # what the one of its servers that answers said when it was ready


@dataclass(frozen=True, slots=True)
class Site:
    """One booted layer, ready to run workloads."""

    machine: Machine
    layer: str  # of core/layers.py
    vcpus: int
    prefix: tuple[str, ...]  # enters the image: bubblewrap on a host, nothing in a guest
    disk: str | None = None  # file or block device under test, as named inside the userland
    fresh_disk: str | None = None  # another disk, never written and made for this boot
    # Prefix that enters its userland, without the "--"; None: no kernel is built here
    kernel_pack: tuple[str, ...] | None = None
    directory: str | None = None  # one on the disk under test, made for this boot, with what its workload finds there
    link: Link | None = None  # to the network peer; None: the network is not measured here
    # Seconds of the same work before and after the time that counts, because machines do not start at exactly the same
    # time
    lead: int = 0


def link_of(site: Site) -> Link:
    """The link to the peer. Raises ValueError if there is none."""
    if site.link is None:
        raise ValueError(f"{site.machine.path} has no network peer")
    return site.link
