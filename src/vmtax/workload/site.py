"""Where a workload runs: a machine, the way into the common userland on it, its disk and its network."""

from __future__ import annotations

from dataclasses import dataclass

from vmtax.core.machines import Machine


@dataclass(frozen=True, slots=True)
class Link:
    """How a client reaches its server. The client is on the layer or, if the layer cannot call out, at the peer."""

    machine: Machine  # where the client runs
    prefix: tuple[str, ...]  # enters the userland there
    address: str  # of the server
    port: int
    at_peer: bool = False  # True: the server is on the layer and the client is at the peer (user networking)


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
    link: Link | None = None  # to the network peer; None: the network is not measured here
    # Seconds of the same work before and after the time that counts, because machines do not start at exactly the same
    # time
    lead: int = 0


def link_of(site: Site) -> Link:
    """The link to the peer. Raises ValueError if there is none."""
    if site.link is None:
        raise ValueError(f"{site.machine.path} has no network peer")
    return site.link
